//! Refusals: why an action was refused, and what to do about it. A refused action changes nothing.

use serde::{Deserialize, Serialize};

/// Stable machine-readable codes. Codes may be added; none is renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A field is malformed, too long, or contradicts another.
    Invalid,
    /// A payload is over 1 MiB, nested too deep, or has an integer that JSON cannot carry exactly.
    PayloadRefused,
    /// The source system is not one of the configured ones.
    UnknownSource,
    /// The lease timings, timeouts or retry settings contradict each other.
    ImpossibleTimings,
    /// The work item, wait or step does not exist.
    NotFound,
    /// The same identity was used before with different content.
    IdempotencyMismatch,
    /// Another worker holds the work item or its session.
    Busy,
    /// The work item is not in a state that can be claimed.
    NotClaimable,
    /// The lease was superseded, or the lease token is wrong.
    LeaseLost,
    /// The lease lapsed and nobody else claimed the work item: renew first.
    LeaseLapsed,
    /// The verb does not apply in the current state.
    IllegalState,
    /// The work item has ended; a terminal state never changes.
    Terminal,
    /// The cancel deadline passed: renewals are refused.
    CancelDeadline,
    /// The holder renews and shows no progress: such renewals are refused.
    Spinning,
    /// A cancel of the work item was requested: it dispatches nothing new.
    CancelRequested,
    /// A success needs a result, a reference to one, or `no_output`.
    ResultMissing,
    /// The step exists with a different input.
    StepMismatch,
    /// Only a person may do this.
    PersonRequired,
    /// The caller's credential does not permit it.
    Forbidden,
    /// An operator's verb needs a reason.
    ReasonMissing,
    /// Owner-bound work that was started cannot be released.
    OwnerBound,
    /// The reference is reserved or already used by another kind of wait.
    ReferenceReserved,
    /// The parent has ended.
    ParentClosed,
    /// A limit on how many of something may exist was reached.
    LimitReached,
    /// The token is wrong, or its wait is over.
    TokenRefused,
    /// The prefix matches several ids.
    Ambiguous,
    /// The answer does not match the wait's schema.
    AnswerMismatch,
    /// It existed, has ended, and was pruned.
    NoLongerRetained,
    /// The work item has changed since the event that the caller has seen.
    StateChanged,
    /// The recovery plan no longer describes the ledger: compute it again.
    PlanStale,
    /// The policy changed after it was evaluated: evaluate again.
    PolicyStale,
    /// The policy does not allow it.
    PolicyDenied,
    /// A person must approve it first.
    ApprovalRequired,
    /// A budget does not cover it, or cannot be checked because it has no cost estimate.
    Budget,
    /// The effect has happened before.
    AlreadySucceeded,
    /// A command with other arguments replaced it.
    Superseded,
    /// A command is dispatched or in doubt: settle it first.
    CommandsOpen,
    /// The effect may have happened already: only evidence or a person can settle it.
    InDoubt,
    /// It was dispatched before.
    AlreadyDispatched,
    /// A later dispatch has replaced this one.
    DispatchSuperseded,
    /// It is not due yet.
    NotDue,
    /// A success needs evidence.
    EvidenceMissing,
    /// The content has changed since it was approved.
    SealBroken,
    /// Four eyes: the person who requested it cannot approve it.
    FourEyes,
    /// It is not supported, or not in this way.
    Unsupported,
    /// An operator has paused the intake of new work items.
    IntakePaused,
    /// The tenant has reached its quota.
    QuotaReached,
    /// The anchor is of another ledger.
    OtherLedger,
    /// The anchor was not made by this ledger, or was changed.
    AnchorForged,
    /// The time is before the first event.
    BeforeLog,
    /// The time is in the future.
    InFuture,
}

/// Whether repeating the identical action can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retryable {
    Yes,
    No,
    Unknown,
}

impl Code {
    pub const ALL: [Code; 51] = [
        Code::Invalid,
        Code::PayloadRefused,
        Code::UnknownSource,
        Code::ImpossibleTimings,
        Code::NotFound,
        Code::IdempotencyMismatch,
        Code::Busy,
        Code::NotClaimable,
        Code::LeaseLost,
        Code::LeaseLapsed,
        Code::IllegalState,
        Code::Terminal,
        Code::CancelDeadline,
        Code::Spinning,
        Code::CancelRequested,
        Code::ResultMissing,
        Code::StepMismatch,
        Code::PersonRequired,
        Code::Forbidden,
        Code::ReasonMissing,
        Code::OwnerBound,
        Code::ReferenceReserved,
        Code::ParentClosed,
        Code::LimitReached,
        Code::TokenRefused,
        Code::Ambiguous,
        Code::AnswerMismatch,
        Code::NoLongerRetained,
        Code::StateChanged,
        Code::PlanStale,
        Code::PolicyStale,
        Code::PolicyDenied,
        Code::ApprovalRequired,
        Code::Budget,
        Code::AlreadySucceeded,
        Code::Superseded,
        Code::CommandsOpen,
        Code::InDoubt,
        Code::AlreadyDispatched,
        Code::DispatchSuperseded,
        Code::NotDue,
        Code::EvidenceMissing,
        Code::SealBroken,
        Code::FourEyes,
        Code::Unsupported,
        Code::IntakePaused,
        Code::QuotaReached,
        Code::OtherLedger,
        Code::AnchorForged,
        Code::BeforeLog,
        Code::InFuture,
    ];

    pub fn retryable(self) -> Retryable {
        match self {
            Code::Busy
            | Code::NotClaimable
            | Code::LeaseLapsed
            | Code::PolicyStale
            | Code::NotDue
            | Code::IntakePaused
            | Code::QuotaReached
            | Code::InFuture => Retryable::Yes,
            Code::IllegalState
            | Code::LimitReached
            | Code::CommandsOpen
            | Code::InDoubt
            | Code::ApprovalRequired
            | Code::Budget => Retryable::Unknown,
            Code::Invalid
            | Code::PayloadRefused
            | Code::UnknownSource
            | Code::ImpossibleTimings
            | Code::NotFound
            | Code::IdempotencyMismatch
            | Code::LeaseLost
            | Code::Terminal
            | Code::CancelDeadline
            | Code::Spinning
            | Code::CancelRequested
            | Code::ResultMissing
            | Code::StepMismatch
            | Code::PersonRequired
            | Code::ReasonMissing
            | Code::OwnerBound
            | Code::ReferenceReserved
            | Code::ParentClosed
            | Code::TokenRefused
            | Code::Ambiguous
            | Code::AnswerMismatch
            | Code::NoLongerRetained
            | Code::StateChanged
            | Code::PlanStale
            | Code::PolicyDenied
            | Code::AlreadySucceeded
            | Code::Superseded
            | Code::AlreadyDispatched
            | Code::DispatchSuperseded
            | Code::EvidenceMissing
            | Code::SealBroken
            | Code::FourEyes
            | Code::Forbidden
            | Code::Unsupported
            | Code::OtherLedger
            | Code::AnchorForged
            | Code::BeforeLog => Retryable::No,
        }
    }

    /// The stable text of the code, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Invalid => "invalid",
            Code::PayloadRefused => "payload_refused",
            Code::UnknownSource => "unknown_source",
            Code::ImpossibleTimings => "impossible_timings",
            Code::NotFound => "not_found",
            Code::IdempotencyMismatch => "idempotency_mismatch",
            Code::Busy => "busy",
            Code::NotClaimable => "not_claimable",
            Code::LeaseLost => "lease_lost",
            Code::LeaseLapsed => "lease_lapsed",
            Code::IllegalState => "illegal_state",
            Code::Terminal => "terminal",
            Code::CancelDeadline => "cancel_deadline",
            Code::Spinning => "spinning",
            Code::CancelRequested => "cancel_requested",
            Code::ResultMissing => "result_missing",
            Code::StepMismatch => "step_mismatch",
            Code::PersonRequired => "person_required",
            Code::ReasonMissing => "reason_missing",
            Code::OwnerBound => "owner_bound",
            Code::ReferenceReserved => "reference_reserved",
            Code::ParentClosed => "parent_closed",
            Code::LimitReached => "limit_reached",
            Code::TokenRefused => "token_refused",
            Code::Ambiguous => "ambiguous",
            Code::AnswerMismatch => "answer_mismatch",
            Code::NoLongerRetained => "no_longer_retained",
            Code::StateChanged => "state_changed",
            Code::PlanStale => "plan_stale",
            Code::PolicyStale => "policy_stale",
            Code::PolicyDenied => "policy_denied",
            Code::ApprovalRequired => "approval_required",
            Code::Budget => "budget",
            Code::AlreadySucceeded => "already_succeeded",
            Code::Superseded => "superseded",
            Code::CommandsOpen => "commands_open",
            Code::InDoubt => "in_doubt",
            Code::AlreadyDispatched => "already_dispatched",
            Code::DispatchSuperseded => "dispatch_superseded",
            Code::NotDue => "not_due",
            Code::EvidenceMissing => "evidence_missing",
            Code::SealBroken => "seal_broken",
            Code::FourEyes => "four_eyes",
            Code::Forbidden => "forbidden",
            Code::Unsupported => "unsupported",
            Code::IntakePaused => "intake_paused",
            Code::QuotaReached => "quota_reached",
            Code::OtherLedger => "other_ledger",
            Code::AnchorForged => "anchor_forged",
            Code::BeforeLog => "before_log",
            Code::InFuture => "in_future",
        }
    }
}

/// A typed refusal: a stable code, and a sentence that says why and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{}: {detail}", code.as_str())]
pub struct Refusal {
    pub code: Code,
    pub detail: String,
}

impl Refusal {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    pub fn retryable(&self) -> Retryable {
        self.code.retryable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_prints_as_it_serialises() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
        let mut names: Vec<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }
}
