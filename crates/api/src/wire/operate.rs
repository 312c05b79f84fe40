//! The operators' verbs. Each carries a reason, which is recorded; `if_seq` refuses a work item that has
//! changed since.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Failure, State, word::words};

/// Requests that the work item stops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The reason; it is recorded.
    pub reason: String,
    /// The `seq` that the caller last saw; the request is refused if the work item has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_seq: Option<u64>,
    /// How long its holder has to stop; default one minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// Requests that the work item is given up once its lease lapses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Abandon {
    /// The reason; it is recorded.
    pub reason: String,
    /// The `seq` that the caller last saw; the request is refused if the work item has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_seq: Option<u64>,
}

/// Retries now, without waiting for the rest of the backoff.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RetryNow {
    /// The reason; it is recorded.
    pub reason: String,
    /// The `seq` that the caller last saw; the request is refused if the work item has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_seq: Option<u64>,
}

/// Sets the work item aside for a person's decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Quarantine {
    /// The reason; it is recorded.
    pub reason: String,
    /// The `seq` that the caller last saw; the request is refused if the work item has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_seq: Option<u64>,
}

/// Runs an ended work item again, as a new one that is linked to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Rerun {
    /// The reason; it is recorded.
    pub reason: String,
    /// Steps before this one keep their results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<String>,
    /// The keys (`command_key`) of the commands to execute again; no other effect of an earlier run is
    /// repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub execute: Vec<String>,
}

words! {
    /// A person's decision on a quarantined work item.
    Decision {
        /// It is queued again. Refused while a command is in doubt.
        Requeue = "requeue",
        /// It succeeded.
        Succeeded = "succeeded",
        /// It failed.
        Failed = "failed",
        /// It shall not be done.
        Cancelled = "cancelled",
        /// Its outcome cannot be known.
        Abandoned = "abandoned",
    }
}

impl Decision {
    /// The terminal state that it declares; None for a requeue.
    pub fn end(self) -> Option<State> {
        match self {
            Decision::Requeue => None,
            Decision::Succeeded => Some(State::Succeeded),
            Decision::Failed => Some(State::Failed),
            Decision::Cancelled => Some(State::Cancelled),
            Decision::Abandoned => Some(State::Abandoned),
        }
    }
}

/// A person's decision on a quarantined work item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// The reason; it is recorded.
    pub reason: String,
    /// The `seq` that the caller last saw; the request is refused if the work item has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_seq: Option<u64>,
    /// The decision.
    pub decision: Decision,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the result is stored, if not in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    /// Declares that there is no output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    /// The error, for `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}
