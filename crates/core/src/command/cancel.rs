//! Cancel: only before dispatch. After that only evidence or a person settles a command.

use super::{
    CancelCode, Command, CommandState, again, draft, event::CommandCancelled, finish, found, held,
    wrong_state,
};
use crate::{
    action::Holder,
    decide::{Context, Decision},
    event::Fact,
    ids::CommandId,
    limits,
    model::Work,
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

/// Cancels commands when their work item has ended: its holder dispatches nothing more. The relay continues
/// to send, unless the work item was cancelled; then it sends only commands that a person replayed after the
/// end.
pub(crate) fn ended(draft: &mut Draft, to: State) {
    let was_cancelled = was_cancelled(&draft.work, to);
    let goes_on =
        |command: &Command| !command.is_worker() && (!was_cancelled || command.body.replayed_after_end);
    let idle: Vec<CommandId> = draft
        .commands
        .iter()
        .filter(|command| command.state.is_idle() && !goes_on(command))
        .map(|command| command.id)
        .collect();
    let message = format!("its work item ended as {to}");
    idle.into_iter().for_each(|id| cancel(draft, id, CancelCode::WorkEnded, &message));
}

/// Whether a cancel was requested and the work item ends, or ended, as `to` without having succeeded first.
pub(crate) fn was_cancelled(work: &Work, to: State) -> bool {
    to == State::Cancelled || (to.is_terminal() && !to.is_success() && work.body.cancel.is_some())
}

fn cancel(draft: &mut Draft, id: CommandId, code: CancelCode, message: &str) {
    let said = Said { message: Some(message), ..Said::default() };
    draft.change_command(id, CommandState::Cancelled, said, |moved| {
        Fact::CommandCancelled(CommandCancelled { moved, code, superseded_by: None })
    });
}
