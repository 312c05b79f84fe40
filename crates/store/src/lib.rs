//! The durable ledger: stores what [`tenure_core`] decides in SQLite, PostgreSQL or memory.
//!
//! A [`Ledger`] is the only entry point. Submissions are queued; a store takes all that are queued, loads the
//! rows they concern, lets the core decide one after the other, writes rows and events, commits once and then
//! replies to all.

#![warn(missing_docs)]

mod anchor;
mod aside;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod batch;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod check;
mod clock;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod columns;
#[cfg(feature = "conformance")]
#[allow(missing_docs)] // Each function is a test, named by what it shows.
pub mod conformance;
mod counters;
mod credential;
mod damaged;
mod diagnosis;
mod error;
pub mod fair;
mod gauges;
mod intake;
mod intake_table;
mod intake_worker;
mod job;
mod ledger;
mod ledger_settings;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod line;
mod listed;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod process;
mod query;
mod retention;
mod schedule;
mod scheduler;
pub mod schema;
mod speed;
mod spending;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod states;
// The same: SQLite stores an offset, PostgreSQL agrees on one, and memory does neither.
#[cfg_attr(not(all(feature = "sqlite", feature = "postgres")), allow(dead_code))]
mod steady;
mod store;
mod sweeper;
mod token;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod unlogged;
mod verify;
#[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), allow(dead_code))]
mod writing;
mod zone;

pub use anchor::{Anchor, SignedAnchor};
pub use aside::{aside, aside_with_stack};
pub use clock::{Clock, ManualClock, SystemClock};
pub use counters::CounterSnapshot;
pub use credential::{CREDENTIALS_MAX, Credential, NewCredential, Principal, PrincipalKind, Revocation};
pub use damaged::Damaged;
pub use diagnosis::{CheckpointFailure, Copied, Diagnosis, Schema, Setting, Wal};
pub use error::{Error, NotDispatched};
pub use gauges::{CommandGauges, CommandGroupGauges, Gauges, SourceGauges, StateGauges, WaitGauges};
pub use intake::IntakeChange;
pub use intake_table::{IntakeInsert, IntakeTable};
pub use intake_worker::{IntakeLook, IntakeWorker};
pub use ledger::{
    AppliedPlan, ApplyPlan, AtRisk, Caller, Claimed, DispatchRef, Due, DueCursor, DuePage, Erased, Health,
    IdleClaim, Ingested, LeaseRef, Ledger, LedgerReply, NewWait, NewWork, Options, PLAN_MAX, PastPage,
    PastWork, PlanFilter, PlanOverride, PlannedRecovery, RecoveryPlan, Reserved, Resolved, RowOutcome,
    Sending, StuckReport, Waiting, WorkerView, Workers, new_worker,
};
pub use listed::{EventKey, Listed, Unreadable};
pub use process::here as local_process;
pub use query::{CommandFilter, EventPage, Position, StoredEvent, WaitFilter, WorkFilter};
pub use retention::{Pruned, Pruning};
pub use schedule::{NewSchedule, ScheduleChange};
pub use scheduler::{Fired, Scheduler};
pub use sweeper::{Sweep, Sweeper};
pub use verify::{Fault, Report};
pub use writing::{Cure, Stop};

pub use tenure_core as core;

/// For the benchmark only.
#[cfg(feature = "postgres")]
#[doc(hidden)]
pub use postgres::bench_support as postgres_bench_support;
/// For the benchmark only.
#[cfg(feature = "sqlite")]
#[doc(hidden)]
pub use sqlite::bench_support as sqlite_bench_support;

/// The README's example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
