//! Approve and reject: a person's decision, sealed to one content. The first decision wins.

use super::{
    BlockCode, CancelCode, Command, CommandState, again, approver, draft,
    event::{Approved, CommandCancelled},
    finish, found, wrong_state,
};
use crate::{
    Millis,
    decide::{Context, Decision},
    event::{Actor, Fact},
    ids::CommandId,
    limits,
    model::Work,
    payload::Digest,
    refusal::{Code, Refusal},
    work::draft::Said,
};

pub(super) fn approve(
    cx: Context<'_>,
    id: CommandId,
    seal: Digest,
    four_eyes: bool,
    reason: &str,
) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    approver(cx, "approve")?;
    let (work, command) = found(cx, id)?;
    let sealed = command.seal();
    if seal != sealed {
        return Err(Refusal::new(
            Code::SealBroken,
            "The content has changed since you were shown it: its work item, tool, target or arguments \
             differ. Read it again.",
        ));
    }
    match (command.state, command.body.blocked) {
        (CommandState::Approved, _) => return Ok(again(command)),
        (CommandState::Blocked, Some(BlockCode::ApprovalRequired)) => {}
        (CommandState::Blocked, Some(BlockCode::PolicyDenied)) => {
            return Err(Refusal::new(
                Code::PolicyDenied,
                "Policy denies it, and an approval does not override policy. Change the policy, or reject it.",
            ));
        }
        (state, _) => return Err(wrong_state(state, "approving")),
    }
    if four_eyes && asked_for(work, command, &cx.submission.actor) {
        return Err(Refusal::new(
            Code::FourEyes,
            format!(
                "Four eyes: {} requested it, so another person must approve it.",
                cx.submission.actor.label()
            ),
        ));
    }
    let mut draft = draft(cx, work, command);
    let expires_at = cx.now + command.body.tool.approval_ms as Millis;
    draft.change_command(
        id,
        CommandState::Approved,
        Said { message: Some(reason), ..Said::default() },
        |moved| Fact::CommandApproved(Approved { moved, seal: sealed, expires_at }),
    );
    finish(cx, draft, id)
}

/// Whether somebody took part in requesting it: submitted or reran the work item or one that it comes from,
/// reserved the command, or replayed it.
fn asked_for(work: &Work, command: &Command, actor: &Actor) -> bool {
    let body = &command.body;
    body.submitter.id == actor.id
        || body.replayers.contains(&actor.id)
        || work.spec.submitters.contains(&actor.id)
}

pub(super) fn reject(cx: Context<'_>, id: CommandId, reason: &str) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    approver(cx, "reject")?;
    let (work, command) = found(cx, id)?;
    match command.state {
        CommandState::Cancelled if command.body.cancelled == Some(CancelCode::Rejected) => {
            return Ok(again(command));
        }
        CommandState::Blocked => {}
        state => return Err(wrong_state(state, "rejecting")),
    }
    let mut draft = draft(cx, work, command);
    draft.change_command(
        id,
        CommandState::Cancelled,
        Said { message: Some(reason), ..Said::default() },
        |moved| {
            let code = CancelCode::Rejected;
            Fact::CommandCancelled(CommandCancelled { moved, code, superseded_by: None })
        },
    );
    finish(cx, draft, id)
}
