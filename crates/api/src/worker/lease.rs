//! A held lease in the loop's own time: until when it counts, and when to renew it.

use std::{sync::PoisonError, time::Duration};

use tokio::{task::AbortHandle, time::Instant};

use super::Job;
use crate::wire::{Disposition, Grant, RenewLease};

/// Where the handler stands.
pub(super) enum Stage {
    /// The grant was too long on its way: a renewal must confirm it before anything is started.
    Unconfirmed,
    Running(AbortHandle),
    /// The handler has ended; how it did is being told.
    Delivering,
}

pub(super) struct Held {
    pub job: Job,
    pub stage: Stage,
    /// It counts until then: ttl after the last confirmed renewal, or the claim, was sent.
    pub valid_until: Instant,
    pub renew_at: Instant,
    /// The ledger asked for a cancel, as opposed to a drain.
    pub cancel_requested: bool,
}

impl Held {
    /// A lease from a claim that was sent at `sent`.
    pub fn new(job: Job, sent: Instant, now: Instant) -> Self {
        let valid_until = sent + ttl(&job.grant);
        let mut held =
            Self { job, stage: Stage::Unconfirmed, valid_until, renew_at: now, cancel_requested: false };
        if held.is_fresh(now) {
            held.renew_at = (now + held.renew()).min(valid_until - held.renew());
        }
        held
    }

    /// Far enough from its end for a handler to be started on it.
    pub fn is_fresh(&self, now: Instant) -> bool {
        now + self.renew() <= self.valid_until
    }

    /// When its handler must be stopped. What is not running can do no harm.
    pub fn stops_at(&self) -> Option<Instant> {
        matches!(self.stage, Stage::Running(_)).then_some(self.valid_until)
    }

    pub fn renew(&self) -> Duration {
        Duration::from_millis(self.job.grant.renew_ms.max(1))
    }

    /// A renewal that was sent at `sent` is confirmed.
    pub fn renewed(&mut self, sent: Instant) {
        self.valid_until = self.valid_until.max(sent + ttl(&self.job.grant));
    }

    /// Whether only this incarnation can know how it ends: such work cannot be handed back.
    pub fn is_bound(&self, defer_start: bool) -> bool {
        let work = &self.job.grant.work;
        work.disposition == Disposition::OwnerBound && (!defer_start || work.first_started.is_some())
    }

    /// What to send to renew it, with the progress that still has room.
    pub fn renewal(&self, room: &mut usize) -> RenewLease {
        let mut note = self.job.note.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = note.as_ref().map_or(0, |note| note.to_string().len());
        let progress = if bytes <= *room { note.take() } else { None };
        *room -= progress.as_ref().map_or(0, |_| bytes);
        RenewLease {
            id: self.job.id().clone(),
            fence: self.job.grant.fence,
            token: self.job.grant.token.clone(),
            progress,
        }
    }
}

fn ttl(grant: &Grant) -> Duration {
    Duration::from_millis(grant.ttl_ms)
}
