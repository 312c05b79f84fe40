//! A work as it stands.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AcceptStrength, Actor, Evidence, Timestamp, Usage, Wait, Word, WorkId, word::words};

words! {
    /// Where a work stands.
    State {
        /// It can be claimed.
        Queued = "queued",
        /// A worker holds it.
        Running = "running",
        /// It waits for the user.
        WaitingUser = "waiting_user" | "waiting_on_user",
        /// It waits for a person's approval.
        WaitingApproval = "waiting_approval" | "waiting_on_approval",
        /// It waits for an account to be connected again.
        WaitingAuth = "waiting_auth" | "waiting_on_auth",
        /// It waits for a tool that calls back.
        WaitingTool = "waiting_tool" | "waiting_on_tool",
        /// It waits for something outside.
        WaitingExternal = "waiting_external" | "waiting_on_external",
        /// It failed and is tried again.
        RetryScheduled = "retry_scheduled",
        /// Liveness unproven; not failed.
        Stalled = "stalled",
        /// Its holder is asked to stop.
        CancelRequested = "cancel_requested",
        /// A person must decide.
        Quarantined = "quarantined",
        /// It succeeded.
        Succeeded = "succeeded" | "done",
        /// It ended, with warnings.
        CompletedWithWarnings = "completed_with_warnings",
        /// It failed.
        Failed = "failed",
        /// A deadline passed.
        TimedOut = "timed_out" | "timeout",
        /// It was cancelled.
        Cancelled = "cancelled" | "canceled",
        /// The outcome cannot be known.
        Abandoned = "abandoned",
    }
}

words! {
    /// What a state means to a machine.
    Phase {
        /// It is to be claimed, now or later.
        Pending = "pending",
        /// Somebody holds it.
        Active = "active",
        /// It waits for an answer.
        Waiting = "waiting",
        /// It does not move by itself: stalled, or set aside for a person.
        Stuck = "stuck",
        /// It has ended.
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
        /// The connection failed. Retried.
        Transport = "transport",
        /// It took too long. Retried.
        Timeout = "timeout",
        /// Too many calls. Retried.
        RateLimited = "rate_limited",
        /// The other side is down. Retried.
        Unavailable = "unavailable",
        /// The input is wrong. Not retried.
        Validation = "validation",
        /// The credentials are refused. Not retried.
        Auth = "auth",
        /// A quota or budget is used up. Not retried.
        Quota = "quota",
        /// Policy forbids it. Not retried.
        PolicyDenied = "policy_denied",
        /// It is set up wrongly. Not retried.
        Misconfigured = "misconfigured",
        /// It cannot be done. Not retried.
        Unsupported = "unsupported",
        /// Nobody knows. Retried, within bounds.
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
    /// Its id there.
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

/// The workflow that a work is part of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Workflow {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
}

/// Why a work is not progressing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reason {
    /// Why, as a stable code.
    pub code: String,
    /// The tool that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Who holds it, and how fresh that is. Its token is shown to its holder only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    /// The worker that holds it.
    pub worker: String,
    /// Which start of that worker.
    pub incarnation: String,
    /// The lease's number, greater than any before it of this work.
    pub fence: u64,
    /// When it expires unless it is renewed.
    pub expires_at: Timestamp,
    /// When it was renewed last.
    pub renewed_at: Timestamp,
    /// By how many renewals the holder is late.
    pub missed: u32,
    /// How sure one can be that the holder lives.
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
    /// The worker.
    pub worker: String,
    /// Which start of that worker.
    pub incarnation: String,
    /// When.
    pub at: Timestamp,
}

/// A cancel that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CancelRequest {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// Who asked.
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
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// Who asked.
    pub requested_by: Actor,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkError {
    /// The kind of failure.
    #[cfg_attr(feature = "openapi", schema(value_type = ErrorClass))]
    pub class: Word<ErrorClass>,
    /// What happened, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// When it passed each mark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Timestamps {
    /// When it was recorded.
    pub acknowledged: Timestamp,
    /// When it was claimed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched: Option<Timestamp>,
    /// When it was handed over to an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Timestamp>,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Timestamp>,
    /// When its answer was sent, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Timestamp>,
    /// When it changed last.
    pub updated: Timestamp,
}

/// One accountable unit of work. Payloads are shown with the `payload` scope, and to the holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Work {
    /// Its id.
    pub id: WorkId,
    /// Where it came from: its identity.
    pub source: Source,
    /// What kind of work it is.
    pub kind: String,
    /// At most one work of a session is held at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The workflow that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// Its tenant.
    pub tenant: String,
    /// What ties it to other works; its own id unless told otherwise.
    pub correlation_id: String,
    /// The work that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<WorkId>,
    /// The work that it runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<WorkId>,
    /// 1, and one more with each rerun.
    pub generation: u32,
    /// Where it stands.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// What that means to a machine.
    #[cfg_attr(feature = "openapi", schema(value_type = Phase))]
    pub phase: Word<Phase>,
    /// When it came into this state. Older works that have not moved since do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Timestamp>,
    /// The number of its last event: what a later verb may name as `if_seq`.
    pub seq: u64,
    /// Why it is not progressing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// How often it was claimed.
    pub attempt: u32,
    /// How many attempts failed.
    pub failures: u32,
    /// The step that was begun last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Lower comes first.
    pub priority: i16,
    /// What may be done when its worker is lost.
    #[cfg_attr(feature = "openapi", schema(value_type = Disposition))]
    pub disposition: Word<Disposition>,
    /// Who holds it, or held it last and was not superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// The incarnation that started it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_started: Option<FirstStarted>,
    /// When its lease was renewed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// When it is tried again, where a retry is scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Timestamp>,
    /// The next deadline, or a moment before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// That somebody asked it to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelRequest>,
    /// That somebody asked to give it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandon_request: Option<AbandonRequest>,
    /// When it passed each mark.
    pub timestamps: Timestamps,
    /// How far it was handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<AcceptStrength>))]
    pub accept_strength: Option<Word<AcceptStrength>>,
    /// What its holder last said of its progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
    /// What its worker was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The hash of its kind, disposition and input.
    pub input_hash: String,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the result is kept, if not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    /// Declared at its end: there is nothing to show.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    /// Why it did not succeed, or why its last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WorkError>,
    /// What went wrong without changing the outcome.
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
    /// The work.
    pub id: WorkId,
    /// Its state.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// Who holds it, since when, why it does not go on, and what happens by itself.
    pub sentence: String,
    /// What to type, or `nothing: …` where it goes on by itself.
    pub next: String,
}
