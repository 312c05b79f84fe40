//! Executors make calls for the relay: over HTTP, or by a program. An executor makes one call and reports its
//! outcome; it never retries. An outcome that it cannot determine is uncertain, never failed.

mod exec;
mod http;
mod process;

use bytes::Bytes;
use serde::Serialize;
use tenure_core::{
    CommandId, WorkId,
    command::{CallError, Proof},
    model::ErrorClass,
    payload::{Digest, Payload},
};

pub use exec::Exec;
pub use http::{
    Http, HttpAnswer, HttpTarget, IdPlace, Outbound, Resolve, Resolving, SystemResolver, Trouble,
    WebhookSecret,
};
pub use process::Program;
pub(crate) use {exec::evidence, process::Ended};

/// One command as its executor or its lookup sees it.
#[derive(Clone, Debug)]
pub struct Call {
    pub command: CommandId,
    pub work: WorkId,
    pub tenant: String,
    pub tool: String,
    pub target: String,
    pub arguments: Payload,
    pub input_hash: Digest,
    /// The same for every attempt; also the message's id.
    pub idempotency_key: String,
    pub session: Option<String>,
    pub correlation_id: Option<String>,
}

/// A message over HTTP: a body under a stable id.
pub struct Message<'m> {
    pub id: &'m str,
    /// The URL, if the configuration names none.
    pub target: &'m str,
    pub body: Bytes,
}

#[derive(Serialize)]
struct CallMessage<'c> {
    #[serde(rename = "type")]
    tool: &'c str,
    data: Data<'c>,
}

#[derive(Serialize)]
struct Data<'c> {
    command: CommandId,
    work: WorkId,
    tenant: &'c str,
    target: &'c str,
    idempotency_key: &'c str,
    input_hash: Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'c str>,
    arguments: &'c Payload,
}

impl Call {
    /// The message that is sent for it.
    fn message(&self) -> Message<'_> {
        Message { id: &self.idempotency_key, target: &self.target, body: self.body() }
    }

    /// The body, byte for byte the same each time: providers compare requests with one key.
    pub fn body(&self) -> Bytes {
        let message = CallMessage {
            tool: &self.tool,
            data: Data {
                command: self.command,
                work: self.work,
                tenant: &self.tenant,
                target: &self.target,
                idempotency_key: &self.idempotency_key,
                input_hash: self.input_hash,
                session: self.session.as_deref(),
                correlation_id: self.correlation_id.as_deref(),
                arguments: &self.arguments,
            },
        };
        serde_json::to_vec(&message).expect("strings and digests always serialise").into()
    }
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallOutcome {
    /// It happened, with evidence.
    Succeeded(Box<Proof>),
    /// It did not happen. `unsent`: no request was made.
    Failed { error: CallError, unsent: bool },
    /// It did not happen, and the target asks for no more calls.
    Gone(CallError),
    /// Nobody knows.
    Uncertain(CallError),
}

impl CallOutcome {
    fn refused(class: ErrorClass, message: impl Into<String>) -> Self {
        CallOutcome::Failed { error: problem(class, message), unsent: false }
    }

    fn unsent(class: ErrorClass, message: impl Into<String>) -> Self {
        CallOutcome::Failed { error: problem(class, message), unsent: true }
    }

    fn uncertain(class: ErrorClass, message: impl Into<String>) -> Self {
        CallOutcome::Uncertain(problem(class, message))
    }
}

fn problem(class: ErrorClass, message: impl Into<String>) -> CallError {
    CallError { class, message: excerpt(&message.into(), 1_000), retry_after_ms: None }
}

/// An excerpt for a message: printable and bounded.
pub(crate) fn excerpt(text: &str, chars: usize) -> String {
    let printable = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    let mut kept: String = text.chars().take(chars).map(printable).collect();
    if text.chars().nth(chars).is_some() {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
pub(crate) fn example() -> Call {
    let arguments = Payload::new(&serde_json::json!({ "text": "héllo", "n": 1 })).unwrap();
    Call {
        command: CommandId(uuid::Uuid::from_u128(7)),
        work: WorkId(uuid::Uuid::from_u128(9)),
        tenant: "acme".into(),
        tool: "notify".into(),
        target: "https://hooks.example/notify".into(),
        input_hash: arguments.hash(),
        arguments,
        idempotency_key: "tenure-0123456789".into(),
        session: Some("chat-1".into()),
        correlation_id: None,
    }
}
