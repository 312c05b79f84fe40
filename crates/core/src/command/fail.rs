//! Fail: the effect certainly did not happen. If that is not certain, it is `uncertain`; the same holds if
//! the command was in doubt before the failed call. A worker can report a failure only before there is doubt;
//! the relay, whose reports nobody else can send, also after.

use super::{
    BlockCode, CallError, Command, CommandState, Sender, again, cancel, dispatch_of, draft,
    event::{Blocked, CommandFailed, Unsent},
    finish, found, of_the_last, settle, uncertain, wrong_state,
};
use crate::{
    Millis,
    decide::{Context, Decision},
    event::Fact,
    ids::CommandId,
    limits,
    model::ErrorClass,
    next::Next,
    refusal::{Code, Refusal},
    retry,
    work::draft::{Draft, Said},
};

pub(super) fn decide(
    cx: Context<'_>,
    id: CommandId,
    sender: Sender,
    error: &CallError,
    unsent: bool,
) -> Result<Decision, Refusal> {
    check(error)?;
    if !unsent && ambiguous(error.class) {
        return Err(Refusal::new(
            Code::Invalid,
            "An error of this class does not prove that nothing happened. Report it as `uncertain`, or as \
             `unsent: true` if the call was certainly not made.",
        ));
    }
    let (work, command) = found(cx, id)?;
    let number = dispatch_of(command, sender)?;
    match command.state {
        CommandState::Dispatched | CommandState::Uncertain => {}
        // The ledger knows already that it did not happen: from this same call, whose reply was lost, or from
        // a lookup.
        CommandState::Failed
        | CommandState::Pending
        | CommandState::Blocked
        | CommandState::Approved
        | CommandState::Cancelled => return Ok(again(command)),
        CommandState::Succeeded => return Err(wrong_state(command.state, "failing")),
    }
    let news = of_the_last(command, number, error)?;
    if !news || (command.body.resent && command.state == CommandState::Uncertain) {
        return Ok(again(command));
    }
    if command.is_in_doubt() {
        return Err(Refusal::new(
            Code::InDoubt,
            format!(
                "It is in doubt, and a worker's report cannot settle that: it could happen twice. Reconcile \
                 it, or have a person record its outcome: `{}`, or `{}`.",
                Next::Record(id, true),
                Next::Record(id, false)
            ),
        ));
    }
    let mut draft = draft(cx, work, command);
    if command.body.resent {
        // Only the last call is known to have had no effect: the call before it is still in doubt.
        uncertain::doubtful(&mut draft, id, Some(error), &error.message, cx.random());
        return finish(cx, draft, id);
    }
    settle::release(&mut draft, command);
    let failures = command.body.failures + 1;
    let (class, said) = (error.class, Said { message: Some(&error.message), ..Said::default() });
    match next_try(cx, command, error, failures) {
        Some(next_at) => {
            draft.change_command(id, CommandState::Pending, said, |moved| {
                Fact::CommandUnsent(Unsent { moved, class, failures, next_at })
            });
            if command.is_worker() && command.body.approval.is_some() {
                approve_again(&mut draft, id);
            }
        }
        None => draft.change_command(id, CommandState::Failed, said, |moved| {
            Fact::CommandFailed(CommandFailed { moved, class, failures })
        }),
    }
    if work.state.is_terminal() {
        cancel::ended(&mut draft, work.state);
    }
    finish(cx, draft, id)
}

/// A worker's report that nothing was sent does not restore the approval: it could be used for a second call.
fn approve_again(draft: &mut Draft, id: CommandId) {
    let said = Said { message: Some("its approval has been used: approve it again"), ..Said::default() };
    draft.change_command(id, CommandState::Blocked, said, |moved| {
        let code = BlockCode::ApprovalRequired;
        Fact::CommandBlocked(Blocked { moved, code, decision: None })
    });
}

pub(super) fn check(error: &CallError) -> Result<(), Refusal> {
    limits::text("error.message", &error.message)?;
    error.retry_after_ms.map_or(Ok(()), |ms| limits::duration("error.retry_after_ms", ms))
}

/// Whether the error leaves open what happened.
fn ambiguous(class: ErrorClass) -> bool {
    match class {
        ErrorClass::Transport | ErrorClass::Timeout | ErrorClass::Unknown => true,
        ErrorClass::RateLimited
        | ErrorClass::Unavailable
        | ErrorClass::Validation
        | ErrorClass::Auth
        | ErrorClass::Quota
        | ErrorClass::PolicyDenied
        | ErrorClass::Misconfigured
        | ErrorClass::Unsupported => false,
    }
}

/// An error that cannot be classified is never retried automatically.
fn next_try(cx: Context<'_>, command: &Command, error: &CallError, failures: u32) -> Option<Millis> {
    let policy = &command.body.tool.retry;
    (error.class != ErrorClass::Unknown)
        .then(|| retry::next_at(policy, error.class, failures, error.retry_after_ms, cx.random(), cx.now))
        .flatten()
}
