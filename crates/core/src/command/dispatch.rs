//! Dispatch: committed before the call is made. From here on the effect may have happened.

use super::{
    BlockCode, Command, CommandState, DispatchAction, Dispatcher, Effect, Evaluation, Idempotency, ToolFacts,
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
    next::Next,
    records::{Change, Touch, target_key},
    refusal::{Code, Refusal},
    reply::Reply,
    span::span,
    work::draft::{Draft, Said},
};

/// Why the call must not be made, and the decision that records it.
struct Stop {
    refusal: Refusal,
    written: Option<Box<Decision>>,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, written: None }
    }
}

/// Decides whether to make the call now. With a refusal, only the command's own holder and the relay are
/// shown the command.
pub(super) fn decide(cx: Context<'_>, action: &DispatchAction) -> Result<Decision, Refusal> {
    action.evaluation.check()?;
    if let Some(request) = &action.request_id {
        limits::name("request_id", request)?;
    }
    let (_, command) = found(cx, action.command)?;
    let (mut decision, refused) = match judge(cx, command, action) {
        Ok(decision) => (decision, None),
        Err(stop) if action.by.is_genuine() => {
            (stop.written.map_or_else(|| again(command), |written| *written), Some(stop.refusal))
        }
        Err(stop) => return Err(stop.refusal),
    };
    if let Reply::Command { command, .. } = decision.reply {
        decision.reply = Reply::Dispatch { command, refused };
    }
    Ok(decision)
}

fn judge(cx: Context<'_>, command: &Command, action: &DispatchAction) -> Result<Decision, Stop> {
    current_policy(cx, &action.evaluation)?;
    let (mut draft, under) = sender(cx, action, command)?;
    match command.state {
        CommandState::Pending | CommandState::Approved | CommandState::Blocked => {
            over(command, action, under)?
        }
        CommandState::Dispatched => return Ok(repeat(command, action, under)?),
        CommandState::Uncertain => {
            over(command, action, under)?;
            return resend(cx, draft, command, action, under);
        }
        CommandState::Succeeded | CommandState::Failed | CommandState::Cancelled => {
            return Err(ended(command).into());
        }
    }
    if cancel_is_pending(&draft.work) {
        return Err(until_it_ends(cx, &draft.work, command, action));
    }
    due(cx, command)?;
    first_of_its_target(cx, command)?;
    let stop = evaluation(cx, command, &action.evaluation)
        .err()
        .or_else(|| over_budget(cx, command, &action.evaluation));
    if let Some((code, message)) = stop {
        return Err(block(cx, draft, command, action, code, &message)?);
    }
    if command.state == CommandState::Blocked {
        let decision = Box::new(action.evaluation.decision.clone());
        draft.change_command(command.id, CommandState::Pending, Said::default(), |moved| {
            Fact::CommandUnblocked(Unblocked { moved, decision })
        });
    }
    Ok(go(cx, draft, command, action, under)?)
}

/// The refusal for a command that has ended.
fn ended(command: &Command) -> Refusal {
    match (command.state, command.body.superseded_by) {
        (CommandState::Succeeded, _) => Refusal::new(
            Code::AlreadySucceeded,
            "It has already happened. Do not do it again: its receipt is the result.",
        ),
        (_, Some(other)) => Refusal::new(
            Code::Superseded,
            format!("A later attempt reserved {other} instead, with other arguments. Dispatch that one."),
        ),
        (state, None) => wrong_state(state, "dispatching"),
    }
}

/// Policy, a missing approval or a budget stops it; that is recorded once.
fn block(
    cx: Context<'_>,
    mut draft: Draft,
    command: &Command,
    action: &DispatchAction,
    code: BlockCode,
    message: &str,
) -> Result<Stop, Refusal> {
    let (refused, next) = match code {
        BlockCode::ApprovalRequired => (
            Code::ApprovalRequired,
            format!("Wait for `command:{}`, and dispatch it once approved.", command.id),
        ),
        BlockCode::PolicyDenied => (Code::PolicyDenied, "Leave it, or change the policy.".to_owned()),
        BlockCode::Budget => (Code::Budget, "Dispatch it again when the budget allows it.".to_owned()),
    };
    let refusal = Refusal::new(refused, format!("Do not make the call: {message}. {next}"));
    if command.state == CommandState::Blocked && command.body.blocked == Some(code) {
        return Ok(Stop {
            refusal,
            written: Some(Box::new(put_off(command, cx.now + limits::ASK_AGAIN_MS))),
        });
    }
    let decision = Some(&action.evaluation.decision)
        .filter(|given| **given != command.body.decision)
        .cloned()
        .map(Box::new);
    let said = Said { message: Some(message), ..Said::default() };
    draft.change_command(command.id, CommandState::Blocked, said, |moved| {
        Fact::CommandBlocked(Blocked { moved, code, decision })
    });
    Ok(Stop { refusal, written: Some(Box::new(finish(cx, draft, command.id)?)) })
}

/// Whether a cancel was requested and the work item has not ended yet.
fn cancel_is_pending(work: &Work) -> bool {
    !work.state.is_terminal() && work.body.cancel.is_some()
}

/// The holder is told to stop. The relay retries: the command is cancelled with its work item, or sent if the
/// work item succeeds nevertheless.
fn until_it_ends(cx: Context<'_>, work: &Work, command: &Command, action: &DispatchAction) -> Stop {
    let written = match action.by {
        Dispatcher::Holder(_) => None,
        Dispatcher::Relay => Some(Box::new(put_off(command, cx.now + limits::CANCEL_ASK_AGAIN_MS))),
    };
    Stop { refusal: cancelling(work), written }
}

fn cancelling(work: &Work) -> Refusal {
    let why = work.body.cancel.as_ref().and_then(|cancel| cancel.reason.as_deref());
    Refusal::new(
        Code::CancelRequested,
        format!(
            "A cancel of the work item was requested{}: it dispatches nothing new. Stop, and release it or \
             close it out.",
            why.map_or_else(String::new, |reason| format!(" ({reason})"))
        ),
    )
}

/// Writes no event. The relay retries at `at`.
fn put_off(command: &Command, at: Millis) -> Decision {
    if command.due_at.is_none() {
        return again(command);
    }
    let command = Command { due_at: Some(at), ..command.clone() };
    let mut decision = again(&command);
    decision.changes.push(Change::Command { command: Box::new(command), touch: Touch::Due });
    decision
}

/// The sender and its fence.
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
            "The relay executes this command. Wait for it, or close out the work item: the command is sent \
             nevertheless.",
        )),
        Dispatcher::Relay => Err(Refusal::new(
            Code::IllegalState,
            "The holder of its work item executes this command, not the \
             relay.",
        )),
    }
}

/// Whether an action repeats the request of the last dispatch.
fn is_of_the_last(command: &Command, action: &DispatchAction, under: u64) -> bool {
    command.body.dispatch.as_ref().is_some_and(|dispatch| {
        let asked = action.request_id.is_some() && dispatch.request_id == action.request_id;
        asked && (!command.is_worker() || dispatch.fence == under)
    })
}

/// Refuses a repeat of a request whose dispatch is over: a late copy of it must not permit a second call.
fn over(command: &Command, action: &DispatchAction, under: u64) -> Result<(), Refusal> {
    let last = is_of_the_last(command, action, under);
    if last && command.state == CommandState::Uncertain {
        return Err(Refusal::new(
            Code::InDoubt,
            "The dispatch of this `request_id` was made, and its call may have happened. Deliver its receipt or \
             reconcile it; where its tool accepts the same key again, dispatch it with another `request_id`.",
        ));
    }
    let earlier = action.request_id.as_ref().is_some_and(|request| {
        command.body.earlier_requests.iter().any(|(fence, id)| (fence, id) == (&under, request))
    });
    if last || earlier {
        return Err(Refusal::new(
            Code::DispatchSuperseded,
            "The dispatch of this `request_id` is over, and its permission with it. Do not make the call for it; to \
             dispatch the command again, give another `request_id`.",
        ));
    }
    Ok(())
}

/// A repeat after a lost reply is permitted only with the same request id: any other caller would make the
/// call a second time.
fn repeat(command: &Command, action: &DispatchAction, under: u64) -> Result<Decision, Refusal> {
    if is_of_the_last(command, action, under) {
        return Ok(again(command));
    }
    over(command, action, under)?;
    Err(Refusal::new(
        Code::AlreadyDispatched,
        "It is dispatched already. Do not do it again: deliver its receipt, or report it as `uncertain`.",
    ))
}

fn due(cx: Context<'_>, command: &Command) -> Result<(), Refusal> {
    match command.body.next_at {
        Some(at) if at > cx.now => Err(Refusal::new(
            Code::NotDue,
            format!("It failed before and is retried in {}. Dispatch it then.", span(at - cx.now)),
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
            "Commands to {} are sent in order, and {first} is before this one and has not ended. \
             `{}` says what that one waits for.",
            command.spec.target,
            Next::ShowCommand(command.id)
        ),
    ))
}

/// The current result of policy and approval.
fn evaluation(
    cx: Context<'_>,
    command: &Command,
    evaluation: &Evaluation,
) -> Result<(), (BlockCode, String)> {
    let why = |text: &str| evaluation.decision.reasons.first().cloned().unwrap_or_else(|| text.to_owned());
    let needed = match evaluation.decision.effect {
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

fn over_budget(cx: Context<'_>, command: &Command, evaluation: &Evaluation) -> Option<(BlockCode, String)> {
    let spec = &command.spec;
    evaluation.limits.iter().find_map(|limit| {
        let key = limit.key(&spec.tenant, command.work, &spec.tool);
        let budget = cx.records.budgets.get(&key).copied().unwrap_or_default();
        let amount = evaluation.estimate.of(&limit.unit);
        // The estimate reserves nothing, so any number of concurrent calls would fit.
        if amount == 0 {
            let message = format!(
                "a budget of {} {} applies, and the cost of this call is unknown: give an `estimate`, or \
                 declare one for the tool",
                limit.unit.amount(limit.max),
                key.words()
            );
            return Some((BlockCode::Budget, message));
        }
        (!budget.fits(amount, limit.max)).then(|| {
            let said = |amount| limit.unit.amount(amount);
            let message = format!(
                "{} more would exceed the budget of {} {}: {} spent, {} reserved",
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

/// Native tools accept an idempotency key: sending the same again has no second effect inside their window.
fn resend(
    cx: Context<'_>,
    mut draft: Draft,
    command: &Command,
    action: &DispatchAction,
    under: u64,
) -> Result<Decision, Stop> {
    if command.body.tool.idempotency == Idempotency::Native && !command.may_resend(cx.now) {
        return Err(give_up(cx, draft, command, tick::FORGOTTEN)?);
    }
    // A repeat is a call like the first: in these cases a lookup or a person settles the doubt instead.
    if cancel_is_pending(&draft.work) {
        return Err(until_it_ends(cx, &draft.work, command, action));
    }
    if cancel::was_cancelled(&draft.work, draft.work.state) && !command.body.replayed_after_end {
        return Err(give_up(cx, draft, command, "its work item was cancelled, so it is not sent again")?);
    }
    if !command.may_resend(cx.now) || command.body.needs_person {
        return Err(in_doubt("").into());
    }
    if action.evaluation.decision.effect == Effect::Deny {
        return Err(Refusal::new(
            Code::PolicyDenied,
            "Policy denies sending it again. Reconcile it, or have a person record its outcome.",
        )
        .into());
    }
    if !command.is_worker() {
        due(cx, command)?;
    }
    draft.change_command(command.id, CommandState::Pending, Said::default(), |moved| {
        Fact::CommandResent(Resent { moved })
    });
    Ok(go(cx, draft, command, action, under)?)
}

/// It is not sent again, and a person is asked from here on.
fn give_up(cx: Context<'_>, draft: Draft, command: &Command, why: &str) -> Result<Stop, Refusal> {
    let written = Some(Box::new(tick::given_up(cx, draft, command, why)?));
    Ok(Stop { refusal: in_doubt(why), written })
}

fn in_doubt(why: &str) -> Refusal {
    let because = if why.is_empty() { String::new() } else { format!(", and {why}") };
    Refusal::new(
        Code::InDoubt,
        format!(
            "It may have happened{because}. Reconcile it, or have a person record its outcome, before it is \
             sent again."
        ),
    )
}

fn go(
    cx: Context<'_>,
    mut draft: Draft,
    command: &Command,
    action: &DispatchAction,
    under: u64,
) -> Result<Decision, Refusal> {
    // Amounts that an earlier dispatch in doubt reserved stay reserved.
    let before = command.body.dispatch.as_ref().map_or(&[][..], |dispatch| &dispatch.reserved[..]);
    let reserved: Vec<Reservation> = if before.is_empty() {
        settle::reserve(&mut draft, command, &action.evaluation)
    } else {
        before.to_vec()
    };
    let tool = ToolFacts { executor: command.spec.executor, ..action.evaluation.tool.clone() };
    let deadline_at = (!command.is_worker()).then(|| cx.now + tool.timeout_ms as Millis);
    let decision = Some(&action.evaluation.decision)
        .filter(|given| **given != command.body.decision)
        .cloned()
        .map(Box::new);
    let tool = Some(tool).filter(|tool| *tool != command.body.tool).map(Box::new);
    draft.change_command(command.id, CommandState::Dispatched, Said::default(), |moved| {
        let request_id = action.request_id.clone();
        Fact::CommandDispatched(Dispatched {
            moved,
            under,
            tool,
            decision,
            request_id,
            deadline_at,
            reserved,
        })
    });
    finish(cx, draft, command.id)
}
