//! Works that this process's claim lanes are about to give away. One lane selects at a time, and passes over
//! what the others have in hand: two would otherwise choose the same head of the queue.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tenure_core::WorkId;

#[derive(Default)]
pub(super) struct InHand {
    turn: tokio::sync::Mutex<()>,
    works: Mutex<HashSet<WorkId>>,
}

/// The right to select.
pub(super) struct Turn<'a> {
    in_hand: &'a InHand,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

/// What one lane has chosen; free again when it is dropped.
pub(super) struct Held<'a> {
    in_hand: &'a InHand,
    works: Vec<WorkId>,
}

impl InHand {
    pub async fn turn(&self) -> Turn<'_> {
        Turn { in_hand: self, _turn: self.turn.lock().await }
    }

    fn works(&self) -> MutexGuard<'_, HashSet<WorkId>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Turn<'a> {
    /// What the other lanes have chosen.
    pub fn others(&self) -> HashSet<WorkId> {
        self.in_hand.works().clone()
    }

    /// Keeps what was chosen from the others.
    pub fn hold(self, works: Vec<WorkId>) -> Held<'a> {
        self.in_hand.works().extend(&works);
        Held { in_hand: self.in_hand, works }
    }
}

impl Held<'_> {
    pub fn works(&self) -> &[WorkId] {
        &self.works
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut works = self.in_hand.works();
        self.works.iter().for_each(|id| {
            works.remove(id);
        });
    }
}
