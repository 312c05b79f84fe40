//! Fail: it did not happen, and that is known. What is not known is `uncertain`; so is what was in doubt before the call
//! that failed. A worker says so before there is doubt; the relay, whose calls nobody can feign, also after.

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
            "An error of this class does not prove that nothing happened. Say `uncertain`, or `unsent: true` if \
             the call is proven not to have been made.",
        ));
    }
    let (work, command) = found(cx, id)?;
    let number = dispatch_of(command, sender)?;
    match command.state {
        CommandState::Dispatched | CommandState::Uncertain => {}
        // The ledger knows already that it did not happen: by this very call, its reply lost, or by a lookup.
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
                "It is in doubt, and a worker's word does not end that: it would be done a second time. Reconcile it, or \
                 have a person record how it went: `tenure commands record {id}`."
            ),
        ));
    }
    let mut draft = draft(cx, work, command);
    if command.body.resent {
        // Only the last call is known to have done nothing: the one before it is as doubtful as ever.
        uncertain::doubtful(&mut draft, id, Some(error), &error.message, cx.dice());
        return finish(cx, draft, id);
    }
    settle::release(&mut draft, command);
    let failures = command.body.failures + 1;
    let (class, said) = (error.class, Said { message: Some(&error.message), ..Said::default() });
    match next_try(cx, command, error, failures) {
        Some(next_at) => {
            draft.tell(id, CommandState::Pending, said, |moved| {
                Fact::CommandUnsent(Unsent { moved, class, failures, next_at })
            });
            if command.is_worker() && command.body.approval.is_some() {
                approve_again(&mut draft, id);
            }
        }
        None => draft.tell(id, CommandState::Failed, said, |moved| {
            Fact::CommandFailed(CommandFailed { moved, class, failures })
        }),
    }
    if work.state.is_terminal() {
        cancel::ended(&mut draft, work.state);
    }
    finish(cx, draft, id)
}

/// A worker's word that nothing was sent gives no approval back: it would be good for a second call.
fn approve_again(draft: &mut Draft, id: CommandId) {
    let said = Said { message: Some("its approval was used: approve it again"), ..Said::default() };
    draft.tell(id, CommandState::Blocked, said, |moved| {
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

/// What nobody can classify is never retried by itself.
fn next_try(cx: Context<'_>, command: &Command, error: &CallError, failures: u32) -> Option<Millis> {
    let policy = &command.body.tool.retry;
    (error.class != ErrorClass::Unknown)
        .then(|| retry::next_at(policy, error.class, failures, error.retry_after_ms, cx.dice(), cx.now))
        .flatten()
}
