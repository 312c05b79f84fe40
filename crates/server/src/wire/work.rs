//! A work item as readers see it.

use serde_json::Value;
use tenure_api::wire as w;
use tenure_core::{
    Evidence, Millis, Payload, Usage, Wait, Work, activity, liveness, model::Output, policy::OnStalled,
};

use super::{ToWire, actor, at, value};

/// Parts of a work item besides its row.
#[derive(Default)]
pub(crate) struct View<'a> {
    pub now: Millis,
    pub waits: &'a [Wait],
    /// Whether the reader may see payloads; `input` and `result` are included only then.
    pub payloads: bool,
    pub input: Option<&'a Payload>,
    pub result: Option<&'a Payload>,
    pub evidence: &'a [Evidence],
    /// The past moment that is shown. `now` is not used then: a lease is graded as its last event left it.
    pub as_of: Option<Millis>,
}

pub(crate) fn work(work: &Work, view: &View<'_>) -> w::Work {
    let spec = &work.spec;
    let body = &work.body;
    let (result_ref, no_output) = match &body.output {
        Some(Output::Reference(reference)) => (Some(reference.clone()), false),
        Some(Output::NoOutput) => (None, true),
        Some(Output::Inline { .. }) | None => (None, false),
    };
    w::Work {
        id: work.id.to_string().into(),
        source: w::Source {
            system: spec.source.system.clone(),
            id: spec.source.id.clone(),
            run_id: spec.source.run_id.clone(),
        },
        kind: spec.kind.clone(),
        title: spec.label().to_owned(),
        session: spec.session.clone(),
        workflow: spec
            .workflow
            .as_ref()
            .map(|workflow| w::Workflow { id: workflow.id.clone(), version: workflow.version.clone() }),
        tenant: spec.tenant.clone(),
        correlation_id: spec.correlation_id.clone(),
        parent: spec.parent.map(|id| id.to_string().into()),
        rerun_of: spec.rerun_of.map(|id| id.to_string().into()),
        generation: spec.generation,
        state: work.state.to_wire().into(),
        phase: work.state.phase().to_wire().into(),
        state_since: body.state_since.map(at),
        seq: work.seq,
        reason: body.reason.as_ref().map(|reason| w::Reason {
            code: text(&reason.code),
            tool: reason.tool.clone(),
            message: reason.message.clone(),
        }),
        attempt: work.attempt,
        failures: body.failures,
        step: body.step.clone(),
        priority: spec.priority,
        disposition: spec.disposition.to_wire().into(),
        lease: lease(work, judged_at(work, view)),
        first_started: body.first_started.as_ref().map(|first| w::FirstStarted {
            worker: first.worker.clone(),
            incarnation: first.incarnation.clone(),
            at: at(first.at),
        }),
        last_heartbeat_at: work.lease.as_ref().map(|lease| at(lease.renewed_at)),
        last_activity_at: work.lease.as_ref().map(|_| at(activity::active_at(work))),
        spinning_since: activity::spinning(work, view.now).map(at),
        on_stalled: Some(spec.policy.stalled)
            .filter(|told| *told != OnStalled::default())
            .map(|told| told.to_wire().into()),
        waits: view.waits.iter().map(|wait| super::wait(wait, view.payloads, None)).collect(),
        next_retry_at: work.next_retry_at.map(at),
        due_at: work.due_at.map(at),
        cancel: body.cancel.as_ref().map(|cancel| w::CancelRequest {
            reason: cancel.reason.clone(),
            requested_at: at(cancel.requested_at),
            requested_by: actor(&cancel.requested_by),
            deadline_at: at(cancel.deadline_at),
            acknowledged_at: cancel.acknowledged_at.map(at),
        }),
        abandon_request: body.abandon_request.as_ref().map(|request| w::AbandonRequest {
            reason: request.reason.clone(),
            requested_at: at(request.requested_at),
            requested_by: actor(&request.requested_by),
        }),
        timestamps: w::Timestamps {
            acknowledged: at(spec.created_at),
            dispatched: body.dispatched_at.map(at),
            accepted: body.accepted_at.map(at),
            started: body.first_started.as_ref().map(|first| at(first.at)),
            completed: body.completed_at.map(at),
            sent: None,
            updated: at(work.updated_at),
        },
        accept_strength: body.accept_strength.map(|strength| strength.to_wire().into()),
        progress: value(work.progress.as_ref().filter(|_| view.payloads)),
        input: value(view.input),
        input_hash: spec.input_hash.hex(),
        result: value(view.result),
        result_ref,
        no_output,
        error: body.error.as_ref().map(|error| w::WorkError {
            class: error.class.to_wire().into(),
            message: error.message.clone(),
        }),
        warnings: body.warnings.clone(),
        evidence: view.evidence.iter().map(super::evidence).collect(),
        usage: body.usage.iter().map(used).collect(),
        erased_at: body.erased_at.map(at),
        as_of: view.as_of.map(|moment| as_of(moment, false)),
    }
}

/// The fields of a past moment that no event records.
const NOT_RECORDED: [&str; 7] = [
    "due_at",
    "last_heartbeat_at",
    "lease.expires_at",
    "lease.liveness",
    "lease.missed",
    "lease.renewed_at",
    "progress",
];

pub(crate) fn as_of(moment: Millis, pruned_since: bool) -> w::AsOf {
    w::AsOf { at: at(moment), not_recorded: NOT_RECORDED.map(str::to_owned).to_vec(), pruned_since }
}

/// When the lease is graded. Renewals are not in the log: at a past moment nobody is called silent for lack of them.
fn judged_at(work: &Work, view: &View<'_>) -> Millis {
    let recorded = work.lease.as_ref().filter(|_| view.as_of.is_some()).map(|lease| lease.renewed_at);
    recorded.unwrap_or(view.now)
}

/// The current lease, or the last one if it was not superseded.
pub(super) fn lease(work: &Work, now: Millis) -> Option<w::Lease> {
    let (grade, missed) = liveness::grade(work, None, now)?;
    let (lease, holder) = (work.lease.as_ref()?, work.body.holder.as_ref()?);
    Some(w::Lease {
        worker: holder.id.clone(),
        incarnation: holder.incarnation.clone(),
        fence: lease.fence,
        expires_at: at(lease.expires_at),
        renewed_at: at(lease.renewed_at),
        missed,
        liveness: grade.to_wire().into(),
        lapsed_at: lease.lapsed_at.map(at),
    })
}

pub(super) fn used(usage: &Usage) -> w::Usage {
    let Usage { source, model, input_tokens, output_tokens, cached_tokens, calls, cost_micros, currency } =
        usage.clone();
    w::Usage { source, model, input_tokens, output_tokens, cached_tokens, calls, cost_micros, currency }
}

/// An enum value of the core in its text form.
fn text(word: &impl serde::Serialize) -> String {
    match serde_json::to_value(word) {
        Ok(Value::String(text)) => text,
        other => unreachable!("an enum value serializes as text, not {other:?}"),
    }
}
