//! Reconcile: records the outcome of a lookup of a command in doubt.

use super::{
    Command, CommandState, EvidenceKind, Finding, LookupClaim, Proof, Risk, again, cancel, draft,
    event::{LookedUp, Miss},
    finish, found, receipt, settle, wrong_state,
};
use crate::{
    Millis,
    decide::{Context, Decision},
    event::{ActorKind, Fact},
    ids::CommandId,
    limits,
    next::Next,
    refusal::{Code, Refusal},
    retry,
    span::span,
    work::draft::Said,
};

/// A claim is valid until another caller claims the lookup, or the command changes otherwise.
fn claimed(command: &Command, claim: Option<LookupClaim>) -> Result<(), Refusal> {
    match claim {
        Some(claim) if !claim.genuine || command.due_at != Some(claim.until) => Err(Refusal::new(
            Code::TokenRefused,
            "Your claim of this lookup is not valid, or no longer. Claim it again: `POST /v1/commands/claim`.",
        )),
        Some(_) | None => Ok(()),
    }
}

pub(super) fn decide(
    cx: Context<'_>,
    id: CommandId,
    claim: Option<LookupClaim>,
    finding: &Finding,
    message: Option<&str>,
) -> Result<Decision, Refusal> {
    if let Some(message) = message {
        limits::text("message", message)?;
    }
    if let Finding::Found(proof) = finding {
        proof.check(
            "The outcome `found` needs evidence: its `external_id`, a `ref` where it can be seen, or the \
             provider's `response`. If there is none, the outcome is `unknown`.",
        )?;
    }
    let (work, command) = found(cx, id)?;
    if claim.is_none() && matches!(cx.submission.actor.kind, ActorKind::Machine | ActorKind::Worker) {
        return Err(Refusal::new(
            Code::PersonRequired,
            format!(
                "A worker reports the outcome only of a lookup that it has claimed: `POST \
                 /v1/commands/claim`, for tools with `lookup = {{ by = \"worker\" }}`. Otherwise a person \
                 records the outcome: `{}`, or `{}`.",
                Next::Record(id, true),
                Next::Record(id, false)
            ),
        ));
    }
    match command.state {
        CommandState::Uncertain => claimed(command, claim)?,
        // Absent contradicts the recorded outcome; other outcomes add nothing.
        CommandState::Succeeded if *finding != Finding::Absent => return Ok(again(command)),
        state => return Err(wrong_state(state, "reconciling")),
    }
    let mut draft = draft(cx, work, command);
    let said = Said { message, ..Said::default() };
    match finding {
        Finding::Found(proof) => {
            let proof = Proof { kind: EvidenceKind::Lookup, ..proof.clone() };
            receipt::succeed(cx, &mut draft, command, &proof, message);
        }
        Finding::Absent => {
            let doubted = command.body.doubted_at.unwrap_or(cx.now);
            let counts_at = doubted + command.body.tool.consistency_delay_ms as Millis;
            if cx.now < counts_at {
                return Err(Refusal::new(
                    Code::NotDue,
                    format!(
                        "The provider may not show it yet: `absent` counts in {}. Look again then.",
                        span(counts_at - cx.now)
                    ),
                ));
            }
            settle::release(&mut draft, command);
            let now = match command.body.tool.risk {
                Risk::Low => CommandState::Pending,
                Risk::High => CommandState::Blocked,
            };
            draft.change_command(id, now, said, |moved| {
                let finding = Miss::Absent;
                Fact::CommandLookedUp(LookedUp {
                    moved,
                    finding,
                    unknowns: 0,
                    needs_person: false,
                    next_at: None,
                })
            });
            // It has no holder that could execute it again.
            if work.state.is_terminal() {
                cancel::ended(&mut draft, work.state);
            }
        }
        Finding::Unknown => {
            let unknowns = command.body.unknowns + 1;
            let needs_person = command.body.needs_person || unknowns >= command.body.tool.max_unknowns;
            let tool = &command.body.tool;
            let delay = retry::backoff_ms(&tool.retry, unknowns, Some(tool.lookup_interval_ms), cx.random())
                as Millis;
            let next_at = (!needs_person).then_some(cx.now + delay);
            draft.change_command(id, CommandState::Uncertain, said, |moved| {
                let finding = Miss::Unknown;
                Fact::CommandLookedUp(LookedUp { moved, finding, unknowns, needs_person, next_at })
            });
        }
    }
    finish(cx, draft, id)
}
