//! Checks of what is in memory.

use tenure_core::{Wait, model::WaitState};

use super::Memory;
use crate::{
    Anchor,
    store::{CheckStore, SelfCheck, StoreFuture},
};

impl CheckStore for Memory {
    fn self_check(&self) -> StoreFuture<'_, SelfCheck> {
        self.ready(|inner| {
            let open = |waits: &[Wait]| waits.iter().filter(|w| w.state == WaitState::Open).count();
            inner
                .records
                .works
                .values()
                .filter(|work| {
                    let waits = inner.records.waits.get(&work.id).map_or(&[][..], Vec::as_slice);
                    open(waits) != work.open_waits as usize
                })
                .map(|work| format!("{} does not count its open waits right", work.id))
                .collect::<Vec<String>>()
                .into()
        })
    }

    fn anchor(&self) -> StoreFuture<'_, Anchor> {
        self.ready(|inner| inner.anchor)
    }

    fn set_anchor(&self, anchor: Anchor) -> StoreFuture<'_, ()> {
        self.change(|inner| {
            if inner.anchor.events < anchor.events {
                inner.anchor = anchor;
            }
        })
    }
}
