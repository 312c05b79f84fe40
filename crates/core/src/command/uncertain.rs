//! Uncertain: it was sent, and its outcome is unknown. Never retried blindly.

use super::{
    CallError, Command, CommandState, Idempotency, Sender, again, dispatch_of, doubt, draft,
    event::Uncertain, fail, finish, found, of_the_last, report, wrong_state,
};
use crate::{
    Millis,
    decide::{Context, Decision},
    event::{Fact, Quarantined},
    ids::CommandId,
    model::ReasonCode,
    recovery::Doubt,
    refusal::Refusal,
    retry,
    state::{State, waiting},
    work::draft::{Draft, Said},
};

pub(super) fn decide(
    cx: Context<'_>,
    id: CommandId,
    sender: Sender,
    error: &CallError,
) -> Result<Decision, Refusal> {
    fail::check(error)?;
    let (work, command) = found(cx, id)?;
    let number = dispatch_of(command, sender)?;
    match command.state {
        CommandState::Dispatched if of_the_last(command, number, error)? => {}
        CommandState::Dispatched => return Ok(again(command)),
        CommandState::Uncertain => return Ok(again(command)),
        state => return Err(wrong_state(state, "being uncertain")),
    }
    let mut draft = draft(cx, work, command);
    doubtful(&mut draft, id, Some(error), &error.message, cx.random());
    finish(cx, draft, id)
}

/// The outcome of every dispatched command of the holder that is not handed over to a wait is unknown.
pub(crate) fn lost(draft: &mut Draft, message: &str) {
    let dispatched: Vec<CommandId> = draft
        .commands
        .iter()
        .filter(|command| command.is_worker() && command.state == CommandState::Dispatched)
        .map(|command| command.id)
        .collect();
    dispatched.into_iter().for_each(|id| doubtful(draft, id, None, message, 0));
}

/// A native command in doubt is sent again by its work item's holder. If there will be none, a person finds
/// out.
pub(crate) fn left_to_a_person(draft: &mut Draft) {
    let native = |command: &&Command| {
        command.is_in_doubt()
            && command.body.tool.idempotency == Idempotency::Native
            && !command.body.needs_person
    };
    let left: Vec<CommandId> = draft.commands.iter().filter(native).map(|command| command.id).collect();
    let said = || Said { message: Some("it has no holder to send it again"), ..Said::default() };
    for id in left {
        draft.change_command(id, CommandState::Uncertain, said(), |moved| {
            Fact::CommandUncertain(Uncertain { moved, class: None, needs_person: true, next_at: None })
        });
    }
}

/// Records the doubt, and how it will be settled: by a lookup, by sending it again with the same key, or by a
/// person.
pub(super) fn doubtful(
    draft: &mut Draft,
    id: CommandId,
    error: Option<&CallError>,
    message: &str,
    random: u64,
) {
    let command = draft.command(id);
    let class = error.map(|error| error.class);
    let wait = error.and_then(|error| error.retry_after_ms);
    let (needs_person, next_at) = outlook(command, draft.now, wait, random);
    let said = Said { message: Some(message), ..Said::default() };
    draft.change_command(id, CommandState::Uncertain, said, |moved| {
        Fact::CommandUncertain(Uncertain { moved, class, needs_person, next_at })
    });
}

fn outlook(command: &Command, now: Millis, wait: Option<u64>, random: u64) -> (bool, Option<Millis>) {
    let tool = &command.body.tool;
    match tool.idempotency {
        Idempotency::None => (true, None),
        // The call may have been in progress until now.
        Idempotency::Lookup => (false, Some(now + tool.consistency_delay_ms as Millis)),
        Idempotency::Native if command.is_worker() => (!command.may_resend(now), None),
        Idempotency::Native => {
            let tries = command.body.dispatches;
            let again = now + retry::backoff_ms(&tool.retry, tries, wait, random) as Millis;
            let may = tries < tool.retry.max_attempts && command.may_resend(again);
            (!may, may.then_some(again))
        }
    }
}

/// A work item without a holder whose commands only a person can settle is set aside for that person.
pub(super) fn set_aside(cx: Context<'_>, draft: &mut Draft) {
    let person = draft.commands.iter().any(|command| command.is_worker() && command.body.needs_person);
    if !person || doubt(&draft.commands, cx.now) != Doubt::Some {
        return;
    }
    match draft.work.state {
        State::Queued | State::RetryScheduled | State::Stalled | waiting!() => {}
        // Its holder still has it: it is set aside when that lease ends. An ended work item stays as it is.
        State::Running
        | State::CancelRequested
        | State::Quarantined
        | State::Succeeded
        | State::CompletedWithWarnings
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Abandoned => return,
    }
    let message = report(&draft.commands);
    draft.cancel_waits(cx);
    let fact = Fact::Quarantined(Quarantined { reason: ReasonCode::InDoubt });
    draft.say(State::Quarantined, fact, Said { message: Some(&message), ..Said::default() });
}
