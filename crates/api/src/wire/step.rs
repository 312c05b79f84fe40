//! Steps: named checkpoints inside a work item.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Timestamp, word::words};

words! {
    /// The action on a step.
    StepVerb {
        /// Begins it, or returns its result if it was completed.
        Begin = "begin",
        /// Completes it with a result.
        Complete = "complete",
    }
}

/// Begins or completes a checkpoint. If it was completed with the same input, its result is returned: reuse
/// it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutStep {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// Whether to begin or to complete the step.
    pub verb: StepVerb,
    /// The input; it is hashed, and a different input is a different step.
    pub input: Value,
    /// With `begin`: voids this step and every later one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
    /// The result, with `complete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
}

/// A named checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Step {
    /// Its name, unique in its work item.
    pub name: String,
    /// The order in which steps were begun.
    pub ordinal: u32,
    /// The hash of its input.
    pub input_hash: String,
    /// When it was begun.
    pub begun_at: Timestamp,
    /// When it was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Its result, once it is completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Voided: it is in the log, but its result is no longer reused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub voided: bool,
}

/// A step, and whether its result is to be reused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepReply {
    /// The step as it is now.
    pub step: Step,
    /// It was completed before: use its result and do not run it again.
    pub reused: bool,
}
