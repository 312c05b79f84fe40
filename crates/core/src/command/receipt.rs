//! Receipt: evidence that the effect happened. It needs no valid lease: the caller that dispatched the
//! command may deliver it even after losing the lease.

use super::{
    Command, CommandState, EvidenceKind, Idempotency, Proof, Receipt, Sender, again, dispatch_of, draft,
    event::CommandSucceeded, finish, found, settle, wrong_state,
};
use crate::{
    decide::{Context, Decision},
    event::Fact,
    ids::CommandId,
    model::{Wait, WaitState, Work},
    payload::Payload,
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
        "A success needs evidence: give `external_id`, `evidence.ref`, or the provider's `response`. If \
         there is none, report it as `uncertain`.",
    )?;
    let instead = match proof.kind {
        EvidenceKind::Provider => None,
        EvidenceKind::Person => Some("Use `record`, with a person's credential, for a person's evidence."),
        EvidenceKind::Lookup => Some(
            "Use `reconcile`, with the token of the claimed lookup, for the outcome of a lookup. A receipt \
             has evidence of kind `provider`.",
        ),
    };
    if let Some(instead) = instead {
        return Err(Refusal::new(Code::PersonRequired, instead));
    }
    let (work, command) = found(cx, id)?;
    let number = dispatch_of(command, sender)?;
    let earlier = number < command.body.dispatches;
    match command.state {
        CommandState::Succeeded => return known(command, proof),
        _ if takes_evidence(command) => {}
        // The last call is known to have had no effect; now the one before it is known to have had one.
        CommandState::Failed if earlier => {}
        state => return Err(wrong_state(state, "a receipt")),
    }
    let mut draft = draft(cx, work, command);
    let message = earlier.then(|| format!("by dispatch {number} of {}", command.body.dispatches));
    succeed(cx, &mut draft, command, proof, message.as_deref());
    finish(cx, draft, id)
}

/// A repeat of the same receipt. One that names another effect is refused, and the refusal says so.
fn known(command: &Command, proof: &Proof) -> Result<Decision, Refusal> {
    let first = command.body.receipt.as_ref().and_then(|receipt| receipt.external_id.as_ref());
    match (first, &proof.external_id) {
        (Some(first), Some(other)) if first != other => Err(Refusal::new(
            Code::IdempotencyMismatch,
            format!(
                "It succeeded with the receipt `{first}`, but this one names `{other}`. If both are correct, \
                 it happened twice: tell a person, and keep both ids."
            ),
        )),
        _ => Ok(again(command)),
    }
}

/// Whether evidence that it happened still settles it. It does even after a lookup wrongly reported that the
/// effect is absent: a late receipt is better than a second effect, and a late charge better than none.
fn takes_evidence(command: &Command) -> bool {
    match command.state {
        CommandState::Dispatched | CommandState::Uncertain => true,
        CommandState::Pending | CommandState::Blocked | CommandState::Approved | CommandState::Cancelled => {
            command.body.dispatches > 0
        }
        CommandState::Succeeded | CommandState::Failed => false,
    }
}

/// The command that an answer after the end of its wait settles, or has settled.
pub(crate) fn of_ended_wait<'a>(cx: Context<'a>, wait: &Wait) -> Option<&'a Command> {
    let ended = matches!(wait.state, WaitState::TimedOut | WaitState::Cancelled);
    let command = cx.records.command(wait.detail.command.filter(|_| ended)?)?;
    (takes_evidence(command) || receipt_of(command, wait).is_some()).then_some(command)
}

/// A command that was handed over to several waits was sent as often. An answer to one of them is not a
/// repeat of an answer to another, except for a native tool, which has no second effect.
pub(crate) fn answered_by_another(cx: Context<'_>, waits: &[Wait], wait: &Wait) -> Result<(), Refusal> {
    let Some(command) = wait.detail.command.and_then(|id| cx.records.command(id)) else { return Ok(()) };
    let other = |other: &&Wait| {
        other.id != wait.id
            && other.detail.command == Some(command.id)
            && receipt_of(command, other).is_some()
    };
    match waits.iter().find(other) {
        Some(other) if command.body.tool.idempotency != Idempotency::Native => Err(Refusal::new(
            Code::IdempotencyMismatch,
            format!(
                "{} succeeded by the answer to `{}`, but this answer is to `{}`, which is another call. If \
                 both are correct, it happened twice: tell a person, and keep both.",
                command.id, other.reference, wait.reference
            ),
        )),
        _ => Ok(()),
    }
}

/// The receipt that an answer to this wait gave.
pub(crate) fn receipt_of<'a>(command: &'a Command, wait: &Wait) -> Option<&'a Receipt> {
    let of_it = |receipt: &&Receipt| receipt.reference.as_deref() == Some(wait.id.to_string().as_str());
    command.body.receipt.as_ref().filter(of_it)
}

/// An answer after the end of its wait is the receipt of the command that was handed over to the wait.
pub(crate) fn late(
    cx: Context<'_>,
    work: &Work,
    wait: &Wait,
    command: &Command,
    answer: &Payload,
    evidence: EvidenceKind,
) -> Result<Decision, Refusal> {
    let mut draft = draft(cx, work, command);
    let proof = Proof {
        reference: Some(wait.id.to_string()),
        response: Some(answer.clone()),
        ..Proof::new(evidence)
    };
    succeed(cx, &mut draft, command, &proof, Some("its wait was answered after it had ended"));
    finish(cx, draft, command.id)
}

/// Records the success with its evidence.
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
    draft.change_command(command.id, CommandState::Succeeded, said, |moved| {
        Fact::CommandSucceeded(CommandSucceeded { moved, receipt: Box::new(receipt), spent })
    });
}
