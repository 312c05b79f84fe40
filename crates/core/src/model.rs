//! The records: a work item and the records that belong to it. Stores keep them; only the core changes them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Millis,
    command::Tally,
    document::Document,
    event::{Actor, Evidence},
    ids::{CommandId, WaitId, WorkId},
    limits,
    liveness::{Grade, Liveness},
    payload::{self, Digest, Payload},
    policy::WorkPolicy,
    records::is_reserved,
    refusal::{Code, Refusal},
    state::State,
    usage::Usage,
};

/// Where a work item came from. It is the item's identity, under any concurrency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Source {
    pub system: String,
    pub id: String,
    /// Required for the scheduler: every run is a work item of its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_id: String,
}

/// The identity at ingest; its generations are reruns of one another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    pub tenant: String,
    pub source: Source,
}

/// The declared recovery contract. There is no default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// Any worker may run it again from its last checkpoint.
    Rerunnable,
    /// Only the incarnation that started it can know how it ended.
    OwnerBound,
    /// An external system owns it and reports how it ended.
    ExternallyOwned,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnParentClose {
    Cancel,
    #[default]
    Leave,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workflow {
    pub id: String,
    pub version: String,
}

/// The fields that never change after ingest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    pub tenant: String,
    pub source: Source,
    pub kind: String,
    /// One line for people. Without it, the source's id is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub disposition: Disposition,
    pub priority: i16,
    pub correlation_id: String,
    pub generation: u32,
    pub input_hash: Digest,
    /// The input's size, unless it is too small to count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input_bytes: u32,
    pub policy: WorkPolicy,
    pub created_at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<WorkId>,
    #[serde(default)]
    pub on_parent_close: OnParentClose,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<WorkId>,
    /// The keys of the commands that a person decided to execute again in this rerun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub execute: Vec<Digest>,
    /// The step from which a rerun continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<String>,
    /// The people who submitted or reran it, its ancestors or an earlier run: they cannot be its second pair
    /// of eyes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submitters: Vec<Arc<str>>,
}

impl Spec {
    /// One line that tells people which work item this is.
    pub fn label(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.source.id)
    }

    pub fn identity(&self) -> Identity {
        Identity { tenant: self.tenant.clone(), source: self.source.clone() }
    }

    pub fn start_at(&self) -> Option<Millis> {
        self.policy.timeouts.start_ms.map(|ms| self.created_at + ms as Millis)
    }

    pub fn overall_at(&self) -> Option<Millis> {
        self.policy.timeouts.overall_ms.map(|ms| self.created_at + ms as Millis)
    }

    /// The session's key across the ledger.
    pub fn session_key(&self) -> Option<(String, String)> {
        self.session.as_ref().map(|session| (self.tenant.clone(), session.clone()))
    }
}

/// A worker: a stable id, and an incarnation that is new at each start.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Worker {
    pub id: String,
    pub incarnation: String,
    #[serde(default)]
    pub liveness: Liveness,
}

impl Worker {
    /// A worker that offers no evidence of life besides its renewals.
    pub fn new(id: &str, incarnation: &str) -> Self {
        Self { id: id.to_owned(), incarnation: incarnation.to_owned(), liveness: Liveness::Opaque }
    }
}

/// The part of ownership that renewals change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub fence: u64,
    pub expires_at: Millis,
    pub renewed_at: Millis,
    /// The actor that renewed it, if not the holder itself.
    pub renewed_by: Option<String>,
    /// When a renewal last brought progress that differs from what was stored.
    pub progressed_at: Option<Millis>,
    /// Set by the tick that found it past expiry + grace. The holder may still write until it is superseded.
    pub lapsed_at: Option<Millis>,
}

/// Why a row makes no progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub code: ReasonCode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    WaitingForAnswer,
    ExternalOwner,
    RetryBackoff,
    ExecutionTimeout,
    LeaseLapsed,
    HolderDead,
    OwnerAbsent,
    CancelRequested,
    PoisonLapses,
    PoisonFingerprint,
    InDoubt,
    Operator,
}

/// The class of a failure; it decides whether a retry can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    Transport,
    Timeout,
    RateLimited,
    Unavailable,
    Validation,
    Auth,
    Quota,
    PolicyDenied,
    Misconfigured,
    Unsupported,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorInfo {
    pub class: ErrorClass,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    pub requested_at: Millis,
    pub requested_by: Actor,
    pub deadline_at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When its holder was notified, by the reply to a renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged_at: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbandonRequest {
    pub requested_at: Millis,
    pub requested_by: Actor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstStarted {
    pub worker: String,
    pub incarnation: String,
    pub at: Millis,
    /// The id of the actor that claimed it; only for owner-bound work. None if it started before this was
    /// recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
}

impl FirstStarted {
    /// The same worker in the same incarnation, under the same actor: after a restart it is another owner,
    /// and another actor may use the same names.
    pub fn is(&self, worker: &Worker, actor: &str) -> bool {
        self.worker == worker.id
            && self.incarnation == worker.incarnation
            && self.by.as_deref().is_none_or(|by| by == actor)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptStrength {
    /// The agent was sent the input.
    Weak,
    /// The agent took it on.
    Strong,
}

/// The output of a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// A result that is stored as the payload of event `seq`.
    Inline { hash: Digest, seq: u64 },
    /// A result that is stored elsewhere.
    Reference(String),
    /// Declared: there is no output.
    NoOutput,
}

/// The same failure, repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub text: String,
    pub count: u32,
}

/// A progress request that is remembered: its id and its content, each as the beginning of a hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressRequest {
    pub id: String,
    pub content: String,
}

impl ProgressRequest {
    pub fn new(request_id: &str, content: String) -> Self {
        Self { id: Digest::of(request_id).hex()[..16].to_owned(), content }
    }
}

/// The rest of the row, which stores keep as one JSON document. All of it comes from events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandon_request: Option<AbandonRequest>,
    /// Its holder is asked to release it. Cleared with that holder's lease, even with a lapsed one that was
    /// not superseded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub release_requested: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_strength: Option<AcceptStrength>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<Millis>,
    /// Until when queued, started owner-bound work waits for its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_until: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Cancel>,
    #[serde(default, skip_serializing_if = "Tally::is_empty")]
    pub commands: Tally,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched_at: Option<Millis>,
    /// When its content was erased last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erased_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_started: Option<FirstStarted>,
    /// The holder, or the last one if it was not superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Worker>,
    /// The id of the actor that claimed for the holder. Only for owner-bound work: no other actor may claim
    /// it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<Arc<str>>,
    /// The grade of the holder's process when its lease lapsed, if there was any evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lapsed_as: Option<Grade>,
    /// Consecutive lapses.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lapses: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// The size of its step results and answers, and of its waits' schemas and defaults.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub payload_bytes: u32,
    /// The last progress requests of this attempt, the latest last: a repeat writes nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress_requests: Vec<ProgressRequest>,
    /// The last sign of its holder's work before events that are none, such as a lapse. Only where spinning is judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_since: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// When it entered its present state. None on rows that have not moved since this was introduced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// How many step and wait rows there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steps: u32,
    /// The usage of all attempts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waits: u32,
    /// The earliest deadline of the open waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_due: Option<Millis>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A work item: one accountable unit of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    pub id: WorkId,
    pub spec: Arc<Spec>,
    pub state: State,
    /// The number and the hash of its last event.
    pub seq: u64,
    pub head: Digest,
    /// How often it was claimed.
    pub attempt: u32,
    /// The last fence ever granted; it outlives the lease.
    pub fence: u64,
    pub lease: Option<Lease>,
    pub open_waits: u32,
    pub next_retry_at: Option<Millis>,
    /// A lower bound of the next deadline.
    pub due_at: Option<Millis>,
    pub progress: Option<Payload>,
    pub updated_at: Millis,
    /// Whether its end has to wake children, or work items that wait for it. Set by those, not by events.
    pub children: bool,
    pub waiters: bool,
    pub body: Document<Body>,
}

impl Work {
    pub fn started(&self) -> bool {
        self.body.first_started.is_some()
    }

    pub fn owner_bound_started(&self) -> bool {
        self.spec.disposition == Disposition::OwnerBound && self.started()
    }

    /// How much a lapse of its lease adds to its failures and lapses: nothing if an operator asked its holder
    /// to release it.
    pub fn lapse_counts(&self) -> u32 {
        u32::from(!self.body.release_requested)
    }

    /// The size of the payloads that come with its lease.
    pub fn weight(&self) -> usize {
        let progress = self.progress.as_ref().map_or(0, |progress| progress.text().len());
        self.spec.input_bytes as usize + self.body.payload_bytes as usize + progress
    }

    /// Refuses a payload that would make the stored ones too large to be returned with the lease.
    pub(crate) fn check_room(&self, what: &str, bytes: u32) -> Result<(), Refusal> {
        let there = self.body.payload_bytes;
        if there as usize + bytes as usize <= limits::WORK_BYTES {
            return Ok(());
        }
        Err(Refusal::new(
            Code::LimitReached,
            format!(
                "{what} has {bytes} bytes, and the step results and answers of {} have {there} already; one \
                 work item stores at most {}. Store it elsewhere and send a reference.",
                self.id,
                limits::WORK_BYTES
            ),
        ))
    }

    /// A lease that was not found lapsed.
    pub fn held_lease(&self) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| lease.lapsed_at.is_none())
    }

    /// The only worker that may claim it: the one that started owner-bound work.
    pub fn starter(&self) -> Option<&FirstStarted> {
        self.body.first_started.as_ref().filter(|_| self.spec.disposition == Disposition::OwnerBound)
    }

    /// The only incarnation that may claim the work item.
    pub fn bound_to(&self) -> Option<&str> {
        self.starter().map(|first| first.incarnation.as_str())
    }
}

/// One claim of a work item under one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub work: WorkId,
    pub number: u32,
    pub fence: u64,
    pub worker: String,
    pub incarnation: String,
    /// The claim request that it was granted to.
    pub request: RequestKey,
    pub claimed_at: Millis,
    pub end: Option<AttemptEnd>,
}

/// A claim request's key: (tenants, actor, worker, incarnation, request id) in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestKey(pub i64);

impl RequestKey {
    pub fn new(parts: &[&str]) -> Self {
        let digest = Digest::of(parts.join("\u{0}")).0;
        let mut eight = [0; 8];
        eight.copy_from_slice(&digest[..8]);
        Self(i64::from_be_bytes(eight))
    }
}

/// How an attempt ended. The verb that ended it can be repeated: the same body gets the same reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnd {
    pub at: Millis,
    pub outcome: AttemptOutcome,
    /// Only if a holder's verb ended it.
    pub body_hash: Option<Digest>,
    pub ack: Option<crate::reply::Ack>,
    pub error: Option<ErrorInfo>,
    /// The usage that the ending verb reported.
    pub usage: Vec<Usage>,
}

impl AttemptEnd {
    /// Drops the free text.
    pub fn erase(&mut self) {
        if let Some(error) = &mut self.error {
            error.message = None;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    ClosedOut,
    Failed,
    Waited,
    Released,
    TimedOut,
    Superseded,
}

/// A named checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub work: WorkId,
    pub name: String,
    /// The order in which steps were begun; a restart voids a step and every later one.
    pub ordinal: u32,
    pub input_hash: Digest,
    pub begun_at: Millis,
    pub completed_at: Option<Millis>,
    /// The event whose payload is the result: of this work item, or of the one that it reruns.
    pub result: Option<(WorkId, u64)>,
    /// Voided: it is in the log, but its result is no longer reused.
    pub voided: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    Approval,
    Auth,
    User,
    Tool,
    External,
}

impl WaitKind {
    pub const ALL: [WaitKind; 5] =
        [WaitKind::Approval, WaitKind::Auth, WaitKind::User, WaitKind::Tool, WaitKind::External];

    pub fn state(self) -> State {
        match self {
            WaitKind::Approval => State::WaitingApproval,
            WaitKind::Auth => State::WaitingAuth,
            WaitKind::User => State::WaitingUser,
            WaitKind::Tool => State::WaitingTool,
            WaitKind::External => State::WaitingExternal,
        }
    }

    /// The one that must answer, as an explanation says it: "Waiting 10 s: an approver must answer".
    pub(crate) fn asked(self) -> &'static str {
        match self {
            WaitKind::Approval => "an approver",
            WaitKind::Auth => "somebody who can reconnect",
            WaitKind::User => "the user",
            WaitKind::Tool => "a tool",
            WaitKind::External => "something outside",
        }
    }

    /// 24 hours if a person must act, 2 hours if a machine must.
    pub fn default_timeout_ms(self) -> u64 {
        match self {
            WaitKind::Approval | WaitKind::Auth | WaitKind::User => 24 * 3_600_000,
            WaitKind::Tool | WaitKind::External => 2 * 3_600_000,
        }
    }
}

/// The consequence if a wait's deadline passes without an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    #[default]
    TimeOut,
    Fail,
    Warn,
    Cancel,
    Escalate,
    Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitState {
    Open,
    Answered,
    TimedOut,
    Cancelled,
}

/// A durable pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub id: WaitId,
    pub work: WorkId,
    pub tenant: String,
    pub reference: String,
    pub kind: WaitKind,
    pub state: WaitState,
    pub opened_at: Millis,
    pub deadline_at: Option<Millis>,
    /// When the wait was answered, timed out or was cancelled.
    pub ended_at: Option<Millis>,
    /// The event of `work` whose payload is the answer.
    pub answer_seq: Option<u64>,
    pub detail: WaitDetail,
}

impl Wait {
    /// Whether it asks for an approval of its own. A wait on a command or a work item is answered by that
    /// record.
    pub fn asks_approval(&self) -> bool {
        self.kind == WaitKind::Approval && !is_reserved(&self.reference)
    }

    /// The seal of an approval: over the work item, the reference and the prompt. One changed byte is another
    /// seal.
    pub fn seal(&self) -> Digest {
        let parts = ("wait", self.work, &self.reference, &self.detail.prompt);
        Digest::of(serde_json::to_vec(&parts).expect("strings and ids always serialise"))
    }
}

/// The question of a wait, and its behaviour without an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitDetail {
    pub on_timeout: OnTimeout,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    #[serde(default, deserialize_with = "payload::present", skip_serializing_if = "Option::is_none")]
    pub schema: Option<Payload>,
    #[serde(default, deserialize_with = "payload::present", skip_serializing_if = "Option::is_none")]
    pub default: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<Actor>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub escalations: u32,
    /// The dispatched command whose receipt the answer is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandId>,
}

impl WaitDetail {
    /// Drops the question and the payloads.
    pub fn erase(&mut self) {
        (self.prompt, self.schema, self.default) = (None, None, None);
    }

    /// The size of the payloads that are stored with the wait.
    pub fn bytes(&self) -> usize {
        self.schema.iter().chain(&self.default).map(|payload| payload.text().len()).sum()
    }
}

/// An answer that came before its wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub tenant: String,
    pub reference: String,
    pub payload: Payload,
    pub actor: Actor,
    pub evidence: Vec<Evidence>,
    pub kept_at: Millis,
}
