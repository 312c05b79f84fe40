//! The types of the HTTP API: requests, responses and problems, one file for each noun. They decide nothing.
//!
//! Requests refuse fields that they do not know. Responses ignore them, and keep unknown words as they came
//! (see [`Word`]), so that an older client can read a newer server.

/// A response with this header describes what would have been done; nothing was changed.
pub const DRY_RUN_HEADER: &str = "tenure-dry-run";

mod admin;
mod alert;
mod batch;
mod claim;
#[allow(missing_docs)]
mod command;
#[allow(missing_docs)]
mod command_verbs;
mod event;
mod health;
mod holder;
mod id;
mod ingest;
mod intake;
mod list;
mod operate;
mod problem;
mod recovery;
mod schedule;
mod step;
mod time;
mod token;
mod usage;
mod wait;
mod word;
mod work;
mod worker;

pub use admin::{
    Anchor, Backup, BackupProgress, BackupReport, CheckpointFailure, Commits, Damaged, Database,
    DatabaseFile, Erase, EraseReport, Fault, IntakeTable, LedgerClock, Prune, PruneReport, Pruning, Schema,
    Setting, Verify, VerifyReport, Wal,
};
pub use alert::Alert;
pub use batch::{BATCH_MAX, Batch, BatchItem, BatchMethod, BatchReply, BatchResponse};
pub use claim::{Claim, Claimant, Grant, Grants, Liveness, Worker};
pub use command::{
    Approval, Command, CommandExplanation, CommandKind, CommandQuery, CommandState, Cost, Dispatch, Effect,
    EvidenceKind, Executor, Idempotency, Planned, PlannedCommand, PolicyDecision, Proof, Receipt,
    ReceiptEvidence, ReplayPlan, ReplayPlanQuery, ReservedAlone, Risk,
};
pub use command_verbs::{
    ApproveCommand, CallFailure, CancelCommand, ClaimLookups, DeliverReceipt, DispatchCommand, FailCommand,
    Intent, Lookup, LookupOutcome, Lookups, Reconcile, RecordCommand, RecordOutcome, RejectCommand,
    ReplayCommand, Reserve, ReserveAlone, UncertainCommand,
};
pub use event::{Actor, ActorKind, Event, EventPage, EventQuery, Evidence, Gap, StreamQuery, WorkEventQuery};
pub use health::{Check, Health, Readiness};
pub use holder::{
    Accept, AcceptStrength, Ack, CloseOut, Complete, End, Fail, Failed, Failure, Progress, Release, Renew,
    RenewLease, Renewal, Renewals,
};
pub use id::{CommandId, PrincipalId, TokenId, WaitId, WorkId};
pub use ingest::{
    Ingest, Ingested, Jitter, LeaseTimings, OnExpiry, OnParentClose, RetryPolicy, Timeouts, WorkPolicy,
};
pub use intake::{Intake, IntakeChange, IntakePause, SetIntake};
pub use list::{
    AsOf, LimitQuery, Page, PageQuery, Unreadable, Until, WaitQuery, WorkGet, WorkPage, WorkQuery,
};
pub use operate::{Abandon, Cancel, Decide, Decision, Quarantine, Rerun, RetryNow};
pub use problem::{Code, Problem};
pub use recovery::{DoubtedCommand, Forecast, LastReceipt, PossibleEffect, Verdict, Victim, VictimQuery};
pub use schedule::{
    DeleteSchedule, Overlap, PauseSchedule, RunOutcome, RunSchedule, Schedule, ScheduleAct, ScheduleChange,
    ScheduleError, ScheduleGet, ScheduleQuery, ScheduleRun, ScheduleSkip, SetSchedule, SkipReason, Template,
    TemplateView,
};
pub use step::{PutStep, Step, StepReply, StepVerb};
pub use time::Timestamp;
pub use token::{NewToken, Principal, Revocation, RevokeToken, Scope, Token, TokenKind, TokenMade};
pub use usage::{USAGE_MAX, Usage};
pub use wait::{
    Approve, NewWait, OnTimeout, OpenedWait, Reconnect, Resolve, ResolveWait, Resolved, ResolvedWait,
    RevokeWaits, Revoked, SetWait, Wait, WaitKind, WaitReason, WaitState, Waiting,
};
pub use word::{NotAWord, Word, Words};
pub use work::{
    AbandonRequest, CancelRequest, Disposition, ErrorClass, Explanation, FirstStarted, Lease, LeaseLiveness,
    Phase, Reason, Source, State, Timestamps, Work, WorkError, Workflow,
};
pub use worker::{Deferred, Drain, DrainReport, Lever, Pulled, WorkerView};
