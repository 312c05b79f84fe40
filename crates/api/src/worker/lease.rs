//! A lease in the time of its holder: until when it is valid, and when to renew it.

use std::time::Duration;

use tokio::{task::AbortHandle, time::Instant};

use super::Job;
use crate::wire::{Disposition, Grant};

/// The delay before a renewal without a response is sent again.
pub(super) const RENEW_AGAIN: Duration = Duration::from_millis(100);

/// The progress that fits into one renewal, so that its body stays small; the rest is sent with the next one.
pub(super) const NOTES_BYTES: usize = 256 * 1024;

pub(super) struct LeaseTimer {
    ttl: Duration,
    /// The interval between renewals.
    pub renew: Duration,
    /// The lease is valid until then: ttl after the last confirmed renewal, or the claim, was sent.
    pub valid_until: Instant,
    pub renew_at: Instant,
}

impl LeaseTimer {
    /// A lease from a claim that was sent at `sent`.
    pub fn new(grant: &Grant, sent: Instant, now: Instant) -> Self {
        let ttl = Duration::from_millis(grant.ttl_ms);
        let renew = Duration::from_millis(grant.renew_ms.max(1));
        let mut timer = Self { ttl, renew, valid_until: sent + ttl, renew_at: now };
        if timer.is_fresh(now) {
            timer.renew_at = (now + renew).min(timer.valid_until - renew);
        }
        timer
    }

    /// Whether it is far enough from its end for a handler to be started.
    pub fn is_fresh(&self, now: Instant) -> bool {
        now + self.renew <= self.valid_until
    }

    /// A renewal that was sent at `sent` is confirmed.
    pub fn renewed(&mut self, sent: Instant) {
        self.valid_until = self.valid_until.max(sent + self.ttl);
    }

    /// A renewal got no response.
    pub fn renew_soon(&mut self) {
        self.renew_at = self.renew_at.min(Instant::now() + RENEW_AGAIN);
    }
}

/// The stage of a handler.
pub(super) enum Stage {
    /// The response to the claim took too long: a renewal must confirm the lease before the handler is
    /// started.
    Unconfirmed,
    Running(AbortHandle),
    /// The handler has ended; its outcome is being delivered.
    Delivering,
}

/// A work item that one of the loop's handlers works on.
pub(super) struct Handled {
    pub job: Job,
    pub stage: Stage,
    pub timer: LeaseTimer,
}

impl Handled {
    /// A lease from a claim that was sent at `sent`.
    pub fn new(job: Job, sent: Instant, now: Instant) -> Self {
        let timer = LeaseTimer::new(&job.grant, sent, now);
        Self { job, stage: Stage::Unconfirmed, timer }
    }

    /// When its handler must be stopped. Work whose handler is not running can do no harm.
    pub fn stops_at(&self) -> Option<Instant> {
        matches!(self.stage, Stage::Running(_)).then_some(self.timer.valid_until)
    }

    /// Whether only this incarnation can know how it ends: such work cannot be released.
    pub fn is_bound(&self, defer_start: bool) -> bool {
        let work = &self.job.grant.work;
        work.disposition == Disposition::OwnerBound && (!defer_start || work.first_started.is_some())
    }
}
