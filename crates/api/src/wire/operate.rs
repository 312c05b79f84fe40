//! The operators' verbs. Each carries a reason, which is kept; `if_seq` refuses a work that moved on since.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Failure, State, word::words};

/// Asks for it to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Why. It is kept.
    pub reason: String,
    /// The number of the last event that was seen; refused if there is a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_seq: Option<u64>,
    /// How long its holder has; a minute unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// Asks to give it up once its lease lapses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Abandon {
    /// Why. It is kept.
    pub reason: String,
    /// The number of the last event that was seen; refused if there is a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_seq: Option<u64>,
}

/// Cuts a retry's backoff short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RetryNow {
    /// Why. It is kept.
    pub reason: String,
    /// The number of the last event that was seen; refused if there is a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_seq: Option<u64>,
}

/// Sets it aside for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Quarantine {
    /// Why. It is kept.
    pub reason: String,
    /// The number of the last event that was seen; refused if there is a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_seq: Option<u64>,
}

/// Runs an ended work again, as a new work linked to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Rerun {
    /// Why. It is kept.
    pub reason: String,
    /// Steps before this one keep their results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<String>,
    /// Keys of commands (`command_key`) to execute again; what else earlier runs did is not repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub execute: Vec<String>,
}

words! {
    /// What a person can decide over a quarantined work.
    Decision {
        /// It is queued again. Refused while a command is in doubt.
        Requeue = "requeue",
        /// It succeeded.
        Succeeded = "succeeded",
        /// It failed.
        Failed = "failed",
        /// It is not to be done.
        Cancelled = "cancelled",
        /// Nobody can know how it ended.
        Abandoned = "abandoned",
    }
}

impl Decision {
    /// The end that it declares; None for a requeue.
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

/// A person's decision over a quarantined work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// Why. It is kept.
    pub reason: String,
    /// The number of the last event that was seen; refused if there is a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_seq: Option<u64>,
    /// What becomes of the work.
    pub decision: Decision,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the result is kept, if not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    /// There is nothing to show.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    /// What went wrong, with `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}
