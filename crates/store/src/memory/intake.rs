//! The intake in memory.

use std::collections::BTreeMap;

use super::Memory;
use crate::{
    IntakeChange,
    store::{IntakeStore, StoreFuture},
};

impl IntakeStore for Memory {
    fn pauses(&self) -> StoreFuture<'_, Vec<IntakeChange>> {
        self.ready(|inner| {
            // The last change of each tenant, where it is a pause.
            let last: BTreeMap<&Option<String>, &IntakeChange> =
                inner.intake.iter().map(|change| (&change.tenant, change)).collect();
            last.into_values().filter(|change| change.paused).cloned().collect()
        })
    }

    fn change_intake<'a>(&'a self, change: &'a IntakeChange) -> StoreFuture<'a, ()> {
        self.change(|inner| inner.intake.push(change.clone()))
    }

    fn intake_changes(&self, limit: usize) -> StoreFuture<'_, Vec<IntakeChange>> {
        self.ready(|inner| inner.intake.iter().rev().take(limit).cloned().collect())
    }
}
