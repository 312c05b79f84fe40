//! A submission on its way through a store.

use std::collections::HashMap;

use tenure_core::{Event, Grant, Payload, Reply, Submission, WorkId};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use tenure_core::{
    action::{Action, ClaimBy, ClaimFilter},
    model::Spec,
};
use tokio::{sync::oneshot, time::Instant};

use crate::{Error, fair::Turn, ledger::LedgerReply};

/// The maximum number of queues of one tenant that a claim reads. A queue is the claimable work items of one
/// tenant, kind and source system. A tenant with more queues has to name kinds in its claims.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const QUEUES_MAX: usize = 1_000;

/// Payloads by work item and event.
pub(crate) type Payloads = HashMap<(WorkId, u64), Payload>;

/// Payloads of events that are not stored.
pub(crate) fn payloads_of(events: Vec<Event>) -> impl Iterator<Item = ((WorkId, u64), Payload)> {
    events.into_iter().filter_map(|event| Some(((event.work, event.seq), event.payload?)))
}

/// The channel to the waiting caller.
type Replies = oneshot::Sender<Result<LedgerReply, Error>>;

pub(crate) struct Job {
    pub submission: Submission,
    /// Until when a claim that finds nothing waits.
    pub park_until: Option<Instant>,
    pub reply: Replies,
    /// Its place in the tenant's queue, kept until it has its reply.
    pub turn: Option<Turn>,
}

impl Job {
    pub fn new(submission: Submission, park_until: Option<Instant>, reply: Replies) -> Self {
        Self { submission, park_until, reply, turn: None }
    }

    /// The filter of a claim by filter. Such claims are decided after everything else in a batch.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub fn claim_filter(&self) -> Option<&ClaimFilter> {
        match &self.submission.action {
            Action::Claim(claim) => match &claim.by {
                ClaimBy::Filter(filter) => Some(filter),
                ClaimBy::Ids(_) | ClaimBy::Chosen(_) => None,
            },
            _ => None,
        }
    }

    /// Whether it is a claim by filter that matches such a work item.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub fn asks_for(&self, spec: &Spec) -> bool {
        self.claim_filter().is_some_and(|filter| filter.matches(spec)) && self.submission.reaches(spec)
    }

    /// The same claim with the selected work items.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub fn chosen(&self, ids: Vec<WorkId>) -> Submission {
        let mut submission = self.submission.clone();
        if let Action::Claim(claim) = &mut submission.action {
            claim.by = ClaimBy::Chosen(ids);
        }
        submission
    }

    /// The caller may have gone away: then the reply is dropped.
    pub fn answer(self, answer: Result<LedgerReply, Error>) {
        let _gone = self.reply.send(answer);
    }

    /// A long-polling claim whose caller has gone away must not take a lease.
    pub fn abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

/// A lease whose payloads have more bytes is heavy.
const LIGHT: usize = 64 * 1024;

/// The payloads that the store loads with a reply: those that this call itself wrote, inputs and arguments.
pub(crate) fn wanted(reply: &Reply) -> Vec<(WorkId, u64)> {
    let mut keys = Vec::new();
    if !is_heavy(reply) {
        keys.extend(grants(reply).iter().flat_map(of_grant));
    }
    match reply {
        Reply::Resolved { answers, .. } => {
            let first = answers.iter().filter(|answer| answer.first);
            keys.extend(first.filter_map(|answer| Some((answer.work, answer.seq?))));
        }
        Reply::Command { command, fresh, .. } => {
            // An existing command is shown with its receipt.
            let receipt =
                command.body.receipt.as_ref().filter(|receipt| !fresh || receipt.reused_from.is_some());
            keys.extend(receipt.and_then(|receipt| receipt.response));
        }
        Reply::Dispatch { command, refused } => {
            // The relay gets the arguments to send.
            if refused.is_none() && !command.is_worker() {
                keys.push((command.work, command.body.arguments));
            }
            keys.extend(command.body.receipt.as_ref().and_then(|receipt| receipt.response));
        }
        Reply::Ack(_)
        | Reply::Ingested { .. }
        | Reply::Claimed(_)
        | Reply::Renewed(_)
        | Reply::Step { .. }
        | Reply::Waiting { .. }
        | Reply::Ticked(_) => {}
    }
    keys
}

/// The payloads of a reply that its caller loads by itself: earlier payloads, and heavy leases. A store would
/// load them for all calls of a group at the same time.
pub(crate) fn left(reply: &Reply) -> Vec<(WorkId, u64)> {
    let mut keys = Vec::new();
    if is_heavy(reply) {
        keys.extend(grants(reply).iter().flat_map(of_grant));
    }
    match reply {
        Reply::Step { step, reused: true } => keys.extend(step.result),
        Reply::Waiting { answers, .. } => {
            keys.extend(answers.iter().filter_map(|wait| Some((wait.work, wait.answer_seq?))));
        }
        Reply::Resolved { answers, .. } => {
            let before = answers.iter().filter(|answer| !answer.first);
            keys.extend(before.filter_map(|answer| Some((answer.work, answer.seq?))));
        }
        Reply::Ack(_)
        | Reply::Ingested { .. }
        | Reply::Claimed(_)
        | Reply::Renewed(_)
        | Reply::Step { reused: false, .. }
        | Reply::Command { .. }
        | Reply::Dispatch { .. }
        | Reply::Ticked(_) => {}
    }
    keys
}

/// The bytes of the payloads of a reply's leases.
pub(crate) fn weight(reply: &Reply) -> usize {
    grants(reply).iter().map(|grant| grant.work.weight()).sum()
}

fn is_heavy(reply: &Reply) -> bool {
    weight(reply) > LIGHT
}

fn grants(reply: &Reply) -> &[Grant] {
    match reply {
        Reply::Claimed(grants) => grants,
        Reply::Ingested { grant, .. } | Reply::Resolved { grant, .. } | Reply::Command { grant, .. } => {
            grant.as_deref().map_or(&[], std::slice::from_ref)
        }
        Reply::Ack(_)
        | Reply::Renewed(_)
        | Reply::Step { .. }
        | Reply::Waiting { .. }
        | Reply::Dispatch { .. }
        | Reply::Ticked(_) => &[],
    }
}

fn of_grant(grant: &Grant) -> impl Iterator<Item = (WorkId, u64)> {
    let results = grant.steps.iter().filter_map(|step| step.result);
    let answers = grant.answers.iter().filter_map(|wait| Some((wait.work, wait.answer_seq?)));
    std::iter::once((grant.work.id, 1)).chain(results).chain(answers)
}
