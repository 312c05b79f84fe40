//! Work items that are held for the whole run and used in turn, as raw does.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tenure_store::LeaseRef;

/// Every free submitter takes the next item, so that one group commit touches neighbours. If each submitter
/// cycled through items of its own, they would drift apart, and a group would dirty other pages than raw's
/// does.
#[derive(Clone)]
pub struct Turns {
    held: Arc<Vec<LeaseRef>>,
    next: Arc<AtomicUsize>,
}

impl Turns {
    pub fn new(held: Vec<LeaseRef>) -> Turns {
        Turns { held: Arc::new(held), next: Arc::default() }
    }

    pub fn next(&self) -> &LeaseRef {
        &self.held[self.next.fetch_add(1, Ordering::Relaxed) % self.held.len()]
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::WorkId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn all_submitters_go_round_together() {
        let lease = |n| LeaseRef { work: WorkId(Uuid::from_u128(n)), fence: 1, token: String::new() };
        let turns = Turns::new((0..3).map(lease).collect());
        let other = turns.clone();
        let works = [&turns, &other, &other, &turns].map(|turns| turns.next().work.0.as_u128());
        assert_eq!(works, [0, 1, 2, 0]);
    }
}
