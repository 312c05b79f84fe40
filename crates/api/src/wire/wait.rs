//! Waits: durable pauses, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Ack, Actor, Claimant, CommandId, Grant, Timestamp, Usage, WaitId, Word, WorkId, word::words};

words! {
    /// The kind of answer that is needed.
    WaitKind {
        /// A person with the `approve` scope.
        Approval = "approval",
        /// Somebody who reconnects an account.
        Auth = "auth",
        /// The user of the agent.
        User = "user",
        /// A tool that calls back.
        Tool = "tool",
        /// Anything else external.
        External = "external",
    }
}

words! {
    /// The consequence if a wait's deadline passes without an answer.
    OnTimeout {
        /// The work ends as `timed_out`.
        TimeOut = "time_out",
        /// The work ends as `failed`.
        Fail = "fail",
        /// The work ends as `completed_with_warnings`.
        Warn = "warn",
        /// The work is cancelled.
        Cancel = "cancel",
        /// It keeps waiting, with a new deadline and an event that says so.
        Escalate = "escalate",
        /// It is answered with `default`.
        Default = "default",
    }
}

words! {
    /// The state of a wait.
    WaitState {
        /// It has not been answered.
        Open = "open",
        /// It was answered.
        Answered = "answered",
        /// Its deadline passed.
        TimedOut = "timed_out",
        /// It was cancelled.
        Cancelled = "cancelled",
    }
}

/// Pauses the work item durably. The lease ends, unless every answer exists already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetWait {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// The waits. The work item continues when all are answered.
    pub waits: Vec<NewWait>,
    /// Why it waits, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<WaitReason>,
    /// Usage of this attempt, if the wait ends it; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// Why a work item waits, for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WaitReason {
    /// The tool that it waits for, or that caused the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The missing information, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A wait to open. It is identified by its work item and `ref`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewWait {
    /// The kind of answer that is needed.
    pub kind: WaitKind,
    /// Its name within the work item; an answer refers to it.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The question, for the person who answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The person or group that is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// The deadline. Omitted: that of its kind in the server's configuration, unless `endless`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// It has no deadline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub endless: bool,
    /// Default `time_out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// The answer that is used when the deadline passes, with `on_timeout: default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// A JSON Schema that the answer must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// A dispatched command that is handed over to this wait: the answer is its receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandId>,
}

impl NewWait {
    /// A wait with the default deadline.
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

/// An open wait, with the token that answers it. The token is returned here only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenedWait {
    /// The wait.
    pub id: WaitId,
    /// Answers it, once.
    pub token: String,
}

/// A work item that waits, or continues because every answer existed already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waiting {
    /// The work item after the call.
    pub work: Ack,
    /// The waits that are open, in the order of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<OpenedWait>,
    /// Answers that existed already. If all did, the lease stays valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Wait>,
}

/// A durable pause. Payloads are returned with the `payload` scope, and to the holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Wait {
    /// Its id.
    pub id: WaitId,
    /// The work that waits.
    pub work: WorkId,
    /// The work item's tenant.
    pub tenant: String,
    /// Its name within the work item; an answer refers to it.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The kind of answer that is needed.
    #[cfg_attr(feature = "openapi", schema(value_type = WaitKind))]
    pub kind: Word<WaitKind>,
    /// Its state.
    #[cfg_attr(feature = "openapi", schema(value_type = WaitState))]
    pub state: Word<WaitState>,
    /// The question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The person or group that is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// Its deadline; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// The consequence if the deadline passes.
    #[cfg_attr(feature = "openapi", schema(value_type = OnTimeout))]
    pub on_timeout: Word<OnTimeout>,
    /// How often its deadline was extended by `escalate`.
    #[serde(default)]
    pub escalations: u32,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The actor that answered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<Actor>,
    /// The answer that is used when the deadline passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// A JSON Schema that the answer must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// For an approval: the hash of its work item, reference and prompt. The answer must repeat it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// The command that was handed over to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandId>,
}

/// An answer by reference (to every open wait on it in the tenant) or by a wait's token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// The reference that is answered.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The token of the wait that is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// A tenant of the credential; optional if the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The answer, any JSON.
    pub payload: Value,
    /// Claims the work item in the same transaction, if this answer was the last one missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claimant>,
}

/// An answer to one wait, by its token; a person needs no token. A wrong token is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResolveWait {
    /// The wait's token. A person needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// For an approval: the `seal` of the wait that the person looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// The answer, any JSON.
    pub payload: Value,
    /// Claims the work item in the same transaction, if this answer was the last one missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claimant>,
}

/// A person's answer to the approval that a work item in `waiting_approval` waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// Whether it is approved.
    pub approved: bool,
    /// The `seal` of the wait that the person looked at; it selects the wait.
    pub seal: String,
    /// A comment by the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A person confirms that the account which a work item in `waiting_auth` needs is connected again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Reconnect {
    /// A comment by the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A wait and its answer; the first answer counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResolvedWait {
    /// The wait.
    pub wait: WaitId,
    /// The work item that waited.
    pub work: WorkId,
    /// False if an earlier answer is returned.
    pub first: bool,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
}

/// The effect of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resolved {
    /// The waits that it answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<ResolvedWait>,
    /// No wait is open yet: the answer is stored for it.
    #[serde(default)]
    pub kept: bool,
    /// The lease, if the work item was claimed in the same transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Grant>,
}

/// Cancels every open wait of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeWaits {
    /// The session.
    pub session: String,
    /// The session's tenant; optional if the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The reason; it is recorded.
    pub reason: String,
}

/// The work items that no longer wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revoked {
    /// The work items, as they are now.
    pub works: Vec<Ack>,
}
