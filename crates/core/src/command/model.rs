//! The records of a command: what was intended, what the door said of it, and what became of it.

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

/// What sort of effect it is, for people and policies.
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

/// What a wrong or a second effect would cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    Low,
    #[default]
    High,
}

/// How it can be known that a call is no second effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Idempotency {
    /// The provider takes our key and does the same thing once.
    Native,
    /// One can ask whether it happened.
    Lookup,
    #[default]
    None,
}

/// Who makes the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// The work's holder.
    #[default]
    Worker,
    /// The relay, over HTTP or by a program.
    Http,
    Exec,
}

impl Executor {
    pub const fn is_relay(self) -> bool {
        matches!(self, Executor::Http | Executor::Exec)
    }
}

/// What the configuration says of a tool. Undeclared tools get the default: high risk, not idempotent,
/// executed by the worker. Only what is other than the default is written, in every event and record of a command: the
/// default must stay as it is for good.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolFacts {
    pub risk: Risk,
    pub idempotency: Idempotency,
    /// For how long the provider remembers our key, from the first dispatch.
    pub native_window_ms: u64,
    pub executor: Executor,
    /// A lookup that finds nothing counts only so long after the doubt began.
    pub consistency_delay_ms: u64,
    /// Whoever asked for it cannot approve it.
    pub four_eyes: bool,
    /// The relay keeps the order of commands to the same target.
    pub ordered: bool,
    /// Lookups that cannot tell, before a person must.
    pub max_unknowns: u32,
    /// Between two lookups at least.
    pub lookup_interval_ms: u64,
    pub retry: RetryPolicy,
    /// How long the relay's call may take before nobody knows how it went.
    pub timeout_ms: u64,
    /// For how long an approval is good.
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
                // Names every field, or does not compile.
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

/// What policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Allow,
    Deny,
    NeedsApproval,
}

/// The door's evaluation: what policy says, why, and which policy that was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// Normalised arguments: as they are kept, and the hash of all of them. Where paths are redacted the two
/// differ, and the hash still tells other arguments apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arguments {
    pub kept: Payload,
    pub hash: Digest,
    /// The hash covers what is not kept. A ledger keys such a hash before it stores it: from a plain one, a short secret
    /// could be found by trying.
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

/// What never changes after the reservation.
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

/// Why a command will never be done.
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
    /// Over work, tool, target and arguments.
    pub seal: Digest,
    /// It is good for one dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Millis>,
}

/// The last time that somebody was told to do it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    pub at: Millis,
    /// The work's fence, or the relay's own.
    pub fence: u64,
    pub by: Actor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// After it nobody knows how the relay's call went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Millis>,
    /// What was set aside for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<Reservation>,
    /// What was given back because it did not happen. A receipt that comes all the same is charged to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_back: Vec<Reservation>,
}

/// On what a success rests.
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
    /// The event whose payload is the provider's response: of this work, or of the one that it reruns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<(WorkId, u64)>,
    /// The command of an earlier run whose receipt this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused_from: Option<CommandId>,
    /// What the call used, by source and model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// The rest of the row, kept by stores as one JSON document. All of it comes from events.
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
    /// A person must approve whatever policy says: an earlier effect was not what it seemed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub review: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What one call is expected to cost, as it was said when it was reserved.
    #[serde(default, skip_serializing_if = "Cost::is_nothing")]
    pub estimate: Cost,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dispatches: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_dispatched_at: Option<Millis>,
    /// It was sent again while in doubt: that a later call did nothing says nothing of the first.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resent: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Dispatch>,
    /// The fences of the dispatches before that one, the latest last: whoever was told then may still bring evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Not before then: the next try, or the next lookup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Millis>,
    /// Since when it is in doubt: until then the call may have been under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubted_at: Option<Millis>,
    /// Lookups in a row that could not tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknowns: u32,
    #[serde(default, skip_serializing_if = "is_false")]
    pub needs_person: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replays: u32,
    /// Who had it done again, and the people who reserved it after its submitter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replayers: Vec<Arc<str>>,
    /// A person replayed it after its work had ended: a cancel of that work no longer stops it.
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

/// One intended side effect, recorded before it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub id: CommandId,
    pub work: WorkId,
    pub spec: Arc<CommandSpec>,
    pub state: CommandState,
    /// The last event of its work that told of it.
    pub seq: u64,
    pub created_at: Millis,
    pub updated_at: Millis,
    /// When something has to be done about it; what, says [`super::due::duty`].
    pub due_at: Option<Millis>,
    pub body: Document<CommandBody>,
}

impl Command {
    /// The worker's own, and nobody knows whether it happened.
    pub fn is_in_doubt(&self) -> bool {
        self.is_worker() && self.state == CommandState::Uncertain
    }

    pub fn is_worker(&self) -> bool {
        !self.spec.executor.is_relay()
    }

    /// Whether a dispatch by the holder of its work may lead to a call. Whether it does, the dispatch decides.
    pub fn may_go_out(&self) -> bool {
        self.is_worker() && (self.state.is_idle() || self.state == CommandState::Uncertain)
    }

    /// Whether the unique place of its key is its own.
    pub fn is_current(&self) -> bool {
        self.body.superseded_by.is_none()
    }

    /// Whether nothing but an earlier command to the same target may keep it from going out.
    pub fn waits_in_line(&self) -> bool {
        self.body.tool.ordered && matches!(self.state, CommandState::Pending | CommandState::Approved)
    }

    /// Whether a rerun has to know of it: it was sent, or the relay may yet send it.
    pub fn tells_of_its_run(&self) -> bool {
        let relay = !self.is_worker() && self.state.is_open();
        self.state == CommandState::Succeeded || self.body.dispatches > 0 || relay
    }

    /// The fence under which a dispatch was given, as far back as that is remembered.
    pub fn fence_of(&self, dispatch: u32) -> Option<u64> {
        match self.body.dispatches.checked_sub(dispatch)? as usize {
            0 => self.body.dispatch.as_ref().map(|last| last.fence),
            back => self.body.earlier.get(self.body.earlier.len().checked_sub(back)?).copied(),
        }
    }

    /// Until when the provider knows our key.
    pub fn native_until(&self) -> Option<Millis> {
        let first = self.body.first_dispatched_at?;
        (self.body.tool.idempotency == Idempotency::Native)
            .then(|| first + self.body.tool.native_window_ms as Millis)
    }

    /// Whether sending it again with the same key is no second effect.
    pub fn may_resend(&self, now: Millis) -> bool {
        self.native_until().is_some_and(|until| now < until)
    }
}

/// How many commands a work has. Those of the relay count in the total only: they outlive the work's holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total: u32,
    /// Not sent, and may be yet.
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

    /// Of the worker's commands, any that something may still happen to.
    pub fn any_open(&self) -> bool {
        self.idle + self.dispatched + self.uncertain > 0
    }

    /// Sent, and nobody knows yet how it went.
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

    /// Follows one command of the worker from a state to the next.
    pub(crate) fn follow(&mut self, was: Option<CommandState>, now: CommandState) {
        if let Some(left) = was.and_then(|was| self.place(was)) {
            *left = left.saturating_sub(1);
        }
        if let Some(came) = self.place(now) {
            *came += 1;
        }
    }
}

/// Why somebody reports that a call went wrong.
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

    /// What stands in the logs of all who ever used it.
    #[test]
    fn what_is_not_written_of_a_tool_never_changes() {
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
    fn all_else_is_written() {
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
