//! The requests of callers: plain fields with defaults, and their conversion to actions in which every value
//! is set.

use serde_json::Value;
use tenure_core::{
    CommandId, Evidence, Payload, Refusal, WaitId, WorkId,
    action::{Claimant, CloseOut, Ingest, WaitSpec},
    model::{Disposition, OnParentClose, OnTimeout, Source, WaitKind, Worker, Workflow},
    policy::{PolicyOverrides, Settings},
};
use uuid::Uuid;

/// A worker process: a permanent id, and a new incarnation for each start.
pub fn new_worker(id: &str) -> Worker {
    Worker::new(id, &Uuid::now_v7().simple().to_string())
}

/// A work item to be recorded.
#[derive(Clone, Debug)]
pub struct NewWork {
    pub tenant: String,
    pub source: Source,
    pub kind: String,
    /// Required: what may be done when its worker is lost.
    pub disposition: Disposition,
    pub input: Value,
    /// Lower values come first.
    pub priority: i16,
    pub session: Option<String>,
    pub correlation_id: Option<String>,
    pub workflow: Option<Workflow>,
    pub parent: Option<WorkId>,
    pub on_parent_close: OnParentClose,
    pub policy: PolicyOverrides,
    pub evidence: Vec<Evidence>,
    /// Claims it in the same transaction, if it can be claimed.
    pub claim: Option<Claimant>,
    /// A detached work item that has already ended.
    pub born: Option<CloseOut>,
}

impl NewWork {
    pub fn new(system: &str, id: &str, kind: &str, disposition: Disposition, input: Value) -> Self {
        Self {
            tenant: "default".to_owned(),
            source: Source { system: system.to_owned(), id: id.to_owned(), run_id: String::new() },
            kind: kind.to_owned(),
            disposition,
            input,
            priority: 3,
            session: None,
            correlation_id: None,
            workflow: None,
            parent: None,
            on_parent_close: OnParentClose::Leave,
            policy: PolicyOverrides::default(),
            evidence: Vec::new(),
            claim: None,
            born: None,
        }
    }

    pub(crate) fn settle(self, settings: &Settings) -> Result<Ingest, Refusal> {
        Ok(Ingest {
            id: WorkId(Uuid::now_v7()),
            policy: settings.policy(&self.source.system, &self.policy)?,
            input: Payload::new(&self.input)?,
            tenant: self.tenant,
            source: self.source,
            kind: self.kind,
            disposition: self.disposition,
            priority: self.priority,
            session: self.session,
            correlation_id: self.correlation_id,
            workflow: self.workflow,
            parent: self.parent,
            on_parent_close: self.on_parent_close,
            evidence: self.evidence,
            asked_by: Vec::new(),
            claim: self.claim,
            born: self.born,
        })
    }
}

/// A wait to be opened.
#[derive(Clone, Debug)]
pub struct NewWait {
    pub kind: WaitKind,
    pub reference: String,
    pub prompt: Option<String>,
    pub assignee: Option<String>,
    /// None: 24 hours for people, 2 hours for machines, unless `endless`.
    pub timeout_ms: Option<u64>,
    pub endless: bool,
    pub on_timeout: OnTimeout,
    pub default: Option<Value>,
    /// A JSON schema that the answer must match. An early answer that does not match is dropped, with an
    /// event.
    pub schema: Option<Value>,
    /// A dispatched command that is handed to the wait: the answer becomes its receipt.
    pub command: Option<CommandId>,
}

impl NewWait {
    pub fn new(kind: WaitKind, reference: &str) -> Self {
        Self {
            kind,
            reference: reference.to_owned(),
            prompt: None,
            assignee: None,
            timeout_ms: None,
            endless: false,
            on_timeout: OnTimeout::TimeOut,
            default: None,
            schema: None,
            command: None,
        }
    }

    pub(crate) fn settle(self) -> Result<WaitSpec, Refusal> {
        let payload = |value: Option<Value>| value.as_ref().map(Payload::new).transpose();
        Ok(WaitSpec {
            id: WaitId(Uuid::now_v7()),
            kind: self.kind,
            reference: self.reference,
            prompt: self.prompt,
            assignee: self.assignee,
            timeout_ms: self.timeout_ms,
            endless: self.endless,
            on_timeout: self.on_timeout,
            default: payload(self.default)?,
            schema: payload(self.schema)?,
            command: self.command,
            judged: None,
        })
    }
}
