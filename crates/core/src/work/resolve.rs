//! Resolve: a wait is answered, once. An answer that comes first is kept for its wait.

use std::sync::Arc;

use crate::{
    Millis,
    action::{Claimant, Resolve, Target},
    command,
    decide::{Context, Decision},
    event::{ActorKind, Fact, WaitResolved, WaitsRevoked},
    limits,
    model::{Kept, Wait, WaitKind, WaitState, Work},
    payload::Payload,
    records::{Change, referenced_command, referenced_work},
    refusal::{Code, Refusal},
    reply::{Answer, Reply},
    state::State,
    work::{
        claim::{self, grant},
        draft::{Draft, Said},
        wait::{earliest, expired, shown},
        wrong_state,
    },
};

pub(crate) fn decide(cx: Context<'_>, resolve: &Resolve) -> Result<Decision, Refusal> {
    if let Some(claimant) = &resolve.claim {
        claimant.check()?;
    }
    match &resolve.target {
        Target::Reference { tenant, reference } => by_reference(cx, resolve, tenant, reference),
        Target::Wait { id, genuine } => by_id(cx, resolve, *id, *genuine),
    }
}

fn by_id(cx: Context<'_>, resolve: &Resolve, id: crate::WaitId, genuine: bool) -> Result<Decision, Refusal> {
    if !genuine && cx.submission.actor.kind != ActorKind::Person {
        return Err(Refusal::new(
            Code::TokenRefused,
            "The token does not open this wait. Use the one given when the wait was opened.",
        ));
    }
    let unknown = || Refusal::new(Code::NotFound, format!("There is no wait {id} here. Check the id."));
    let work = cx.work(*cx.records.wait_ids.get(&id).ok_or_else(unknown)?).map_err(|_| unknown())?;
    let wait = waits_of(cx, work).iter().find(|wait| wait.id == id).ok_or_else(unknown)?;
    if referenced_work(&wait.reference).is_some() || referenced_command(&wait.reference).is_some() {
        return Err(reserved(&wait.reference));
    }
    answer_all(cx, resolve, &[(work, wait)])
}

fn reserved(reference: &str) -> Refusal {
    Refusal::new(
        Code::ReferenceReserved,
        format!("`{reference}` is answered by that record itself, never by a call."),
    )
}

fn by_reference(
    cx: Context<'_>,
    resolve: &Resolve,
    tenant: &str,
    reference: &str,
) -> Result<Decision, Refusal> {
    limits::name("tenant", tenant)?;
    limits::reference("ref", reference)?;
    if !cx.submission.tenants.allow(tenant) {
        return Err(Refusal::new(Code::NotFound, format!("Tenant {tenant} is not one of yours.")));
    }
    if reference.starts_with("work:") || reference.starts_with("command:") {
        return Err(reserved(reference));
    }
    let key = (tenant.to_owned(), reference.to_owned());
    let works = cx.records.references.get(&key).map_or(&[][..], Vec::as_slice);
    let mut waits: Vec<(&Work, &Wait)> = works
        .iter()
        .filter_map(|id| cx.records.works.get(id).map(Arc::as_ref))
        .flat_map(|work| waits_of(cx, work).iter().map(move |wait| (work, wait)))
        .filter(|(_, wait)| wait.reference == reference)
        .collect();
    waits.sort_by_key(|(_, wait)| (wait.opened_at, wait.id));
    if waits.iter().any(|(_, wait)| wait.state == WaitState::Open) {
        waits.retain(|(_, wait)| wait.state == WaitState::Open);
        return answer_all(cx, resolve, &waits);
    }
    match waits.iter().rev().find(|(_, wait)| wait.answer_seq.is_some()) {
        Some(answered) => answer_all(cx, resolve, std::slice::from_ref(answered)),
        None => keep(cx, resolve, key),
    }
}

/// No wait yet: the answer is kept for it, once and not forever.
fn keep(cx: Context<'_>, resolve: &Resolve, key: (String, String)) -> Result<Decision, Refusal> {
    let reply = Reply::Resolved { answers: Vec::new(), kept: true, grant: None };
    let before = cx.records.kept.get(&key).and_then(Option::as_ref);
    if before.is_some_and(|kept| !expired(kept, cx.now)) {
        return Ok(Decision::unchanged(reply));
    }
    let count = cx.records.kept_counts.get(&key.0).copied().unwrap_or(0);
    if before.is_none() && count >= limits::KEPT_PER_TENANT {
        return Err(Refusal::new(
            Code::LimitReached,
            format!(
                "{count} early answers are kept for {} already. Answer again when the wait is open.",
                key.0
            ),
        ));
    }
    let kept = Kept {
        tenant: key.0,
        reference: key.1,
        payload: resolve.payload.clone(),
        actor: cx.submission.actor.clone(),
        approves: cx.submission.may_approve(),
        evidence: cx.submission.evidence.clone(),
        kept_at: cx.now,
    };
    Ok(Decision { changes: vec![Change::Keep(kept)], events: Vec::new(), reply })
}

fn waits_of<'a>(cx: Context<'a>, work: &Work) -> &'a [Wait] {
    cx.records.waits.get(&work.id).map_or(&[][..], Vec::as_slice)
}

fn answer_all(cx: Context<'_>, resolve: &Resolve, waits: &[(&Work, &Wait)]) -> Result<Decision, Refusal> {
    let mut decision = Decision::unchanged(Reply::Resolved { answers: Vec::new(), kept: false, grant: None });
    let mut answers = Vec::with_capacity(waits.len());
    let mut granted = None;
    for (work, wait) in waits {
        match wait.state {
            // Whoever opened it has its token: an agent must not approve its own doing.
            WaitState::Open if wait.kind == WaitKind::Approval && !cx.submission.may_approve() => {
                return Err(Refusal::new(
                    Code::PersonRequired,
                    "Only a person approves. Answer with a person's credential that may.",
                ));
            }
            WaitState::Open => {}
            // By somebody before, or by its default.
            _ if wait.answer_seq.is_some() => {
                answers.push(Answer { wait: wait.id, work: work.id, seq: wait.answer_seq, first: false });
                granted = granted.or_else(|| granted_before(cx, resolve.claim.as_ref(), work));
                continue;
            }
            WaitState::Answered => return Err(over(work, wait, "it was answered")),
            WaitState::TimedOut => return Err(over(work, wait, "its deadline passed")),
            WaitState::Cancelled => return Err(over(work, wait, "it was called off")),
        }
        let claim = resolve.claim.as_ref().filter(|_| granted.is_none());
        let (one, grant) = answer(cx, work, wait, &resolve.payload, claim)?;
        let seq = one.changes.iter().find_map(|change| match change {
            Change::Wait(ended) if ended.id == wait.id => ended.answer_seq,
            _ => None,
        });
        answers.push(Answer { wait: wait.id, work: work.id, seq, first: true });
        granted = granted.or(grant);
        decision.changes.extend(one.changes);
        decision.events.extend(one.events);
    }
    decision.reply = Reply::Resolved { answers, kept: false, grant: granted };
    Ok(decision)
}

fn over(work: &Work, wait: &Wait, how: &str) -> Refusal {
    Refusal::new(
        Code::IllegalState,
        format!(
            "The wait `{}` is over: {how}, and this answer was not used. Its work is {}: `tenure explain {}` \
             says how it stands.",
            wait.reference, work.state, work.id
        ),
    )
}

fn granted_before(
    cx: Context<'_>,
    claimant: Option<&Claimant>,
    work: &Work,
) -> Option<Box<crate::reply::Grant>> {
    let given = cx.records.requests.get(&claimant?.key(&cx.submission.tenants))?;
    let fence = work.held_lease()?.fence;
    given.contains(&(work.id, fence)).then(|| Box::new(grant(cx, work.clone())))
}

/// Answers one open wait, and lets the work go on when it was the last.
fn answer(
    cx: Context<'_>,
    work: &Work,
    wait: &Wait,
    payload: &Payload,
    claim: Option<&Claimant>,
) -> Result<(Decision, Option<Box<crate::reply::Grant>>), Refusal> {
    let mut draft = Draft::new(cx, work);
    command::waits::received(cx, &mut draft, wait);
    let left = end_wait(cx, &mut draft, wait, WaitState::Answered, true);
    let claimant = claim.filter(|claimant| {
        let queued = Work { state: State::Queued, ..work.clone() };
        let mut view = claim::session(cx, work);
        if view.head.is_none() && !view.unsure {
            view.head = Some(work.id);
        }
        left.open == 0 && claim::claimable(&queued, &claimant.worker, view).is_ok()
    });
    // Claimed in the same act, the work goes from waiting to running with the claim's own event.
    let to = if claimant.is_some() { work.state } else { left.to };
    let fact = WaitResolved {
        wait: wait.id,
        reference: wait.reference.clone(),
        open: left.open,
        wait_due: left.wait_due,
        early: false,
        bound_until: left.bound_until.filter(|_| claimant.is_none()),
    };
    draft.say(to, Fact::WaitResolved(fact), Said { payload: Some(payload), ..Said::default() });
    if let Some(claimant) = claimant {
        claim::take(cx, &mut draft, claimant);
    }
    let decision = draft.finish(|draft| Reply::Ack(draft.ack()))?;
    let grant = claimant.and_then(|_| match &decision.changes[0] {
        Change::Work { work, .. } => {
            let mut grant = grant(cx, (**work).clone());
            grant.answers.extend(decision.changes.iter().filter_map(|change| match change {
                Change::Wait(wait) => Some((**wait).clone()),
                _ => None,
            }));
            Some(Box::new(grant))
        }
        _ => None,
    });
    Ok((decision, grant))
}

/// What is left of a work's waits once one has ended.
pub(crate) struct Left {
    pub open: u32,
    pub wait_due: Option<Millis>,
    pub to: State,
    pub bound_until: Option<Millis>,
}

/// Ends one wait in the draft; the next event carries its answer.
pub(crate) fn end_wait(
    cx: Context<'_>,
    draft: &mut Draft,
    wait: &Wait,
    state: WaitState,
    answered: bool,
) -> Left {
    let others: Vec<&Wait> = waits_of(cx, &draft.work)
        .iter()
        .filter(|other| other.state == WaitState::Open && other.id != wait.id)
        .collect();
    let mut ended = Wait { state, ended_at: Some(draft.now), ..wait.clone() };
    if answered {
        ended.answer_seq = Some(draft.next_seq());
        ended.detail.answered_by = Some(cx.submission.actor.clone());
    }
    draft.put_wait(ended);
    Left {
        open: others.len() as u32,
        wait_due: earliest(others.iter().copied()),
        to: shown(others.iter().map(|wait| wait.kind)).unwrap_or(State::Queued),
        bound_until: others.is_empty().then(|| bound_until(draft)).flatten(),
    }
}

/// Started owner-bound work waits a while for its owner to come back.
pub(super) fn bound_until(draft: &Draft) -> Option<Millis> {
    let lease = draft.work.spec.policy.lease;
    draft.work.owner_bound_started().then(|| draft.now + (lease.ttl_ms + lease.grace_ms) as Millis)
}

/// Calls off every open wait; the work goes on and its worker sees them cancelled.
pub(crate) fn revoke(cx: Context<'_>, id: crate::WorkId, reason: &str) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    let work = cx.work(id)?;
    if !work.state.is_waiting() || work.open_waits == 0 {
        return Err(wrong_state(work, "revoking waits", "It has no open waits."));
    }
    let mut draft = Draft::new(cx, work);
    draft.cancel_waits(cx);
    let waits =
        waits_of(cx, work).iter().filter(|wait| wait.state == WaitState::Open).map(|wait| wait.id).collect();
    let fact = Fact::WaitsRevoked(WaitsRevoked { waits, bound_until: bound_until(&draft) });
    draft.say(State::Queued, fact, Said { message: Some(reason), ..Said::default() });
    draft.done()
}
