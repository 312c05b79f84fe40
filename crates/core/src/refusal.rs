//! Why an action was refused, and what to do about it. A refused action changes nothing.

use serde::{Deserialize, Serialize};

/// Stable machine-readable codes. New ones may be added; none is renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A field is malformed, too long, or contradicts another.
    Invalid,
    /// A payload is over 1 MiB, nested too deep, or has an integer that JSON cannot carry exactly.
    PayloadRefused,
    /// The source system is not one of the configured ones.
    UnknownSource,
    /// Lease timings, timeouts or retry settings that cannot work.
    ImpossibleTimings,
    /// No such work, wait or step here.
    NotFound,
    /// Same identity, different content.
    IdempotencyMismatch,
    /// Somebody else holds the work or its session.
    Busy,
    /// The work is not in a state that can be claimed.
    NotClaimable,
    /// The lease was superseded, or the token is not genuine.
    LeaseLost,
    /// The lease lapsed and nobody took over: renew first.
    LeaseLapsed,
    /// The verb does not apply in the work's present state.
    IllegalState,
    /// The work has ended; terminals never change.
    Terminal,
    /// The cancel deadline passed: renewals are refused.
    CancelDeadline,
    /// The work is asked to cancel: it dispatches nothing new.
    CancelRequested,
    /// A success needs a result, a reference to one, or `no_output`.
    ResultMissing,
    /// The step exists with another input.
    StepMismatch,
    /// Only a person may do this.
    PersonRequired,
    /// The caller's credential is bound to less than this.
    Forbidden,
    /// An operator's verb needs a reason.
    ReasonMissing,
    /// Started owner-bound work cannot be handed back.
    OwnerBound,
    /// The reference is reserved or already used by another kind of wait.
    ReferenceReserved,
    /// The parent has ended.
    ParentClosed,
    /// A bound on how many of something may exist was reached.
    LimitReached,
    /// The token is not genuine or its wait is over.
    TokenRefused,
    /// The beginning of an id fits several.
    Ambiguous,
    /// An answer is not what its wait's schema asks for.
    AnswerMismatch,
    /// It was here, has ended, and was pruned.
    NoLongerRetained,
    /// The work moved on since the event that the caller had seen.
    StateChanged,
    /// Policy changed since the door looked: evaluate again.
    PolicyStale,
    /// Policy does not allow it.
    PolicyDenied,
    /// A person must approve it first.
    ApprovalRequired,
    /// A budget does not cover it, or cannot be checked for want of an estimate.
    Budget,
    /// It happened before.
    AlreadySucceeded,
    /// A command with other arguments took its place.
    Superseded,
    /// A command is dispatched or in doubt: settle it first.
    CommandsOpen,
    /// It may have happened already: only evidence or a person ends the doubt.
    InDoubt,
    /// Somebody was told to do it before.
    AlreadyDispatched,
    /// It was dispatched once more since.
    DispatchSuperseded,
    /// It is too early.
    NotDue,
    /// A success needs evidence.
    EvidenceMissing,
    /// What was approved is not what is there.
    SealBroken,
    /// Whoever asked for it cannot approve it.
    FourEyes,
    /// This cannot be done in this way.
    Unsupported,
    /// An operator lets nothing new in for now.
    IntakePaused,
    /// The tenant has all that it may have of what all tenants share.
    QuotaReached,
}

/// Whether sending the very same action again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retryable {
    Yes,
    No,
    Unknown,
}

impl Code {
    pub const ALL: [Code; 45] = [
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
    ];

    pub fn retryable(self) -> Retryable {
        match self {
            Code::Busy
            | Code::NotClaimable
            | Code::LeaseLapsed
            | Code::PolicyStale
            | Code::NotDue
            | Code::IntakePaused
            | Code::QuotaReached => Retryable::Yes,
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
            | Code::PolicyDenied
            | Code::AlreadySucceeded
            | Code::Superseded
            | Code::AlreadyDispatched
            | Code::DispatchSuperseded
            | Code::EvidenceMissing
            | Code::SealBroken
            | Code::FourEyes
            | Code::Forbidden
            | Code::Unsupported => Retryable::No,
        }
    }

    /// The stable text of the code, as it stands in JSON.
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
        }
    }
}

/// A typed "no": a stable code, and a sentence that says why and what to do next.
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
