//! Commands as they stand: intended side effects, what was said of them, and what became of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Actor, CommandId, Grant, Reason, Timestamp, Usage, Word, WorkError, WorkId, list::comma, word::words,
};

words! {
    /// Where a command stands.
    CommandState {
        /// Recorded and allowed; nobody has been told to do it.
        Pending = "pending",
        /// Stopped: by policy, for want of an approval, or by a budget.
        Blocked = "blocked",
        /// A person approved exactly this content, once and for a while.
        Approved = "approved",
        /// Somebody was told to do it: it may have happened.
        Dispatched = "dispatched",
        /// Nobody knows whether it happened.
        Uncertain = "uncertain",
        /// It happened, with evidence.
        Succeeded = "succeeded",
        /// It did not happen.
        Failed = "failed",
        /// It will not be done, and never was.
        Cancelled = "cancelled",
    }
}

words! {
    /// What sort of effect it is.
    CommandKind {
        ModelCall = "model_call",
        Shell = "shell",
        FileEdit = "file_edit",
        Browser = "browser",
        HttpApi = "http_api",
        Message = "message",
        Memory = "memory",
        FollowUp = "follow_up",
    }
}

words! {
    /// What a wrong or a second effect would cost.
    Risk {
        Low = "low",
        High = "high",
    }
}

words! {
    /// How it can be known that a call is no second effect.
    Idempotency {
        /// The provider takes our key and does the same thing once.
        Native = "native",
        /// One can ask whether it happened.
        Lookup = "lookup",
        None = "none",
    }
}

words! {
    /// Who makes the call.
    Executor {
        /// The work's holder.
        Worker = "worker",
        /// The relay, over HTTP.
        Http = "http",
        /// The relay, by a program.
        Exec = "exec",
    }
}

words! {
    /// What policy says.
    Effect {
        Allow = "allow",
        Deny = "deny",
        NeedsApproval = "needs_approval",
    }
}

words! {
    /// On what a success rests.
    EvidenceKind {
        /// What the provider answered.
        Provider = "provider",
        /// A lookup found it.
        Lookup = "lookup",
        /// A person's record.
        Person = "person",
    }
}

words! {
    /// What becomes of an intent in a rerun.
    Planned {
        /// It happened: the receipt is used again.
        ReuseReceipt = "reuse_receipt",
        /// It did not happen: it is done when the rerun comes to it.
        Execute = "execute",
        NeedsApproval = "needs_approval",
        /// It may have happened, is still to be sent, or policy denies it.
        Blocked = "blocked",
    }
}

/// Tokens and money; a call is one call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Cost {
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// Millionths, by currency.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub micros: BTreeMap<String, u64>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What policy said, why, and which policy that was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyDecision {
    pub policy_version: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Effect))]
    pub effect: Word<Effect>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// A person's decision, sealed to one content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Approval {
    pub by: Actor,
    pub at: Timestamp,
    pub expires_at: Timestamp,
    pub seal: String,
    /// It is good for one dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Timestamp>,
}

/// The last time that somebody was told to do it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Dispatch {
    /// Counted from 1. Whoever says how it went names it: a later dispatch is another call.
    pub number: u32,
    pub at: Timestamp,
    /// The work's fence, or the relay's own.
    pub fence: u64,
    pub by: Actor,
    /// After it nobody knows how the relay's call went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
}

/// What a success rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Proof {
    pub kind: EvidenceKind,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// The evidence that a command took effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Receipt {
    pub at: Timestamp,
    pub evidence: ReceiptEvidence,
    /// The provider's id of what it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// What the provider answered; shown with the `payload` scope, and to the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    /// The command of an earlier run whose receipt this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused_from: Option<CommandId>,
    /// What it took, where that was told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReceiptEvidence {
    #[cfg_attr(feature = "openapi", schema(value_type = EvidenceKind))]
    pub kind: Word<EvidenceKind>,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// One intended side effect. Payloads are shown with the `payload` scope, to the holder, and to whoever may approve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Command {
    pub id: CommandId,
    pub work: WorkId,
    pub tenant: String,
    pub tool: String,
    pub target: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Tells apart several effects of one step on one target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = CommandKind))]
    pub kind: Word<CommandKind>,
    #[cfg_attr(feature = "openapi", schema(value_type = Executor))]
    pub executor: Word<Executor>,
    #[cfg_attr(feature = "openapi", schema(value_type = Risk))]
    pub risk: Word<Risk>,
    #[cfg_attr(feature = "openapi", schema(value_type = Idempotency))]
    pub idempotency: Word<Idempotency>,
    /// Whoever reserved it cannot approve it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub four_eyes: bool,
    #[cfg_attr(feature = "openapi", schema(value_type = CommandState))]
    pub state: Word<CommandState>,
    /// Why it is blocked, in doubt or cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What makes it the same intent: step, tool, target and slot.
    pub command_key: String,
    /// Over the canonical arguments.
    pub input_hash: String,
    /// What to give the provider, so that it does the same thing once.
    pub idempotency_key: String,
    /// What an approval is given to: work, tool, target and arguments.
    pub seal: String,
    pub decision: PolicyDecision,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Who reserved it.
    pub submitter: Actor,
    /// The attempt in which it was reserved.
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Dispatch>,
    /// How often somebody was told to do it.
    #[serde(default)]
    pub dispatches: u32,
    #[serde(default)]
    pub failures: u32,
    /// Lookups in a row that could not tell.
    #[serde(default)]
    pub unknowns: u32,
    /// In doubt, and nothing but a person can tell.
    #[serde(default)]
    pub needs_person: bool,
    #[serde(default)]
    pub replays: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WorkError>,
    /// Not before then: the next try, or the next lookup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// What one call is expected to cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Cost>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<CommandId>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_dispatched_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    /// As they were kept: what the tool redacts is not among them. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
}

/// A command without a work, with the lease of the work that was recorded for it: none where that has ended, and the
/// command with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReservedAlone {
    pub command: Command,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Grant>,
}

/// Why a command stands where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CommandExplanation {
    pub id: CommandId,
    #[cfg_attr(feature = "openapi", schema(value_type = CommandState))]
    pub state: Word<CommandState>,
    pub sentence: String,
    /// What to type, or `nothing: …` where it goes on by itself.
    pub next: String,
}

/// What a rerun would do with one command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlannedCommand {
    pub command: Command,
    #[cfg_attr(feature = "openapi", schema(value_type = Planned))]
    pub planned: Word<Planned>,
}

/// What a rerun would do with each command of the runs before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplayPlan {
    pub items: Vec<PlannedCommand>,
}

/// Which commands to list, newest first. What is left out does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct CommandQuery {
    /// Several states are separated by commas.
    #[serde(default, with = "comma", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", param(style = Form, explode = false))]
    pub state: Vec<CommandState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Only those in doubt of which nothing but a person can tell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_person: bool,
    /// Only those that are stopped until a person approves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_after: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Timestamp>,
    /// The `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// From 1 to 1,000; 50 unless told otherwise.
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
