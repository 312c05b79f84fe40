//! The holder's verbs. Each carries the fence and the token of its lease.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Code, ErrorClass, Evidence, Intent, NewWait, OpenedWait, Problem, State, Timestamp, Usage, WaitId, Word,
    WorkId, word::words,
};

words! {
    /// How far the work was handed over.
    AcceptStrength {
        /// Bytes were handed over.
        Weak = "weak",
        /// The agent took it on.
        Strong = "strong",
    }
}

/// The short answer of most verbs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ack {
    /// The work.
    pub id: WorkId,
    /// Its state after the call.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// The number of the work's last event.
    pub seq: u64,
    /// When it is tried again, where a retry is scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry_at: Option<Timestamp>,
    /// The waits that are open because of this call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitId>,
}

/// Where a work stands after a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failed {
    /// Where the work stands.
    #[serde(flatten)]
    pub work: Ack,
    /// The wait that was asked for, with the token that answers it. The token is shown here only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<OpenedWait>,
}

/// Renews many leases at once; each is answered on its own.
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
    /// The work.
    pub id: WorkId,
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// Progress to show on the work. It leaves no event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
}

/// The answers to a renewal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Renewals {
    /// In the order of the request.
    pub leases: Vec<Renewal>,
    /// The works whose lease is lost (`lease_lost`): somebody else may hold them, so stop working on them.
    #[serde(default)]
    pub lost: Vec<WorkId>,
}

impl Renewals {
    /// These answers, with the leases among them that are lost.
    pub fn new(leases: Vec<Renewal>) -> Self {
        let lost = |renewal: &Renewal| match renewal {
            Renewal::Refused { id, problem } if problem.code == Code::LeaseLost => Some(id.clone()),
            Renewal::Renewed { .. } | Renewal::Refused { .. } => None,
        };
        let lost = leases.iter().filter_map(lost).collect();
        Self { leases, lost }
    }
}

/// One lease's answer: renewed, or why not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Renewal {
    /// The lease is renewed.
    Renewed {
        /// The work.
        id: WorkId,
        /// When it expires unless it is renewed again.
        expires_at: Timestamp,
        /// Stop: close it out as cancelled, or release it.
        cancel_requested: bool,
        /// Stop, and release it: another worker goes on.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        release_requested: bool,
    },
    /// The lease is not renewed.
    Refused {
        /// The work.
        id: WorkId,
        /// Why: `lease_lost` where somebody else may hold the work.
        problem: Problem,
    },
}

impl Renewal {
    /// The work that was to be renewed.
    pub fn id(&self) -> &WorkId {
        match self {
            Renewal::Renewed { id, .. } | Renewal::Refused { id, .. } => id,
        }
    }
}

/// Says how far the work was handed over to the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Accept {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// How far.
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
    /// The same one again writes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// Hands the work back, to be claimed again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// Why it is handed back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What this attempt used; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// Reports a failure: the retry policy decides what becomes of the work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// What went wrong.
    pub error: Failure,
    /// An `auth` failure may ask to wait for a reconnect instead of counting as a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<NewWait>,
    /// What this attempt used; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// What went wrong, and whether trying again can help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The kind of failure: it decides whether the policy retries.
    pub class: ErrorClass,
    /// What happened, for people.
    #[serde(default)]
    pub message: String,
    /// Wait at least so long before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What equal failures have in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

impl Failure {
    /// A failure of this class.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_after_ms: None, fingerprint: None }
    }
}

/// How a work ended. A success needs `result`, `result_ref` or `no_output`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct End {
    /// A terminal state.
    pub state: State,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the result is kept, if not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    /// There is nothing to show.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    /// What went wrong without changing the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Pointers to what supports it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// What this attempt used; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
    /// What goes with the end: sent by the relay, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Intent>,
}

impl End {
    /// An end in this state, with nothing else said.
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

// The fields of an end are written out here and in `Complete`: serde cannot both flatten a part and refuse
// unknown fields.
/// Declares how the work ended. A success needs `result`, `result_ref` or `no_output`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CloseOut {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// A terminal state; `abandoned` gives up started owner-bound work of one's own.
    pub state: State,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the result is kept, if not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    /// There is nothing to show.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    /// What went wrong without changing the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Pointers to what supports it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// What this attempt used; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
    /// What goes with the end: sent by the relay, at most 100.
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

    /// The end alone, without the proof of who declares it.
    pub fn end(self) -> End {
        let Self { state, result, result_ref, no_output, warnings, error, evidence, usage, commands, .. } =
            self;
        End { state, result, result_ref, no_output, warnings, error, evidence, usage, commands }
    }
}

/// Says how externally owned work ended, by the token that its ingest gave.
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
    /// Where the result is kept, if not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    /// There is nothing to show.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    /// What went wrong without changing the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Pointers to what supports it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// What this attempt used; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

impl Complete {
    /// The end alone, without the proof of who declares it.
    pub fn end(self) -> End {
        let Self { state, result, result_ref, no_output, warnings, error, evidence, usage, .. } = self;
        End { state, result, result_ref, no_output, warnings, error, evidence, usage, commands: Vec::new() }
    }
}
