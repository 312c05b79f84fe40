//! Queued work items that could not be read lately, and whether a part of the queue itself is damaged. Claims skip
//! these work items, and try them again after a while, because a person may have repaired them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tenure_core::WorkId;
use tokio::time::Instant;

use crate::Error;

const PASSED_OVER: Duration = Duration::from_secs(60);

/// With more of them at the head of a queue, claims fail until a person has repaired it.
const MOST: usize = 1_000;

/// The name of the queue in reports of damage. Claims that select from a damaged page fail.
pub(super) const QUEUE: &str = "the table ready, read for claims";

#[derive(Default)]
pub(super) struct Unreadable {
    works: Mutex<HashMap<WorkId, Instant>>,
    /// Until when the queue is reported as damaged.
    queue: Mutex<Option<Instant>>,
}

impl Unreadable {
    pub fn put(&self, work: WorkId, error: &Error) {
        tracing::warn!(%work, %error, "a queued work could not be read; passed over");
        let mut works = self.works.lock().unwrap_or_else(PoisonError::into_inner);
        if works.len() < MOST {
            works.insert(work, Instant::now() + PASSED_OVER);
        }
    }

    /// A part of the queue could not be read.
    pub fn put_queue(&self) {
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PASSED_OVER);
    }

    /// The work items that are skipped now. The ones that have not failed for a while are no longer reported, and are
    /// tried again.
    pub fn known(&self, mut tried_again: impl FnMut(&str)) -> HashSet<WorkId> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.take_if(|until| *until <= Instant::now()).is_some() {
            tried_again(QUEUE);
        }
        let mut works = self.works.lock().unwrap_or_else(PoisonError::into_inner);
        if !works.is_empty() {
            let now = Instant::now();
            for (work, _) in works.extract_if(|_, until| *until <= now) {
                tried_again(&work.to_string());
            }
        }
        works.keys().copied().collect()
    }
}
