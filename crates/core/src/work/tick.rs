//! Tick: something may be due. The sweeper knows no rules; they are all here.

use std::sync::Arc;

use crate::{
    Millis, WorkId,
    command::{self, Command},
    decide::{Context, Decision},
    due::{self, harmless_to_cancel},
    event::{
        CancelProof, Cancelled, Deadline, Evidence, Fact, LeaseLapsed, Plain, Recovered, TimeoutMarked,
        WaitResolved, WaitTimedOut,
    },
    liveness::{self, Grade, Seen, Sighting},
    model::{ErrorClass, OnParentClose, OnTimeout, ReasonCode, Step, Wait, WaitState, Work},
    payload::Payload,
    records::{Change, Touch, referenced_work},
    recovery::{self, Doubt, RecoveryFacts, Verdict},
    refusal::Refusal,
    reply::{Reply, Ticked},
    retry,
    state::{State, waiting},
    work::{
        cancel, claim,
        draft::{Draft, Said},
        resolve::{end_wait, set_aside},
        wait::{earliest, end_of},
    },
};

/// The result of one look at the row.
pub(super) enum TickOutcome {
    Acted(Box<Draft>),
    Nothing,
    NotYet,
}

/// The sweeper's input: when it looked, how long it had watched by then, and what it observed.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    pub at: Millis,
    pub watched_ms: u64,
    pub sighting: Option<&'a Sighting>,
}

pub(crate) fn decide(cx: Context<'_>, id: WorkId, seen: Look<'_>) -> Result<Decision, Refusal> {
    let work = cx.work(id)?;
    match look(cx, work, seen)? {
        TickOutcome::Acted(draft) => draft.finish(|_| Reply::Ticked(Ticked::Acted)),
        TickOutcome::NotYet => Ok(Decision::unchanged(Reply::Ticked(Ticked::NotYet))),
        TickOutcome::Nothing => Ok(rearm(cx, work)),
    }
}

pub(super) fn look(cx: Context<'_>, work: &Work, seen: Look<'_>) -> Result<TickOutcome, Refusal> {
    if let Some(draft) = orphaned(cx, work)? {
        return acted(draft);
    }
    match work.state {
        State::Running => running(cx, work, seen),
        State::CancelRequested => cancelling(cx, work, seen),
        State::Queued => queued(cx, work),
        State::RetryScheduled => retrying(cx, work),
        State::Stalled => stalled(cx, work, seen.sighting),
        waiting!() => waiting(cx, work),
        State::Quarantined
        | State::Succeeded
        | State::CompletedWithWarnings
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Abandoned => Ok(TickOutcome::Nothing),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "every branch of `look` returns the same type")]
fn acted(draft: Draft) -> Result<TickOutcome, Refusal> {
    Ok(TickOutcome::Acted(Box::new(draft)))
}

/// Nothing was due: the due date is computed again from the row, and a lease that expires more than its ttl
/// from now (a clock went back) is shortened.
fn rearm(cx: Context<'_>, work: &Work) -> Decision {
    let mut work = work.clone();
    let ttl = work.spec.policy.lease.ttl_ms as Millis;
    let mut touch = Touch::Due;
    if let Some(lease) = &mut work.lease
        && lease.lapsed_at.is_none()
        && lease.expires_at > cx.now + ttl
    {
        lease.expires_at = cx.now + ttl;
        touch = Touch::Renewal;
    }
    // A date that has passed without effect (its session is busy) is looked at again, but not at once; an
    // earlier declared deadline still applies.
    let overall = work.spec.overall_at().filter(|at| *at > cx.now);
    let later = overall.map_or(cx.now + ttl, |at| at.min(cx.now + ttl));
    let next = due::next(&work, cx.now).map(|due| if due <= cx.now { later } else { due });
    let mut decision = Decision::unchanged(Reply::Ticked(Ticked::Nothing));
    if next != work.due_at || touch == Touch::Renewal {
        work.due_at = next;
        decision.changes.push(Change::Work { work: Arc::new(work), touch });
    }
    decision
}

fn passed(date: Option<Millis>, now: Millis) -> bool {
    date.is_some_and(|date| date <= now)
}

/// A child that ends with its parent.
fn orphaned(cx: Context<'_>, work: &Work) -> Result<Option<Draft>, Refusal> {
    let open = !work.state.is_terminal()
        && !matches!(work.state, State::Quarantined | State::CancelRequested)
        && work.body.cancel.is_none();
    if !open || work.spec.on_parent_close != OnParentClose::Cancel {
        return Ok(None);
    }
    let parent = work.spec.parent.and_then(|id| cx.records.peer(id));
    match parent.filter(|parent| parent.state.is_terminal()) {
        Some(parent) => {
            let reason = format!("its parent {} ended as {}", parent.id, parent.state);
            cancel::request(cx, work, &reason, cancel::DEADLINE_MS).map(Some)
        }
        None => Ok(None),
    }
}

/// A declared deadline ends the work item, or the attempt if a retry is declared harmless.
fn time_out(cx: Context<'_>, work: &Work, deadline: Deadline) -> Draft {
    let mut draft = Draft::new(cx, work);
    draft.cancel_waits(cx);
    let failures = work.body.failures + u32::from(deadline == Deadline::Execution);
    let retry_at = (deadline == Deadline::Execution && !work.owner_bound_started())
        .then(|| {
            retry::next_at(&work.spec.policy.retry, ErrorClass::Timeout, failures, None, cx.random(), cx.now)
        })
        .flatten();
    let doubtful = command::doubt(&draft.commands, cx.now).blocks_a_rerun();
    let (to, retry_at) = match retry_at {
        Some(_) if doubtful => (State::Stalled, None),
        Some(at) => (State::RetryScheduled, Some(at)),
        None => (State::TimedOut, None),
    };
    let message = match deadline {
        Deadline::Start => "nobody started it in time",
        Deadline::Execution => "the attempt ran longer than its execution timeout",
        Deadline::Overall => "it did not end before its overall deadline",
    };
    let fact = TimeoutMarked { deadline, failures, next_retry_at: retry_at };
    draft.say(to, Fact::TimeoutMarked(fact), Said { message: Some(message), ..Said::default() });
    if to == State::Stalled {
        recover(cx, &mut draft, Grade::Silent, &[]);
    }
    draft
}

fn queued(cx: Context<'_>, work: &Work) -> Result<TickOutcome, Refusal> {
    if passed(work.spec.overall_at(), cx.now) {
        return acted(time_out(cx, work, Deadline::Overall));
    }
    if work.attempt == 0 && passed(work.spec.start_at(), cx.now) {
        return acted(time_out(cx, work, Deadline::Start));
    }
    if passed(work.body.bound_until, cx.now) && session_is_free(cx, work) {
        let mut draft = Draft::new(cx, work);
        let message = "the incarnation that started it did not come back for it";
        let said = Said { message: Some(message), ..Said::default() };
        draft.say(State::Stalled, Fact::OwnerAbsent(Plain {}), said);
        recover(cx, &mut draft, Grade::Silent, &[]);
        return acted(draft);
    }
    Ok(TickOutcome::Nothing)
}

/// While another work item occupies the session, its owner cannot come back, and stalling would occupy it
/// twice.
fn session_is_free(cx: Context<'_>, work: &Work) -> bool {
    claim::session(cx, work).holder.is_none()
}

fn retrying(cx: Context<'_>, work: &Work) -> Result<TickOutcome, Refusal> {
    if passed(work.spec.overall_at(), cx.now) {
        return acted(time_out(cx, work, Deadline::Overall));
    }
    if passed(work.next_retry_at, cx.now) {
        let mut draft = Draft::new(cx, work);
        draft.emit(State::Queued, Fact::RetryDue(Plain {}));
        return acted(draft);
    }
    Ok(TickOutcome::Nothing)
}

/// A lease as judged by this sweeper.
enum Lapse {
    No,
    /// Past its date, but this sweeper had not watched for a whole ttl, or it was not past when it looked: a
    /// delay of its tick may have delayed the renewals as well.
    NotYet,
    Yes(Grade),
}

fn lapse(cx: Context<'_>, work: &Work, seen: Look<'_>) -> Lapse {
    let Some((grade, _)) = liveness::grade(work, seen.sighting, cx.now) else { return Lapse::No };
    if grade == Grade::Dead {
        return Lapse::Yes(grade);
    }
    if !passed(due::lapse_at(work), cx.now) {
        return Lapse::No;
    }
    if seen.watched_ms < work.spec.policy.lease.ttl_ms || !passed(due::lapse_at(work), seen.at) {
        return Lapse::NotYet;
    }
    Lapse::Yes(grade)
}

fn running(cx: Context<'_>, work: &Work, seen: Look<'_>) -> Result<TickOutcome, Refusal> {
    if passed(work.spec.overall_at(), cx.now) {
        return acted(time_out(cx, work, Deadline::Overall));
    }
    if passed(work.body.execution_at, cx.now) {
        return acted(time_out(cx, work, Deadline::Execution));
    }
    let grade = match lapse(cx, work, seen) {
        Lapse::No => return Ok(TickOutcome::Nothing),
        Lapse::NotYet => return Ok(TickOutcome::NotYet),
        Lapse::Yes(grade) => grade,
    };
    let mut draft = Draft::new(cx, work);
    let fact = LeaseLapsed {
        grade,
        expires_at: work.lease.as_ref().map_or(cx.now, |lease| lease.expires_at),
        watched_ms: seen.watched_ms,
        failures: work.body.failures + work.lapse_counts(),
        lapses: work.body.lapses + work.lapse_counts(),
    };
    let evidence = proof(seen.sighting, work);
    let message = lapse_message(work, grade);
    let said = Said { message: Some(&message), evidence: &evidence, ..Said::default() };
    draft.say(State::Stalled, Fact::LeaseLapsed(fact), said);
    recover(cx, &mut draft, grade, &[]);
    acted(draft)
}

fn lapse_message(work: &Work, grade: Grade) -> String {
    let holder = work.body.holder.as_ref().map_or("its holder", |holder| holder.id.as_str());
    match grade {
        Grade::Dead => format!("{holder} is gone: its process no longer exists"),
        Grade::Suspended => format!("{holder} is suspended and stopped renewing"),
        Grade::Alive | Grade::Silent => format!("{holder} stopped renewing"),
    }
}

fn proof(sighting: Option<&Sighting>, work: &Work) -> Vec<Evidence> {
    let fence = work.lease.as_ref().map(|lease| lease.fence);
    sighting
        .filter(|seen| Some(seen.fence) == fence && seen.seen != Seen::Running)
        .map(|seen| Evidence { kind: "process".to_owned(), reference: seen.detail.clone() })
        .into_iter()
        .collect()
}

/// The last completed step: where a rerunnable work item goes on.
fn checkpoint(steps: &[Step]) -> Option<&Step> {
    steps.iter().filter(|step| !step.voided && step.completed_at.is_some()).max_by_key(|step| step.ordinal)
}

/// The facts that recovery judges by, once the lease has lapsed.
pub(super) fn recovery_facts(
    work: &Work,
    commands: &[Command],
    steps: &[Step],
    grade: Grade,
    now: Millis,
) -> RecoveryFacts {
    RecoveryFacts {
        abandon_requested: work.body.abandon_request.is_some(),
        disposition: work.spec.disposition,
        started: work.started(),
        grade,
        on_expiry: work.spec.policy.on_expiry,
        doubt: command::doubt(commands, now),
        lapses: work.body.lapses,
        failures: work.body.failures,
        max_attempts: work.spec.policy.retry.max_attempts,
        has_checkpoint: checkpoint(steps).is_some(),
    }
}

/// From the lapse to the verdict, in the same tick.
pub(super) fn recover(cx: Context<'_>, draft: &mut Draft, grade: Grade, evidence: &[Evidence]) {
    let work = &draft.work;
    let steps = cx.records.steps.get(&work.id).map_or(&[][..], Vec::as_slice);
    let checkpoint = checkpoint(steps);
    let facts = recovery_facts(work, &draft.commands, steps, grade, cx.now);
    let (doubt, verdict) = (facts.doubt, recovery::verdict(&facts));
    let (to, reason, message) = match verdict {
        Verdict::Leave | Verdict::Reconcile => return,
        Verdict::Retry => {
            (State::Queued, None, "it is queued again: running it again is harmless".to_owned())
        }
        Verdict::Resume => {
            let name = checkpoint.map_or("", |step| step.name.as_str());
            (State::Queued, None, format!("it is queued again, to continue after step `{name}`"))
        }
        Verdict::Quarantine if doubt != Doubt::None => {
            (State::Quarantined, Some(ReasonCode::InDoubt), command::report(&draft.commands))
        }
        Verdict::Quarantine => (
            State::Quarantined,
            Some(ReasonCode::PoisonLapses),
            format!("it has lost {} holders in a row: a person must look", work.body.lapses),
        ),
        Verdict::Abandon => (State::Abandoned, None, abandoned(work)),
        Verdict::Fail => (State::Failed, None, format!("its {} attempts are exhausted", work.body.failures)),
        Verdict::TimeOut => {
            (State::TimedOut, None, "its lease lapsed, and it declared that as its end".to_owned())
        }
    };
    let from_step = checkpoint.filter(|_| verdict == Verdict::Resume).map(|step| step.name.clone());
    let fact = Recovered { verdict, grade, from_step, reason };
    draft.say(to, Fact::Recovered(fact), Said { message: Some(&message), evidence, ..Said::default() });
}

fn abandoned(work: &Work) -> String {
    match &work.body.abandon_request {
        Some(request) => format!(
            "{} asked to abandon it: {}",
            request.requested_by.label(),
            request.reason.as_deref().unwrap_or("(erased)")
        ),
        None => "its owner is gone, and only the owner could know how it ended".to_owned(),
    }
}

fn stalled(cx: Context<'_>, work: &Work, sighting: Option<&Sighting>) -> Result<TickOutcome, Refusal> {
    if passed(work.spec.overall_at(), cx.now) {
        return acted(time_out(cx, work, Deadline::Overall));
    }
    let grade = liveness::grade(work, sighting, cx.now).map_or(Grade::Silent, |(grade, _)| grade);
    let mut draft = Draft::new(cx, work);
    // It is stalled because of commands in doubt: once those are settled, recovery decides again.
    let settled = command::doubt(&draft.commands, cx.now) != Doubt::AllLookup;
    let news = grade == Grade::Dead || work.body.abandon_request.is_some() || settled;
    if !news {
        return Ok(TickOutcome::Nothing);
    }
    if work.body.cancel.is_some() && harmless_to_cancel(work) && work.body.abandon_request.is_none() {
        draft.emit(State::Cancelled, Fact::Cancelled(Cancelled::new(CancelProof::Lapsed)));
        return acted(draft);
    }
    recover(cx, &mut draft, grade, &proof(sighting, work));
    if draft.work.state == State::Stalled { Ok(TickOutcome::Nothing) } else { acted(draft) }
}

/// Nothing ends while the lease is valid; other deadlines are suspended.
fn cancelling(cx: Context<'_>, work: &Work, seen: Look<'_>) -> Result<TickOutcome, Refusal> {
    let grade = match lapse(cx, work, seen) {
        Lapse::No => return Ok(TickOutcome::Nothing),
        Lapse::NotYet => return Ok(TickOutcome::NotYet),
        Lapse::Yes(grade) => grade,
    };
    let evidence = proof(seen.sighting, work);
    let message = lapse_message(work, grade);
    let said = Said { message: Some(&message), evidence: &evidence, ..Said::default() };
    let mut draft = Draft::new(cx, work);
    if harmless_to_cancel(work) && work.body.abandon_request.is_none() {
        let fact = Fact::Cancelled(Cancelled::new(CancelProof::Lapsed));
        draft.say(State::Cancelled, fact, said);
        return acted(draft);
    }
    let deadline = work.body.cancel.as_ref().map(|cancel| cancel.deadline_at);
    if work.body.abandon_request.is_none() && !passed(deadline, cx.now) {
        return Ok(TickOutcome::Nothing);
    }
    let fact = Recovered { verdict: Verdict::Abandon, grade, from_step: None, reason: None };
    draft.say(State::Abandoned, Fact::Recovered(fact), said);
    acted(draft)
}

fn waiting(cx: Context<'_>, work: &Work) -> Result<TickOutcome, Refusal> {
    if passed(work.spec.overall_at(), cx.now) {
        return acted(time_out(cx, work, Deadline::Overall));
    }
    let waits = cx.records.waits.get(&work.id).map_or(&[][..], Vec::as_slice);
    let mut open: Vec<&Wait> = waits.iter().filter(|wait| wait.state == WaitState::Open).collect();
    open.sort_by_key(|wait| (wait.deadline_at.unwrap_or(Millis::MAX), wait.id));
    let ended = |wait: &&Wait| referenced_work(&wait.reference).and_then(|id| end_of(cx.records.peer(id)?));
    if let Some((wait, answer)) = open.iter().find_map(|wait| Some((*wait, ended(wait)?))) {
        return acted(answered(cx, work, wait, &answer));
    }
    match open.iter().find(|wait| passed(wait.deadline_at, cx.now)) {
        Some(wait) => acted(unanswered(cx, work, wait)),
        None => Ok(TickOutcome::Nothing),
    }
}

/// Answered by the end of the work item it waited for, or by its default.
fn answered(cx: Context<'_>, work: &Work, wait: &Wait, answer: &Payload) -> Draft {
    let mut draft = Draft::new(cx, work);
    let left = end_wait(cx, &mut draft, wait, WaitState::Answered, true);
    let fact = WaitResolved {
        wait: wait.id,
        reference: wait.reference.clone(),
        open: left.open,
        wait_due: left.wait_due,
        early: false,
        bytes: answer.bytes(),
        bound_until: left.bound_until,
    };
    draft.say(left.to, Fact::WaitResolved(fact), Said { payload: Some(answer), ..Said::default() });
    set_aside(cx, &mut draft);
    draft
}

/// A wait's deadline passed: its `on_timeout` decides what follows.
fn unanswered(cx: Context<'_>, work: &Work, wait: &Wait) -> Draft {
    let mut draft = Draft::new(cx, work);
    let said = Said { message: wait.detail.prompt.as_deref(), ..Said::default() };
    let on_timeout = match wait.detail.on_timeout {
        // Stored before defaults were refused for approvals: only a person's answer approves.
        OnTimeout::Default if wait.asks_approval() => OnTimeout::Escalate,
        on_timeout => on_timeout,
    };
    let mut fact = WaitTimedOut {
        wait: wait.id,
        reference: wait.reference.clone(),
        on_timeout,
        open: 0,
        wait_due: None,
        bound_until: None,
    };
    if on_timeout != OnTimeout::Escalate {
        command::waits::unanswered(cx, &mut draft, wait);
    }
    let end = match on_timeout {
        // A work item cannot succeed while a command is in doubt.
        OnTimeout::Warn if draft.work.body.commands.unsettled() > 0 => State::TimedOut,
        OnTimeout::TimeOut => State::TimedOut,
        OnTimeout::Fail => State::Failed,
        OnTimeout::Warn => State::CompletedWithWarnings,
        OnTimeout::Cancel => State::Cancelled,
        OnTimeout::Escalate => return escalated(cx, draft, wait, fact),
        OnTimeout::Default => {
            let left = end_wait(cx, &mut draft, wait, WaitState::TimedOut, true);
            fact.open = left.open;
            fact.wait_due = left.wait_due;
            fact.bound_until = left.bound_until;
            let said = Said { payload: wait.detail.default.as_ref(), ..Said::default() };
            draft.say(left.to, Fact::WaitTimedOut(fact), said);
            set_aside(cx, &mut draft);
            return draft;
        }
    };
    draft.cancel_other_waits(cx, Some(wait.id));
    draft.put_wait(Wait { state: WaitState::TimedOut, ended_at: Some(cx.now), ..wait.clone() });
    draft.say(end, Fact::WaitTimedOut(fact), said);
    draft
}

/// Keeps waiting: the deadline is extended by the wait's own duration, and an event says so.
fn escalated(cx: Context<'_>, mut draft: Draft, wait: &Wait, mut fact: WaitTimedOut) -> Draft {
    let again = wait.detail.timeout_ms.map(|ms| cx.now + ms.max(1) as Millis);
    let mut rearmed = Wait { deadline_at: again, ..wait.clone() };
    rearmed.detail.escalations += 1;
    let waits = cx.records.waits.get(&draft.work.id).map_or(&[][..], Vec::as_slice);
    let others = waits.iter().filter(|other| other.state == WaitState::Open && other.id != wait.id);
    fact.wait_due = earliest(others.chain(std::iter::once(&rearmed)));
    fact.open = draft.work.open_waits;
    let state = draft.work.state;
    let message = wait.detail.assignee.as_deref().map(|who| format!("{who} has not answered"));
    draft.put_wait(rearmed);
    draft.say(state, Fact::WaitEscalated(fact), Said { message: message.as_deref(), ..Said::default() });
    draft
}
