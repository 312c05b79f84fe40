//! Waits: durable pauses, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Ack, Actor, Claimant, CommandId, Grant, Timestamp, Usage, WaitId, Word, WorkId, word::words};

words! {
    /// Who must answer.
    WaitKind {
        /// A person who may approve.
        Approval = "approval",
        /// Somebody who connects an account again.
        Auth = "auth",
        /// The user of the agent.
        User = "user",
        /// A tool that calls back.
        Tool = "tool",
        /// Anything else outside.
        External = "external",
    }
}

words! {
    /// What happens when a wait's deadline passes unanswered.
    OnTimeout {
        /// The work ends as `timed_out`.
        TimeOut = "time_out",
        /// The work ends as `failed`.
        Fail = "fail",
        /// The work ends as `completed_with_warnings`.
        Warn = "warn",
        /// The work is cancelled.
        Cancel = "cancel",
        /// It goes on waiting, with a new deadline and an event that says so.
        Escalate = "escalate",
        /// It is answered with `default`.
        Default = "default",
    }
}

words! {
    /// Where a wait stands.
    WaitState {
        /// It is not answered.
        Open = "open",
        /// It is answered.
        Answered = "answered",
        /// Its deadline passed.
        TimedOut = "timed_out",
        /// It was called off.
        Cancelled = "cancelled",
    }
}

/// Pauses the work durably. The lease ends, unless every answer is there already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetWait {
    /// The lease's fence.
    pub fence: u64,
    /// The lease's token.
    pub token: String,
    /// What to wait for. The work goes on when all are answered.
    pub waits: Vec<NewWait>,
    /// Why it waits, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<WaitReason>,
    /// What this attempt used, if the wait ends it; at most 50 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

/// Why a work waits, for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WaitReason {
    /// The tool that it waits for, or that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What is missing, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A wait to be opened. Its identity is its work and `ref`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewWait {
    /// Who must answer.
    pub kind: WaitKind,
    /// Its name within the work, and what an answer names.
    #[serde(rename = "ref")]
    pub reference: String,
    /// What is asked, for the person who answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Who is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// Left out: 24 hours for people, 2 hours for machines, unless `endless`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// It has no deadline.
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

/// A wait that stands, with the token that answers it. The token is shown here only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenedWait {
    /// The wait.
    pub id: WaitId,
    /// Answers it, once.
    pub token: String,
}

/// A work that waits, or goes on because every answer was there already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waiting {
    /// Where the work stands.
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
    /// Its id.
    pub id: WaitId,
    /// The work that waits.
    pub work: WorkId,
    /// The work's tenant.
    pub tenant: String,
    /// Its name within the work, and what an answer names.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Who must answer.
    #[cfg_attr(feature = "openapi", schema(value_type = WaitKind))]
    pub kind: Word<WaitKind>,
    /// Where it stands.
    #[cfg_attr(feature = "openapi", schema(value_type = WaitState))]
    pub state: Word<WaitState>,
    /// What is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Who is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When its deadline passes; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// What happens then.
    #[cfg_attr(feature = "openapi", schema(value_type = OnTimeout))]
    pub on_timeout: Word<OnTimeout>,
    /// How often its deadline passed and it went on waiting.
    #[serde(default)]
    pub escalations: u32,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Who answered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<Actor>,
    /// The answer that a missed deadline gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// A JSON Schema that an answer must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The answer.
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
    /// The reference that is answered.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The token of the wait that is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// One of the credential's; may be left out where it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The answer, any JSON.
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
    /// The wait's token. A person needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// For an approval: the wait's `seal`, as it was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// The answer, any JSON.
    pub payload: Value,
    /// Claims the work in the same act, where this answer was its last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claimant>,
}

/// A person's answer to what a work in `waiting_approval` asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// Yes or no.
    pub approved: bool,
    /// The `seal` of the wait that was looked at: it says which one is answered.
    pub seal: String,
    /// What the person says to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A person says that the account a work in `waiting_auth` needs is connected again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Reconnect {
    /// What the person says to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A wait with the answer that counts: the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResolvedWait {
    /// The wait.
    pub wait: WaitId,
    /// The work that waited.
    pub work: WorkId,
    /// False where an earlier answer is given back.
    pub first: bool,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
}

/// What an answer did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resolved {
    /// The waits that it answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<ResolvedWait>,
    /// No wait is there yet: the answer is kept for it.
    #[serde(default)]
    pub kept: bool,
    /// The lease, where the work was claimed in the same act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Grant>,
}

/// Calls off every open wait of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeWaits {
    /// The session.
    pub session: String,
    /// The session's tenant; may be left out where the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Why. It is kept.
    pub reason: String,
}

/// The works that no longer wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revoked {
    /// The works that waited, as they stand now.
    pub works: Vec<Ack>,
}
