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
    pub id: WorkId,
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// The number of the work's last event.
    pub seq: u64,
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
    pub leases: Vec<RenewLease>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewLease {
    pub id: WorkId,
    pub fence: u64,
    pub token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
}

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
    Renewed {
        id: WorkId,
        expires_at: Timestamp,
        /// Stop: close it out as cancelled, or release it.
        cancel_requested: bool,
        /// Stop, and release it: another worker goes on.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        release_requested: bool,
    },
    Refused {
        id: WorkId,
        problem: Problem,
    },
}

impl Renewal {
    pub fn id(&self) -> &WorkId {
        match self {
            Renewal::Renewed { id, .. } | Renewal::Refused { id, .. } => id,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Accept {
    pub fence: u64,
    pub token: String,
    pub strength: AcceptStrength,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Progress {
    pub fence: u64,
    pub token: String,
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
    pub fence: u64,
    pub token: String,
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
    pub fence: u64,
    pub token: String,
    pub error: Failure,
    /// An `auth` failure may ask to wait for a reconnect instead of counting as a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<NewWait>,
    /// What this attempt used; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Failure {
    pub class: ErrorClass,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
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
    pub fence: u64,
    pub token: String,
    /// A terminal state; `abandoned` gives up started owner-bound work of one's own.
    pub state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
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
    pub token: String,
    pub state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
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
