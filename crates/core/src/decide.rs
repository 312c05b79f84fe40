//! The only entry point: an action in, a decision or a refusal out.

use std::sync::Arc;

use crate::{
    Millis,
    action::{Action, Submission, check_evidence},
    command,
    event::Event,
    ids::WorkId,
    model::Work,
    records::{Change, Records},
    refusal::{Code, Refusal},
    reply::{Ack, Reply},
    work::{self, tick::Look},
};

pub use crate::work::claim::{claim_order, claimable, in_turns, place_in_turn};

/// The effects of an accepted action.
#[derive(Clone, Debug)]
pub struct Decision {
    pub changes: Vec<Change>,
    pub events: Vec<Event>,
    pub reply: Reply,
}

impl Decision {
    /// Nothing to write: a repeat or a read.
    pub fn unchanged(reply: Reply) -> Self {
        Self { changes: Vec::new(), events: Vec::new(), reply }
    }

    pub fn again(ack: Ack) -> Self {
        Self::unchanged(Reply::Ack(ack))
    }
}

/// The inputs of a decision.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub records: &'a Records,
    pub submission: &'a Submission,
    pub now: Millis,
}

impl<'a> Context<'a> {
    /// A work item that the caller may see. Work items of other tenants and kinds do not exist for it.
    pub fn work(&self, id: WorkId) -> Result<&'a Work, Refusal> {
        let work = self
            .records
            .works
            .get(&id)
            .map(Arc::as_ref)
            .filter(|work| self.submission.reaches(&work.spec))
            .ok_or_else(|| {
                Refusal::new(Code::NotFound, format!("There is no work item {id}. Check the id."))
            })?;
        match self.submission.if_seq {
            Some(seen) if seen != work.seq => Err(Refusal::new(
                Code::StateChanged,
                format!(
                    "The work item has changed since event {seen}: it is {} at event {}. Nothing was \
                     changed; read it again.",
                    work.state, work.seq
                ),
            )),
            Some(_) | None => Ok(work),
        }
    }

    /// Randomness for jitter.
    pub fn random(&self) -> u64 {
        let mut eight = [0; 8];
        eight.copy_from_slice(&self.submission.seed[..8]);
        u64::from_be_bytes(eight)
    }
}

/// Decides one submission over the loaded records at the store's time `now`. Pure.
pub fn decide(records: &Records, submission: &Submission, now: Millis) -> Result<Decision, Refusal> {
    let cx = Context { records, submission, now };
    check_evidence(&submission.evidence)?;
    match &submission.action {
        Action::Renew(renewals) => work::renew::decide(cx, renewals),
        Action::Accept { holder, strength } => work::accept::decide(cx, holder, *strength),
        Action::Progress { holder, progress, request_id } => {
            work::progress::decide(cx, holder, progress, request_id.as_deref())
        }
        Action::Step(step) => work::step::decide(cx, step),
        Action::Wait(wait) => work::wait::decide(cx, wait),
        Action::Fail(fail) => work::fail::decide(cx, fail),
        Action::Release { holder, message, usage } => {
            work::release::decide(cx, holder, message.as_deref(), usage)
        }
        Action::CloseOut { holder, close } => work::close_out::decide(cx, holder, close),
        Action::AbandonOwn { holder, reason, usage } => work::abandon::own(cx, holder, reason, usage),
        Action::Ingest(ingest) => work::ingest::decide(cx, ingest),
        Action::Claim(claim) => work::claim::decide(cx, claim),
        Action::Resolve(resolve) => work::resolve::decide(cx, resolve),
        Action::Complete { work, genuine, close } => work::complete::decide(cx, *work, *genuine, close),
        Action::Cancel { work, reason, deadline_ms } => work::cancel::decide(cx, *work, reason, *deadline_ms),
        Action::RequestAbandon { work, reason } => work::abandon::request(cx, *work, reason),
        Action::RequestRelease { work, reason } => work::release::request(cx, *work, reason),
        Action::Erase { work, reason } => work::erase::decide(cx, *work, reason),
        Action::RetryNow { work, reason } => work::retry_now::decide(cx, *work, reason),
        Action::Quarantine { work, reason } => work::quarantine::decide(cx, *work, reason),
        Action::Decide { work, reason, decision } => work::quarantine::person(cx, *work, reason, decision),
        Action::Rerun { of, id, from_step, execute, reason } => {
            work::rerun::decide(cx, *of, *id, from_step.as_deref(), execute, reason)
        }
        Action::Command(action) => command::decide(cx, action),
        Action::RevokeWaits { work, reason } => work::resolve::revoke(cx, *work, reason),
        Action::Recover(recover) => work::recover::decide(cx, recover),
        Action::Tick { work, looked_at, watched_ms, sighting } => {
            let look = Look { at: *looked_at, watched_ms: *watched_ms, sighting: sighting.as_ref() };
            work::tick::decide(cx, *work, look)
        }
    }
}
