//! Waits: durable pauses, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Ack, Actor, Claimant, CommandId, Grant, Timestamp, Usage, WaitId, Word, WorkId, word::words};

words! {
    /// Who must answer.
    WaitKind {
        Approval = "approval",
        Auth = "auth",
        User = "user",
        Tool = "tool",
        External = "external",
    }
}

words! {
    /// What happens when a wait's deadline passes unanswered.
    OnTimeout {
        TimeOut = "time_out",
        Fail = "fail",
        Warn = "warn",
        Cancel = "cancel",
        Escalate = "escalate",
        Default = "default",
    }
}

words! {
    WaitState {
        Open = "open",
        Answered = "answered",
        TimedOut = "timed_out",
        Cancelled = "cancelled",
    }
}

/// Pauses the work durably. The lease ends, unless every answer is there already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetWait {
    pub fence: u64,
    pub token: String,
    pub waits: Vec<NewWait>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<WaitReason>,
    /// What this attempt used, if the wait ends it; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WaitReason {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A wait to be opened. Its identity is its work and `ref`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewWait {
    pub kind: WaitKind,
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// Left out: 24 hours for people, 2 hours for machines, unless `endless`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub endless: bool,
    /// `time_out` unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// The answer that a missed deadline gives, with `on_timeout: default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// A JSON Schema that an answer must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// A dispatched command that is handed to this wait: the answer is its receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandId>,
}

impl NewWait {
    pub fn new(kind: WaitKind, reference: &str) -> Self {
        Self {
            kind,
            reference: reference.to_owned(),
            prompt: None,
            assignee: None,
            timeout_ms: None,
            endless: false,
            on_timeout: None,
            default: None,
            schema: None,
            command: None,
        }
    }
}

/// A wait that stands, with the token that answers it. The token is shown here only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenedWait {
    pub id: WaitId,
    pub token: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waiting {
    pub work: Ack,
    /// The waits that are open, in the order given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<OpenedWait>,
    /// Answers that were there already. If all were, the lease goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Wait>,
}

/// A durable pause as it stands. Payloads are shown with the `payload` scope, and to the holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Wait {
    pub id: WaitId,
    pub work: WorkId,
    pub tenant: String,
    #[serde(rename = "ref")]
    pub reference: String,
    #[cfg_attr(feature = "openapi", schema(value_type = WaitKind))]
    pub kind: Word<WaitKind>,
    #[cfg_attr(feature = "openapi", schema(value_type = WaitState))]
    pub state: Word<WaitState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    pub opened_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    #[cfg_attr(feature = "openapi", schema(value_type = OnTimeout))]
    pub on_timeout: Word<OnTimeout>,
    #[serde(default)]
    pub escalations: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<Actor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// Of an approval: over its work, reference and prompt. Whoever answers sends it along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// The command that was handed to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandId>,
}

/// An answer by reference (to every open wait on it in the tenant) or by a wait's token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// One of the credential's; may be left out where it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    pub payload: Value,
    /// Claims the work in the same act, where this answer was its last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claimant>,
}

/// An answer to one wait: by its token, or by a person without one. A token that is wrong is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResolveWait {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// For an approval: the wait's `seal`, as it was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    pub payload: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claimant>,
}

/// A person's answer to what a work in `waiting_approval` asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Approve {
    pub approved: bool,
    /// The `seal` of the wait that was looked at: it says which one is answered.
    pub seal: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A person says that the account a work in `waiting_auth` needs is connected again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Reconnect {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A wait with the answer that counts: the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Answer {
    pub wait: WaitId,
    pub work: WorkId,
    /// False where an earlier answer is given back.
    pub first: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resolved {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Answer>,
    /// No wait is there yet: the answer is kept for it.
    #[serde(default)]
    pub kept: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Grant>,
}

/// Calls off every open wait of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeWaits {
    pub session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revoked {
    /// The works that waited, as they stand now.
    pub works: Vec<Ack>,
}
