//! Receipt: the evidence that it happened. It is evidence, not authority: whoever dispatched may deliver it
//! even after losing the lease.

use super::{
    Command, CommandState, EvidenceKind, Proof, Receipt, Sender, again, dispatch_of, draft,
    event::CommandSucceeded, finish, found, settle, wrong_state,
};
use crate::{
    decide::{Context, Decision},
    event::Fact,
    ids::CommandId,
    refusal::{Code, Refusal},
    work::draft::{Draft, Said},
};

pub(super) fn decide(
    cx: Context<'_>,
    id: CommandId,
    sender: Sender,
    proof: &Proof,
) -> Result<Decision, Refusal> {
    proof.check(
        "A success needs evidence: give `external_id`, `evidence.ref`, or the provider's `response`. If there is none, say \
         `uncertain`.",
    )?;
    if proof.kind == EvidenceKind::Person {
        return Err(Refusal::new(
            Code::PersonRequired,
            "A person's word is given by `record`, with a person's credential.",
        ));
    }
    let (work, command) = found(cx, id)?;
    let number = dispatch_of(command, sender)?;
    let earlier = number < command.body.dispatches;
    match command.state {
        CommandState::Succeeded => return Ok(again(command)),
        // A lookup said absent, and was wrong: better late than twice.
        CommandState::Pending | CommandState::Blocked | CommandState::Approved => {}
        CommandState::Dispatched | CommandState::Uncertain => {}
        // Of the last call it is known that it did nothing; of the one before, now, that it did.
        CommandState::Failed if earlier => {}
        CommandState::Failed | CommandState::Cancelled => {
            return Err(wrong_state(command.state, "a receipt"));
        }
    }
    let mut draft = draft(cx, work, command);
    let message = earlier.then(|| format!("by dispatch {number} of {}", command.body.dispatches));
    succeed(cx, &mut draft, command, proof, message.as_deref());
    finish(cx, draft, id)
}

/// Writes the success with its evidence.
pub(super) fn succeed(
    cx: Context<'_>,
    draft: &mut Draft,
    command: &Command,
    proof: &Proof,
    message: Option<&str>,
) {
    let spent = settle::spend(draft, command, proof);
    let receipt = Receipt {
        at: cx.now,
        evidence: proof.kind,
        external_id: proof.external_id.clone(),
        reference: proof.reference.clone(),
        response: proof.response.as_ref().map(|_| (draft.work.id, draft.next_seq())),
        reused_from: None,
        usage: proof.usage.clone(),
    };
    let said =
        Said { message, payload: proof.response.as_ref(), evidence: &proof.evidence, ..Said::default() };
    draft.tell(command.id, CommandState::Succeeded, said, |moved| {
        Fact::CommandSucceeded(CommandSucceeded { moved, receipt: Box::new(receipt), spent })
    });
}
