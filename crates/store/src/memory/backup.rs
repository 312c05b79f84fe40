//! A ledger in memory cannot be copied.

use std::path::Path;

use tenure_core::{Code, Refusal};

use super::Memory;
use crate::store::{BackupStore, StoreFuture};

impl BackupStore for Memory {
    fn backup<'a>(&'a self, _: &'a Path) -> StoreFuture<'a, ()> {
        let detail = "A ledger in memory is gone with its process. Open one in a file to keep it.";
        Box::pin(std::future::ready(Err(Refusal::new(Code::Invalid, detail).into())))
    }
}
