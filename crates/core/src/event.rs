//! Events: the immutable facts of the log. A work item's row is the fold of its events.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Millis,
    command::event as command,
    ids::{WaitId, WorkId},
    json,
    liveness::Grade,
    model::{AcceptStrength, ErrorClass, OnTimeout, Output, ReasonCode, RequestKey, Spec, WaitKind, Worker},
    newer::is_newer,
    payload::{Digest, Payload},
    recovery::{Instead, Verdict},
    state::State,
    usage::Usage,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    Person,
    Machine,
    Worker,
    /// Tenure itself: the sweeper, the scheduler and the relay.
    System,
}

impl ActorKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ActorKind::Person => "person",
            ActorKind::Machine => "machine",
            ActorKind::Worker => "worker",
            ActorKind::System => "system",
        }
    }
}

/// The actor, identified by its id. The name is a label for people, and two actors may share one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Actor {
    #[serde(rename = "type")]
    pub kind: ActorKind,
    pub id: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
}

impl PartialEq for Actor {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.id) == (other.kind, &other.id)
    }
}

impl Eq for Actor {}

impl Actor {
    pub fn new(kind: ActorKind, id: impl AsRef<str>) -> Self {
        Self { kind, id: id.as_ref().into(), name: None }
    }
    pub fn person(id: impl AsRef<str>) -> Self {
        Self::new(ActorKind::Person, id)
    }
    pub fn machine(id: impl AsRef<str>) -> Self {
        Self::new(ActorKind::Machine, id)
    }
    pub fn worker(id: impl AsRef<str>) -> Self {
        Self::new(ActorKind::Worker, id)
    }
    pub fn system(id: impl AsRef<str>) -> Self {
        Self::new(ActorKind::System, id)
    }

    /// The same actor, with a display name.
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// A label for people: the name, or else the id.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A pointer to external evidence for an event: a trace, a log line, a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Evidence {
    pub kind: String,
    #[serde(rename = "ref")]
    pub reference: String,
}

/// The declared deadline that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    Start,
    Execution,
    Overall,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    pub spec: Arc<Spec>,
    /// The checkpoint that a rerun starts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<String>,
    /// How many checkpoints it took over.
    #[serde(default)]
    pub steps: u32,
    /// The size in bytes of their results, counted towards `limits::WORK_BYTES`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u32,
    /// Set for work that was over when it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorClass>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    pub worker: Worker,
    pub request: RequestKey,
    /// Whether the claim itself starts the work item.
    pub starts: bool,
    pub expires_at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_at: Option<Millis>,
    /// The fence of a lapsed lease that this claim supersedes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    pub strength: AcceptStrength,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progressed {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The beginning of the content's hash, if there is a request id: a repeat has the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepBegun {
    pub input_hash: Digest,
    /// How many earlier rows of this step and of later ones are voided by it.
    #[serde(default)]
    pub voided: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCompleted {
    pub input_hash: Digest,
    /// The size of the result.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitOpened {
    pub id: WaitId,
    pub kind: WaitKind,
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Millis>,
    pub on_timeout: OnTimeout,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingSet {
    pub waits: Vec<WaitOpened>,
    pub open: u32,
    /// How many wait rows the work item has now, answered ones included.
    pub total: u32,
    /// The size of the schemas and defaults of `waits`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_due: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitResolved {
    pub wait: WaitId,
    #[serde(rename = "ref")]
    pub reference: String,
    pub open: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_due: Option<Millis>,
    /// Whether the answer came before the wait.
    #[serde(default)]
    pub early: bool,
    /// The size of the answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_until: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyAnswerRefused {
    pub wait: WaitId,
    #[serde(rename = "ref")]
    pub reference: String,
    pub why: Unfit,
    /// The actor that answered too early.
    pub by: Actor,
}

/// Why an early answer does not answer the wait that it came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unfit {
    /// It does not match the wait's schema.
    Schema,
    /// An approval is required, and no stored answer approves.
    NotApproved,
    /// It is older than the dispatch of the command that is handed over to the wait.
    BeforeDispatch,
    /// A command is handed over to the wait, and a person's answer from before anybody asked is not a
    /// receipt.
    NotEvidence,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitTimedOut {
    pub wait: WaitId,
    #[serde(rename = "ref")]
    pub reference: String,
    pub on_timeout: OnTimeout,
    pub open: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_due: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_until: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsRevoked {
    pub waits: Vec<WaitId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_until: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFailed {
    pub class: ErrorClass,
    pub fingerprint: String,
    pub fingerprint_count: u32,
    pub failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonCode>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeoutMarked {
    pub deadline: Deadline,
    pub failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseLapsed {
    pub grade: Grade,
    pub expires_at: Millis,
    pub watched_ms: u64,
    pub failures: u32,
    pub lapses: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    pub verdict: Verdict,
    pub grade: Grade,
    /// The last completed checkpoint, for `resume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonCode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    pub lapsed_at: Millis,
    pub expires_at: Millis,
    /// Failures to subtract: the lapse's failure, if it counted as one.
    pub failures: u32,
    pub lapses: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequested {
    pub deadline_at: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// How it is known that nothing is still running.
    pub proof: CancelProof,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

impl Cancelled {
    pub fn new(proof: CancelProof) -> Self {
        Self { proof, usage: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelProof {
    /// Nobody held it.
    NotHeld,
    /// Its holder released it.
    HolderStopped,
    /// Its lease lapsed, and running it again would be harmless.
    Lapsed,
    /// Its holder declared it in the close-out.
    Declared,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedOut {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorClass>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Decided by a person, or declared by the external owner or by the holder.
    pub by: ClosedBy,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedBy {
    Holder,
    ExternalOwner,
    Person,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    pub reason: ReasonCode,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeued {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_until: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryApplied {
    /// The plan of which this is a row.
    pub plan: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The action that replaces the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<Instead>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentErased {
    /// The events below this one have lost their message, payload and evidence.
    pub before: u64,
}

/// An event that a newer version of Tenure recorded: this version does not know its type, or a word in its data. It is
/// stored, shown and hashed unchanged. Only the fields that every event has are applied to its work item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    pub kind: Box<str>,
    pub data: Box<str>,
}

/// A fact without fields of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plain {}

/// The capacity for the data of most events.
const USUAL_BYTES: usize = 512;

macro_rules! facts {
    ($($name:ident($data:ty) = $text:literal: $meaning:literal,)*) => {
        /// The closed list of event types, each with its structured data. Readers meet types of newer versions as `Unknown`.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Fact {
            $(#[doc = $meaning] $name($data),)*
            /// Recorded by a newer version.
            Unknown(Unknown),
        }

        impl Fact {
            /// Every type's name with its meaning.
            pub const TYPES: &'static [(&'static str, &'static str)] = &[$(($text, $meaning),)*];

            /// The stored type.
            pub fn kind(&self) -> &str {
                match self {
                    $(Fact::$name(_) => $text,)*
                    Fact::Unknown(unknown) => &unknown.kind,
                }
            }

            /// The stored data.
            pub fn data(&self) -> String {
                match self {
                    $(Fact::$name(data) => json::text(data, USUAL_BYTES),)*
                    Fact::Unknown(unknown) => unknown.data.to_string(),
                }
            }

            /// Parses a stored fact. Fails on damage only: a type or word of a newer version gives `Unknown`.
            pub fn parse(kind: &str, data: &str) -> Result<Fact, String> {
                let read = match kind {
                    $($text => serde_json::from_str(data).map(Fact::$name),)*
                    _ => return Ok(Fact::unknown(kind, data)),
                };
                read.or_else(|error| {
                    let why = error.to_string();
                    if is_newer(&why) { Ok(Fact::unknown(kind, data)) } else { Err(why) }
                })
            }
        }
    };
}

facts! {
    WorkCreated(Created) = "work_created": "The work item was recorded.",
    Claimed(Claimed) = "claimed": "A worker claimed it, under a new fence.",
    Accepted(Accepted) = "accepted": "It was handed over to the agent, weakly or strongly.",
    Progressed(Progressed) = "progressed": "The holder reported progress.",
    StepBegun(StepBegun) = "step_begun": "A checkpoint was begun.",
    StepCompleted(StepCompleted) = "step_completed": "A checkpoint was completed; its result is the payload.",
    WaitingSet(WaitingSet) = "waiting_set": "It waits; its lease ended unless every answer existed already.",
    WaitResolved(WaitResolved) = "wait_resolved": "A wait was answered; the answer is the payload.",
    EarlyAnswerRefused(EarlyAnswerRefused) = "early_answer_refused": "An early answer does not answer the \
     wait that it came before, and was dropped; it is the payload.",
    WaitTimedOut(WaitTimedOut) = "wait_timed_out": "A wait's deadline passed; its `on_timeout` decides what \
     follows.",
    WaitEscalated(WaitTimedOut) = "wait_escalated": "A wait's deadline passed and was extended: somebody \
     should look.",
    WaitsRevoked(WaitsRevoked) = "waits_revoked": "The open waits were cancelled; the work item continues \
     without answers.",
    AttemptFailed(AttemptFailed) = "attempt_failed": "The holder reported a failure; the retry policy decided what follows.",
    RetryDue(Plain) = "retry_due": "The retry became due.",
    RetriedNow(Plain) = "retried_now": "An operator ended the backoff early.",
    Released(Released) = "lease_released": "The holder released it.",
    LeaseLapsed(LeaseLapsed) = "lease_lapsed": "The lease was found past expiry and grace, or its holder dead.",
    Recovered(Recovered) = "recovered": "Recovery decided by the declared disposition.",
    RecoveryApplied(RecoveryApplied) = "recovery_applied": "A person had a row of a recovery plan carried out.",
    Late(Late) = "late": "A lapsed holder that was not superseded wrote again.",
    OwnerAbsent(Plain) = "owner_absent": "The owner of started owner-bound work did not come back.",
    TimeoutMarked(TimeoutMarked) = "timeout_marked": "A declared deadline passed.",
    CancelRequested(CancelRequested) = "cancel_requested": "A cancel was requested.",
    CancelAcknowledged(Plain) = "cancel_acknowledged": "The holder was notified of the cancel.",
    Cancelled(Cancelled) = "cancelled": "It was cancelled; the data says how that is proven.",
    ReleaseRequested(Plain) = "release_requested": "An operator asked its holder to release it.",
    AbandonRequested(Plain) = "abandon_requested": "Somebody asked to give it up once its lease lapses.",
    Quarantined(Quarantined) = "quarantined": "It was set aside for a person.",
    Requeued(Requeued) = "requeued": "A person decided to run it again.",
    ClosedOut(ClosedOut) = "close_out": "It was closed out.",
    ContentErased(ContentErased) = "content_erased": "A person had the content of the events before it erased; the reason is \
     the message.",
    CommandReserved(command::Reserved) = "command_reserved": "A side effect was recorded as a command; its \
     arguments are the payload.",
    CommandBlocked(command::Blocked) = "command_blocked": "A command was stopped: by policy, a missing \
     approval or a budget.",
    CommandUnblocked(command::Unblocked) = "command_unblocked": "A command is no longer stopped.",
    CommandApproved(command::Approved) = "command_approved": "A person approved exactly this command, for \
     one dispatch and a limited time.",
    CommandCancelled(command::CommandCancelled) = "command_cancelled": "A command was cancelled: it never \
     happened and will not.",
    CommandDispatched(command::Dispatched) = "command_dispatched": "A command was dispatched: from here on \
     it may have happened.",
    CommandSucceeded(command::CommandSucceeded) = "command_succeeded": "A command took effect, with evidence; the response is the payload.",
    CommandFailed(command::CommandFailed) = "command_failed": "A command did not take effect.",
    CommandUnsent(command::Unsent) = "command_unsent": "It is proven that a call was not made; it is tried \
     again.",
    CommandUncertain(command::Uncertain) = "command_uncertain": "It is unknown whether a command took effect.",
    CommandLookedUp(command::LookedUp) = "command_looked_up": "A lookup found no effect, or had no result.",
    CommandReservedAgain(command::ReservedAgain) = "command_reserved_again": "Another person reserved a command that was reserved before.",
    CommandResent(command::Resent) = "command_resent": "A command in doubt is sent again with the same provider key.",
    CommandReplayed(command::Replayed) = "command_replayed": "A person had a failed command executed again.",
}

impl Fact {
    fn unknown(kind: &str, data: &str) -> Self {
        Fact::Unknown(Unknown { kind: kind.into(), data: data.into() })
    }

    /// A newer version recorded it, in a way that this version does not know.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Fact::Unknown(_))
    }

    /// The usage that it reports: of an attempt that it ends, or of a command's call.
    pub fn usage(&self) -> &[Usage] {
        match self {
            Fact::WorkCreated(created) => &created.usage,
            Fact::WaitingSet(set) => &set.usage,
            Fact::AttemptFailed(failed) => &failed.usage,
            Fact::Released(released) => &released.usage,
            Fact::Cancelled(cancelled) => &cancelled.usage,
            Fact::ClosedOut(closed) => &closed.usage,
            Fact::CommandSucceeded(succeeded) => &succeeded.receipt.usage,
            _ => &[],
        }
    }
}

/// One entry of a work item's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub work: WorkId,
    pub seq: u64,
    pub at: Millis,
    /// None in the first event; equal to `to` if the state does not change.
    pub from: Option<State>,
    pub to: State,
    pub actor: Actor,
    pub attempt: u32,
    pub step: Option<String>,
    pub fence: Option<u64>,
    pub fact: Fact,
    /// The fact as stored, which the hash covers.
    pub data: String,
    /// Free text and payloads: the part that can be erased without breaking the chain.
    pub message: Option<String>,
    pub payload: Option<Payload>,
    pub evidence: Vec<Evidence>,
    pub content: Option<Content>,
    pub prev_hash: Digest,
    pub hash: Digest,
}

/// The salted digest by which the erasable part enters the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub digest: Digest,
    /// Gone after an erasure.
    pub salt: Option<[u8; 16]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_version_recorded_is_kept_as_it_is() {
        let plain = Fact::parse("retry_due", "{}");
        assert_eq!(plain, Fact::parse("retry_due", r#"{"by_whom":"a field of tomorrow"}"#));
        for (kind, data) in [
            ("work_paused", r#"{"until":1}"#),
            ("quarantined", r#"{"reason":"a_reason_of_tomorrow"}"#),
            ("work_paused", "not even JSON"),
        ] {
            let fact = Fact::parse(kind, data).unwrap();
            assert!(fact.is_unknown());
            assert_eq!((fact.kind(), fact.data().as_str()), (kind, data));
            assert_eq!(fact.usage(), []);
        }
        assert!(Fact::parse("quarantined", r#"{"reason":"#).is_err(), "that is damage");
    }

    #[test]
    fn an_actor_has_one_name() {
        for kind in [ActorKind::Person, ActorKind::Machine, ActorKind::Worker, ActorKind::System] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
