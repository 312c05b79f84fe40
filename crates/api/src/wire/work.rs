//! Work items in responses.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AcceptStrength, Actor, AsOf, Evidence, Forecast, Timestamp, Usage, Wait, Word, WorkId, word::words,
};

words! {
    /// The state of a work item.
    State {
        /// It can be claimed.
        Queued = "queued",
        /// A worker holds its lease.
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
        /// It failed and will be retried.
        RetryScheduled = "retry_scheduled",
        /// It is not known whether its holder is alive. It has not failed.
        Stalled = "stalled",
        /// A cancel was requested of its holder.
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
        /// Its outcome cannot be known.
        Abandoned = "abandoned",
    }
}

impl State {
    /// Whether a work item in this state has ended. It then never changes.
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            State::Succeeded
                | State::CompletedWithWarnings
                | State::Failed
                | State::TimedOut
                | State::Cancelled
                | State::Abandoned
        )
    }
}

words! {
    /// The group that a state belongs to.
    Phase {
        /// It can be claimed, now or later.
        Pending = "pending",
        /// A worker holds its lease.
        Active = "active",
        /// It waits for an answer.
        Waiting = "waiting",
        /// It needs help: stalled, or set aside for a person.
        Stuck = "stuck",
        /// It has ended.
        Terminal = "terminal",
    }
}

words! {
    /// The declared recovery contract. There is no default.
    Disposition {
        /// Any worker may run it again from its last checkpoint.
        Rerunnable = "rerunnable",
        /// Only the incarnation that started it can know how it ended.
        OwnerBound = "owner_bound",
        /// An external system owns it and reports how it ended.
        ExternallyOwned = "externally_owned",
    }
}

words! {
    /// The class of a failure; it decides whether a retry can help.
    ErrorClass {
        /// The connection failed. Retried.
        Transport = "transport",
        /// It took too long. Retried.
        Timeout = "timeout",
        /// Too many calls. Retried.
        RateLimited = "rate_limited",
        /// The other side is unavailable. Retried.
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
        /// It is not supported. Not retried.
        Unsupported = "unsupported",
        /// The cause is not known. Retried, within limits.
        Unknown = "unknown",
    }
}

words! {
    /// How certain it is that a holder is alive.
    LeaseLiveness {
        /// The lease is valid.
        Alive = "alive",
        /// The process exists but is stopped, or its clocks show that the machine was suspended.
        Suspended = "suspended",
        /// The lease lapsed, and there is no evidence either way.
        Silent = "silent",
        /// The process is gone.
        Dead = "dead",
    }
}

words! {
    /// Who is told of a stalled work item. Its disposition alone decides what recovery does with it.
    OnStalled {
        /// Nobody in particular: recovery goes on as soon as that is safe.
        Recover = "recover",
        /// An alert of its own, by source and kind.
        Page = "page",
        /// It is listed among what waits for people.
        Prompt = "prompt",
    }
}

/// Where a work item came from. It is the item's identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// `conversation`, `control`, `scheduler`, `manual`, or a configured one.
    pub system: String,
    /// Its id in that system.
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

/// The workflow that a work item belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Workflow {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
}

/// Why a work item makes no progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reason {
    /// The reason, as a stable code.
    pub code: String,
    /// The tool that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The lease of a work item, and how fresh it is. The lease token is returned only to the holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    /// The worker that holds its lease.
    pub worker: String,
    /// The incarnation of that worker.
    pub incarnation: String,
    /// The lease's number; each lease of a work item has a greater one than the last.
    pub fence: u64,
    /// When it expires unless it is renewed.
    pub expires_at: Timestamp,
    /// When it was renewed last.
    pub renewed_at: Timestamp,
    /// How many renewals the holder has missed.
    pub missed: u32,
    /// How certain it is that the holder is alive.
    #[cfg_attr(feature = "openapi", schema(value_type = LeaseLiveness))]
    pub liveness: Word<LeaseLiveness>,
    /// When a sweeper found it past its expiry and grace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lapsed_at: Option<Timestamp>,
}

/// The incarnation that started it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FirstStarted {
    /// The worker.
    pub worker: String,
    /// The incarnation of that worker.
    pub incarnation: String,
    /// When.
    pub at: Timestamp,
}

/// A requested cancel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CancelRequest {
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was requested.
    pub requested_at: Timestamp,
    /// The actor that requested it.
    pub requested_by: Actor,
    /// From then on renewals are refused.
    pub deadline_at: Timestamp,
    /// When its holder was notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged_at: Option<Timestamp>,
}

/// A request to give the work item up once its lease lapses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AbandonRequest {
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was requested.
    pub requested_at: Timestamp,
    /// The actor that requested it.
    pub requested_by: Actor,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkError {
    /// The class of failure.
    #[cfg_attr(feature = "openapi", schema(value_type = ErrorClass))]
    pub class: Word<ErrorClass>,
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// When the work item reached each stage.
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
    /// When its answer was delivered, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Timestamp>,
    /// When it changed last.
    pub updated: Timestamp,
}

/// A work item: one accountable unit of work. Payloads are returned with the `payload` scope, and to the
/// holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Work {
    /// Its id.
    pub id: WorkId,
    /// Its source, which is its identity.
    pub source: Source,
    /// The kind of the work item.
    pub kind: String,
    /// One line for people: the title given at ingest, else the source's id.
    #[serde(default)]
    pub title: String,
    /// At most one work item of a session is held at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The workflow that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// Its tenant.
    pub tenant: String,
    /// Groups it with other work items; default: its own id.
    pub correlation_id: String,
    /// The parent work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<WorkId>,
    /// The work item that it reruns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<WorkId>,
    /// 1, plus one for each rerun.
    pub generation: u32,
    /// Its state.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// The phase of that state.
    #[cfg_attr(feature = "openapi", schema(value_type = Phase))]
    pub phase: Word<Phase>,
    /// When it entered this state. Absent for items that last moved under an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Timestamp>,
    /// The number of its last event, for `if_seq`.
    pub seq: u64,
    /// Why it makes no progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// How often it was claimed.
    pub attempt: u32,
    /// How many attempts failed.
    pub failures: u32,
    /// The step that was begun last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Lower is claimed first.
    pub priority: i16,
    /// The recovery contract for the case that the worker is lost.
    #[cfg_attr(feature = "openapi", schema(value_type = Disposition))]
    pub disposition: Word<Disposition>,
    /// Its lease, or its last one if that was not superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// The incarnation that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_started: Option<FirstStarted>,
    /// When its lease was renewed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
    /// The last sign of its holder's work: an event that it causes, or new progress with a renewal. Absent if nobody
    /// holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_activity_at: Option<Timestamp>,
    /// Its holder has renewed and shown nothing else since then, for longer than the settings of its source and kind
    /// allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spinning_since: Option<Timestamp>,
    /// Who is told when it stalls, by the settings of its source and kind. Absent: nobody in particular.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<OnStalled>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_stalled: Option<Word<OnStalled>>,
    /// The waits that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// When it is retried, if a retry is scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Timestamp>,
    /// The next deadline, or a lower bound of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// A requested cancel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelRequest>,
    /// A request to give it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandon_request: Option<AbandonRequest>,
    /// When it reached each stage.
    pub timestamps: Timestamps,
    /// How firmly it was handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<AcceptStrength>))]
    pub accept_strength: Option<Word<AcceptStrength>>,
    /// The progress that its holder last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
    /// The input for its worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The hash of its kind, disposition and input.
    pub input_hash: String,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the result is stored, if not in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    /// It was declared at its end that there is no output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    /// Why it did not succeed, or why its last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WorkError>,
    /// Warnings: problems that did not change the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The last fifty pointers to evidence of its events, oldest first. Not in lists and leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// The usage of all attempts, one entry for each source, model and currency.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
    /// When its content was erased last: input, result, progress and messages from before are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erased_at: Option<Timestamp>,
    /// The past moment that this shows, from the log; absent if it is the current state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<AsOf>,
}

/// Why a work item is in its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// The work item.
    pub id: WorkId,
    /// Its state.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// Explains who holds it, since when, why it does not go on, and what will happen without help.
    pub sentence: String,
    /// Advice for a person, in words; `nothing: …` if it continues without help.
    pub advice: String,
    /// The command lines for it, the most useful first: each is complete and safe to paste, because it asks
    /// before it changes anything.
    #[serde(default)]
    pub next: Vec<String>,
    /// What follows if its holder stays silent. Absent if nobody holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_silent: Option<Forecast>,
}
