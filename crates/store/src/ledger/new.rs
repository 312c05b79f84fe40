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
    /// The tenant.
    pub tenant: String,
    /// What makes it the same work item when it is recorded again.
    pub source: Source,
    /// The kind, by which workers choose.
    pub kind: String,
    /// One line for people. Without it, the source's id is shown.
    pub title: Option<String>,
    /// Required: what may be done when its worker is lost.
    pub disposition: Disposition,
    /// The input, as JSON.
    pub input: Value,
    /// Lower values come first.
    pub priority: i16,
    /// Its session: only one work item of a session is held at a time.
    pub session: Option<String>,
    /// Ties work items that belong together.
    pub correlation_id: Option<String>,
    /// The workflow that it belongs to.
    pub workflow: Option<Workflow>,
    /// The work item that it is a child of.
    pub parent: Option<WorkId>,
    /// What happens to it when its parent ends.
    pub on_parent_close: OnParentClose,
    /// Settings of its retry policy, lease timings and timeouts.
    pub policy: PolicyOverrides,
    /// Evidence to store with it.
    pub evidence: Vec<Evidence>,
    /// Claims it in the same transaction, if it can be claimed.
    pub claim: Option<Claimant>,
    /// A detached work item that has already ended.
    pub born: Option<CloseOut>,
}

impl NewWork {
    /// A work item of the default tenant, with defaults for everything else.
    pub fn new(system: &str, id: &str, kind: &str, disposition: Disposition, input: Value) -> Self {
        Self {
            tenant: "default".to_owned(),
            source: Source { system: system.to_owned(), id: id.to_owned(), run_id: String::new() },
            kind: kind.to_owned(),
            title: None,
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
            policy: settings.policy(&self.source.system, &self.kind, &self.policy)?,
            input: Payload::new(&self.input)?,
            tenant: self.tenant,
            source: self.source,
            kind: self.kind,
            title: self.title,
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
    /// What is waited for.
    pub kind: WaitKind,
    /// The name by which an answer finds the wait.
    pub reference: String,
    /// The question to a person.
    pub prompt: Option<String>,
    /// Who is asked.
    pub assignee: Option<String>,
    /// None: [`WaitKind::default_timeout_ms`], unless `endless`.
    pub timeout_ms: Option<u64>,
    /// Whether it has no deadline.
    pub endless: bool,
    /// What happens at the deadline.
    pub on_timeout: OnTimeout,
    /// The answer that applies at the deadline, if that is what happens then.
    pub default: Option<Value>,
    /// A JSON schema that the answer must match. An early answer that does not match is dropped, with an
    /// event.
    pub schema: Option<Value>,
    /// A dispatched command that is handed to the wait: the answer becomes its receipt.
    pub command: Option<CommandId>,
}

impl NewWait {
    /// A wait with the default deadline.
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
