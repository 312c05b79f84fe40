//! Problems: every failure is one of these, with a stable code and a sentence that says what to do.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Command, Word, word::words};

words! {
    /// Stable codes. New ones may be added; none is renamed.
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
        /// There is no such route.
        NoSuchRoute = "no_such_route",
        /// The route exists, with other methods.
        MethodNotAllowed = "method_not_allowed",
        /// A payload is over 1 MiB, nested too deep, or has an integer that JSON cannot carry exactly.
        PayloadRefused = "payload_refused",
        /// The source system is not one of the configured ones.
        UnknownSource = "unknown_source",
        /// Lease timings, timeouts or retry settings that cannot work.
        ImpossibleTimings = "impossible_timings",
        /// No bearer token, or one that is unknown, expired or revoked.
        Unauthorized = "unauthorized",
        /// The token lacks the scope or the tenant.
        Forbidden = "forbidden",
        /// The Host header is not one of the allowed ones.
        HostRefused = "host_refused",
        /// The Origin header is not one of the allowed ones.
        OriginRefused = "origin_refused",
        /// Too many requests with this token.
        RateLimited = "rate_limited",
        /// No such work, wait, step or token here.
        NotFound = "not_found",
        /// The prefix fits several ids.
        Ambiguous = "ambiguous",
        /// It was pruned; its identity is kept, so that it never runs again.
        NoLongerRetained = "no_longer_retained",
        /// Same identity, different content.
        IdempotencyMismatch = "idempotency_mismatch",
        /// The work moved on since the event that `if_seq` names.
        StateChanged = "state_changed",
        /// Somebody else holds the work or its session.
        Busy = "busy",
        /// The work is not in a state that can be claimed.
        NotClaimable = "not_claimable",
        /// The lease was superseded, or the token is not genuine.
        LeaseLost = "lease_lost",
        /// The lease lapsed and nobody took over: renew first.
        LeaseLapsed = "lease_lapsed",
        /// The verb does not apply in the work's present state.
        IllegalState = "illegal_state",
        /// The work has ended; terminals never change.
        Terminal = "terminal",
        /// The cancel deadline passed: renewals are refused.
        CancelDeadline = "cancel_deadline",
        /// The work is asked to cancel: it dispatches nothing new.
        CancelRequested = "cancel_requested",
        /// A success needs a result, a reference to one, or `no_output`.
        ResultMissing = "result_missing",
        /// The step exists with another input.
        StepMismatch = "step_mismatch",
        /// Only a person may do this.
        PersonRequired = "person_required",
        /// An operator's verb needs a reason.
        ReasonMissing = "reason_missing",
        /// Started owner-bound work cannot be handed back.
        OwnerBound = "owner_bound",
        /// The reference is reserved or already used by another kind of wait.
        ReferenceReserved = "reference_reserved",
        /// The parent has ended.
        ParentClosed = "parent_closed",
        /// A bound on how many of something may exist was reached.
        LimitReached = "limit_reached",
        /// The token is not genuine or its wait is over.
        TokenRefused = "token_refused",
        /// An answer is not what its wait's schema asks for.
        AnswerMismatch = "answer_mismatch",
        /// Policy changed since it was asked: the same request again is evaluated anew.
        PolicyStale = "policy_stale",
        /// Policy does not allow it.
        PolicyDenied = "policy_denied",
        /// A person must approve the command first.
        ApprovalRequired = "approval_required",
        /// A budget does not cover the call, or cannot be checked because nothing says what the call costs.
        Budget = "budget",
        /// The command happened before: its receipt is the result.
        AlreadySucceeded = "already_succeeded",
        /// A command with other arguments took its place: `superseded_by` names it.
        Superseded = "superseded",
        /// A command is dispatched or in doubt: settle it first.
        CommandsOpen = "commands_open",
        /// It may have happened already: only evidence or a person ends the doubt.
        InDoubt = "in_doubt",
        /// Somebody was told to do it before.
        AlreadyDispatched = "already_dispatched",
        /// It was dispatched once more since.
        DispatchSuperseded = "dispatch_superseded",
        /// It is too early.
        NotDue = "not_due",
        /// A success needs evidence.
        EvidenceMissing = "evidence_missing",
        /// What was approved is not what is there.
        SealBroken = "seal_broken",
        /// Whoever asked for it cannot approve it.
        FourEyes = "four_eyes",
        /// This ledger or build cannot do it, or not in this way: a claim has no dry run.
        Unsupported = "unsupported",
        /// An operator lets no new work in for now; what is here goes on.
        IntakePaused = "intake_paused",
        /// The database cannot be reached or the daemon is stopping; nothing was written.
        Unavailable = "unavailable",
        /// A read took too long and was stopped, or waited too long for its tenant's turn.
        ReadTimeout = "read_timeout",
        /// The answer to a commit was lost: it may or may not stand. Sending the same again is safe.
        OutcomeUnknown = "outcome_unknown",
        /// A write or sync failed; nothing more is written until the ledger is opened again.
        Stopped = "stopped",
        /// What is stored contradicts itself.
        Corrupt = "corrupt",
        /// A fault of the server's own.
        Internal = "internal",
    }
}

/// RFC 9457, with `code` and `retryable`.
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
    /// Why, and what to do.
    pub detail: String,
    /// The occurrence of the problem, where a server names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Which problem it is; stable.
    #[cfg_attr(feature = "openapi", schema(value_type = Code))]
    pub code: Word<Code>,
    /// Whether sending the very same request again can help. Null where nobody knows.
    pub retryable: Option<bool>,
    /// Wait at least so long before the request is sent again, as `Retry-After` says in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Of a dispatch that did not dispatch: the command as it stands. Do not make the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Box<Command>>,
    /// What else helps, by code: `holder` for `busy`, `scope` for `forbidden`.
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
