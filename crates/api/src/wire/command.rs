//! Commands (recorded side effects): their state, approval, dispatches, evidence and receipts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Actor, CommandId, Grant, Reason, Timestamp, Usage, Word, WorkError, WorkId, list::comma, word::words,
};

words! {
    /// The state of a command.
    CommandState {
        /// Recorded and allowed; not dispatched.
        Pending = "pending",
        /// Stopped by policy, a missing approval or a budget.
        Blocked = "blocked",
        /// A person approved exactly this content, for one dispatch and a limited time.
        Approved = "approved",
        /// Its call was permitted: the effect may have happened.
        Dispatched = "dispatched",
        /// It is unknown whether the effect happened.
        Uncertain = "uncertain",
        /// The effect happened, with evidence.
        Succeeded = "succeeded",
        /// The effect did not happen.
        Failed = "failed",
        /// The effect never happened and will not.
        Cancelled = "cancelled",
    }
}

words! {
    /// The kind of effect.
    CommandKind {
        /// A call of a language model.
        ModelCall = "model_call",
        /// A command in a shell.
        Shell = "shell",
        /// A change of a file.
        FileEdit = "file_edit",
        /// An action in a browser.
        Browser = "browser",
        /// A call of an HTTP API.
        HttpApi = "http_api",
        /// A message to somebody.
        Message = "message",
        /// A change of an agent's memory.
        Memory = "memory",
        /// Further work that is started.
        FollowUp = "follow_up",
    }
}

words! {
    /// The cost of a wrong or duplicate effect.
    Risk {
        /// A wrong or duplicate effect does little harm.
        Low = "low",
        /// A wrong or duplicate effect does great harm.
        High = "high",
    }
}

words! {
    /// How a duplicate effect is prevented or detected.
    Idempotency {
        /// The provider accepts an idempotency key.
        Native = "native",
        /// The provider can be asked whether it happened.
        Lookup = "lookup",
        /// Neither is possible.
        None = "none",
    }
}

words! {
    /// The part that makes the call.
    Executor {
        /// The work item's holder.
        Worker = "worker",
        /// The relay, over HTTP.
        Http = "http",
        /// The relay, by running a program.
        Exec = "exec",
    }
}

words! {
    /// The decision of the policy.
    Effect {
        /// The command may be dispatched.
        Allow = "allow",
        /// The command must not be dispatched.
        Deny = "deny",
        /// A person must approve it first.
        NeedsApproval = "needs_approval",
    }
}

words! {
    /// The kind of evidence of a success.
    EvidenceKind {
        /// The provider's response.
        Provider = "provider",
        /// A lookup found the effect.
        Lookup = "lookup",
        /// A person recorded it.
        Person = "person",
    }
}

words! {
    /// How a rerun treats an effect of an earlier run.
    Planned {
        /// It happened: its receipt is reused.
        ReuseReceipt = "reuse_receipt",
        /// It did not happen: it is executed when the rerun reaches it.
        Execute = "execute",
        /// A person must approve it first.
        NeedsApproval = "needs_approval",
        /// It may have happened, is still to be sent, or policy denies it.
        Blocked = "blocked",
    }
}

/// An amount of tokens and money. Calls are not listed: each dispatch is one call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The number of tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// In millionths of the currency's unit, by currency.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub micros: BTreeMap<String, u64>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The policy decision, its reason, and the version of the policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyDecision {
    /// The version of the policies that decided.
    pub policy_version: String,
    /// Allow, deny, or approval required.
    #[cfg_attr(feature = "openapi", schema(value_type = Effect))]
    pub effect: Word<Effect>,
    /// The reasons of the policies that decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// A person's decision, sealed to one content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Approval {
    /// The person who approved.
    pub by: Actor,
    /// When it was approved.
    pub at: Timestamp,
    /// When the approval expires.
    pub expires_at: Timestamp,
    /// The hash of the approved content.
    pub seal: String,
    /// The dispatch that used it; an approval is valid for one dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Timestamp>,
}

/// The last dispatch of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Dispatch {
    /// Counted from 1. A report names it, because a later dispatch is another call.
    pub number: u32,
    /// When it was dispatched.
    pub at: Timestamp,
    /// The fence of the work item's lease, or the relay's own.
    pub fence: u64,
    /// The holder, or the relay.
    pub by: Actor,
    /// The relay's deadline: after it the outcome of the call is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
}

/// The evidence for a success.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The kind of evidence.
    pub kind: EvidenceKind,
    /// A pointer to the effect, for example a URL.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// The evidence that a command took effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Receipt {
    /// When the receipt was recorded.
    pub at: Timestamp,
    /// The evidence that the effect happened.
    pub evidence: ReceiptEvidence,
    /// The provider's id for the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The provider's response; returned to the holder, and to others with the `payload` scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    /// The command of an earlier run whose receipt this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused_from: Option<CommandId>,
    /// The usage of the call, if it was reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// The evidence of a receipt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReceiptEvidence {
    /// The kind of evidence.
    #[cfg_attr(feature = "openapi", schema(value_type = EvidenceKind))]
    pub kind: Word<EvidenceKind>,
    /// A pointer to the effect, for example a URL.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// A command: one recorded side effect. Payloads are returned with the `payload` scope, to the holder, and to
/// callers who may approve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Command {
    /// The command's id.
    pub id: CommandId,
    /// The work item that it belongs to.
    pub work: WorkId,
    /// The work item's tenant.
    pub tenant: String,
    /// The kind of side effect, by name.
    pub tool: String,
    /// The object of the side effect, for example a recipient.
    pub target: String,
    /// The step that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Distinguishes several effects of one step on one target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The kind of effect.
    #[cfg_attr(feature = "openapi", schema(value_type = CommandKind))]
    pub kind: Word<CommandKind>,
    /// The part that makes the call.
    #[cfg_attr(feature = "openapi", schema(value_type = Executor))]
    pub executor: Word<Executor>,
    /// The cost of a wrong or duplicate effect.
    #[cfg_attr(feature = "openapi", schema(value_type = Risk))]
    pub risk: Word<Risk>,
    /// How a duplicate effect is prevented or detected.
    #[cfg_attr(feature = "openapi", schema(value_type = Idempotency))]
    pub idempotency: Word<Idempotency>,
    /// Whether the person who reserved it is barred from approving it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub four_eyes: bool,
    /// The current state.
    #[cfg_attr(feature = "openapi", schema(value_type = CommandState))]
    pub state: Word<CommandState>,
    /// The reason why it is blocked, in doubt or cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Identifies the intent: derived from step, tool, target and slot.
    pub command_key: String,
    /// The hash of the canonical arguments.
    pub input_hash: String,
    /// To be sent to the provider, so that a repeated call has no second effect.
    pub idempotency_key: String,
    /// The hash that an approval is bound to: work item, tool, target and arguments.
    pub seal: String,
    /// The last policy decision.
    pub decision: PolicyDecision,
    /// The last approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The actor that reserved it.
    pub submitter: Actor,
    /// The attempt in which it was reserved.
    pub attempt: u32,
    /// The last dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Dispatch>,
    /// How often it was dispatched.
    #[serde(default)]
    pub dispatches: u32,
    /// How many calls failed.
    #[serde(default)]
    pub failures: u32,
    /// Consecutive lookups without a result.
    #[serde(default)]
    pub unknowns: u32,
    /// It is in doubt, and only a person can resolve that.
    #[serde(default)]
    pub needs_person: bool,
    /// How often a person replayed it.
    #[serde(default)]
    pub replays: u32,
    /// Why the last call failed or is in doubt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WorkError>,
    /// When the next attempt or lookup may be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// The expected cost of one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Cost>,
    /// The evidence that the effect happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// The command that a later attempt reserved instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<CommandId>,
    /// When it was reserved.
    pub created_at: Timestamp,
    /// When it was dispatched first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_dispatched_at: Option<Timestamp>,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// The arguments as stored, without the parts that the tool redacts. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
}

/// A command recorded without a work item, and the lease of the work item that was recorded for it. There is
/// no lease if that item, and with it the command, has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReservedAlone {
    /// The command.
    pub command: Command,
    /// The lease of its work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Grant>,
}

/// Why a command is in its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CommandExplanation {
    /// The command's id.
    pub id: CommandId,
    /// The current state.
    #[cfg_attr(feature = "openapi", schema(value_type = CommandState))]
    pub state: Word<CommandState>,
    /// All of it in one sentence.
    pub sentence: String,
    /// Advice for a person, in words; `nothing: …` if it continues without help.
    pub advice: String,
    /// The command lines for it, the most useful first: each is complete and safe to paste, because it asks
    /// before it changes anything.
    #[serde(default)]
    pub next: Vec<String>,
}

/// How a rerun would treat one command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlannedCommand {
    /// The command of the earlier run.
    pub command: Command,
    /// The action of the rerun.
    #[cfg_attr(feature = "openapi", schema(value_type = Planned))]
    pub planned: Word<Planned>,
}

/// How a rerun would treat each command of the earlier runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplayPlan {
    /// One entry for each command.
    pub items: Vec<PlannedCommand>,
}

/// Which commands to list, newest first. Omitted filters do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct CommandQuery {
    /// Several states are separated by commas.
    #[serde(default, with = "comma", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", param(style = Form, explode = false))]
    pub state: Vec<CommandState>,
    /// Only commands of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only commands of this work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// Only commands of this tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Only commands to this target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Only commands in doubt that only a person can resolve.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_person: bool,
    /// Only commands that wait for a person's approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
    /// Only commands that were reserved after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_after: Option<Timestamp>,
    /// Only commands that were reserved before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Timestamp>,
    /// The `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// From 1 to 1,000; default 50.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Which commands a rerun would execute again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ReplayPlanQuery {
    /// Keys of commands (`command_key`), separated by commas.
    #[serde(default, with = "comma", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", param(style = Form, explode = false))]
    pub execute: Vec<String>,
}
