//! The verbs of commands: one request type for each.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Claimant, Command, Cost, ErrorClass, Proof, Source, Usage, word::words};

/// A side effect to be recorded as a command before it happens. In a close-out, the relay executes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Intent {
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
    /// The arguments of the call, any JSON.
    pub arguments: Value,
    /// The expected cost of one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Cost>,
}

impl Intent {
    /// An intent without a step, a slot or an estimate.
    pub fn new(tool: &str, target: &str, arguments: Value) -> Self {
        let (tool, target) = (tool.to_owned(), target.to_owned());
        Self { tool, target, step: None, slot: None, arguments, estimate: None }
    }
}

// The fields of an intent are repeated here and in `ReserveAlone`, because serde cannot both flatten a part
// and refuse unknown fields.
/// Records an intent as a command, by the holder of its work item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Reserve {
    /// The lease's number.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
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
    /// The arguments of the call, any JSON.
    pub arguments: Value,
    /// The expected cost of one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Cost>,
}

impl Reserve {
    /// This intent under a lease.
    pub fn new(fence: u64, token: &str, intent: Intent) -> Self {
        let Intent { tool, target, step, slot, arguments, estimate } = intent;
        Self { fence, token: token.to_owned(), tool, target, step, slot, arguments, estimate }
    }

    /// The intent alone, without the lease that authorizes it.
    pub fn intent(self) -> Intent {
        let Self { tool, target, step, slot, arguments, estimate, .. } = self;
        Intent { tool, target, step, slot, arguments, estimate }
    }
}

/// Records an intent without a work item: one is recorded for it and claimed, in the same transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReserveAlone {
    /// The claiming worker. Repeating the request id returns the same command and its lease.
    pub claim: Claimant,
    /// The source of the work item: the same source is the same command, in later attempts too. Default:
    /// `manual` with the claim's `request_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// A tenant of the credential; optional if the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The session of the work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Groups work items that belong together; default: the work item's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The kind of side effect, by name.
    pub tool: String,
    /// The object of the side effect, for example a recipient.
    pub target: String,
    /// Distinguishes several effects of one step on one target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The arguments of the call, any JSON.
    pub arguments: Value,
    /// The expected cost of one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Cost>,
}

/// A person approves exactly this content, for one dispatch and a limited time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ApproveCommand {
    /// The reason; it is recorded.
    pub reason: String,
    /// The `seal` of the command that the person looked at; refused if the content has changed.
    pub seal: String,
}

/// A person rejects the command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RejectCommand {
    /// The reason; it is recorded.
    pub reason: String,
}

/// Asks for permission to make the call now. Make it only if the response status is 2xx.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DispatchCommand {
    /// The lease's number.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// Makes the dispatch idempotent: a repeat is permitted as the first was. Without it a repeat is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The expected cost of this call, if it differs from the one given when it was reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Cost>,
}

/// Reports that the effect happened. Requires at least one of `external_id`, `evidence.ref` and `response`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DeliverReceipt {
    /// The number of the lease under which it was dispatched.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// The number of the dispatch being reported, from its response; default: the last dispatch under this
    /// fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<u32>,
    /// The provider's id for the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The provider's response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    /// Default `provider`; a person's word is given with `record`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Proof>,
    /// The actual cost; default: the estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Usage of the call; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CallFailure {
    /// The class of the failure, which decides whether a retry can help.
    pub class: ErrorClass,
    /// The message, for people.
    #[serde(default)]
    pub message: String,
    /// The minimum delay before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl CallFailure {
    /// A failure of this class.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_after_ms: None }
    }
}

/// Reports that the effect did not happen: the provider refused it, or the call is proven `unsent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FailCommand {
    /// The number of the lease under which it was dispatched.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// The number of the dispatch being reported, from its response; default: the last dispatch under this
    /// fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<u32>,
    /// Why the call failed.
    pub error: CallFailure,
    /// It is proven that the call was not made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsent: bool,
}

/// Reports that it is unknown whether the effect happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UncertainCommand {
    /// The number of the lease under which it was dispatched.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// The number of the dispatch being reported, from its response; default: the last dispatch under this
    /// fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<u32>,
    /// Why the outcome is unknown.
    pub error: CallFailure,
}

words! {
    /// The outcome of a lookup.
    LookupOutcome {
        /// The effect exists. Requires at least one of `external_id`, `ref` and `response`.
        Found = "found",
        /// The effect does not exist. Counts only after the tool's consistency delay.
        Absent = "absent",
        /// The lookup gave no result.
        Unknown = "unknown",
    }
}

/// The outcome of a lookup of a command in doubt, reported by the worker that claimed the lookup, or by a
/// person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Reconcile {
    /// The `lookup_token` of the claimed lookup. A person with the scope `replay` does not need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The result of the lookup.
    pub outcome: LookupOutcome,
    /// The provider's id for the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// A pointer to the effect, for example a URL.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The provider's response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    /// A message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

words! {
    /// The outcome that a person found out.
    RecordOutcome {
        /// Requires at least one of `external_id`, `ref` and `response`.
        Happened = "happened",
        /// The effect did not happen.
        DidNotHappen = "did_not_happen",
    }
}

/// A person records how a command in doubt went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RecordCommand {
    /// The reason; it is recorded.
    pub reason: String,
    /// Whether the effect happened.
    pub outcome: RecordOutcome,
    /// The provider's id for the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// A pointer to the effect, for example a URL.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The provider's response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
}

/// A person has a failed command executed again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplayCommand {
    /// The reason; it is recorded.
    pub reason: String,
}

/// Cancels a command that is not dispatched yet: by an operator, or by the holder with its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelCommand {
    /// The reason; it is recorded.
    pub reason: String,
    /// The lease's number, if the holder cancels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The lease's token, if the holder cancels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Claims lookups that are due, of tools that workers look up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimLookups {
    /// Only commands of these tools; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Default 1, at most 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// For how long other callers do not get these lookups; default one minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// How long to wait for a lookup to become due; at most five minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// The command to look up, with its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lookups {
    /// The lookups; empty when none is due.
    pub items: Vec<Lookup>,
}

/// A claimed lookup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lookup {
    /// The command in doubt.
    #[serde(flatten)]
    pub command: Command,
    /// To be sent as `token` with the outcome to `reconcile`. Valid until another caller claims the lookup.
    pub lookup_token: String,
}
