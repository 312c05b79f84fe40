use crate::{Error, Options, store::Store};
use std::sync::Arc;
pub(crate) async fn open(_: &str, _: &Options) -> Result<Arc<dyn Store>, Error> {
    Err(Error::Unusable("being written".into()))
}
