use std::{path::Path, sync::Arc};
use crate::{Error, Options, store::Store};
pub(crate) fn open(_: &Path, _: &Options) -> Result<Arc<dyn Store>, Error> { Err(Error::Unusable("being written".into())) }
