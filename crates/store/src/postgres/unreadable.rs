//! Works on the queue that could not be read lately. Claims pass them over, and look again after a while: a
//! person may have repaired them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tenure_core::WorkId;
use tokio::time::Instant;

use crate::Error;

const PASSED_OVER: Duration = Duration::from_secs(60);

/// More of them at the head of a queue are a case for a person, and not passed over.
const MOST: usize = 1_000;

#[derive(Default)]
pub(super) struct Unreadable(Mutex<HashMap<WorkId, Instant>>);

impl Unreadable {
    pub fn put(&self, work: WorkId, error: &Error) {
        tracing::warn!(%work, %error, "a queued work could not be read; passed over");
        let mut works = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if works.len() < MOST {
            works.insert(work, Instant::now() + PASSED_OVER);
        }
    }

    /// Those that are passed over now.
    pub fn known(&self) -> HashSet<WorkId> {
        let mut works = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !works.is_empty() {
            let now = Instant::now();
            works.retain(|_, until| *until > now);
        }
        works.keys().copied().collect()
    }
}
