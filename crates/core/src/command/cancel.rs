//! Cancel: only before dispatch. After it only evidence or a person ends a command.

use super::{
    CancelCode, CommandState, again, draft, event::CommandCancelled, finish, found, held, wrong_state,
};
use crate::{
    action::Holder,
    decide::{Context, Decision},
    event::Fact,
    ids::CommandId,
    limits,
    refusal::Refusal,
    state::State,
    work::draft::{Draft, Said},
};

pub(super) fn decide(
    cx: Context<'_>,
    id: CommandId,
    holder: Option<&Holder>,
    reason: &str,
) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    if let Some(holder) = holder {
        held(cx, holder)?;
    }
    let (work, command) = found(cx, id)?;
    match command.state {
        CommandState::Pending | CommandState::Blocked | CommandState::Approved => {}
        CommandState::Cancelled => return Ok(again(command)),
        state => return Err(wrong_state(state, "cancelling")),
    }
    let mut draft = draft(cx, work, command);
    cancel(&mut draft, id, CancelCode::Requested, reason);
    finish(cx, draft, id)
}

/// A work ended: what its holder was still to do is not done.
pub(crate) fn ended(draft: &mut Draft, to: State) {
    let idle: Vec<CommandId> = draft
        .commands
        .iter()
        .filter(|command| command.is_worker() && command.state.is_idle())
        .map(|command| command.id)
        .collect();
    let message = format!("its work ended as {to}");
    idle.into_iter().for_each(|id| cancel(draft, id, CancelCode::WorkEnded, &message));
}

fn cancel(draft: &mut Draft, id: CommandId, code: CancelCode, message: &str) {
    let said = Said { message: Some(message), ..Said::default() };
    draft.tell(id, CommandState::Cancelled, said, |moved| {
        Fact::CommandCancelled(CommandCancelled { moved, code, superseded_by: None })
    });
}
