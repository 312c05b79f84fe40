//! Works that this process's claim lanes are about to give away. One lane selects at a time, and passes over
//! what the others have in hand: two would otherwise choose the same head of the queue.

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

/// What one lane has chosen; free again when it is dropped.
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
    /// What the other lanes have chosen.
    pub fn others(&self) -> HashSet<WorkId> {
        self.in_hand.works().clone()
    }

    /// Keeps what was chosen from the others.
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
