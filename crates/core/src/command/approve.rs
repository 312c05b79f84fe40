//! Approve and reject: a person's decision, sealed to one content. The first decision wins.

use super::{
    BlockCode, CancelCode, CommandState, again, approver, draft,
    event::{Approved, CommandCancelled},
    finish, found, wrong_state,
};
use crate::{
    Millis,
    decide::{Context, Decision},
    event::Fact,
    ids::CommandId,
    limits,
    payload::Digest,
    refusal::{Code, Refusal},
    work::draft::Said,
};

pub(super) fn approve(
    cx: Context<'_>,
    id: CommandId,
    seal: Option<Digest>,
    reason: &str,
) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    approver(cx, "approve")?;
    let (work, command) = found(cx, id)?;
    let sealed = command.seal();
    if seal.is_some_and(|shown| shown != sealed) {
        return Err(Refusal::new(
            Code::SealBroken,
            "This is not what you were shown: its work, tool, target or arguments differ. Look again.",
        ));
    }
    match (command.state, command.body.blocked) {
        (CommandState::Approved, _) => return Ok(again(command)),
        (CommandState::Blocked, Some(BlockCode::ApprovalRequired)) => {}
        (CommandState::Blocked, Some(BlockCode::PolicyDenied)) => {
            return Err(Refusal::new(
                Code::PolicyDenied,
                "Policy denies it, and an approval does not overrule policy. Change the policy, or reject it.",
            ));
        }
        (state, _) => return Err(wrong_state(state, "approving")),
    }
    if command.body.tool.four_eyes && command.body.submitter.id == cx.submission.actor.id {
        return Err(Refusal::new(
            Code::FourEyes,
            format!("{} asked for this one: another person must approve it.", cx.submission.actor.id),
        ));
    }
    let mut draft = draft(cx, work, command);
    let expires_at = cx.now + command.body.tool.approval_ms as Millis;
    draft.tell(id, CommandState::Approved, Said { message: Some(reason), ..Said::default() }, |moved| {
        Fact::CommandApproved(Approved { moved, seal: sealed, expires_at })
    });
    finish(cx, draft, id)
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
    draft.tell(id, CommandState::Cancelled, Said { message: Some(reason), ..Said::default() }, |moved| {
        let code = CancelCode::Rejected;
        Fact::CommandCancelled(CommandCancelled { moved, code, superseded_by: None })
    });
    finish(cx, draft, id)
}
