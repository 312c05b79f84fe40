//! What can be asked of a command, one request a verb.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Claimant, Command, Cost, ErrorClass, Proof, Source, Usage, word::words};

/// A side effect that somebody wants: it is recorded as a command before it happens. In a close-out the relay sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Intent {
    pub tool: String,
    pub target: String,
    /// The step that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Tells apart several effects of one step on one target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    pub arguments: Value,
    /// What one call is expected to cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Cost>,
}

impl Intent {
    pub fn new(tool: &str, target: &str, arguments: Value) -> Self {
        let (tool, target) = (tool.to_owned(), target.to_owned());
        Self { tool, target, step: None, slot: None, arguments, estimate: None }
    }
}

// The fields of an intent are written out here and in `ReserveAlone`: serde cannot both flatten a part and refuse unknown
// fields.
/// Records an intent as a command, by the holder of its work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Reserve {
    pub fence: u64,
    pub token: String,
    pub tool: String,
    pub target: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Tells apart several effects of one step on one target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    pub arguments: Value,
    /// What one call is expected to cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Cost>,
}

impl Reserve {
    pub fn new(fence: u64, token: &str, intent: Intent) -> Self {
        let Intent { tool, target, step, slot, arguments, estimate } = intent;
        Self { fence, token: token.to_owned(), tool, target, step, slot, arguments, estimate }
    }

    /// The intent alone, without the proof of who reserves it.
    pub fn intent(self) -> Intent {
        let Self { tool, target, step, slot, arguments, estimate, .. } = self;
        Intent { tool, target, step, slot, arguments, estimate }
    }
}

/// Records an intent without a work: one is recorded for it, and claimed, in the same act.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReserveAlone {
    /// Who does it. The same request again returns the same command and its lease.
    pub claim: Claimant,
    /// What it is for: the same source again is the same command, in later attempts too. `manual` with the claim's
    /// `request_id` unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// One of the credential's; may be left out where it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    pub tool: String,
    pub target: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    pub arguments: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Cost>,
}

/// A person allows exactly this, once and for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ApproveCommand {
    pub reason: String,
    /// The `seal` of what was looked at: one changed byte, and it is refused.
    pub seal: String,
}

/// A person says no.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RejectCommand {
    pub reason: String,
}

/// Asks whether to make the call now. Make it only if the answer is a 2xx.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DispatchCommand {
    pub fence: u64,
    pub token: String,
    /// The same one again is told to go on, as the first was; without it a repeat is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What this call is expected to cost, if other than when it was reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Cost>,
}

/// It happened. Give at least one of `external_id`, `evidence.ref` and `response`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DeliverReceipt {
    pub fence: u64,
    pub token: String,
    /// The number of the dispatch that it is about, as its reply gave it; the last one under this fence unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<u32>,
    /// The provider's id of what it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// What the provider answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    /// `provider` unless told otherwise; a person's word is given by `record`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Proof>,
    /// What it cost in truth; the estimate where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// What the call used; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// Why a call went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CallFailure {
    pub class: ErrorClass,
    #[serde(default)]
    pub message: String,
    /// Wait at least so long before it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl CallFailure {
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_after_ms: None }
    }
}

/// It did not happen: the provider refused it, or the call is proven `unsent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FailCommand {
    pub fence: u64,
    pub token: String,
    /// The number of the dispatch that it is about, as its reply gave it; the last one under this fence unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<u32>,
    pub error: CallFailure,
    /// The call was proven not to have been made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsent: bool,
}

/// Nobody knows whether it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UncertainCommand {
    pub fence: u64,
    pub token: String,
    /// The number of the dispatch that it is about, as its reply gave it; the last one under this fence unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<u32>,
    pub error: CallFailure,
}

words! {
    /// What a lookup says.
    LookupOutcome {
        /// It is there: give at least one of `external_id`, `ref` and `response`.
        Found = "found",
        /// It is not there. Counts once the tool's consistency delay has passed.
        Absent = "absent",
        Unknown = "unknown",
    }
}

/// What a lookup says of a command in doubt: by whoever claimed it, or by a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Reconcile {
    /// The `lookup_token` of the claimed lookup. A person with the scope `replay` needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    pub outcome: LookupOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

words! {
    /// What a person found out.
    RecordOutcome {
        /// Give at least one of `external_id`, `ref` and `response`.
        Happened = "happened",
        DidNotHappen = "did_not_happen",
    }
}

/// A person says how a command in doubt went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RecordCommand {
    pub reason: String,
    pub outcome: RecordOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
}

/// A person has a failed command done again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplayCommand {
    pub reason: String,
}

/// It is not to be done: only before it is dispatched. By an operator, or by the holder with its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelCommand {
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Takes lookups that are due, of tools whose lookup is a worker's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimLookups {
    /// Of these tools alone; of all where it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// 1 unless told otherwise, at most 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Others pass them over for so long; a minute unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Wait so long, at most five minutes, for one to fall due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// What is to be looked up, with its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lookups {
    pub items: Vec<Lookup>,
}

/// A lookup that was claimed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lookup {
    #[serde(flatten)]
    pub command: Command,
    /// Goes as `token` with what was found, to `reconcile`. It is good until somebody else claims the lookup.
    pub lookup_token: String,
}
