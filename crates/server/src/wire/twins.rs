//! Enums that exist in the API and in the core with the same variants. A variant missing on one side does not
//! compile.

use tenure_api::wire as w;

/// The core's enums in one module.
mod c {
    pub use tenure_core::{
        ActorKind, CommandState, Phase, State,
        command::{CommandKind, Effect, EvidenceKind, Executor, Idempotency, Planned, Risk},
        liveness::Grade,
        model::{AcceptStrength, Disposition, ErrorClass, OnParentClose, OnTimeout, WaitKind, WaitState},
        policy::{Jitter, OnExpiry, OnStalled},
        recovery::Verdict,
        schedule::{Act, Overlap, SkipReason},
        stuck::Cause,
    };
    pub use tenure_store::PrincipalKind;
}

pub(crate) trait ToWire {
    type Wire;
    fn to_wire(self) -> Self::Wire;
}

pub(crate) trait ToCore {
    type Core;
    fn to_core(self) -> Self::Core;
}

macro_rules! twins {
    ($($core:ident = $wire:ident { $($word:ident),* })*) => {$(
        impl ToWire for c::$core {
            type Wire = w::$wire;
            fn to_wire(self) -> w::$wire {
                match self {
                    $(c::$core::$word => w::$wire::$word,)*
                }
            }
        }

        impl ToCore for w::$wire {
            type Core = c::$core;
            fn to_core(self) -> c::$core {
                match self {
                    $(w::$wire::$word => c::$core::$word,)*
                }
            }
        }
    )*};
}

twins! {
    State = State {
        Queued, Running, WaitingUser, WaitingApproval, WaitingAuth, WaitingTool, WaitingExternal,
        RetryScheduled, Stalled, CancelRequested, Quarantined, Succeeded, CompletedWithWarnings, Failed,
        TimedOut, Cancelled, Abandoned
    }
    Phase = Phase { Pending, Active, Waiting, Stuck, Terminal }
    Disposition = Disposition { Rerunnable, OwnerBound, ExternallyOwned }
    ErrorClass = ErrorClass {
        Transport, Timeout, RateLimited, Unavailable, Validation, Auth, Quota, PolicyDenied, Misconfigured,
        Unsupported, Unknown
    }
    Verdict = Verdict { Retry, Resume, Reconcile, Quarantine, Abandon, Leave, Fail, TimeOut }
    Grade = LeaseLiveness { Alive, Suspended, Silent, Dead }
    AcceptStrength = AcceptStrength { Weak, Strong }
    OnParentClose = OnParentClose { Cancel, Leave }
    OnTimeout = OnTimeout { TimeOut, Fail, Warn, Cancel, Escalate, Default }
    OnExpiry = OnExpiry { Leave, Timeout }
    OnStalled = OnStalled { Recover, Page, Prompt }
    Jitter = Jitter { Full, Equal, None }
    WaitKind = WaitKind { Approval, Auth, User, Tool, External }
    WaitState = WaitState { Open, Answered, TimedOut, Cancelled }
    ActorKind = ActorKind { Person, Machine, Worker, System }
    CommandState = CommandState {
        Pending, Blocked, Approved, Dispatched, Uncertain, Succeeded, Failed, Cancelled
    }
    CommandKind = CommandKind { ModelCall, Shell, FileEdit, Browser, HttpApi, Message, Memory, FollowUp }
    Risk = Risk { Low, High }
    Idempotency = Idempotency { Native, Lookup, None }
    Executor = Executor { Worker, Http, Exec }
    Effect = Effect { Allow, Deny, NeedsApproval }
    EvidenceKind = EvidenceKind { Provider, Lookup, Person }
    Planned = Planned { ReuseReceipt, Execute, NeedsApproval, Blocked }
    Cause = StuckCause {
        InDoubt, Poison, CircularWait, UnansweredWait, LeaseLost, RetryOverdue, Spinning, NoWorker
    }
    Overlap = Overlap { Allow, Skip }
    SkipReason = SkipReason { Overlap, Late }
    Act = ScheduleAct { Set, Pause, Resume, Run, Delete }
    PrincipalKind = TokenKind { Person, Machine }
}
