//! Wait: a durable pause that occupies no worker. Several may be open; all must end before the work item
//! continues.

use std::sync::Arc;

use crate::{
    Millis,
    action::{Judged, WaitAction, WaitSpec},
    command::{self, Command, EvidenceKind},
    decide::{Context, Decision},
    event::{ActorKind, EarlyAnswerRefused, Fact, Unfit, WaitOpened, WaitResolved, WaitingSet},
    limits,
    model::{AttemptOutcome, Kept, OnTimeout, Wait, WaitDetail, WaitKind, WaitState, Work},
    payload::Payload,
    records::{Change, Touch, is_reserved, referenced_command, referenced_work},
    refusal::{Code, Refusal},
    reply::{Ack, Reply},
    state::{State, WAITING},
    usage,
    work::{
        HolderCheck, IfLapsed,
        draft::{Draft, Said},
        hold,
    },
};

pub(crate) fn decide(cx: Context<'_>, action: &WaitAction) -> Result<Decision, Refusal> {
    check(action)?;
    match hold(cx, &action.holder, IfLapsed::Revive)? {
        HolderCheck::Repeat(ack) => Ok(again(cx, ack)),
        HolderCheck::Current(draft) => open(cx, *draft, action),
    }
}

/// Repeats the first reply: of the waits that it named, those that had ended by then.
pub(super) fn again(cx: Context<'_>, ack: Ack) -> Decision {
    let waits = cx.records.waits.get(&ack.work).map_or(&[][..], Vec::as_slice);
    let by_then = |wait: &&Wait| {
        ack.waits.contains(&wait.id) && wait.answer_seq.is_some_and(|answered| answered <= ack.seq)
    };
    let answers = waits.iter().filter(by_then).cloned().collect();
    Decision::unchanged(Reply::Waiting { ack, answers })
}

pub(super) fn open(cx: Context<'_>, mut draft: Draft, action: &WaitAction) -> Result<Decision, Refusal> {
    if draft.work.state == State::CancelRequested {
        return Err(Refusal::new(
            Code::IllegalState,
            "A cancel of the work item was requested: it cannot start to wait. Release it, or close it out.",
        ));
    }
    let mut waits = cx.records.waits.get(&draft.work.id).cloned().unwrap_or_default();
    let mut new: Vec<&WaitSpec> = Vec::with_capacity(action.waits.len());
    for spec in &action.waits {
        match known(cx, &waits, spec) {
            Some(known) => same_question(known, spec)?,
            None => new.push(spec),
        }
    }
    command::waits::check(cx, &mut draft, &new, &action.waits)?;
    let mut named = Vec::with_capacity(action.waits.len());
    // By name, not by id: the identical action may come a second time.
    let mut opened = Vec::new();
    let mut early = Vec::new();
    let (mut bytes, mut of_answers) = (0, 0);
    for spec in &action.waits {
        if let Some(known) = known(cx, &waits, spec) {
            named.push(known.id);
            continue;
        }
        let wait = new_wait(&draft, spec)?;
        bytes += stored_bytes(spec);
        if let Some(answer) = answer_at_hand(cx, &mut draft, &wait, spec.judged.as_ref())? {
            of_answers += answer.payload.bytes();
            early.push((wait.id, answer));
        }
        named.push(wait.id);
        opened.push(wait.id);
        waits.push(wait);
    }
    if waits.len() > limits::WAITS_PER_WORK {
        return Err(Refusal::new(
            Code::LimitReached,
            format!("A work item has at most {} waits. Reuse a reference.", limits::WAITS_PER_WORK),
        ));
    }
    draft.work.check_room("The schemas, defaults and early answers of these waits", bytes + of_answers)?;
    if !opened.is_empty() {
        set(cx, &mut draft, action, &mut waits, &opened, &early, bytes);
    }
    let state = draft.work.state;
    let answers: Vec<Wait> = waits
        .iter()
        .filter(|wait| named.contains(&wait.id) && wait.state != WaitState::Open)
        .cloned()
        .collect();
    let new = waits.into_iter().filter(|wait| opened.contains(&wait.id));
    new.for_each(|wait| draft.put_wait(wait));
    let ack = Ack { waits: named, ..draft.ack() };
    if state.is_waiting() {
        draft = draft.ended(AttemptOutcome::Waited, ack.clone());
    } else if draft.is_untouched() {
        // Every answer was given before: nothing happens, however often it is requested.
        return Ok(Decision::unchanged(Reply::Waiting { ack, answers }));
    }
    draft.finish(|_| Reply::Waiting { ack, answers })
}

/// The current wait of a reference. A wait on a command was answered when the command could be dispatched: if
/// it no longer can, a new one is opened.
fn known<'a>(cx: Context<'_>, waits: &'a [Wait], spec: &WaitSpec) -> Option<&'a Wait> {
    let last = waits.iter().rfind(|wait| wait.reference == spec.reference)?;
    let command = referenced_command(&spec.reference).and_then(|id| cx.records.command(id));
    let answered = command.is_none_or(|command| command::waits::outcome(command).is_some());
    (answered || last.state == WaitState::Open).then_some(last)
}

/// An approval is bound to what was shown: it is returned only for the same question, and no other answer
/// approves.
fn same_question(known: &Wait, spec: &WaitSpec) -> Result<(), Refusal> {
    let detail = &known.detail;
    let same = (known.kind, &detail.prompt, &detail.schema, detail.command)
        == (spec.kind, &spec.prompt, &spec.schema, spec.command);
    let approval = [known.kind, spec.kind].contains(&WaitKind::Approval) && !is_reserved(&spec.reference);
    if same || !approval {
        return Ok(());
    }
    Err(Refusal::new(
        Code::IdempotencyMismatch,
        format!(
            "`{}` was asked before as {}, with another kind, prompt or schema, so its answer is not an \
             answer to this question. Ask the same question, or use another `ref`.",
            known.reference, known.id
        ),
    ))
}

/// The events: the waits are opened, then those with an early answer are resolved.
fn set(
    cx: Context<'_>,
    draft: &mut Draft,
    action: &WaitAction,
    waits: &mut [Wait],
    opened: &[crate::WaitId],
    early: &[(crate::WaitId, Early)],
    bytes: u32,
) {
    let is_open = |wait: &Wait| wait.state == WaitState::Open && !early.iter().any(|(id, _)| *id == wait.id);
    let still_open: Vec<&Wait> = waits.iter().filter(|wait| is_open(wait)).collect();
    let to = shown(still_open.iter().map(|wait| wait.kind)).unwrap_or(draft.work.state);
    let fact = WaitingSet {
        waits: opened
            .iter()
            .filter_map(|id| waits.iter().find(|wait| wait.id == *id))
            .map(|wait| WaitOpened {
                id: wait.id,
                kind: wait.kind,
                reference: wait.reference.clone(),
                deadline_at: wait.deadline_at,
                on_timeout: wait.detail.on_timeout,
            })
            .collect(),
        open: still_open.len() as u32,
        total: waits.len() as u32,
        bytes,
        wait_due: earliest(still_open.iter().copied()),
        tool: action.tool.clone(),
        // If the lease stays valid, the usage is reported at its end.
        usage: if to.is_waiting() { action.usage.clone() } else { Vec::new() },
    };
    // Early answers are matched while the lease is valid: only the last event ends it.
    let held = draft.work.state;
    for (id, answer) in early {
        let wait = waits.iter_mut().find(|wait| wait.id == *id).expect("an early answer is for a new wait");
        command::waits::received(cx, draft, wait, EvidenceKind::Provider);
        wait.state = WaitState::Answered;
        wait.ended_at = Some(draft.now);
        wait.answer_seq = Some(draft.next_seq());
        wait.detail.answered_by = Some(answer.by.clone());
        let resolved = WaitResolved {
            wait: wait.id,
            reference: wait.reference.clone(),
            open: draft.work.open_waits,
            wait_due: draft.work.body.wait_due,
            early: true,
            bytes: answer.payload.bytes(),
            bound_until: None,
        };
        let said = Said { payload: Some(&answer.payload), evidence: &answer.evidence, ..Said::default() };
        draft.say(held, Fact::WaitResolved(resolved), said);
    }
    draft.say(to, Fact::WaitingSet(fact), Said { message: action.message.as_deref(), ..Said::default() });
}

/// How much a wait adds to the stored size of its work item. A default counts twice, because it may also be
/// stored as an answer.
fn stored_bytes(spec: &WaitSpec) -> u32 {
    let of = |payload: &Option<Payload>| payload.as_ref().map_or(0, Payload::bytes);
    of(&spec.schema) + 2 * of(&spec.default)
}

/// An answer that exists when the wait is opened.
struct Early {
    payload: Payload,
    by: crate::Actor,
    evidence: Vec<crate::Evidence>,
}

fn answer_at_hand(
    cx: Context<'_>,
    draft: &mut Draft,
    wait: &Wait,
    judged: Option<&Judged>,
) -> Result<Option<Early>, Refusal> {
    if let Some(target) = referenced_work(&wait.reference) {
        return answer_of_work(cx, draft, target);
    }
    if let Some(target) = referenced_command(&wait.reference) {
        let outcome = command::waits::outcome(draft.command(target));
        let by = crate::Actor::system("ledger");
        return Ok(outcome.map(|payload| Early { payload, by, evidence: Vec::new() }));
    }
    let key = (wait.tenant.clone(), wait.reference.clone());
    let kept = cx.records.kept.get(&key).and_then(Option::as_ref);
    let Some(kept) = kept.filter(|kept| !expired(kept, cx.now)) else { return Ok(None) };
    let handed = wait.detail.command.map(|id| draft.command(id));
    let unfit = unfit(wait, kept, handed, judged)?;
    draft.change(Change::Unkeep { tenant: key.0, reference: key.1 });
    if let Some((why, detail)) = unfit {
        let fact = EarlyAnswerRefused {
            wait: wait.id,
            reference: wait.reference.clone(),
            why,
            by: kept.actor.clone(),
        };
        let said = Said {
            message: Some(&detail),
            payload: Some(&kept.payload),
            evidence: &kept.evidence,
            ..Said::default()
        };
        draft.say(draft.work.state, Fact::EarlyAnswerRefused(fact), said);
        return Ok(None);
    }
    let (payload, by) = (kept.payload.clone(), kept.actor.clone());
    Ok(Some(Early { payload, by, evidence: kept.evidence.clone() }))
}

/// Why a stored answer does not answer this wait. `handed` is the command that is handed over to it.
fn unfit(
    wait: &Wait,
    kept: &Kept,
    handed: Option<&Command>,
    judged: Option<&Judged>,
) -> Result<Option<(Unfit, String)>, Refusal> {
    if let Some(command) = handed
        // Within one millisecond the order is unknown: only a later answer certainly refers to the call.
        && command.body.first_dispatched_at.is_none_or(|at| kept.kept_at <= at)
    {
        let detail = format!("it was stored before {} was dispatched, and is not its receipt", command.id);
        return Ok(Some((Unfit::BeforeDispatch, detail)));
    }
    if handed.is_some() && kept.actor.kind == ActorKind::Person {
        let detail = format!(
            "{} answered before the wait was opened, and a person's early answer is not a receipt",
            kept.actor.label()
        );
        return Ok(Some((Unfit::NotEvidence, detail)));
    }
    if wait.asks_approval() {
        let detail = format!(
            "{} answered before the wait was opened, and an approval needs a person who was shown \
             the wait",
            kept.actor.label()
        );
        return Ok(Some((Unfit::NotApproved, detail)));
    }
    if wait.detail.schema.is_none() {
        return Ok(None);
    }
    match judged.filter(|judged| judged.answer == kept.payload.hash()) {
        Some(judged) => Ok(judged.fault.clone().map(|fault| (Unfit::Schema, fault))),
        None => Err(Refusal::new(
            Code::Busy,
            format!("An answer to `{}` arrived at the same time. Repeat the request.", wait.reference),
        )),
    }
}

pub(super) fn expired(kept: &Kept, now: Millis) -> bool {
    now >= kept.kept_at + limits::KEPT_MS
}

/// A wait for a work item reads that work item; if it is still open, it is marked as waited for.
fn answer_of_work(
    cx: Context<'_>,
    draft: &mut Draft,
    target: crate::WorkId,
) -> Result<Option<Early>, Refusal> {
    let work = cx.work(target)?;
    if work.spec.tenant != draft.work.spec.tenant || work.id == draft.work.id {
        return Err(Refusal::new(
            Code::NotFound,
            format!("{target} cannot be waited for: it is this work item itself, or of another tenant."),
        ));
    }
    if let Some(payload) = end_of(work) {
        return Ok(Some(Early { payload, by: crate::Actor::system("ledger"), evidence: Vec::new() }));
    }
    if !work.waiters {
        let work = Work { waiters: true, ..work.clone() };
        draft.change(Change::Work { work: Arc::new(work), touch: Touch::Flags });
    }
    Ok(None)
}

/// The answer to waits for a work item that has ended.
pub(super) fn end_of(work: &Work) -> Option<Payload> {
    work.state.is_terminal().then(|| {
        let value = serde_json::json!({ "work": work.id, "state": work.state });
        Payload::new(&value).expect("two short strings are a payload")
    })
}

/// The waiting state for several open waits.
pub(super) fn shown(kinds: impl Iterator<Item = WaitKind>) -> Option<State> {
    let states: Vec<State> = kinds.map(WaitKind::state).collect();
    WAITING.into_iter().find(|state| states.contains(state))
}

pub(super) fn earliest<'a>(waits: impl Iterator<Item = &'a Wait>) -> Option<Millis> {
    waits.filter_map(|wait| wait.deadline_at).min()
}

fn new_wait(draft: &Draft, spec: &WaitSpec) -> Result<Wait, Refusal> {
    let timeout_ms = (!spec.endless).then(|| spec.timeout_ms.unwrap_or(spec.kind.default_timeout_ms()));
    Ok(Wait {
        id: spec.id,
        work: draft.work.id,
        tenant: draft.work.spec.tenant.clone(),
        reference: spec.reference.clone(),
        kind: spec.kind,
        state: WaitState::Open,
        opened_at: draft.now,
        deadline_at: timeout_ms.map(|ms| draft.now + ms as Millis),
        ended_at: None,
        answer_seq: None,
        detail: WaitDetail {
            on_timeout: spec.on_timeout,
            timeout_ms,
            prompt: spec.prompt.clone(),
            assignee: spec.assignee.clone(),
            schema: spec.schema.clone(),
            default: spec.default.clone(),
            answered_by: None,
            escalations: 0,
            command: spec.command,
        },
    })
}

fn check(action: &WaitAction) -> Result<(), Refusal> {
    if action.waits.is_empty() {
        return Err(Refusal::new(Code::Invalid, "`waits` is empty: name what the work item waits for."));
    }
    limits::count("waits", action.waits.len(), limits::WAITS_PER_WORK)?;
    if let Some(message) = &action.message {
        limits::text("reason.message", message)?;
    }
    if let Some(tool) = &action.tool {
        limits::name("reason.tool", tool)?;
    }
    usage::check(&action.usage)?;
    for (i, spec) in action.waits.iter().enumerate() {
        if action.waits[..i].iter().any(|earlier| earlier.reference == spec.reference) {
            return Err(Refusal::new(
                Code::Invalid,
                format!("`{}` is named twice: use one wait for each reference.", spec.reference),
            ));
        }
        check_spec(spec)?;
    }
    Ok(())
}

pub(super) fn check_spec(spec: &WaitSpec) -> Result<(), Refusal> {
    limits::reference("ref", &spec.reference)?;
    limits::filled_in("ref", &spec.reference)?;
    let reserved = spec.reference.starts_with("work:") || spec.reference.starts_with("command:");
    let named = referenced_work(&spec.reference).is_some() || referenced_command(&spec.reference).is_some();
    if reserved && !named {
        return Err(Refusal::new(
            Code::ReferenceReserved,
            format!(
                "`{}` is reserved and names nothing. Use `work:` or `command:` and an id.",
                spec.reference
            ),
        ));
    }
    for text in spec.prompt.iter().chain(&spec.assignee) {
        limits::text("prompt and assignee", text)?;
    }
    if let Some(ms) = spec.timeout_ms {
        limits::duration("timeout_ms", ms)?;
        if ms == 0 || spec.endless {
            return Err(Refusal::new(
                Code::ImpossibleTimings,
                "Give either `timeout_ms` of at least 1, or `endless: true`.",
            ));
        }
    }
    if spec.kind == WaitKind::Approval && (spec.on_timeout == OnTimeout::Default || spec.command.is_some()) {
        return Err(Refusal::new(
            Code::Invalid,
            "Only a person's answer approves: a wait of kind `approval` cannot have `on_timeout: default`, \
             and its answer is not a receipt of a `command`. Use another `on_timeout`, or another kind.",
        ));
    }
    if (spec.on_timeout == OnTimeout::Default) != spec.default.is_some() {
        return Err(Refusal::new(
            Code::Invalid,
            "`default` goes with `on_timeout: default`: give both or neither.",
        ));
    }
    Ok(())
}
