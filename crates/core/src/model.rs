//! The records: a work and what belongs to it. Stores keep them; only the core changes them.

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

/// Where a work came from. One identity is one work, under any concurrency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub system: String,
    pub id: String,
    /// Required for the scheduler: every run is its own work.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_id: String,
}

/// The ingress identity; its generations are reruns of one another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    pub tenant: String,
    pub source: Source,
}

/// The declared recovery contract. There is no default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// Anybody may run it again from its last checkpoint.
    Rerunnable,
    /// Only the incarnation that started it can know how it ended.
    OwnerBound,
    /// Somebody outside owns it and says how it ended.
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
#[serde(deny_unknown_fields)]
pub struct Workflow {
    pub id: String,
    pub version: String,
}

/// What never changes after ingest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    pub tenant: String,
    pub source: Source,
    pub kind: String,
    pub disposition: Disposition,
    pub priority: i16,
    pub correlation_id: String,
    pub generation: u32,
    pub input_hash: Digest,
    /// The input's size where it is no light one.
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
    /// The keys of commands that somebody decided to execute again in this rerun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub execute: Vec<Digest>,
    /// The step from which a rerun goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<String>,
    /// The people who submitted or reran it, its ancestors or an earlier run: four eyes are not theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submitters: Vec<Arc<str>>,
}

impl Spec {
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

/// A worker: stable id, and an incarnation that is new at each boot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    pub id: String,
    pub incarnation: String,
    #[serde(default)]
    pub liveness: Liveness,
}

impl Worker {
    /// A worker that offers no evidence of its life but its renewals.
    pub fn new(id: &str, incarnation: &str) -> Self {
        Self { id: id.to_owned(), incarnation: incarnation.to_owned(), liveness: Liveness::Opaque }
    }
}

/// The part of ownership that renewals move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub fence: u64,
    pub expires_at: Millis,
    pub renewed_at: Millis,
    /// Who renews when it is not the holder itself.
    pub renewed_by: Option<String>,
    /// Set by the Tick that found it past expiry + grace. The holder may still write until superseded.
    pub lapsed_at: Option<Millis>,
}

/// Why a row is not progressing.
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

/// What kind of failure it was; the class decides whether trying again can help.
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
    /// When its holder was told, by the reply to a renewal.
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
    /// The id of the actor that claimed it, of owner-bound work. None where it started before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
}

impl FirstStarted {
    /// The same worker in the same incarnation, under the same actor: after a restart it is another owner, and
    /// another actor may well use its names.
    pub fn is(&self, worker: &Worker, actor: &str) -> bool {
        self.worker == worker.id
            && self.incarnation == worker.incarnation
            && self.by.as_deref().is_none_or(|by| by == actor)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptStrength {
    /// Bytes were handed over.
    Weak,
    /// The agent took it on.
    Strong,
}

/// What a success left behind: the proof that it is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// A result, kept as the payload of event `seq`.
    Inline { hash: Digest, seq: u64 },
    /// A result kept elsewhere.
    Reference(String),
    /// Declared: there is nothing to show.
    NoOutput,
}

/// The same failure again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub text: String,
    pub count: u32,
}

/// A request for progress, as it is remembered: what was sent under which id, both as the beginning of a hash.
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

/// The rest of the row, kept by stores as one JSON document. All of it comes from events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandon_request: Option<AbandonRequest>,
    /// Its holder is asked to hand it back. Gone with that holder's lease, a lapsed one that nobody took over included.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub release_requested: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_strength: Option<AcceptStrength>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<Millis>,
    /// Queued started owner-bound work waits for its owner until then.
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
    /// Who holds, or last held and was not superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Worker>,
    /// The id of the actor that claimed for the holder. Only of owner-bound work: it alone may claim that again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<Arc<str>>,
    /// What was seen of the holder's process when its lease lapsed, if that was more than silence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lapsed_as: Option<Grade>,
    /// Lapses in a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lapses: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// Bytes of its step results and answers, and of its waits' schemas and defaults.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub payload_bytes: u32,
    /// The last requests for progress in this attempt, the latest last: a repeat writes nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress_requests: Vec<ProgressRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// When it came into its present state. None on rows that have not moved since this is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// How many step and wait rows there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steps: u32,
    /// What all attempts used.
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

/// One accountable unit of work.
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
    /// The last fence ever granted; it survives the lease.
    pub fence: u64,
    pub lease: Option<Lease>,
    pub open_waits: u32,
    pub next_retry_at: Option<Millis>,
    /// A lower bound of the next deadline.
    pub due_at: Option<Millis>,
    pub progress: Option<Payload>,
    pub updated_at: Millis,
    /// Whether closing it has to wake children, or works that wait for it. Set by them, not by events.
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

    /// What a lapse of its lease adds to its failures and lapses: nothing where an operator asked its holder to go.
    pub fn lapse_counts(&self) -> u32 {
        u32::from(!self.body.release_requested)
    }

    /// Bytes of the payloads that come with its lease.
    pub fn weight(&self) -> usize {
        let progress = self.progress.as_ref().map_or(0, |progress| progress.text().len());
        self.spec.input_bytes as usize + self.body.payload_bytes as usize + progress
    }

    /// Refuses what would make the payloads that it keeps too many to be handed out with its lease.
    pub(crate) fn check_room(&self, what: &str, bytes: u32) -> Result<(), Refusal> {
        let there = self.body.payload_bytes;
        if there as usize + bytes as usize <= limits::WORK_BYTES {
            return Ok(());
        }
        Err(Refusal::new(
            Code::LimitReached,
            format!(
                "{what} has {bytes} bytes, and the step results and answers of {} have {there} already; one work \
                 keeps at most {}. Store it elsewhere and send a reference.",
                self.id,
                limits::WORK_BYTES
            ),
        ))
    }

    /// A lease that nobody has found lapsed.
    pub fn held_lease(&self) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| lease.lapsed_at.is_none())
    }

    /// Who alone may claim it: the one that started owner-bound work.
    pub fn starter(&self) -> Option<&FirstStarted> {
        self.body.first_started.as_ref().filter(|_| self.spec.disposition == Disposition::OwnerBound)
    }

    /// The incarnation for which alone the work is claimable.
    pub fn bound_to(&self) -> Option<&str> {
        self.starter().map(|first| first.incarnation.as_str())
    }
}

/// One claim of a work under one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub work: WorkId,
    pub number: u32,
    pub fence: u64,
    pub worker: String,
    pub incarnation: String,
    /// The claim request it was given to.
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

/// How an attempt ended. The verb that ended it can be repeated: same body, same reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnd {
    pub at: Millis,
    pub outcome: AttemptOutcome,
    /// Only where a holder's verb ended it.
    pub body_hash: Option<Digest>,
    pub ack: Option<crate::reply::Ack>,
    pub error: Option<ErrorInfo>,
    /// What the verb that ended it says was used.
    pub usage: Vec<Usage>,
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
    /// The event whose payload is the result: of this work, or of the work that it reruns.
    pub result: Option<(WorkId, u64)>,
    /// Recorded in the log, no longer reused.
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
    pub fn state(self) -> State {
        match self {
            WaitKind::Approval => State::WaitingApproval,
            WaitKind::Auth => State::WaitingAuth,
            WaitKind::User => State::WaitingUser,
            WaitKind::Tool => State::WaitingTool,
            WaitKind::External => State::WaitingExternal,
        }
    }

    /// 24 hours where a person must act, 2 hours where a machine does.
    pub fn default_timeout_ms(self) -> u64 {
        match self {
            WaitKind::Approval | WaitKind::Auth | WaitKind::User => 24 * 3_600_000,
            WaitKind::Tool | WaitKind::External => 2 * 3_600_000,
        }
    }
}

/// What happens when a wait's deadline passes unanswered.
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
    /// The row's end: answered, timed out or cancelled.
    pub ended_at: Option<Millis>,
    /// The event of `work` whose payload is the answer.
    pub answer_seq: Option<u64>,
    pub detail: WaitDetail,
}

impl Wait {
    /// Whether it asks for an approval of its own. One on a command or a work is answered by that record.
    pub fn asks_approval(&self) -> bool {
        self.kind == WaitKind::Approval && !is_reserved(&self.reference)
    }

    /// The seal of an approval: over the work, the reference and the prompt. One changed byte is another seal.
    pub fn seal(&self) -> Digest {
        let parts = ("wait", self.work, &self.reference, &self.detail.prompt);
        Digest::of(serde_json::to_vec(&parts).expect("strings and ids always serialise"))
    }
}

/// What a wait says to whoever must answer, and what it does by itself.
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
    /// Bytes of the payloads that are stored with the wait.
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
