//! The responses of verbs: leases, renewals, steps, waits and their answers. A holder sees its payloads.

use std::time::Duration;

use tenure_api::wire as w;
use tenure_core::{Ack, Payload, Step, reply::Renewal};
use tenure_store::{Claimed, Resolved, Waiting};

use super::{ToWire, View, at, value};
use crate::http::Problem;

pub(crate) fn ack(ack: &Ack) -> w::Ack {
    w::Ack {
        id: ack.work.to_string().into(),
        state: ack.state.to_wire().into(),
        seq: ack.seq,
        next_retry_at: ack.next_retry_at.map(at),
        waits: ack.waits.iter().map(|id| id.to_string().into()).collect(),
    }
}

/// A lease as of its last renewal, for its holder.
pub(crate) fn grant(claimed: Claimed) -> w::Grant {
    let now = claimed.work.lease.as_ref().map_or(0, |lease| lease.renewed_at);
    let view = View { now, payloads: true, ..View::default() };
    w::Grant {
        work: super::work(&claimed.work, &view),
        input: value(claimed.input.as_ref()).unwrap_or_default(),
        fence: claimed.lease.fence,
        token: claimed.lease.token,
        expires_at: at(claimed.expires_at),
        renew_ms: ms(claimed.renew_every),
        ttl_ms: claimed.work.spec.policy.lease.ttl_ms,
        steps: claimed.steps.iter().map(|(of, result)| step(of, result.as_ref())).collect(),
        answers: claimed.answers.iter().map(|(of, answer)| super::wait(of, true, answer.as_ref())).collect(),
    }
}

pub(crate) fn step(step: &Step, result: Option<&Payload>) -> w::Step {
    w::Step {
        name: step.name.clone(),
        ordinal: step.ordinal,
        input_hash: step.input_hash.hex(),
        begun_at: at(step.begun_at),
        completed_at: step.completed_at.map(at),
        result: value(result),
        voided: step.voided,
    }
}

pub(crate) fn renewal(renewal: Renewal) -> w::Renewal {
    let id = renewal.work.to_string().into();
    match renewal.outcome {
        Ok(renewed) => w::Renewal::Renewed {
            id,
            expires_at: at(renewed.expires_at),
            cancel_requested: renewed.cancel_requested,
            release_requested: renewed.release_requested,
        },
        Err(refusal) => w::Renewal::Refused { id, problem: Problem::from(refusal).into_wire() },
    }
}

/// The token contains the wait's id, so that it alone is enough to answer.
pub(crate) fn waiting(waiting: Waiting) -> w::Waiting {
    w::Waiting {
        work: ack(&waiting.ack),
        waits: waiting
            .waits
            .iter()
            .map(|(id, token)| w::OpenedWait { id: id.to_string().into(), token: format!("{id}.{token}") })
            .collect(),
        answers: waiting.answers.iter().map(|(of, answer)| super::wait(of, true, answer.as_ref())).collect(),
    }
}

pub(crate) fn resolved(resolved: Resolved, payloads: bool) -> w::Resolved {
    w::Resolved {
        answers: resolved
            .answers
            .iter()
            .map(|(answer, payload)| w::ResolvedWait {
                wait: answer.wait.to_string().into(),
                work: answer.work.to_string().into(),
                first: answer.first,
                payload: value(payload.as_ref().filter(|_| payloads)),
            })
            .collect(),
        kept: resolved.kept,
        lease: resolved.lease.map(grant),
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
