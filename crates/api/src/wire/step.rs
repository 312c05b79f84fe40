//! Steps: named checkpoints inside a work.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Timestamp, word::words};

words! {
    /// What to do with a step.
    StepVerb {
        Begin = "begin",
        Complete = "complete",
    }
}

/// Begins or completes a checkpoint. A completed one with the same input comes back with its result: reuse it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutStep {
    pub fence: u64,
    pub token: String,
    pub verb: StepVerb,
    /// Hashed: a step with another input is another step.
    pub input: Value,
    /// With `begin`: voids this step and every later one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
    /// With `complete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
}

/// A named checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Step {
    pub name: String,
    /// The order in which steps were begun.
    pub ordinal: u32,
    pub input_hash: String,
    pub begun_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Recorded in the log, no longer reused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub voided: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepReply {
    pub step: Step,
    /// It was completed before: use its result, and do not do it again.
    pub reused: bool,
}
