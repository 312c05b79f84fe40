//! A submission on its way through a store.

use std::collections::HashMap;

use tenure_core::{
    Event, Grant, Payload, Reply, Submission, WorkId,
    action::{Action, ClaimBy, ClaimFilter},
    model::Spec,
};
use tokio::{sync::oneshot, time::Instant};

use crate::{Error, fair::Turn, ledger::LedgerReply};

/// Lanes of one tenant that a claim looks at: a lane is what is ready of one tenant, kind and source system. One that
/// has more of them names the kinds that it wants.
pub(crate) const QUEUES_MAX: usize = 1_000;

/// Payloads by work and event.
pub(crate) type Payloads = HashMap<(WorkId, u64), Payload>;

/// The payloads of events that are not stored.
pub(crate) fn payloads_of(events: Vec<Event>) -> impl Iterator<Item = ((WorkId, u64), Payload)> {
    events.into_iter().filter_map(|event| Some(((event.work, event.seq), event.payload?)))
}

/// Where its caller waits.
type Replies = oneshot::Sender<Result<LedgerReply, Error>>;

pub(crate) struct Job {
    pub submission: Submission,
    /// A claim that finds nothing waits until then.
    pub park_until: Option<Instant>,
    pub reply: Replies,
    /// Its place among those of its tenant, until it is answered.
    pub turn: Option<Turn>,
}

impl Job {
    pub fn new(submission: Submission, park_until: Option<Instant>, reply: Replies) -> Self {
        Self { submission, park_until, reply, turn: None }
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

    /// Whether it is a claim by filter that such a work could serve.
    pub fn asks_for(&self, spec: &Spec) -> bool {
        self.claim_filter().is_some_and(|filter| filter.matches(spec)) && self.submission.reaches(spec)
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
    pub fn answer(self, answer: Result<LedgerReply, Error>) {
        let _gone = self.reply.send(answer);
    }

    /// A parked claim whose asker has gone must not take a lease.
    pub fn abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

/// Leases that come with more bytes of payloads are heavy.
const LIGHT: usize = 64 * 1024;

/// The payloads that a reply shows, and that the store loads with it: what this very call wrote, inputs and arguments.
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
            // What was there before is shown with its receipt.
            let receipt =
                command.body.receipt.as_ref().filter(|receipt| !fresh || receipt.reused_from.is_some());
            keys.extend(receipt.and_then(|receipt| receipt.response));
        }
        Reply::Dispatch { command, refused } => {
            // The relay gets what it is to send.
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

/// The payloads that a reply shows, and that its caller reads in its turn: what was stored before, and heavy leases. A
/// store would load them for all calls of a group at once.
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

/// How heavy the leases of a reply are.
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
