//! Where submissions wait: one queue for the writing lanes, one for the claims, and the parked claims.

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
    /// Taken and not done.
    busy: usize,
    closed: bool,
}

impl Inner {
    /// At least half of what others are busy with. A small group costs nearly as much as a large one, and
    /// takes from the others their time; while they are busy, it grows.
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

    /// Wakes whoever waits for jobs, though there may be none.
    pub fn nudge(&self) {
        self.news.notify_one();
    }

    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Claims that are here, so many at most, and no more than ask for so many works together; one always.
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

    /// What is there, as soon as it is worth a group. None: closed, and nothing is left.
    pub async fn take(&self, max: usize) -> Option<Vec<Job>> {
        loop {
            if let Some(jobs) = self.try_take(max) {
                // The next lane has to see what is left, or that it is closed.
                self.nudge_if_worth();
                return Some(jobs).filter(|jobs| !jobs.is_empty());
            }
            self.news.notified().await;
        }
    }

    /// None: not yet. Nothing: closed.
    fn try_take(&self, max: usize) -> Option<Vec<Job>> {
        let mut inner = self.inner();
        if inner.is_worth_a_group() {
            let count = inner.waiting.len().min(max);
            inner.busy += count;
            return Some(inner.waiting.drain(..count).collect());
        }
        inner.closed.then(Vec::new)
    }

    /// So many of those taken are done: what was not worth a group may be now.
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

/// Claims that found nothing and may wait. Whoever serves one takes it out, so that only one does.
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

    /// Puts claims back in front: they have waited longest.
    pub fn put_back(&self, jobs: Vec<Job>) {
        let mut inner = self.inner();
        if inner.closed {
            return jobs.into_iter().for_each(|job| job.answer(Ok(nothing())));
        }
        jobs.into_iter().rev().for_each(|job| inner.waiting.push_front(job));
    }

    /// Nobody will look at them any more: those that are here, and those that come, are given nothing.
    pub fn close(&self) {
        let mut inner = self.inner();
        inner.closed = true;
        inner.waiting.drain(..).for_each(|job| job.answer(Ok(nothing())));
    }

    /// Answers those whose time is over, and tells when the next one's is.
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
