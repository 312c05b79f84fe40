//! Claim: one worker takes one work item, atomically, under a fence that only ever grows.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Millis,
    action::{Claim, ClaimBy, ClaimFilter, Claimant},
    decide::{Context, Decision},
    event::{CancelRequested, Claimed, Fact},
    limits,
    model::{Attempt, Disposition, Spec, WaitState, Work, Worker},
    payload::Digest,
    records::SessionView,
    refusal::{Code, Refusal},
    reply::{Grant, Reply},
    schedule::rfc3339,
    state::{State, waiting},
    work::{
        cancel,
        draft::{Draft, Said},
    },
};

pub(crate) fn decide(cx: Context<'_>, claim: &Claim) -> Result<Decision, Refusal> {
    claim.claimant.check()?;
    if let Some(given) =
        cx.records.requests.get(&claim.claimant.key(cx.submission)).filter(|given| !given.is_empty())
    {
        return Ok(again(cx, given));
    }
    match &claim.by {
        // The store selects first; a filter that selected nothing arrives unchanged.
        ClaimBy::Filter(filter) => {
            filter.check()?;
            Ok(Decision::unchanged(Reply::Claimed(Vec::new())))
        }
        ClaimBy::Ids(ids) => all(cx, &claim.claimant, ids),
        ClaimBy::Chosen(ids) => chosen(cx, &claim.claimant, ids),
    }
}

impl ClaimFilter {
    pub fn check(&self) -> Result<(), Refusal> {
        if self.max == 0 || self.max > limits::CLAIM_MAX {
            return Err(Refusal::new(
                Code::Invalid,
                format!("`max` is {}: claim between 1 and {} at once.", self.max, limits::CLAIM_MAX),
            ));
        }
        for (field, list) in [("sources", &self.sources), ("kinds", &self.kinds), ("tenants", &self.tenants)]
        {
            limits::count(field, list.len(), limits::CLAIM_MAX)?;
            list.iter().try_for_each(|name| limits::name(field, name))?;
        }
        Ok(())
    }

    /// Whether the filter accepts such a work item.
    pub fn matches(&self, spec: &Spec) -> bool {
        self.wants_queue(&spec.source.system, &spec.kind) && self.wants_tenant(&spec.tenant)
    }

    pub fn wants_queue(&self, system: &str, kind: &str) -> bool {
        admits(&self.sources, system) && admits(&self.kinds, kind)
    }

    pub fn wants_tenant(&self, tenant: &str) -> bool {
        admits(&self.tenants, tenant)
    }
}

/// An empty list does not restrict.
fn admits(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|admitted| admitted == name)
}

/// A repeated claim returns its leases that are still valid, and no new ones. If its work items have grown
/// too large for one reply, the last ones are left out: the worker that made them grow has their leases.
fn again(cx: Context<'_>, given: &[(crate::WorkId, u64)]) -> Decision {
    let still_held = |(id, fence): &(crate::WorkId, u64)| {
        let work = cx.work(*id).ok()?;
        (work.held_lease()?.fence == *fence).then_some(work)
    };
    let mut works: Vec<&Work> = given.iter().filter_map(still_held).collect();
    works.sort_by_key(|work| claim_order(work));
    let mut weight = 0;
    let light = |work: &&Work| {
        let fits = weight < limits::PAGE_BYTES;
        weight += work.weight();
        fits
    };
    let grants = works.into_iter().take_while(light).map(|work| grant(cx, work.clone())).collect();
    Decision::unchanged(Reply::Claimed(grants))
}

/// Given ids: all or nothing.
fn all(cx: Context<'_>, claimant: &Claimant, ids: &[crate::WorkId]) -> Result<Decision, Refusal> {
    limits::count("ids", ids.len(), limits::CLAIM_MAX)?;
    if ids.is_empty() {
        return Err(Refusal::new(Code::Invalid, "`ids` is empty: name what to claim, or claim by filter."));
    }
    let mut sessions = Vec::new();
    let mut weight = 0;
    for (i, id) in ids.iter().enumerate() {
        let work = cx.work(*id)?;
        claimable(work, &claimant.worker, &cx.submission.actor.id, session(cx, work))?;
        if ids[..i].contains(id) || work.spec.session_key().is_some_and(|key| sessions.contains(&key)) {
            return Err(Refusal::new(
                Code::Invalid,
                format!("{id} is named twice, or shares its session with another of `ids`. Claim one."),
            ));
        }
        sessions.extend(work.spec.session_key());
        // A single one may have any size.
        weight += work.weight();
        if i > 0 && weight > limits::PAGE_BYTES {
            return Err(Refusal::new(
                Code::Invalid,
                format!(
                    "The inputs, step results and answers of these work items have more than {} bytes. Claim \
                     the first {i} of them, then the rest.",
                    limits::PAGE_BYTES
                ),
            ));
        }
    }
    chosen(cx, claimant, ids)
}

/// The store's selection: each one that is still claimable, up to the size limit. The selection is checked,
/// never trusted.
fn chosen(cx: Context<'_>, claimant: &Claimant, ids: &[crate::WorkId]) -> Result<Decision, Refusal> {
    let mut decision = Decision::unchanged(Reply::Claimed(Vec::new()));
    // A work item and its attempt.
    decision.changes.reserve(2 * ids.len());
    decision.events.reserve(ids.len());
    let mut grants = Vec::with_capacity(ids.len());
    let mut sessions = Vec::new();
    let mut named = BTreeSet::new();
    let mut weight = 0;
    for id in ids.iter().filter(|id| named.insert(**id)) {
        if weight >= limits::PAGE_BYTES {
            break;
        }
        let Ok(work) = cx.work(*id) else { continue };
        let key = work.spec.session_key();
        if key.as_ref().is_some_and(|key| sessions.contains(key))
            || claimable(work, &claimant.worker, &cx.submission.actor.id, session(cx, work)).is_err()
        {
            continue;
        }
        sessions.extend(key);
        weight += work.weight();
        let mut draft = Draft::new(cx, work);
        take(cx, &mut draft, claimant);
        let one = draft.finish(|draft| Reply::Claimed(vec![grant(cx, (*draft.work).clone())]))?;
        decision.changes.extend(one.changes);
        decision.events.extend(one.events);
        if let Reply::Claimed(granted) = one.reply {
            grants.extend(granted);
        }
    }
    decision.reply = Reply::Claimed(grants);
    Ok(decision)
}

/// Priority, then age: the order in which work items are claimed.
pub fn claim_order(work: &Work) -> (i16, Millis, crate::WorkId) {
    (work.spec.priority, work.spec.created_at, work.id)
}

/// The order in which one claim takes work items: by priority, and within a priority in rounds with one work
/// item of each tenant. A tenant's own work items keep their order.
pub fn in_turns<'w>(mut works: Vec<&'w Work>, seed: &[u8; 16]) -> Vec<&'w Work> {
    works.sort_by_key(|work| claim_order(work));
    let mut given: BTreeMap<(&str, i16), u32> = BTreeMap::new();
    let mut order = Vec::with_capacity(works.len());
    for work in works {
        let (tenant, priority) = (work.spec.tenant.as_str(), work.spec.priority);
        let rank = given.entry((tenant, priority)).or_default();
        *rank += 1;
        order.push(((priority, *rank, place_in_turn(seed, tenant)), work));
    }
    order.sort_by_key(|(place, _)| *place);
    order.into_iter().map(|(_, work)| work).collect()
}

/// A tenant's place in each round of a claim. Each claim draws its own order, so that a worker that claims
/// one work item at a time serves all tenants equally often. The stores' SQL computes the same order.
pub fn place_in_turn(seed: &[u8; 16], tenant: &str) -> Digest {
    Digest::of([&seed[..], tenant.as_bytes()].concat())
}

/// Whether `worker` may claim this work item now for this actor. The stores' selections are checked against
/// it.
pub fn claimable(work: &Work, worker: &Worker, actor: &str, session: SessionView) -> Result<(), Refusal> {
    let owner = work.starter().map(|starter| starter.is(worker, actor));
    let returns = work.state == State::Stalled && owner == Some(true);
    match work.state {
        State::Queued => {}
        State::Stalled if returns => return Ok(()),
        State::Running | State::CancelRequested => return Err(held(work)),
        State::Stalled => return Err(stalled(work)),
        State::RetryScheduled | waiting!() | State::Quarantined => return Err(not_queued(work)),
        State::Succeeded
        | State::CompletedWithWarnings
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Abandoned => {
            return Err(Refusal::new(
                Code::Terminal,
                format!("{} has ended as {}. To run it again, rerun it.", work.id, work.state),
            ));
        }
    }
    if owner == Some(false) {
        return Err(Refusal::new(
            Code::OwnerBound,
            format!(
                "{} was started by another incarnation or under another credential, and only that owner may \
                 claim it.",
                work.id
            ),
        ));
    }
    if work.spec.session.is_some() {
        if let Some(holder) = session.holder.filter(|holder| *holder != work.id) {
            return Err(Refusal::new(
                Code::Busy,
                format!("{holder} holds the session of {}. Try again when it has ended.", work.id),
            ));
        }
        if session.head != Some(work.id) {
            return Err(Refusal::new(
                Code::Busy,
                format!("An older work item of the session of {} comes first. Claim that one.", work.id),
            ));
        }
    }
    Ok(())
}

fn held(work: &Work) -> Refusal {
    let holder = work.body.holder.as_ref().map_or("its owner", |holder| holder.id.as_str());
    let until = match &work.lease {
        Some(lease) => format!(" until {}, unless it renews", rfc3339(lease.expires_at)),
        None => String::new(),
    };
    let detail = format!("{} is {} and held by {holder}{until}. Try again later.", work.id, work.state);
    Refusal::new(Code::Busy, detail)
}

/// Its holder does not renew, and nobody but its owner may continue it.
fn stalled(work: &Work) -> Refusal {
    let holder = work.body.holder.as_ref().map(|holder| holder.id.as_str());
    let owner = holder.or_else(|| work.starter().map(|starter| &*starter.worker)).unwrap_or("its owner");
    let detail = format!(
        "{id} is stalled: {owner} has it and is silent, and recovery has not decided. Try again later; \
         `tenure explain {id}` says what it waits for.",
        id = work.id
    );
    Refusal::new(Code::Busy, detail)
}

fn not_queued(work: &Work) -> Refusal {
    let (id, state) = (work.id, work.state);
    let how = match (state, work.next_retry_at) {
        (State::Quarantined, _) => format!(
            "a person decides on it first. `tenure decide {id} requeue --reason …` queues it; `tenure \
             explain {id}` says why it was set aside."
        ),
        (State::RetryScheduled, Some(at)) => format!(
            "it is queued again at {}. Try again then; `tenure retry {id} --reason …` queues it now.",
            rfc3339(at)
        ),
        _ => format!("it is queued once it is answered. `tenure explain {id}` says who must answer."),
    };
    Refusal::new(Code::NotClaimable, format!("{id} is {state}: {how}"))
}

pub(super) fn session(cx: Context<'_>, work: &Work) -> SessionView {
    work.spec.session_key().and_then(|key| cx.records.sessions.get(&key)).copied().unwrap_or_default()
}

/// Records the claim. The caller has checked that it is allowed.
pub(super) fn take(cx: Context<'_>, draft: &mut Draft, claimant: &Claimant) {
    let now = draft.now;
    let policy = draft.work.spec.policy;
    let fence = cx.records.next_fence(draft.work.fence, now);
    let starts = draft.work.spec.disposition == Disposition::OwnerBound && !claimant.defer_start;
    let request = claimant.key(cx.submission);
    let claimed = Claimed {
        worker: claimant.worker.clone(),
        request,
        starts,
        expires_at: now + policy.lease.ttl_ms as Millis,
        execution_at: policy.timeouts.execution_ms.map(|ms| now + ms as Millis),
        supersedes: draft.work.lease.as_ref().map(|lease| lease.fence),
    };
    draft.claim(Fact::Claimed(claimed), fence);
    draft.begin_attempt(Attempt {
        work: draft.work.id,
        number: draft.work.attempt,
        fence,
        worker: claimant.worker.id.clone(),
        incarnation: claimant.worker.incarnation.clone(),
        request,
        claimed_at: now,
        end: None,
    });
    // A cancel that came while its owner was away is still pending: the owner is notified with the lease.
    if let Some(cancel) = draft.work.body.cancel.clone() {
        let deadline_at = cancel.deadline_at.max(now + cancel::DEADLINE_MS as Millis);
        let said = Said { message: cancel.reason.as_deref(), ..Said::default() };
        let fact = Fact::CancelRequested(CancelRequested { deadline_at });
        draft.say(State::CancelRequested, fact, said);
    }
}

/// A lease with everything that its holder needs to continue.
pub(crate) fn grant(cx: Context<'_>, work: Work) -> Grant {
    let steps = cx.records.steps.get(&work.id).map_or(&[][..], Vec::as_slice);
    let waits = cx.records.waits.get(&work.id).map_or(&[][..], Vec::as_slice);
    Grant {
        steps: steps.iter().filter(|step| !step.voided).cloned().collect(),
        answers: waits.iter().filter(|wait| wait.state != WaitState::Open).cloned().collect(),
        work,
    }
}
