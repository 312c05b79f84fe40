//! The queues of submissions: one for the writing lanes, one for the claims, and the parked claims.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tenure_core::Reply;
use tokio::{sync::Notify, time::Instant};

use crate::{
    Error, LedgerReply,
    job::{Job, Payloads},
};

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Job>,
    /// The number of jobs that lanes are working on.
    busy: usize,
    closed: bool,
}

impl Inner {
    /// True if there is at least half of what other lanes are working on. A small group costs nearly as much as a large
    /// one and takes time from the others; while they are busy, it grows.
    fn is_worth_a_group(&self) -> bool {
        !self.waiting.is_empty() && (self.waiting.len() * 2 >= self.busy || self.closed)
    }
}

#[derive(Default)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    news: Notify,
}

impl Queue {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, job: Job) {
        let mut inner = self.inner();
        if inner.closed {
            drop(inner);
            return job.answer(Err(Error::Unavailable("the ledger is closed".to_owned())));
        }
        inner.waiting.push_back(job);
        let worth = inner.is_worth_a_group();
        drop(inner);
        if worth {
            self.news.notify_one();
        }
    }

    /// Wakes a waiting lane, even if there are no jobs.
    pub fn nudge(&self) {
        self.news.notify_one();
    }

    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// At most `max` claims, which together ask for no more than about `works` work items; always at least one.
    pub fn take_claims(&self, max: usize, works: usize) -> Vec<Job> {
        let mut inner = self.inner();
        let mut asked = 0;
        let fits = |job: &&Job| {
            let fits = asked < works;
            asked += job.claim_filter().map_or(0, |filter| filter.max);
            fits
        };
        let count = inner.waiting.iter().take(max).take_while(fits).count();
        let jobs = inner.waiting.drain(..count).collect();
        if !inner.waiting.is_empty() {
            self.news.notify_one();
        }
        jobs
    }

    /// The queued jobs, as soon as they are worth a group. None: closed and empty.
    pub async fn take(&self, max: usize) -> Option<Vec<Job>> {
        loop {
            if let Some(jobs) = self.try_take(max) {
                // The next lane must see the remaining jobs, or that the queue is closed.
                self.nudge_if_worth();
                return Some(jobs).filter(|jobs| !jobs.is_empty());
            }
            self.news.notified().await;
        }
    }

    /// None: not yet. Empty: closed.
    fn try_take(&self, max: usize) -> Option<Vec<Job>> {
        let mut inner = self.inner();
        if inner.is_worth_a_group() {
            let count = inner.waiting.len().min(max);
            inner.busy += count;
            return Some(inner.waiting.drain(..count).collect());
        }
        inner.closed.then(Vec::new)
    }

    /// A lane has finished so many jobs, which may make the rest worth a group.
    pub fn done(&self, count: usize) {
        let mut inner = self.inner();
        inner.busy -= count;
        drop(inner);
        self.nudge_if_worth();
    }

    fn nudge_if_worth(&self) {
        let inner = self.inner();
        if inner.closed || inner.is_worth_a_group() {
            self.news.notify_one();
        }
    }

    pub fn len(&self) -> usize {
        self.inner().waiting.len()
    }

    pub fn is_closed(&self) -> bool {
        self.inner().closed
    }

    pub fn close(&self) {
        self.inner().closed = true;
        self.news.notify_one();
    }
}

/// Claims that found nothing and may wait. The lane that serves one takes it out first, so that only one lane serves
/// it.
#[derive(Default)]
pub(super) struct Parked(Mutex<Inner>);

impl Parked {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_empty(&self) -> bool {
        self.inner().waiting.is_empty()
    }

    pub fn put(&self, job: Job) {
        let mut inner = self.inner();
        if inner.closed {
            return job.answer(Ok(nothing()));
        }
        inner.waiting.push_back(job);
    }

    /// Takes at most `max`, oldest first.
    pub fn take(&self, max: usize, wanted: impl Fn(&Job) -> bool) -> Vec<Job> {
        let mut inner = self.inner();
        if inner.waiting.is_empty() {
            return Vec::new();
        }
        let mut taken = Vec::new();
        let mut left = VecDeque::with_capacity(inner.waiting.len());
        for job in inner.waiting.drain(..) {
            if job.abandoned() {
                continue;
            }
            if taken.len() < max && wanted(&job) { taken.push(job) } else { left.push_back(job) }
        }
        inner.waiting = left;
        taken
    }

    /// Returns claims to the front, because they have waited longest.
    pub fn put_back(&self, jobs: Vec<Job>) {
        let mut inner = self.inner();
        if inner.closed {
            return jobs.into_iter().for_each(|job| job.answer(Ok(nothing())));
        }
        jobs.into_iter().rev().for_each(|job| inner.waiting.push_front(job));
    }

    /// Ends the waiting: these claims, and later ones, get nothing.
    pub fn close(&self) {
        let mut inner = self.inner();
        inner.closed = true;
        inner.waiting.drain(..).for_each(|job| job.answer(Ok(nothing())));
    }

    /// Replies to claims whose time is over, and returns the next deadline.
    pub fn expire(&self) -> Option<Instant> {
        let now = Instant::now();
        let late = self.take(usize::MAX, |job| job.park_until.is_none_or(|until| until <= now));
        late.into_iter().for_each(|job| job.answer(Ok(nothing())));
        self.inner().waiting.iter().filter_map(|job| job.park_until).min()
    }
}

pub(super) fn nothing() -> LedgerReply {
    LedgerReply { reply: Reply::Claimed(Vec::new()), payloads: Payloads::new() }
}
