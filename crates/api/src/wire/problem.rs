//! Problems: the body of every error response, with a stable code and a sentence that says what to do.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Command, Word, word::words};

words! {
    /// Stable codes. Codes may be added; none is renamed.
    Code {
        /// A field has a wrong type or value, is too long, or contradicts another.
        Invalid = "invalid",
        /// The body is not JSON, or an object in it has a name twice.
        Malformed = "malformed",
        /// The body or query has a field that does not exist.
        UnknownField = "unknown_field",
        /// The body is not sent as `application/json`.
        UnsupportedMediaType = "unsupported_media_type",
        /// The body is over 1 MiB.
        TooLarge = "too_large",
        /// The path and query are over 8 KiB.
        UriTooLong = "uri_too_long",
        /// The headers are over 32 KiB, or over a hundred.
        HeadersTooLarge = "headers_too_large",
        /// The route does not exist.
        NoSuchRoute = "no_such_route",
        /// The route exists, but not with this method.
        MethodNotAllowed = "method_not_allowed",
        /// A payload is over 1 MiB, nested too deep, or has an integer that JSON cannot carry exactly.
        PayloadRefused = "payload_refused",
        /// The source system is not one of the configured ones.
        UnknownSource = "unknown_source",
        /// The lease timings, timeouts or retry settings contradict each other.
        ImpossibleTimings = "impossible_timings",
        /// The access token is missing, unknown, expired or revoked.
        Unauthorized = "unauthorized",
        /// The access token lacks the scope or the tenant.
        Forbidden = "forbidden",
        /// The Host header is not one of the allowed ones.
        HostRefused = "host_refused",
        /// The Origin header is not one of the allowed ones.
        OriginRefused = "origin_refused",
        /// Too many requests with this access token.
        RateLimited = "rate_limited",
        /// The work item, wait, step or token does not exist.
        NotFound = "not_found",
        /// The prefix matches several ids.
        Ambiguous = "ambiguous",
        /// It was pruned; its identity is kept, so that it is never run again.
        NoLongerRetained = "no_longer_retained",
        /// The same identity was used before with different content.
        IdempotencyMismatch = "idempotency_mismatch",
        /// The work item has changed since the event that `if_seq` names.
        StateChanged = "state_changed",
        /// The recovery plan no longer describes the ledger, and nothing was done: `plan` and `rows` are the plan now.
        PlanStale = "plan_stale",
        /// Another worker holds the work item or its session.
        Busy = "busy",
        /// The work item is not in a state that can be claimed.
        NotClaimable = "not_claimable",
        /// The lease was superseded, or the lease token is wrong.
        LeaseLost = "lease_lost",
        /// The lease lapsed and nobody else claimed the work item: renew first.
        LeaseLapsed = "lease_lapsed",
        /// The verb does not apply in the current state.
        IllegalState = "illegal_state",
        /// The work item has ended; a terminal state never changes.
        Terminal = "terminal",
        /// The cancel deadline passed: renewals are refused.
        CancelDeadline = "cancel_deadline",
        /// The holder renews and shows no progress: such renewals are refused.
        Spinning = "spinning",
        /// A cancel of the work item was requested: it dispatches nothing new.
        CancelRequested = "cancel_requested",
        /// A success needs a result, a reference to one, or `no_output`.
        ResultMissing = "result_missing",
        /// The step exists with a different input.
        StepMismatch = "step_mismatch",
        /// Only a person may do this.
        PersonRequired = "person_required",
        /// An operator's verb needs a reason.
        ReasonMissing = "reason_missing",
        /// Owner-bound work that was started cannot be released.
        OwnerBound = "owner_bound",
        /// The reference is reserved or already used by another kind of wait.
        ReferenceReserved = "reference_reserved",
        /// The parent has ended.
        ParentClosed = "parent_closed",
        /// A limit on how many of something may exist was reached.
        LimitReached = "limit_reached",
        /// The token is wrong, or its wait is over.
        TokenRefused = "token_refused",
        /// The answer does not match the wait's schema.
        AnswerMismatch = "answer_mismatch",
        /// The policy changed after it was evaluated: repeat the request.
        PolicyStale = "policy_stale",
        /// The policy does not allow it.
        PolicyDenied = "policy_denied",
        /// A person must approve the command first.
        ApprovalRequired = "approval_required",
        /// A budget does not cover the call, or cannot be checked because the call has no cost estimate.
        Budget = "budget",
        /// The effect has happened before: its receipt is the result.
        AlreadySucceeded = "already_succeeded",
        /// A command with other arguments replaced it: `superseded_by` names it.
        Superseded = "superseded",
        /// A command is dispatched or in doubt: settle it first.
        CommandsOpen = "commands_open",
        /// The effect may have happened already: only evidence or a person can settle it.
        InDoubt = "in_doubt",
        /// It was dispatched before.
        AlreadyDispatched = "already_dispatched",
        /// A later dispatch has replaced this one.
        DispatchSuperseded = "dispatch_superseded",
        /// It is not due yet.
        NotDue = "not_due",
        /// A success needs evidence.
        EvidenceMissing = "evidence_missing",
        /// The content has changed since it was approved.
        SealBroken = "seal_broken",
        /// Four eyes: the person who requested it cannot approve it.
        FourEyes = "four_eyes",
        /// The ledger or build does not support it, or not in this way: for example, a claim has no dry run.
        Unsupported = "unsupported",
        /// An operator has paused the intake of new work items; existing ones continue.
        IntakePaused = "intake_paused",
        /// The anchor is of another ledger.
        OtherLedger = "other_ledger",
        /// The anchor was not made by this ledger, or was changed.
        AnchorForged = "anchor_forged",
        /// The time is before the first event.
        BeforeLog = "before_log",
        /// The time is in the future.
        InFuture = "in_future",
        /// The database cannot be reached or the daemon is stopping; nothing was written.
        Unavailable = "unavailable",
        /// A read took too long and was stopped, or waited too long for its tenant's turn.
        ReadTimeout = "read_timeout",
        /// The outcome of a commit is unknown: it may or may not have been made. Repeating the request is
        /// safe.
        OutcomeUnknown = "outcome_unknown",
        /// A write or sync failed; nothing more is written until the ledger is opened again.
        Stopped = "stopped",
        /// The record was written by a newer version, and this one does not know its state or one of its words: upgrade it.
        NewerVersion = "newer_version",
        /// The stored data contradicts itself.
        Corrupt = "corrupt",
        /// An internal error of the server.
        Internal = "internal",
    }
}

/// A problem as in RFC 9457, with `code` and `retryable`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// A URN that ends with the `code`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The problem in a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The reason, and what to do.
    pub detail: String,
    /// Identifies this occurrence of the problem, if the server does so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The stable code of the problem.
    #[cfg_attr(feature = "openapi", schema(value_type = Code))]
    pub code: Word<Code>,
    /// Whether repeating the identical request can help. Null if that is unknown.
    pub retryable: Option<bool>,
    /// The minimum delay before the request is repeated; `Retry-After` has it in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// For a refused dispatch: the command as it is now. Do not make the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Box<Command>>,
    /// Further fields, depending on the code: `holder` for `busy`, `scope` for `forbidden`.
    #[serde(flatten)]
    pub extensions: BTreeMap<String, Value>,
}

impl Problem {
    /// The content type of a problem.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for Problem {}
