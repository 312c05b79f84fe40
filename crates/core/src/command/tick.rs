//! Tick: something about a command may be due. The sweeper knows no rules; they are here.

use super::{
    BlockCode, Command, CommandState, Duty, Idempotency, draft,
    due::{duty, next},
    event::{Blocked, Uncertain},
    finish, found, uncertain, waits,
};
use crate::{
    Millis,
    decide::{Context, Decision},
    event::Fact,
    ids::CommandId,
    records::{Change, Touch},
    refusal::{Code, Refusal},
    reply::{Reply, Ticked},
    work::draft::{Draft, Said},
};

/// The longest time for which a lookup may be reserved at once.
const TAKEN_MS: u64 = 3_600_000;

pub(super) fn decide(cx: Context<'_>, id: CommandId) -> Result<Decision, Refusal> {
    let (work, command) = found(cx, id)?;
    match next(command) {
        Some((Duty::Tick, at)) if at <= cx.now => {}
        Some((Duty::Tick | Duty::Send | Duty::Lookup, _)) | None => return Ok(rearm(command)),
    }
    let mut draft = draft(cx, work, command);
    match command.state {
        CommandState::Approved => {
            let said = Said { message: Some("its approval has expired"), ..Said::default() };
            draft.change_command(id, CommandState::Blocked, said, |moved| {
                let code = BlockCode::ApprovalRequired;
                Fact::CommandBlocked(Blocked { moved, code, decision: None })
            });
        }
        CommandState::Dispatched => {
            let message = "its outcome was not reported before its deadline";
            uncertain::doubtful(&mut draft, id, None, message, cx.random());
        }
        CommandState::Uncertain => {
            let message = match command.body.tool.idempotency {
                Idempotency::Native => FORGOTTEN,
                Idempotency::Lookup | Idempotency::None => "only a person can find out",
            };
            person_needed(&mut draft, command, message);
        }
        CommandState::Pending
        | CommandState::Blocked
        | CommandState::Succeeded
        | CommandState::Failed
        | CommandState::Cancelled => return Ok(rearm(command)),
    }
    waits::answer(cx, &mut draft, id);
    uncertain::set_aside(cx, &mut draft);
    draft.finish(|_| Reply::Ticked(Ticked::Acted))
}

pub(super) const FORGOTTEN: &str = "the provider no longer remembers its key";

/// From now on only a person can settle it.
fn person_needed(draft: &mut Draft, command: &Command, message: &str) {
    let said = Said { message: Some(message), ..Said::default() };
    draft.change_command(command.id, CommandState::Uncertain, said, |moved| {
        Fact::CommandUncertain(Uncertain { moved, class: None, needs_person: true, next_at: None })
    });
}

/// A command in doubt that is not sent again: a person is asked from here on.
pub(super) fn given_up(
    cx: Context<'_>,
    mut draft: Draft,
    command: &Command,
    message: &str,
) -> Result<Decision, Refusal> {
    if command.body.needs_person {
        return Ok(super::again(command));
    }
    person_needed(&mut draft, command, message);
    finish(cx, draft, command.id)
}

/// Nothing was due: the due date is computed again from the command.
fn rearm(command: &Command) -> Decision {
    let mut decision = Decision::unchanged(Reply::Ticked(Ticked::Nothing));
    let due_at = next(command).map(|(_, at)| at);
    if due_at != command.due_at && duty(command) != Some(Duty::Lookup) {
        let command = Box::new(Command { due_at, ..command.clone() });
        decision.changes.push(Change::Command { command, touch: Touch::Due });
    }
    decision
}

/// Reserves a lookup for a while. A lookup done twice does no harm, so this needs no event and no proof.
pub(super) fn take_lookup(cx: Context<'_>, id: CommandId, for_ms: u64) -> Result<Decision, Refusal> {
    if for_ms > TAKEN_MS {
        let detail = format!("`for_ms` is at most {TAKEN_MS}: claim the lookup again to look for longer.");
        return Err(Refusal::new(Code::Invalid, detail));
    }
    let (_, command) = found(cx, id)?;
    let due = command.due_at.filter(|at| *at <= cx.now && duty(command) == Some(Duty::Lookup));
    if due.is_none() {
        return Err(Refusal::new(
            Code::NotDue,
            "No lookup of it is due now, or another caller has claimed it.",
        ));
    }
    let command = Box::new(Command { due_at: Some(cx.now + for_ms as Millis), ..command.clone() });
    let reply = Reply::Command { command: command.clone(), fresh: true, grant: None };
    Ok(Decision { changes: vec![Change::Command { command, touch: Touch::Due }], events: Vec::new(), reply })
}
