//! The holder's verbs. Each carries the fence and the token of its lease.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Code, ErrorClass, Evidence, Intent, NewWait, OpenedWait, Problem, State, Timestamp, Usage, WaitId, Word,
    WorkId, word::words,
};

words! {
    /// How firmly the work item was handed over to the agent.
    AcceptStrength {
        /// The agent was sent the input.
        Weak = "weak",
        /// The agent took it on.
        Strong = "strong",
    }
}

/// The short response of most verbs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ack {
    /// The work item.
    pub id: WorkId,
    /// Its state after the call.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// The number of the work item's last event.
    pub seq: u64,
    /// When it is retried, if a retry is scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Timestamp>,
    /// The waits that this call opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitId>,
}

/// The work item after a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failed {
    /// The work item after the call.
    #[serde(flatten)]
    pub work: Ack,
    /// The wait that was requested, with the token that answers it. The token is returned here only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<OpenedWait>,
}

/// Renews many leases in one request; each has its own result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Renew {
    /// The leases to renew.
    pub leases: Vec<RenewLease>,
}

/// One lease to renew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewLease {
    /// The work item.
    pub id: WorkId,
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// Progress to show on the work item. It is not recorded as an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
}

/// The results of a renewal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Renewals {
    /// In the order of the request.
    pub leases: Vec<Renewal>,
    /// The work items whose lease is lost (`lease_lost`): another worker may hold them, so stop working on
    /// them.
    #[serde(default)]
    pub lost: Vec<WorkId>,
}

impl Renewals {
    /// These results, with the list of the lost leases among them.
    pub fn new(leases: Vec<Renewal>) -> Self {
        let lost = |renewal: &Renewal| match renewal {
            Renewal::Refused { id, problem } if problem.code == Code::LeaseLost => Some(id.clone()),
            Renewal::Renewed { .. } | Renewal::Refused { .. } => None,
        };
        let lost = leases.iter().filter_map(lost).collect();
        Self { leases, lost }
    }
}

/// The result for one lease: renewed or refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Renewal {
    /// The lease is renewed.
    Renewed {
        /// The work item.
        id: WorkId,
        /// When it expires unless it is renewed again.
        expires_at: Timestamp,
        /// A cancel was requested: stop, and close it out as cancelled or release it.
        cancel_requested: bool,
        /// A release was requested: stop and release it, so that another worker can continue.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        release_requested: bool,
    },
    /// The lease is not renewed.
    Refused {
        /// The work item.
        id: WorkId,
        /// The reason: `lease_lost` if another worker may hold the work item.
        problem: Problem,
    },
}

impl Renewal {
    /// The work item whose lease was to be renewed.
    pub fn id(&self) -> &WorkId {
        match self {
            Renewal::Renewed { id, .. } | Renewal::Refused { id, .. } => id,
        }
    }
}

/// Records how firmly the work item was handed over to the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Accept {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// How firmly.
    pub strength: AcceptStrength,
}

/// Records progress as an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// The progress, any JSON.
    pub progress: Value,
    /// An idempotency key: a repeat records nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// Returns the work item to the queue, to be claimed again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Usage of this attempt; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// Reports a failure: the retry policy decides whether the work item is retried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// The failure.
    pub error: Failure,
    /// For an `auth` failure: wait for the account to be reconnected instead of counting a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<NewWait>,
    /// Usage of this attempt; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// A failure, with the class that decides whether a retry can help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The class of failure; the retry policy decides by it.
    pub class: ErrorClass,
    /// A description for people.
    #[serde(default)]
    pub message: String,
    /// The minimum delay before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// A fingerprint that equal failures share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

impl Failure {
    /// A failure of this class.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_after_ms: None, fingerprint: None }
    }
}

/// How a work item ended. A success needs `result`, `result_ref` or `no_output`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct End {
    /// A terminal state.
    pub state: State,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the result is stored, if not in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    /// Declares that there is no output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    /// Warnings: problems that did not change the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Evidence: pointers to traces, logs or tickets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Usage of this attempt; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
    /// Side effects to record with the end; the relay executes them. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Intent>,
}

impl End {
    /// An end in this state, without further fields.
    pub fn new(state: State) -> Self {
        Self {
            state,
            result: None,
            result_ref: None,
            no_output: false,
            warnings: Vec::new(),
            error: None,
            evidence: Vec::new(),
            usage: Vec::new(),
            commands: Vec::new(),
        }
    }
}

// The fields of an end are repeated here and in `Complete`, because serde cannot both flatten a part and
// refuse unknown fields.
/// Closes out the work item. A success needs `result`, `result_ref` or `no_output`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CloseOut {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// A terminal state; `abandoned` gives up owner-bound work that this worker started.
    pub state: State,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the result is stored, if not in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    /// Declares that there is no output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    /// Warnings: problems that did not change the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Evidence: pointers to traces, logs or tickets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Usage of this attempt; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
    /// Side effects to record with the end; the relay executes them. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Intent>,
}

impl CloseOut {
    /// An end, declared by the holder of this lease.
    pub fn new(fence: u64, token: &str, end: End) -> Self {
        let End { state, result, result_ref, no_output, warnings, error, evidence, usage, commands } = end;
        let token = token.to_owned();
        Self {
            fence,
            token,
            state,
            result,
            result_ref,
            no_output,
            warnings,
            error,
            evidence,
            usage,
            commands,
        }
    }

    /// The end alone, without the lease or token that authorizes it.
    pub fn end(self) -> End {
        let Self { state, result, result_ref, no_output, warnings, error, evidence, usage, commands, .. } =
            self;
        End { state, result, result_ref, no_output, warnings, error, evidence, usage, commands }
    }
}

/// Closes out externally owned work, authorized by the completion token from its ingest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Complete {
    /// The completion token.
    pub token: String,
    /// A terminal state.
    pub state: State,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the result is stored, if not in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    /// Declares that there is no output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    /// Warnings: problems that did not change the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Evidence: pointers to traces, logs or tickets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Usage of this attempt; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

impl Complete {
    /// The end alone, without the lease or token that authorizes it.
    pub fn end(self) -> End {
        let Self { state, result, result_ref, no_output, warnings, error, evidence, usage, .. } = self;
        End { state, result, result_ref, no_output, warnings, error, evidence, usage, commands: Vec::new() }
    }
}
