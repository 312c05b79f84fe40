//! A work as it stands.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AcceptStrength, Actor, Evidence, Timestamp, Usage, Wait, Word, WorkId, word::words};

words! {
    /// Where a work stands.
    State {
        Queued = "queued",
        Running = "running",
        WaitingUser = "waiting_user" | "waiting_on_user",
        WaitingApproval = "waiting_approval" | "waiting_on_approval",
        WaitingAuth = "waiting_auth" | "waiting_on_auth",
        WaitingTool = "waiting_tool" | "waiting_on_tool",
        WaitingExternal = "waiting_external" | "waiting_on_external",
        RetryScheduled = "retry_scheduled",
        /// Liveness unproven; not failed.
        Stalled = "stalled",
        CancelRequested = "cancel_requested",
        /// A person must decide.
        Quarantined = "quarantined",
        Succeeded = "succeeded" | "done",
        CompletedWithWarnings = "completed_with_warnings",
        Failed = "failed",
        TimedOut = "timed_out" | "timeout",
        Cancelled = "cancelled" | "canceled",
        /// The outcome cannot be known.
        Abandoned = "abandoned",
    }
}

words! {
    /// What a state means to a machine.
    Phase {
        Pending = "pending",
        Active = "active",
        Waiting = "waiting",
        Held = "held",
        Terminal = "terminal",
    }
}

words! {
    /// The declared recovery contract. There is no default.
    Disposition {
        /// Anybody may run it again from its last checkpoint.
        Rerunnable = "rerunnable",
        /// Only the incarnation that started it can know how it ended.
        OwnerBound = "owner_bound",
        /// Somebody outside owns it and says how it ended.
        ExternallyOwned = "externally_owned",
    }
}

words! {
    /// What kind of failure it was; the class decides whether trying again can help.
    ErrorClass {
        Transport = "transport",
        Timeout = "timeout",
        RateLimited = "rate_limited",
        Unavailable = "unavailable",
        Validation = "validation",
        Auth = "auth",
        Quota = "quota",
        PolicyDenied = "policy_denied",
        Misconfigured = "misconfigured",
        Unsupported = "unsupported",
        Unknown = "unknown",
    }
}

words! {
    /// How sure one can be that a holder lives.
    LeaseLiveness {
        /// The lease is valid.
        Alive = "alive",
        /// The process exists but is stopped, or its clocks show that it slept.
        Suspended = "suspended",
        /// Lapsed, and nothing proves anything.
        Silent = "silent",
        /// That process is gone.
        Dead = "dead",
    }
}

/// Where a work came from. One identity is one work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// `conversation`, `control`, `scheduler`, `manual`, or a configured one.
    pub system: String,
    pub id: String,
    /// Required for the scheduler: every run is its own work.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_id: String,
}

impl Source {
    /// A message of a conversation, by its id there.
    pub fn conversation(id: &str) -> Self {
        Self::built_in("conversation", id)
    }

    /// An instruction to the runtime itself.
    pub fn control(id: &str) -> Self {
        Self::built_in("control", id)
    }

    /// Recorded by hand, or by a program for its own purposes.
    pub fn manual(id: &str) -> Self {
        Self::built_in("manual", id)
    }

    fn built_in(system: &str, id: &str) -> Self {
        Self { system: system.to_owned(), id: id.to_owned(), run_id: String::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Workflow {
    pub id: String,
    pub version: String,
}

/// Why a work is not progressing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reason {
    pub code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Who holds it, and how fresh that is. Its token is shown to its holder only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    pub worker: String,
    pub incarnation: String,
    pub fence: u64,
    pub expires_at: Timestamp,
    pub renewed_at: Timestamp,
    /// By how many renewals the holder is late.
    pub missed: u32,
    #[cfg_attr(feature = "openapi", schema(value_type = LeaseLiveness))]
    pub liveness: Word<LeaseLiveness>,
    /// Set once a sweeper has found it past expiry and grace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lapsed_at: Option<Timestamp>,
}

/// The incarnation that started it first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FirstStarted {
    pub worker: String,
    pub incarnation: String,
    pub at: Timestamp,
}

/// A cancel that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CancelRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub requested_at: Timestamp,
    pub requested_by: Actor,
    /// From then on renewals are refused.
    pub deadline_at: Timestamp,
    /// When its holder was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged_at: Option<Timestamp>,
}

/// A request to give it up once its lease lapses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AbandonRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub requested_at: Timestamp,
    pub requested_by: Actor,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkError {
    #[cfg_attr(feature = "openapi", schema(value_type = ErrorClass))]
    pub class: Word<ErrorClass>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// When it passed each mark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Timestamps {
    pub acknowledged: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Timestamp>,
    pub updated: Timestamp,
}

/// One accountable unit of work. Payloads are shown with the `payload` scope, and to the holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Work {
    pub id: WorkId,
    pub source: Source,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    pub tenant: String,
    pub correlation_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<WorkId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<WorkId>,
    /// 1, and one more with each rerun.
    pub generation: u32,
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    #[cfg_attr(feature = "openapi", schema(value_type = Phase))]
    pub phase: Word<Phase>,
    /// When it came into this state. Older works that have not moved since do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Timestamp>,
    /// The number of its last event: what a later verb may name as `if_seq`.
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// How often it was claimed.
    pub attempt: u32,
    pub failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Lower comes first.
    pub priority: i16,
    #[cfg_attr(feature = "openapi", schema(value_type = Disposition))]
    pub disposition: Word<Disposition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_started: Option<FirstStarted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandon_request: Option<AbandonRequest>,
    pub timestamps: Timestamps,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<AcceptStrength>))]
    pub accept_strength: Option<Word<AcceptStrength>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    pub input_hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the result is kept, if not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    /// Declared at its end: there is nothing to show.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WorkError>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The last fifty links to what supports its events, oldest first. Not in lists and leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// What all attempts used, one entry for each source, model and currency.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// Why a work stands where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    pub id: WorkId,
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// Who holds it, since when, why it does not go on, and what happens by itself.
    pub sentence: String,
    /// What to type, or `nothing: …` where it goes on by itself.
    pub next: String,
}
