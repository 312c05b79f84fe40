//! The records of a command: the intent, the policy decision, the approval, the dispatches and the outcome.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};

use super::{
    budget::{Cost, Reservation},
    state::CommandState,
};
use crate::{
    Millis,
    document::Document,
    event::Actor,
    ids::{CommandId, WorkId},
    model::{ErrorClass, ErrorInfo},
    payload::{Digest, Payload},
    policy::RetryPolicy,
    usage::Usage,
};

/// The kind of effect, for people and policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    ModelCall,
    Shell,
    FileEdit,
    Browser,
    #[default]
    HttpApi,
    Message,
    Memory,
    FollowUp,
}

/// The cost of a wrong or duplicate effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    Low,
    #[default]
    High,
}

/// How a duplicate effect is prevented or detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Idempotency {
    /// The provider accepts an idempotency key.
    Native,
    /// The provider can be asked whether it happened.
    Lookup,
    #[default]
    None,
}

/// The part that makes the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// The work item's holder.
    #[default]
    Worker,
    /// The relay, over HTTP or by running a program.
    Http,
    Exec,
}

impl Executor {
    pub const fn is_relay(self) -> bool {
        matches!(self, Executor::Http | Executor::Exec)
    }
}

/// The settings of a tool. Undeclared tools get the default: high risk, not idempotent, executed by the
/// worker. Every event and record of a command contains only the settings that differ from the default, so
/// the default must never change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ToolFacts {
    pub risk: Risk,
    pub idempotency: Idempotency,
    /// For how long the provider remembers an idempotency key, from the first dispatch.
    pub native_window_ms: u64,
    pub executor: Executor,
    /// A lookup that finds nothing counts only this long after the doubt began.
    pub consistency_delay_ms: u64,
    /// The person who requested it cannot approve it.
    pub four_eyes: bool,
    /// The relay preserves the order of commands to the same target.
    pub ordered: bool,
    /// How many lookups may have no result before a person must find out.
    pub max_unknowns: u32,
    /// The minimum time between two lookups.
    pub lookup_interval_ms: u64,
    pub retry: RetryPolicy,
    /// How long the relay's call may take before its outcome is considered unknown.
    pub timeout_ms: u64,
    /// For how long an approval is valid.
    pub approval_ms: u64,
}

impl Default for ToolFacts {
    fn default() -> Self {
        Self {
            risk: Risk::High,
            idempotency: Idempotency::None,
            native_window_ms: 24 * 3_600_000,
            executor: Executor::Worker,
            consistency_delay_ms: 0,
            four_eyes: false,
            ordered: false,
            max_unknowns: 5,
            lookup_interval_ms: 0,
            retry: RetryPolicy::default(),
            timeout_ms: 60_000,
            approval_ms: 24 * 3_600_000,
        }
    }
}

impl Serialize for ToolFacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        macro_rules! unless_default {
            ($($field:ident),*) => {
                // Destructures every field, so that a new one that is missing here does not compile.
                let ToolFacts { $($field),* } = self;
                let default = ToolFacts::default();
                $(if *$field != default.$field {
                    map.serialize_entry(stringify!($field), $field)?;
                })*
            };
        }
        unless_default!(
            risk,
            idempotency,
            native_window_ms,
            executor,
            consistency_delay_ms,
            four_eyes,
            ordered,
            max_unknowns,
            lookup_interval_ms,
            retry,
            timeout_ms,
            approval_ms
        );
        map.end()
    }
}

/// The decision of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Allow,
    Deny,
    NeedsApproval,
}

/// The policy decision, its reason, and the version of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyDecision {
    pub effect: Effect,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    pub policy_version: String,
}

impl PolicyDecision {
    pub fn new(effect: Effect, policy_version: &str) -> Self {
        Self { effect, reasons: Vec::new(), policy_version: policy_version.to_owned() }
    }
}

/// Normalized arguments: the stored form, and the hash of the complete form. With redacted paths the two
/// differ, and the hash still distinguishes different arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arguments {
    pub kept: Payload,
    pub hash: Digest,
    /// Whether the hash covers redacted parts. A ledger keys such a hash before it stores it: from a plain
    /// hash, a short secret could be found by brute force.
    #[serde(skip)]
    pub redacted: bool,
}

impl Arguments {
    pub fn whole(arguments: Payload) -> Self {
        Self { hash: arguments.hash(), kept: arguments, redacted: false }
    }

    pub fn redacted(arguments: &Payload, kept: Payload) -> Self {
        Self { hash: arguments.hash(), kept, redacted: true }
    }
}

/// The fields that never change after the reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSpec {
    pub tenant: String,
    pub key: Digest,
    pub tool: String,
    pub target: String,
    pub kind: CommandKind,
    pub executor: Executor,
    pub input_hash: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
}

/// Why a command is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockCode {
    ApprovalRequired,
    PolicyDenied,
    Budget,
}

/// Why a command was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelCode {
    Requested,
    Rejected,
    Superseded,
    WorkEnded,
}

/// A person's decision, sealed to one content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    pub by: Actor,
    pub at: Millis,
    pub expires_at: Millis,
    /// Over work item, tool, target and arguments.
    pub seal: Digest,
    /// The dispatch that used it; an approval is valid for one dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Millis>,
}

/// The last dispatch of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    pub at: Millis,
    /// The work item's fence, or the relay's own.
    pub fence: u64,
    pub by: Actor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The relay's deadline: after it the outcome of the call is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Millis>,
    /// The amounts that were reserved for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<Reservation>,
    /// The amounts that were released because it did not happen. A receipt that arrives nevertheless is
    /// charged to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_back: Vec<Reservation>,
}

/// The kind of evidence of a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceKind {
    Provider,
    Lookup,
    Person,
}

/// The evidence that a command took effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub at: Millis,
    pub evidence: EvidenceKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The event whose payload is the provider's response: of this work item, or of the one that it reruns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<(WorkId, u64)>,
    /// The command of an earlier run whose receipt this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused_from: Option<CommandId>,
    /// The usage of the call, by source and model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// The rest of the row, which stores keep as one JSON document. All of it comes from events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandBody {
    pub submitter: Actor,
    /// The fence and the attempt under which it was reserved.
    pub fence: u64,
    pub attempt: u32,
    /// The event whose payload is the arguments.
    pub arguments: u64,
    pub tool: ToolFacts,
    pub decision: PolicyDecision,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<BlockCode>,
    /// A person must approve it even if policy allows it, because the outcome of an earlier call was
    /// misjudged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub review: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The expected cost of one call, as given when it was reserved.
    #[serde(default, skip_serializing_if = "Cost::is_nothing")]
    pub estimate: Cost,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dispatches: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_dispatched_at: Option<Millis>,
    /// It was sent again while in doubt: a later call without effect proves nothing about the first.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resent: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Dispatch>,
    /// The fences of the earlier dispatches, the latest last: their callers may still deliver evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<u64>,
    /// The request ids of the earlier dispatches, each with its fence, the latest last: a repeat of one opens no new
    /// dispatch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_requests: Vec<(u64, String)>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// When the next attempt or lookup may be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Millis>,
    /// Since when it is in doubt: until then the call may have been in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubted_at: Option<Millis>,
    /// Consecutive lookups without a result.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknowns: u32,
    #[serde(default, skip_serializing_if = "is_false")]
    pub needs_person: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replays: u32,
    /// The people who replayed it, or reserved it after its submitter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replayers: Vec<Arc<str>>,
    /// A person replayed it after its work item had ended: a cancel of that work item no longer stops it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replayed_after_end: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<CancelCode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<CommandId>,
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

pub(crate) fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A command: one recorded side effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub id: CommandId,
    pub work: WorkId,
    pub spec: Arc<CommandSpec>,
    pub state: CommandState,
    /// The last event of its work item that concerned it.
    pub seq: u64,
    pub created_at: Millis,
    pub updated_at: Millis,
    /// When something has to be done about it; [`super::due::duty`] says what.
    pub due_at: Option<Millis>,
    pub body: Document<CommandBody>,
}

impl Command {
    /// A worker's command whose outcome is unknown.
    pub fn is_in_doubt(&self) -> bool {
        self.is_worker() && self.state == CommandState::Uncertain
    }

    pub fn is_worker(&self) -> bool {
        !self.spec.executor.is_relay()
    }

    /// Whether a dispatch by the holder of its work item may lead to a call. The dispatch itself decides
    /// whether it does.
    pub fn may_go_out(&self) -> bool {
        self.is_worker() && (self.state.is_idle() || self.state == CommandState::Uncertain)
    }

    /// Whether it occupies the unique slot of its key.
    pub fn is_current(&self) -> bool {
        self.body.superseded_by.is_none()
    }

    /// Whether it can be kept from being sent only by an earlier command to the same target.
    pub fn waits_for_target(&self) -> bool {
        self.body.tool.ordered && matches!(self.state, CommandState::Pending | CommandState::Approved)
    }

    /// Whether a rerun has to consider it: it was sent, or the relay may yet send it.
    pub fn concerns_reruns(&self) -> bool {
        let relay = !self.is_worker() && self.state.is_open();
        self.state == CommandState::Succeeded || self.body.dispatches > 0 || relay
    }

    /// The fence of a dispatch, as far back as fences are remembered.
    pub fn fence_of(&self, dispatch: u32) -> Option<u64> {
        match self.body.dispatches.checked_sub(dispatch)? as usize {
            0 => self.body.dispatch.as_ref().map(|last| last.fence),
            back => self.body.earlier.get(self.body.earlier.len().checked_sub(back)?).copied(),
        }
    }

    /// Until when the provider remembers the idempotency key.
    pub fn native_until(&self) -> Option<Millis> {
        let first = self.body.first_dispatched_at?;
        (self.body.tool.idempotency == Idempotency::Native)
            .then(|| first + self.body.tool.native_window_ms as Millis)
    }

    /// Whether sending it again with the same key has no second effect.
    pub fn may_resend(&self, now: Millis) -> bool {
        self.native_until().is_some_and(|until| now < until)
    }
}

/// The command counts of a work item. Commands of the relay are only in the total: they outlive the work
/// item's holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total: u32,
    /// Not sent, but may yet be.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dispatched: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uncertain: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replays: u32,
}

impl Tally {
    pub fn is_empty(&self) -> bool {
        *self == Tally::default()
    }

    /// Whether any of the worker's commands is not settled.
    pub fn any_open(&self) -> bool {
        self.idle + self.dispatched + self.uncertain > 0
    }

    /// Sent, with an unknown outcome.
    pub fn unsettled(&self) -> u32 {
        self.dispatched + self.uncertain
    }

    fn place(&mut self, state: CommandState) -> Option<&mut u32> {
        match state {
            CommandState::Pending | CommandState::Blocked | CommandState::Approved => Some(&mut self.idle),
            CommandState::Dispatched => Some(&mut self.dispatched),
            CommandState::Uncertain => Some(&mut self.uncertain),
            CommandState::Succeeded | CommandState::Failed | CommandState::Cancelled => None,
        }
    }

    /// Updates the counts when a command of the worker changes its state.
    pub(crate) fn follow(&mut self, was: Option<CommandState>, now: CommandState) {
        if let Some(left) = was.and_then(|was| self.place(was)) {
            *left = left.saturating_sub(1);
        }
        if let Some(came) = self.place(now) {
            *came += 1;
        }
    }
}

/// Why a call is reported as failed or uncertain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallError {
    pub class: ErrorClass,
    pub message: String,
    pub retry_after_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As in the logs of all existing ledgers.
    #[test]
    fn omitted_tool_settings_have_a_fixed_default() {
        let first = json!({
            "risk": "high", "idempotency": "none", "native_window_ms": 86_400_000, "executor": "worker",
            "consistency_delay_ms": 0, "four_eyes": false, "ordered": false, "max_unknowns": 5,
            "lookup_interval_ms": 0, "timeout_ms": 60_000, "approval_ms": 86_400_000,
            "retry": { "initial_ms": 1_000, "jitter": "full", "max_attempts": 3, "max_ms": 300_000,
                "multiplier_permille": 2_000 },
        });
        assert_eq!(serde_json::from_value::<ToolFacts>(first).unwrap(), ToolFacts::default());
        assert_eq!(serde_json::to_value(ToolFacts::default()).unwrap(), json!({}));
    }

    #[test]
    fn other_tool_settings_are_written() {
        let other = json!({
            "risk": "low", "idempotency": "lookup", "native_window_ms": 1, "executor": "http",
            "consistency_delay_ms": 1, "four_eyes": true, "ordered": true, "max_unknowns": 1,
            "lookup_interval_ms": 1, "timeout_ms": 1, "approval_ms": 1,
            "retry": { "initial_ms": 1, "jitter": "full", "max_attempts": 1, "max_ms": 1,
                "multiplier_permille": 1_000 },
        });
        let read: ToolFacts = serde_json::from_value(other.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), other);
    }
}
