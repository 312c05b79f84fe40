//! The facts of a command, as in the log of its work item.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    budget::Cost,
    budget::Reservation,
    model::{BlockCode, CancelCode, CommandSpec, Executor, PolicyDecision, Receipt, ToolFacts},
    state::CommandState,
};
use crate::{Millis, ids::CommandId, model::ErrorClass, payload::Digest};

/// The beginning of every fact of a command: which command moved, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    pub command: CommandId,
    pub executor: Executor,
    /// None if it has just been recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<CommandState>,
    pub now: CommandState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    #[serde(flatten)]
    pub moved: Moved,
    pub spec: Arc<CommandSpec>,
    pub tool: Box<ToolFacts>,
    pub decision: Box<PolicyDecision>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<BlockCode>,
    #[serde(default)]
    pub review: bool,
    #[serde(default, skip_serializing_if = "Cost::is_nothing")]
    pub estimate: Cost,
    /// The receipt, if an earlier run did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<Receipt>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    #[serde(flatten)]
    pub moved: Moved,
    pub code: BlockCode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Box<PolicyDecision>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unblocked {
    #[serde(flatten)]
    pub moved: Moved,
    pub decision: Box<PolicyDecision>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    #[serde(flatten)]
    pub moved: Moved,
    pub seal: Digest,
    pub expires_at: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandCancelled {
    #[serde(flatten)]
    pub moved: Moved,
    pub code: CancelCode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<CommandId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatched {
    #[serde(flatten)]
    pub moved: Moved,
    /// The work item's fence, or the relay's own.
    pub under: u64,
    /// The amounts, if they differ from those of the previous dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Box<ToolFacts>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Box<PolicyDecision>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<Reservation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSucceeded {
    #[serde(flatten)]
    pub moved: Moved,
    pub receipt: Box<Receipt>,
    /// The actual amounts, for those that were reserved for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<Reservation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandFailed {
    #[serde(flatten)]
    pub moved: Moved,
    pub class: ErrorClass,
    pub failures: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsent {
    #[serde(flatten)]
    pub moved: Moved,
    pub class: ErrorClass,
    pub failures: u32,
    pub next_at: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncertain {
    #[serde(flatten)]
    pub moved: Moved,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ErrorClass>,
    /// Only a person can settle it.
    #[serde(default)]
    pub needs_person: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Millis>,
}

/// The outcome of a lookup that did not find the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Miss {
    Absent,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookedUp {
    #[serde(flatten)]
    pub moved: Moved,
    pub finding: Miss,
    pub unknowns: u32,
    #[serde(default)]
    pub needs_person: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedAgain {
    #[serde(flatten)]
    pub moved: Moved,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resent {
    #[serde(flatten)]
    pub moved: Moved,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    #[serde(flatten)]
    pub moved: Moved,
    pub tool: Box<ToolFacts>,
    pub decision: Box<PolicyDecision>,
}
