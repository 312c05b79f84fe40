//! An event as readers see it.

use tenure_api::wire as w;
use tenure_store::StoredEvent;

use super::{ToWire, actor, at, value};

pub(crate) fn event(stored: &StoredEvent, tenant: &str, payloads: bool) -> w::Event {
    let event = &stored.event;
    w::Event {
        position: stored.position.to_string(),
        work: event.work.to_string().into(),
        tenant: Some(tenant.to_owned()),
        seq: event.seq,
        at: at(event.at),
        kind: event.fact.kind().to_owned(),
        from: event.from.map(|state| state.to_wire().into()),
        to: event.to.to_wire().into(),
        actor: actor(&event.actor),
        attempt: event.attempt,
        step: event.step.clone(),
        fence: event.fence,
        data: super::data::data(&event.data),
        message: event.message.clone(),
        payload: value(event.payload.as_ref().filter(|_| payloads)),
        evidence: event.evidence.iter().map(super::evidence).collect(),
        erased: event.content.is_some_and(|content| content.salt.is_none()),
        prev_hash: event.prev_hash.hex(),
        hash: event.hash.hex(),
    }
}
