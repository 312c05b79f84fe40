//! Dispatch: committed before the call is made. From here on the effect may have happened.

use super::{
    BlockCode, Command, CommandState, DispatchAction, Dispatcher, Effect, Gate, Idempotency, ToolFacts,
    again,
    budget::Reservation,
    cancel, current_policy,
    event::{Blocked, Dispatched, Resent, Unblocked},
    finish, found, settle, tick, wrong_state,
};
use crate::{
    Millis,
    decide::{Context, Decision},
    event::Fact,
    limits,
    model::Work,
    records::{Change, Touch, target_key},
    refusal::{Code, Refusal},
    span::span,
    work::draft::{Draft, Said},
};

pub(super) fn decide(cx: Context<'_>, action: &DispatchAction) -> Result<Decision, Refusal> {
    action.gate.check()?;
    if let Some(request) = &action.request_id {
        limits::name("request_id", request)?;
    }
    current_policy(cx, &action.gate)?;
    let (_, command) = found(cx, action.command)?;
    let (mut draft, under) = sender(cx, action, command)?;
    match command.state {
        CommandState::Pending | CommandState::Approved | CommandState::Blocked => {}
        CommandState::Dispatched => return repeat(command, action, under),
        // It happened: the receipt is the answer.
        CommandState::Succeeded => return Ok(again(command)),
        CommandState::Uncertain => return resend(cx, draft, command, action, under),
        CommandState::Failed | CommandState::Cancelled => {
            return Err(wrong_state(command.state, "dispatching"));
        }
    }
    if asked_to_cancel(&draft.work) {
        return until_it_ends(cx, &draft.work, command, action);
    }
    due(cx, command)?;
    first_of_its_target(cx, command)?;
    let stop = gate(cx, command, &action.gate).err().or_else(|| over_budget(cx, command, &action.gate));
    if let Some((code, message)) = stop {
        if command.state == CommandState::Blocked && command.body.blocked == Some(code) {
            return Ok(put_off(command, cx.now + limits::ASK_AGAIN_MS));
        }
        let verdict =
            Some(&action.gate.verdict).filter(|given| **given != command.body.verdict).cloned().map(Box::new);
        let said = Said { message: Some(&message), ..Said::default() };
        draft.tell(command.id, CommandState::Blocked, said, |moved| {
            Fact::CommandBlocked(Blocked { moved, code, verdict })
        });
        return finish(cx, draft, command.id);
    }
    if command.state == CommandState::Blocked {
        let verdict = Box::new(action.gate.verdict.clone());
        draft.tell(command.id, CommandState::Pending, Said::default(), |moved| {
            Fact::CommandUnblocked(Unblocked { moved, verdict })
        });
    }
    go(cx, draft, command, action, under)
}

/// Whether somebody asked for a cancel and the work has not ended yet.
fn asked_to_cancel(work: &Work) -> bool {
    !work.state.is_terminal() && work.body.cancel.is_some()
}

/// The holder is told to stop. The relay asks again: the command is cancelled with its work, or sent if the work succeeds
/// all the same.
fn until_it_ends(
    cx: Context<'_>,
    work: &Work,
    command: &Command,
    action: &DispatchAction,
) -> Result<Decision, Refusal> {
    match action.by {
        Dispatcher::Holder(_) => Err(cancelling(work)),
        Dispatcher::Relay => Ok(put_off(command, cx.now + limits::CANCEL_ASK_AGAIN_MS)),
    }
}

fn cancelling(work: &Work) -> Refusal {
    let why = work.body.cancel.as_ref().and_then(|cancel| cancel.reason.as_deref());
    Refusal::new(
        Code::CancelRequested,
        format!(
            "The work is asked to cancel{}: it dispatches nothing new. Stop, and release it or close it out.",
            why.map_or_else(String::new, |reason| format!(" ({reason})"))
        ),
    )
}

/// Nothing to tell. The relay asks again at `at`.
fn put_off(command: &Command, at: Millis) -> Decision {
    let mut decision = again(command);
    if command.due_at.is_some() {
        let due_at = Some(at);
        let command = Box::new(Command { due_at, ..command.clone() });
        decision.changes.push(Change::Command { command, touch: Touch::Due });
    }
    decision
}

/// Who dispatches, and under which fence.
fn sender(cx: Context<'_>, action: &DispatchAction, command: &Command) -> Result<(Draft, u64), Refusal> {
    match &action.by {
        Dispatcher::Holder(holder) if command.is_worker() => {
            let mut draft = super::held(cx, holder)?;
            draft.with(command);
            Ok((draft, holder.fence))
        }
        Dispatcher::Relay if !command.is_worker() => {
            let last = command.body.dispatch.as_ref().map_or(0, |dispatch| dispatch.fence);
            let under = cx.records.next_fence(last, cx.now);
            let work = cx.work(command.work)?;
            Ok((super::draft(cx, work, command), under))
        }
        Dispatcher::Holder(_) => Err(Refusal::new(
            Code::IllegalState,
            "The relay sends this one. Wait for it, or close the work out: it is sent all the same.",
        )),
        Dispatcher::Relay => {
            Err(Refusal::new(Code::IllegalState, "The holder of its work does this one, not the relay."))
        }
    }
}

/// A reply that was lost may be asked for again, by the very same request only: whoever else asks would do
/// it a second time.
fn repeat(command: &Command, action: &DispatchAction, under: u64) -> Result<Decision, Refusal> {
    let same = command.body.dispatch.as_ref().is_some_and(|dispatch| {
        let asked = action.request_id.is_some() && dispatch.request_id == action.request_id;
        asked && (!command.is_worker() || dispatch.fence == under)
    });
    if same {
        return Ok(again(command));
    }
    Err(Refusal::new(
        Code::AlreadyDispatched,
        "Somebody was told to do this already. Do not do it again: deliver its receipt, or say `uncertain`.",
    ))
}

fn due(cx: Context<'_>, command: &Command) -> Result<(), Refusal> {
    match command.body.next_at {
        Some(at) if at > cx.now => Err(Refusal::new(
            Code::NotDue,
            format!("It failed before, and is tried again in {}. Dispatch it then.", span(at - cx.now)),
        )),
        Some(_) | None => Ok(()),
    }
}

fn first_of_its_target(cx: Context<'_>, command: &Command) -> Result<(), Refusal> {
    if !command.body.tool.ordered {
        return Ok(());
    }
    let head = cx.records.heads.get(&target_key(command)).copied().flatten();
    if head == Some(command.id) {
        return Ok(());
    }
    let first = head.map_or_else(|| "an earlier command".to_owned(), |head| head.to_string());
    Err(Refusal::new(
        Code::NotDue,
        format!(
            "To {}, {first} comes first, and has not ended. `tenure explain {}` says what it waits for.",
            command.spec.target, command.id
        ),
    ))
}

/// What policy and approval say now.
fn gate(cx: Context<'_>, command: &Command, gate: &Gate) -> Result<(), (BlockCode, String)> {
    let why = |text: &str| gate.verdict.reasons.first().cloned().unwrap_or_else(|| text.to_owned());
    let needed = match gate.verdict.effect {
        Effect::Deny => return Err((BlockCode::PolicyDenied, why("policy denies it"))),
        Effect::NeedsApproval => true,
        Effect::Allow => command.body.review,
    };
    let good = command.body.approval.as_ref().is_some_and(|approval| {
        approval.used_at.is_none() && approval.expires_at > cx.now && approval.seal == command.seal()
    });
    if !needed || good {
        return Ok(());
    }
    let message = match &command.body.approval {
        Some(approval) if approval.expires_at <= cx.now => "its approval has expired".to_owned(),
        Some(_) | None => why("a person must approve it"),
    };
    Err((BlockCode::ApprovalRequired, message))
}

fn over_budget(cx: Context<'_>, command: &Command, gate: &Gate) -> Option<(BlockCode, String)> {
    let spec = &command.spec;
    gate.limits.iter().find_map(|limit| {
        let key = limit.key(&spec.tenant, command.work, &spec.tool);
        let budget = cx.records.budgets.get(&key).copied().unwrap_or_default();
        let amount = gate.estimate.of(&limit.unit);
        // Nothing could be set aside for it, and any number of calls would fit at the same time.
        if amount == 0 {
            let message = format!(
                "a budget of {} {} applies, and nothing says what this call costs: give an `estimate`, or declare \
                 one for the tool",
                limit.unit.amount(limit.max),
                key.words()
            );
            return Some((BlockCode::Budget, message));
        }
        (!budget.fits(amount, limit.max)).then(|| {
            let said = |amount| limit.unit.amount(amount);
            let message = format!(
                "{} more would pass the budget of {} {}: spent are {}, set aside {}",
                said(amount),
                said(limit.max),
                key.words(),
                said(budget.spent),
                said(budget.reserved)
            );
            (BlockCode::Budget, message)
        })
    })
}

/// Native tools know our key: sending the same again is no second effect, inside their window.
fn resend(
    cx: Context<'_>,
    mut draft: Draft,
    command: &Command,
    action: &DispatchAction,
    under: u64,
) -> Result<Decision, Refusal> {
    if command.body.tool.idempotency == Idempotency::Native && !command.may_resend(cx.now) {
        return tick::given_up(cx, draft, command, tick::FORGOTTEN);
    }
    // The same call again is a call all the same. Its doubt is ended by a lookup or a person.
    if asked_to_cancel(&draft.work) {
        return until_it_ends(cx, &draft.work, command, action);
    }
    if cancel::called_off(&draft.work, draft.work.state) && !command.body.replayed_after_end {
        return tick::given_up(cx, draft, command, "its work was cancelled, and nothing of it is sent again");
    }
    if !command.may_resend(cx.now) || command.body.needs_person {
        return Err(Refusal::new(
            Code::InDoubt,
            "It may have happened. Reconcile it, or have a person record how it went, before it is sent again.",
        ));
    }
    if action.gate.verdict.effect == Effect::Deny {
        return Err(Refusal::new(
            Code::PolicyDenied,
            "Policy denies sending it again. Reconcile it, or have a person record how it went.",
        ));
    }
    if !command.is_worker() {
        due(cx, command)?;
    }
    draft.tell(command.id, CommandState::Pending, Said::default(), |moved| {
        Fact::CommandResent(Resent { moved })
    });
    go(cx, draft, command, action, under)
}

fn go(
    cx: Context<'_>,
    mut draft: Draft,
    command: &Command,
    action: &DispatchAction,
    under: u64,
) -> Result<Decision, Refusal> {
    // What an earlier dispatch in doubt set aside is still set aside.
    let before = command.body.dispatch.as_ref().map_or(&[][..], |dispatch| &dispatch.reserved[..]);
    let reserved: Vec<Reservation> =
        if before.is_empty() { settle::reserve(&mut draft, command, &action.gate) } else { before.to_vec() };
    let tool = ToolFacts { executor: command.spec.executor, ..action.gate.tool.clone() };
    let deadline_at = (!command.is_worker()).then(|| cx.now + tool.timeout_ms as Millis);
    let verdict =
        Some(&action.gate.verdict).filter(|given| **given != command.body.verdict).cloned().map(Box::new);
    let tool = Some(tool).filter(|tool| *tool != command.body.tool).map(Box::new);
    draft.tell(command.id, CommandState::Dispatched, Said::default(), |moved| {
        let request_id = action.request_id.clone();
        Fact::CommandDispatched(Dispatched { moved, under, tool, verdict, request_id, deadline_at, reserved })
    });
    finish(cx, draft, command.id)
}
