//! Resolve: a wait is answered, once. An answer that comes before its wait is stored for it.

use std::sync::Arc;

use crate::{
    Millis,
    action::{Claimant, Kinds, Resolve, Target, TokenCheck},
    command::{self, Command, EvidenceKind, receipt},
    decide::{Context, Decision},
    event::{ActorKind, Fact, Quarantined, Recovered, WaitResolved, WaitsRevoked},
    limits,
    liveness::Grade,
    model::{Kept, ReasonCode, Wait, WaitState, Work},
    next::Next,
    payload::Digest,
    records::{Change, referenced_command, referenced_work},
    recovery::Verdict,
    refusal::{Code, Refusal},
    reply::{Reply, ResolvedWait},
    state::State,
    work::{
        claim::{self, grant},
        draft::{Draft, Said},
        tick::recover,
        wait::{earliest, expired, shown},
        wrong_state,
    },
};

pub(crate) fn decide(cx: Context<'_>, resolve: &Resolve) -> Result<Decision, Refusal> {
    if let Some(claimant) = &resolve.claim {
        claimant.check()?;
    }
    limits::filled_in("payload", resolve.payload.text().trim_matches('"'))?;
    match &resolve.target {
        Target::Reference { tenant, reference } => by_reference(cx, resolve, tenant, reference),
        Target::Wait { id, token, seal } => by_id(cx, resolve, *id, *token, *seal),
    }
}

fn by_id(
    cx: Context<'_>,
    resolve: &Resolve,
    id: crate::WaitId,
    token: TokenCheck,
    seal: Option<Digest>,
) -> Result<Decision, Refusal> {
    match token {
        TokenCheck::Genuine => {}
        TokenCheck::Absent if cx.submission.actor.kind == ActorKind::Person => {}
        TokenCheck::Absent | TokenCheck::Wrong => {
            return Err(Refusal::new(
                Code::TokenRefused,
                "The wait token is not valid for this wait. Use the one returned when the wait was opened.",
            ));
        }
    }
    let unknown = || Refusal::new(Code::NotFound, format!("There is no wait {id}. Check the id."));
    let work = cx.work(*cx.records.wait_ids.get(&id).ok_or_else(unknown)?).map_err(|_| unknown())?;
    let wait = waits_of(cx, work).iter().find(|wait| wait.id == id).ok_or_else(unknown)?;
    if referenced_work(&wait.reference).is_some() || referenced_command(&wait.reference).is_some() {
        return Err(reserved(&wait.reference));
    }
    if wait.asks_approval() {
        approves(cx, wait, seal)?;
    }
    receipt::answered_by_another(cx, waits_of(cx, work), wait)?;
    answer_all(cx, resolve, &[(work, wait)])
}

/// Only a person approves, and only the content that the person was shown.
fn approves(cx: Context<'_>, wait: &Wait, seal: Option<Digest>) -> Result<(), Refusal> {
    // The caller that opened it has its token, and an agent must not approve its own actions.
    if !cx.submission.may_approve() {
        return Err(Refusal::new(
            Code::PersonRequired,
            "Only a person may approve. Use the credential of a person that may approve.",
        ));
    }
    match seal {
        Some(shown) if shown == wait.seal() => Ok(()),
        Some(_) => Err(Refusal::new(
            Code::SealBroken,
            "The wait has changed since you were shown it: its work item, reference or prompt differs. Read \
             the wait again.",
        )),
        None => Err(Refusal::new(
            Code::SealBroken,
            "An approval is bound to what you were shown: read the wait, and send its `seal` with the answer.",
        )),
    }
}

fn approval_by_reference(reference: &str, wait: &Wait) -> Refusal {
    Refusal::new(
        Code::SealBroken,
        format!(
            "`{reference}` asks for an approval, which cannot be given by reference. Read {}, and answer it \
             by its id with its `seal`.",
            wait.id
        ),
    )
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
    limits::filled_in("ref", reference)?;
    if !cx.submission.tenants.allow(tenant) {
        return Err(Refusal::new(
            Code::NotFound,
            format!("Your credential is not valid for tenant {tenant}."),
        ));
    }
    if reference.starts_with("work:") || reference.starts_with("command:") {
        return Err(reserved(reference));
    }
    let key = (tenant.to_owned(), reference.to_owned());
    let works = cx.records.references.get(&key).map_or(&[][..], Vec::as_slice);
    let mut waits: Vec<(&Work, &Wait)> = works
        .iter()
        .filter_map(|id| cx.records.works.get(id).map(Arc::as_ref))
        .filter(|work| cx.submission.reaches(&work.spec))
        .flat_map(|work| waits_of(cx, work).iter().map(move |wait| (work, wait)))
        .filter(|(_, wait)| wait.reference == reference)
        .collect();
    waits.sort_by_key(|(_, wait)| (wait.opened_at, wait.id));
    let approval = waits.iter().find(|(_, wait)| wait.asks_approval() && wait.state == WaitState::Open);
    let approval = approval.map(|(_, wait)| *wait);
    waits.retain(|(_, wait)| !wait.asks_approval());
    if waits.iter().any(|(_, wait)| wait.state == WaitState::Open) {
        waits.retain(|(_, wait)| wait.state == WaitState::Open);
        return answer_all(cx, resolve, &waits);
    }
    // None is open, but the callback of a call in doubt is evidence for it.
    let late = |wait: &Wait| receipt::of_ended_wait(cx, wait).is_some();
    if waits.iter().any(|(_, wait)| late(wait)) {
        waits.retain(|(_, wait)| late(wait));
        return answer_all(cx, resolve, &waits);
    }
    let answered = waits.iter().rev().find(|(_, wait)| wait.answer_seq.is_some());
    for (work, wait) in answered.map_or(&waits[..], std::slice::from_ref) {
        receipt::answered_by_another(cx, waits_of(cx, work), wait)?;
    }
    match answered {
        Some(answered) => answer_all(cx, resolve, std::slice::from_ref(answered)),
        None => match approval {
            Some(wait) => Err(approval_by_reference(reference, wait)),
            None => keep(cx, resolve, key),
        },
    }
}

/// There is no wait yet: the answer is stored for it, once and for a limited time.
fn keep(cx: Context<'_>, resolve: &Resolve, key: (String, String)) -> Result<Decision, Refusal> {
    if cx.submission.kinds != Kinds::All {
        let detail = "No wait of your kinds is on this reference, and a stored answer could be used by \
         another kind. Answer when the wait is open.";
        return Err(Refusal::new(Code::NotFound, detail));
    }
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
                "{count} early answers are stored for {} already. Answer again when the wait is open.",
                key.0
            ),
        ));
    }
    let kept = Kept {
        tenant: key.0,
        reference: key.1,
        payload: resolve.payload.clone(),
        actor: cx.submission.actor.clone(),
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
        if let Some(command) = receipt::of_ended_wait(cx, wait) {
            answers.push(late(cx, &mut decision, resolve, (work, wait), command)?);
            continue;
        }
        match wait.state {
            WaitState::Open => {}
            // Answered before, or by its default.
            _ if wait.answer_seq.is_some() => {
                answers.push(ResolvedWait {
                    wait: wait.id,
                    work: work.id,
                    seq: wait.answer_seq,
                    first: false,
                });
                granted = granted.or_else(|| granted_before(cx, resolve.claim.as_ref(), work));
                continue;
            }
            WaitState::Answered => return Err(over(work, wait, "it was answered")),
            WaitState::TimedOut => return Err(over(work, wait, "its deadline passed")),
            WaitState::Cancelled => return Err(over(work, wait, "it was cancelled")),
        }
        let claim = resolve.claim.as_ref().filter(|_| granted.is_none());
        let (one, grant) = answer(cx, resolve, work, wait, claim)?;
        let seq = one.changes.iter().find_map(|change| match change {
            Change::Wait(ended) if ended.id == wait.id => ended.answer_seq,
            _ => None,
        });
        answers.push(ResolvedWait { wait: wait.id, work: work.id, seq, first: true });
        granted = granted.or(grant);
        decision.changes.extend(one.changes);
        decision.events.extend(one.events);
    }
    decision.reply = Reply::Resolved { answers, kept: false, grant: granted };
    Ok(decision)
}

/// The wait has ended, and its command takes the answer as its receipt: once, as only the first answer
/// counts.
fn late(
    cx: Context<'_>,
    decision: &mut Decision,
    resolve: &Resolve,
    (work, wait): (&Work, &Wait),
    command: &Command,
) -> Result<ResolvedWait, Refusal> {
    let answer = |seq, first| ResolvedWait { wait: wait.id, work: work.id, seq, first };
    if let Some(known) = receipt::receipt_of(command, wait) {
        return Ok(answer(known.response.map(|(_, seq)| seq), false));
    }
    let one = receipt::late(cx, work, wait, command, &resolve.payload, evidence(cx, resolve, wait)?)?;
    let succeeded = one.events.iter().find(|event| matches!(event.fact, Fact::CommandSucceeded(_)));
    let seq = succeeded.map(|event| event.seq);
    decision.changes.extend(one.changes);
    decision.events.extend(one.events);
    Ok(answer(seq, true))
}

/// The kind of evidence of an answer that is the receipt of its wait's command. The tool's callback has the
/// wait's token, or knows its reference. Any other answer of a person is that person's record.
fn evidence(cx: Context<'_>, resolve: &Resolve, wait: &Wait) -> Result<EvidenceKind, Refusal> {
    let token = matches!(resolve.target, Target::Wait { token: TokenCheck::Genuine, .. });
    if token || wait.detail.command.is_none() || cx.submission.actor.kind != ActorKind::Person {
        return Ok(EvidenceKind::Provider);
    }
    if cx.submission.replays {
        return Ok(EvidenceKind::Person);
    }
    Err(Refusal::new(
        Code::Forbidden,
        format!(
            "The answer to `{}` is the receipt of its command, and it came without the wait's token. Send \
             the token, or use a credential with `replay`.",
            wait.reference
        ),
    ))
}

fn over(work: &Work, wait: &Wait, how: &str) -> Refusal {
    Refusal::new(
        Code::IllegalState,
        format!(
            "The wait `{}` is over: {how}, and this answer was not used. Its work item is {}: `{}` \
             explains it.",
            wait.reference,
            work.state,
            Next::Explain(work.id)
        ),
    )
}

fn granted_before(
    cx: Context<'_>,
    claimant: Option<&Claimant>,
    work: &Work,
) -> Option<Box<crate::reply::Grant>> {
    let given = cx.records.requests.get(&claimant?.key(cx.submission))?;
    let fence = work.held_lease()?.fence;
    given.contains(&(work.id, fence)).then(|| Box::new(grant(cx, work.clone())))
}

/// Answers one open wait; if it was the last one, the work item continues.
fn answer(
    cx: Context<'_>,
    resolve: &Resolve,
    work: &Work,
    wait: &Wait,
    claim: Option<&Claimant>,
) -> Result<(Decision, Option<Box<crate::reply::Grant>>), Refusal> {
    // A small answer is always accepted: otherwise a work item at its limit could never be answered.
    if resolve.payload.text().len() > limits::LIGHT_BYTES {
        work.check_room("The answer", resolve.payload.bytes())?;
    }
    let mut draft = Draft::new(cx, work);
    command::waits::received(cx, &mut draft, wait, evidence(cx, resolve, wait)?);
    let left = end_wait(cx, &mut draft, wait, WaitState::Answered, true);
    let doubtful = command::doubt(&draft.commands, cx.now).blocks_a_rerun();
    let claimant = claim.filter(|claimant| {
        let queued = Work { state: State::Queued, ..work.clone() };
        let mut view = claim::session(cx, work);
        if view.head.is_none() && !view.unsure {
            view.head = Some(work.id);
        }
        left.open == 0
            && !doubtful
            && claim::claimable(&queued, &claimant.worker, &cx.submission.actor.id, view).is_ok()
    });
    // If it is claimed in the same transaction, the claim's own event moves it from waiting to running.
    let to = if claimant.is_some() { work.state } else { left.to };
    let fact = WaitResolved {
        wait: wait.id,
        reference: wait.reference.clone(),
        open: left.open,
        wait_due: left.wait_due,
        early: false,
        bytes: resolve.payload.bytes(),
        bound_until: left.bound_until.filter(|_| claimant.is_none()),
    };
    draft.say(to, Fact::WaitResolved(fact), Said { payload: Some(&resolve.payload), ..Said::default() });
    match claimant {
        Some(claimant) => claim::take(cx, &mut draft, claimant),
        None => set_aside(cx, &mut draft),
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

/// The remaining waits of a work item once one has ended.
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

/// Until when started owner-bound work waits for its owner to come back.
pub(super) fn bound_until(draft: &Draft) -> Option<Millis> {
    let lease = draft.work.spec.policy.lease;
    draft.work.owner_bound_started().then(|| draft.now + (lease.ttl_ms + lease.grace_ms) as Millis)
}

/// Cancels every open wait; the work item continues and its worker sees them as cancelled.
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
    set_aside(cx, &mut draft);
    draft.done()
}

/// The waits of a work item are over. With a command in doubt it is not queued: it is set aside as after a
/// lapse.
pub(crate) fn set_aside(cx: Context<'_>, draft: &mut Draft) {
    if draft.work.state != State::Queued || !command::doubt(&draft.commands, cx.now).blocks_a_rerun() {
        return;
    }
    let report = command::report(&draft.commands);
    let said = Said { message: Some(&report), ..Said::default() };
    let reason = ReasonCode::InDoubt;
    if claim::session(cx, &draft.work).holder.is_some_and(|holder| holder != draft.work.id) {
        // A stalled work item occupies its session, but another one does so already.
        draft.say(State::Quarantined, Fact::Quarantined(Quarantined { reason }), said);
        return;
    }
    let fact =
        Recovered { verdict: Verdict::Leave, grade: Grade::Silent, from_step: None, reason: Some(reason) };
    draft.say(State::Stalled, Fact::Recovered(fact), said);
    recover(cx, draft, Grade::Silent, &[]);
}
