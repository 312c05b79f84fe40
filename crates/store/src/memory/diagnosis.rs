//! A description of a ledger in memory.

use super::Memory;
use crate::{
    Diagnosis,
    store::{DiagnosisStore, StoreFuture},
};

impl DiagnosisStore for Memory {
    fn diagnosis(&self) -> StoreFuture<'_, Diagnosis> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.ready(|_| Diagnosis { engine: "memory", version, ..Diagnosis::default() })
    }
}
