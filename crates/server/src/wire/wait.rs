//! A wait as readers see it.

use tenure_api::wire as w;
use tenure_core::{Payload, Wait};

use super::{ToWire, actor, at, value};

pub(crate) fn wait(wait: &Wait, payloads: bool, answer: Option<&Payload>) -> w::Wait {
    let detail = &wait.detail;
    w::Wait {
        id: wait.id.to_string().into(),
        work: wait.work.to_string().into(),
        tenant: wait.tenant.clone(),
        reference: wait.reference.clone(),
        kind: wait.kind.to_wire().into(),
        state: wait.state.to_wire().into(),
        prompt: detail.prompt.clone(),
        assignee: detail.assignee.clone(),
        opened_at: at(wait.opened_at),
        deadline_at: wait.deadline_at.map(at),
        on_timeout: detail.on_timeout.to_wire().into(),
        escalations: detail.escalations,
        ended_at: wait.ended_at.map(at),
        answered_by: detail.answered_by.as_ref().map(actor),
        default: value(detail.default.as_ref().filter(|_| payloads)),
        // The person who answers must see the question.
        schema: value(detail.schema.as_ref()),
        answer: value(answer.filter(|_| payloads)),
        seal: wait.asks_approval().then(|| wait.seal().hex()),
        command: detail.command.map(|id| id.to_string().into()),
    }
}
