//! Record: a person found out the outcome of a command, and gives the evidence.

use super::{
    CommandState, EvidenceKind, Proof, Recorded, again, draft, event::CommandFailed, finish, found, person,
    receipt, settle, wrong_state,
};
use crate::{
    decide::{Context, Decision},
    event::Fact,
    ids::CommandId,
    limits,
    model::ErrorClass,
    refusal::Refusal,
    work::draft::Said,
};

/// A person cannot report it as `uncertain`: it is uncertain already.
const BARE: &str = "A success needs evidence: `--external-id` (the provider's id for the effect), `--ref` \
 (where it can be seen), or `--response` (the provider's response). If there is none, leave it in doubt.";

pub(super) fn decide(
    cx: Context<'_>,
    id: CommandId,
    outcome: &Recorded,
    reason: &str,
) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    person(cx, "record the outcome of a command")?;
    if let Recorded::Happened(proof) = outcome {
        proof.check(BARE)?;
    }
    let (work, command) = found(cx, id)?;
    match (command.state, outcome) {
        (CommandState::Uncertain, _) => {}
        (CommandState::Succeeded, Recorded::Happened(_)) | (CommandState::Failed, Recorded::DidNotHappen) => {
            return Ok(again(command));
        }
        (state, _) => return Err(wrong_state(state, "recording")),
    }
    let mut draft = draft(cx, work, command);
    match outcome {
        Recorded::Happened(proof) => {
            let proof = Proof { kind: EvidenceKind::Person, ..proof.clone() };
            receipt::succeed(cx, &mut draft, command, &proof, Some(reason));
        }
        Recorded::DidNotHappen => {
            settle::release(&mut draft, command);
            let failures = command.body.failures + 1;
            draft.change_command(
                id,
                CommandState::Failed,
                Said { message: Some(reason), ..Said::default() },
                |moved| Fact::CommandFailed(CommandFailed { moved, class: ErrorClass::Unknown, failures }),
            );
        }
    }
    finish(cx, draft, id)
}
