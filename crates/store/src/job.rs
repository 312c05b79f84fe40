//! A submission on its way through a store.

use std::collections::HashMap;

use tenure_core::{
    CommandState, Event, Payload, Reply, Submission, WorkId,
    action::{Action, ClaimBy, ClaimFilter},
};
use tokio::{sync::oneshot, time::Instant};

#[cfg(feature = "sqlite")]
use crate::ahead::Ahead;
use crate::{Error, ledger::Outcome};

/// Payloads by work and event.
pub(crate) type Payloads = HashMap<(WorkId, u64), Payload>;

/// The payloads of events that are not stored.
pub(crate) fn payloads_of(events: Vec<Event>) -> impl Iterator<Item = ((WorkId, u64), Payload)> {
    events.into_iter().filter_map(|event| Some(((event.work, event.seq), event.payload?)))
}

/// Where its caller waits.
type Replies = oneshot::Sender<Result<Outcome, Error>>;

pub(crate) struct Job {
    pub submission: Submission,
    /// A claim that finds nothing waits until then.
    pub park_until: Option<Instant>,
    /// What its caller has decided already.
    #[cfg(feature = "sqlite")]
    pub ahead: Option<Ahead>,
    pub reply: Replies,
}

impl Job {
    pub fn new(submission: Submission, park_until: Option<Instant>, reply: Replies) -> Self {
        Self {
            submission,
            park_until,
            #[cfg(feature = "sqlite")]
            ahead: None,
            reply,
        }
    }

    /// The filter of a claim by filter; such claims are decided after everything else in a batch.
    pub fn claim_filter(&self) -> Option<&ClaimFilter> {
        match &self.submission.action {
            Action::Claim(claim) => match &claim.by {
                ClaimBy::Filter(filter) => Some(filter),
                ClaimBy::Ids(_) | ClaimBy::Chosen(_) => None,
            },
            _ => None,
        }
    }

    /// The same claim for what was selected.
    pub fn chosen(&self, ids: Vec<WorkId>) -> Submission {
        let mut submission = self.submission.clone();
        if let Action::Claim(claim) = &mut submission.action {
            claim.by = ClaimBy::Chosen(ids);
        }
        submission
    }

    /// Whoever asked may have gone; then nobody is there to be told.
    pub fn answer(self, answer: Result<Outcome, Error>) {
        let _gone = self.reply.send(answer);
    }

    /// A parked claim whose asker has gone must not take a lease.
    pub fn abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

/// The payloads that a reply shows: inputs, step results, answers.
pub(crate) fn wanted(reply: &Reply) -> Vec<(WorkId, u64)> {
    let mut keys = Vec::new();
    let mut grant = |grant: &tenure_core::Grant| {
        keys.push((grant.work.id, 1));
        keys.extend(grant.steps.iter().filter_map(|step| step.result));
        keys.extend(grant.answers.iter().filter_map(|wait| Some((wait.work, wait.answer_seq?))));
    };
    match reply {
        Reply::Ingested { grant: Some(one), .. } => grant(one),
        Reply::Claimed(grants) => grants.iter().for_each(grant),
        Reply::Step { step, reused: true } => keys.extend(step.result),
        Reply::Waiting { answers, .. } => {
            keys.extend(answers.iter().filter_map(|wait| Some((wait.work, wait.answer_seq?))));
        }
        Reply::Resolved { answers, grant: granted, .. } => {
            granted.iter().for_each(|one| grant(one));
            keys.extend(answers.iter().filter_map(|answer| Some((answer.work, answer.seq?))));
        }
        Reply::Command { command, fresh, grant: granted } => {
            granted.iter().for_each(|one| grant(one));
            // What was there before is shown with its receipt; the relay gets what it is to send.
            if *fresh && !command.is_worker() && command.state == CommandState::Dispatched {
                keys.push((command.work, command.body.arguments));
            }
            let receipt =
                command.body.receipt.as_ref().filter(|receipt| !fresh || receipt.reused_from.is_some());
            keys.extend(receipt.and_then(|receipt| receipt.response));
        }
        Reply::Ack(_)
        | Reply::Ingested { grant: None, .. }
        | Reply::Renewed(_)
        | Reply::Step { reused: false, .. }
        | Reply::Ticked(_) => {}
    }
    keys
}
