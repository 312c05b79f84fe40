//! Converts requests to the ledger's types. Malformed ids are refused here.

use tenure_api::wire as w;
use tenure_core::{
    Code, Evidence, Payload, Refusal, Usage, WorkId,
    action::{Claimant, CloseOut, Decide, Failure},
    liveness::Liveness,
    model::{Source, Worker, Workflow},
    policy::{LeaseTimings, PolicyOverrides, RetryPolicy, Timeouts, WorkPolicy},
};
use tenure_store::{NewWait, NewWork};

use super::ToCore;

/// `source`: the policy of the work item's source, which completes a partial retry policy.
pub(crate) fn new_work(new: w::Ingest, tenant: String, source: &WorkPolicy) -> Result<NewWork, Refusal> {
    Ok(NewWork {
        tenant,
        source: Source { system: new.source.system, id: new.source.id, run_id: new.source.run_id },
        kind: new.kind,
        title: new.title,
        disposition: new.disposition.to_core(),
        input: new.input,
        priority: new.priority.unwrap_or(3),
        session: new.session,
        correlation_id: new.correlation_id,
        workflow: new.workflow.map(workflow),
        parent: new.parent.map(|id| id.as_str().parse::<WorkId>()).transpose()?,
        on_parent_close: new.on_parent_close.map(ToCore::to_core).unwrap_or_default(),
        policy: new.policy.map(|policy| overrides(policy, source)).unwrap_or_default(),
        evidence: new.evidence.into_iter().map(evidence).collect(),
        claim: new.claim.map(claimant),
        born: new.born.map(close_out).transpose()?,
    })
}

pub(super) fn workflow(workflow: w::Workflow) -> Workflow {
    Workflow { id: workflow.id, version: workflow.version }
}

pub(super) fn overrides(policy: w::WorkPolicy, source: &WorkPolicy) -> PolicyOverrides {
    PolicyOverrides {
        lease: policy.lease.map(|lease| LeaseTimings {
            ttl_ms: lease.ttl_ms,
            renew_ms: lease.renew_ms,
            grace_ms: lease.grace_ms,
        }),
        on_expiry: policy.on_expiry.map(ToCore::to_core),
        retry: policy.retry.map(|retry| RetryPolicy {
            initial_ms: retry.initial_ms.unwrap_or(source.retry.initial_ms),
            jitter: retry.jitter.map_or(source.retry.jitter, ToCore::to_core),
            max_attempts: retry.max_attempts.unwrap_or(source.retry.max_attempts),
            max_ms: retry.max_ms.unwrap_or(source.retry.max_ms),
            multiplier_permille: retry
                .multiplier
                .map_or(source.retry.multiplier_permille, |factor| (factor * 1_000.0).round() as u32),
        }),
        timeouts: policy.timeouts.map(|timeouts| Timeouts {
            execution_ms: timeouts.execution_ms,
            overall_ms: timeouts.overall_ms,
            start_ms: timeouts.start_ms,
        }),
    }
}

pub(crate) fn claimant(claimant: w::Claimant) -> Claimant {
    let worker = claimant.worker;
    let liveness = match worker.liveness {
        w::Liveness::Opaque => Liveness::Opaque,
        w::Liveness::LocalProcess { boot_id, pid_namespace, pid, start_time } => {
            Liveness::LocalProcess { boot_id, pid_namespace, pid, start_time }
        }
    };
    Claimant {
        worker: Worker { id: worker.id, incarnation: worker.incarnation, liveness },
        request_id: claimant.request_id,
        defer_start: claimant.defer_start,
    }
}

pub(crate) fn failure(failure: w::Failure) -> Failure {
    Failure {
        class: failure.class.to_core(),
        message: failure.message,
        retry_after_ms: failure.retry_after_ms,
        fingerprint: failure.fingerprint,
    }
}

/// Commands are not included: the evaluator checks a holder's commands first, and other callers have none.
pub(crate) fn close_out(end: w::End) -> Result<CloseOut, Refusal> {
    if !end.commands.is_empty() {
        return Err(Refusal::new(
            Code::Invalid,
            "Only the holder's close-out can contain `commands`. Leave them out.",
        ));
    }
    Ok(CloseOut {
        state: end.state.to_core(),
        result: end.result.as_ref().map(Payload::new).transpose()?,
        result_ref: end.result_ref,
        no_output: end.no_output,
        warnings: end.warnings,
        error: end.error.map(|error| (error.class.to_core(), error.message)),
        evidence: end.evidence.into_iter().map(evidence).collect(),
        commands: Vec::new(),
        usage: usage(end.usage),
    })
}

pub(crate) fn decide(decide: w::Decide) -> Result<Decide, Refusal> {
    let Some(state) = decide.decision.end() else { return Ok(Decide::Requeue) };
    let end = w::End {
        result: decide.result,
        result_ref: decide.result_ref,
        no_output: decide.no_output,
        error: decide.error,
        ..w::End::new(state)
    };
    close_out(end).map(|close| Decide::Close(Box::new(close)))
}

pub(crate) fn new_wait(wait: w::NewWait) -> Result<NewWait, Refusal> {
    Ok(NewWait {
        kind: wait.kind.to_core(),
        reference: wait.reference,
        prompt: wait.prompt,
        assignee: wait.assignee,
        timeout_ms: wait.timeout_ms,
        endless: wait.endless,
        on_timeout: wait.on_timeout.map(ToCore::to_core).unwrap_or_default(),
        default: wait.default,
        schema: wait.schema,
        command: wait.command.map(|id| id.as_str().parse()).transpose()?,
    })
}

pub(crate) fn usage(usage: Vec<w::Usage>) -> Vec<Usage> {
    let one = |usage: w::Usage| Usage {
        source: usage.source,
        model: usage.model,
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cached_tokens: usage.cached_tokens,
        calls: usage.calls,
        cost_micros: usage.cost_micros,
        currency: usage.currency,
    };
    usage.into_iter().map(one).collect()
}

fn evidence(evidence: w::Evidence) -> Evidence {
    Evidence { kind: evidence.kind, reference: evidence.reference }
}
