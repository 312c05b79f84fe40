//! The work items that the claim lanes of this process are about to give away. One lane selects at a time and skips the
//! selection of the others: otherwise two lanes would choose the same head of the queue.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tenure_core::WorkId;

#[derive(Default)]
pub(super) struct Selections {
    turn: tokio::sync::Mutex<()>,
    works: Mutex<HashSet<WorkId>>,
}

/// The right to select.
pub(super) struct SelectionTurn<'a> {
    in_hand: &'a Selections,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

/// The selection of one lane. Dropping it releases the work items.
pub(super) struct SelectedWorks<'a> {
    in_hand: &'a Selections,
    works: Vec<WorkId>,
}

impl Selections {
    pub async fn turn(&self) -> SelectionTurn<'_> {
        SelectionTurn { in_hand: self, _turn: self.turn.lock().await }
    }

    fn works(&self) -> MutexGuard<'_, HashSet<WorkId>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> SelectionTurn<'a> {
    /// The selections of the other lanes.
    pub fn others(&self) -> HashSet<WorkId> {
        self.in_hand.works().clone()
    }

    /// Excludes the selected work items from other lanes' selections.
    pub fn hold(self, works: Vec<WorkId>) -> SelectedWorks<'a> {
        self.in_hand.works().extend(&works);
        SelectedWorks { in_hand: self.in_hand, works }
    }
}

impl SelectedWorks<'_> {
    pub fn works(&self) -> &[WorkId] {
        &self.works
    }
}

impl Drop for SelectedWorks<'_> {
    fn drop(&mut self) {
        let mut works = self.in_hand.works();
        self.works.iter().for_each(|id| {
            works.remove(id);
        });
    }
}
