use crate::{Error, Options, store::Store};
use std::{path::Path, sync::Arc};
pub(crate) fn open(_: &Path, _: &Options) -> Result<Arc<dyn Store>, Error> {
    Err(Error::Unusable("being written".into()))
}
