//! Commands on the wire: as readers see them, and as callers describe them.

use std::collections::BTreeMap;

use tenure_api::wire as w;
use tenure_core::{
    Code, Command, CommandState, Payload, Refusal,
    command::{
        BlockCode, CallError, CancelCode, EvidenceKind, Finding, Proof, Receipt, Recorded, budget::Cost,
    },
    payload::Digest,
};

use super::{ToCore, ToWire, actor, at, usage, value, work::used};

/// Parts of a command besides its row, shown only to callers who may see them.
#[derive(Default)]
pub(crate) struct Shown<'a> {
    pub arguments: Option<&'a Payload>,
    pub response: Option<&'a Payload>,
}

pub(crate) fn command(command: &Command, shown: &Shown<'_>) -> w::Command {
    let (spec, body) = (&command.spec, &command.body);
    w::Command {
        id: command.id.to_string().into(),
        work: command.work.to_string().into(),
        tenant: spec.tenant.clone(),
        tool: spec.tool.clone(),
        target: spec.target.clone(),
        step: spec.step.clone(),
        slot: spec.slot.clone(),
        kind: spec.kind.to_wire().into(),
        executor: spec.executor.to_wire().into(),
        risk: body.tool.risk.to_wire().into(),
        idempotency: body.tool.idempotency.to_wire().into(),
        four_eyes: body.tool.four_eyes,
        state: command.state.to_wire().into(),
        reason: reason(command),
        command_key: spec.key.hex(),
        input_hash: spec.input_hash.hex(),
        idempotency_key: command.idempotency_key(),
        seal: command.seal().hex(),
        decision: w::PolicyDecision {
            policy_version: body.decision.policy_version.clone(),
            effect: body.decision.effect.to_wire().into(),
            reasons: body.decision.reasons.clone(),
        },
        approval: body.approval.as_ref().map(|approval| w::Approval {
            by: actor(&approval.by),
            at: at(approval.at),
            expires_at: at(approval.expires_at),
            seal: approval.seal.hex(),
            used_at: approval.used_at.map(at),
        }),
        submitter: actor(&body.submitter),
        attempt: body.attempt,
        dispatch: body.dispatch.as_ref().map(|dispatch| w::Dispatch {
            number: body.dispatches,
            at: at(dispatch.at),
            fence: dispatch.fence,
            by: actor(&dispatch.by),
            deadline_at: dispatch.deadline_at.map(at),
        }),
        dispatches: body.dispatches,
        failures: body.failures,
        unknowns: body.unknowns,
        needs_person: body.needs_person,
        replays: body.replays,
        error: body.error.as_ref().map(|error| w::WorkError {
            class: error.class.to_wire().into(),
            message: error.message.clone(),
        }),
        next_at: body.next_at.map(at),
        estimate: (!body.estimate.is_nothing()).then(|| w::Cost {
            tokens: body.estimate.tokens,
            micros: body.estimate.micros.iter().cloned().collect(),
        }),
        receipt: body.receipt.as_ref().map(|of| receipt(of, shown.response)),
        superseded_by: body.superseded_by.map(|id| id.to_string().into()),
        created_at: at(command.created_at),
        first_dispatched_at: body.first_dispatched_at.map(at),
        updated_at: at(command.updated_at),
        arguments: value(shown.arguments),
    }
}

fn receipt(receipt: &Receipt, response: Option<&Payload>) -> w::Receipt {
    let Receipt { at: received, evidence, external_id, reference, response: _, reused_from, usage } = receipt;
    w::Receipt {
        at: at(*received),
        evidence: w::ReceiptEvidence { kind: evidence.to_wire().into(), reference: reference.clone() },
        external_id: external_id.clone(),
        response: value(response),
        reused_from: reused_from.map(|id| id.to_string().into()),
        usage: usage.iter().map(used).collect(),
    }
}

/// Why it does not progress.
fn reason(command: &Command) -> Option<w::Reason> {
    let body = &command.body;
    let code = match command.state {
        CommandState::Blocked => match body.blocked {
            Some(BlockCode::PolicyDenied) => "policy_denied",
            Some(BlockCode::Budget) => "budget",
            Some(BlockCode::ApprovalRequired) | None => "approval_required",
        },
        CommandState::Cancelled => match body.cancelled {
            Some(CancelCode::Rejected) => "rejected",
            Some(CancelCode::Superseded) => "superseded",
            Some(CancelCode::WorkEnded) => "work_ended",
            Some(CancelCode::Requested) | None => "requested",
        },
        CommandState::Uncertain if body.needs_person => "needs_person",
        CommandState::Uncertain => "in_doubt",
        CommandState::Pending
        | CommandState::Approved
        | CommandState::Dispatched
        | CommandState::Succeeded
        | CommandState::Failed => return None,
    };
    Some(w::Reason { code: code.to_owned(), tool: None, message: body.message.clone() })
}

/// Currencies are compared without case.
pub(crate) fn cost(cost: w::Cost) -> Cost {
    let mut micros: BTreeMap<String, u64> = BTreeMap::new();
    for (currency, amount) in cost.micros {
        let sum = micros.entry(currency.to_ascii_lowercase()).or_default();
        *sum = sum.saturating_add(amount);
    }
    Cost { tokens: cost.tokens, micros: micros.into_iter().collect() }
}

pub(crate) fn call_error(error: w::CallFailure) -> CallError {
    CallError { class: error.class.to_core(), message: error.message, retry_after_ms: error.retry_after_ms }
}

pub(crate) fn proof(receipt: w::DeliverReceipt) -> Result<Proof, Refusal> {
    let evidence = receipt.evidence;
    let kind = evidence.as_ref().map_or(EvidenceKind::Provider, |proof| proof.kind.to_core());
    Ok(Proof {
        kind,
        external_id: receipt.external_id,
        reference: evidence.and_then(|proof| proof.reference),
        response: receipt.response.as_ref().map(Payload::new).transpose()?,
        cost: receipt.cost.map(cost),
        usage: usage(receipt.usage),
        evidence: Vec::new(),
    })
}

pub(crate) fn finding(reconcile: w::Reconcile) -> Result<Finding, Refusal> {
    let w::Reconcile { token: _, outcome, external_id, reference, response, message: _ } = reconcile;
    let response = response.as_ref().map(Payload::new).transpose()?;
    let said = external_id.is_some() || reference.is_some() || response.is_some();
    match outcome {
        w::LookupOutcome::Found => {
            let proof = Proof { external_id, reference, response, ..Proof::new(EvidenceKind::Lookup) };
            Ok(Finding::Found(proof))
        }
        w::LookupOutcome::Absent if !said => Ok(Finding::Absent),
        w::LookupOutcome::Unknown if !said => Ok(Finding::Unknown),
        w::LookupOutcome::Absent | w::LookupOutcome::Unknown => Err(contradiction(outcome.as_str())),
    }
}

pub(crate) fn recorded(record: w::RecordCommand) -> Result<Recorded, Refusal> {
    let w::RecordCommand { outcome, external_id, reference, response, reason: _ } = record;
    let response = response.as_ref().map(Payload::new).transpose()?;
    let said = external_id.is_some() || reference.is_some() || response.is_some();
    match outcome {
        w::RecordOutcome::Happened => {
            let proof = Proof { external_id, reference, response, ..Proof::new(EvidenceKind::Person) };
            Ok(Recorded::Happened(proof))
        }
        w::RecordOutcome::DidNotHappen if !said => Ok(Recorded::DidNotHappen),
        w::RecordOutcome::DidNotHappen => Err(contradiction(outcome.as_str())),
    }
}

fn contradiction(outcome: &str) -> Refusal {
    Refusal::new(
        Code::Invalid,
        format!(
            "`{outcome}` has no evidence: leave out `external_id`, `ref` and `response`, or give another outcome."
        ),
    )
}

/// A hash in its text form.
pub(crate) fn digest(field: &str, text: &str) -> Result<Digest, Refusal> {
    serde_json::from_value(text.into()).map_err(|_| {
        Refusal::new(Code::Invalid, format!("`{field}` must have 64 hex digits. Copy it as it was shown."))
    })
}
