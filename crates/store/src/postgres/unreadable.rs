//! Works on the queue that could not be read lately, and whether a part of the queue itself could not. Claims pass the
//! works over, and look again after a while: a person may have repaired them.

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

/// What a queue is called of which a page cannot be read. Claims that select what is on it fail.
pub(super) const QUEUE: &str = "the table ready, read for claims";

#[derive(Default)]
pub(super) struct Unreadable {
    works: Mutex<HashMap<WorkId, Instant>>,
    /// Until when the queue counts as damaged.
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

    /// A part of the queue could not be read just now.
    pub fn put_queue(&self) {
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PASSED_OVER);
    }

    /// Works that are passed over now. What has not failed for a while is no longer called damaged; such works are
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
