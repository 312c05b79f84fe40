//! The interface of a store. Every change goes through [`Store::send`].

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    path::Path,
    pin::Pin,
};

use tenure_core::{
    Attempt, Command, CommandId, CommandState, CredentialId, Evidence, Millis, PrincipalId, State, Step,
    Wait, WaitId, Work, WorkId,
    action::Tenants,
    command::{
        Duty,
        budget::{Budget, BudgetKey},
    },
    model::Kept,
    payload::Digest,
    records::{SessionView, TargetKey},
    schedule::Schedule,
};

use crate::{
    Anchor, CheckpointFailure, CommandFilter, Credential, Diagnosis, Error, EventKey, Gauges, IntakeChange,
    Listed, Position, Pruned, Pruning, Revocation, ScheduleChange, StoredEvent, WaitFilter, WorkFilter,
    counters::Counters,
    damaged::DamagedSet,
    intake_table::IntakeRows,
    job::{Job, Payloads},
    ledger_settings::LedgerSettings,
    retention::{Before, Tombstone},
    schedule,
    token::Key,
    writing::Stop,
};

pub(crate) type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A whole ledger: its write path, and the sum of its queries and small tables, one trait for each noun.
pub(crate) trait Store:
    WorkStore
    + EventStore
    + WaitStore
    + SessionStore
    + CommandStore
    + BudgetStore
    + CredentialStore
    + ScheduleStore
    + IntakeStore
    + IntakeRows
    + RetentionStore
    + CheckStore
    + GaugeStore
    + StuckStore
    + DiagnosisStore
    + BackupStore
    + Send
    + Sync
    + 'static
{
    /// The key of this ledger's tokens, read at open.
    fn key(&self) -> &Key;

    fn counters(&self) -> &Counters;

    /// Stored data that cannot be read and is skipped.
    fn damaged(&self) -> &DamagedSet;

    /// Why writing has stopped, if it has.
    fn stopped(&self) -> Option<Stop> {
        None
    }

    /// Why checkpoints fail, if this process makes them.
    fn checkpoint_failure(&self) -> Option<CheckpointFailure> {
        None
    }

    /// The number of submissions in the queue.
    fn queued(&self) -> usize;

    /// The number of clock jumps that were noticed, and how far the ledger's time is ahead of the clock.
    fn clock(&self) -> (u64, Millis);

    /// Queues a submission. Its reply comes after the commit of its group.
    fn send(&self, job: Job);

    /// The store's clock.
    fn now(&self) -> StoreFuture<'_, Millis>;

    /// The settings under which groups are decided.
    fn ledger_settings(&self) -> &LedgerSettings;

    /// Finishes the queued submissions and refuses later ones.
    fn close(&self) -> StoreFuture<'_, ()>;
}

/// Work items, with their steps and attempts.
pub(crate) trait WorkStore {
    /// Work items by id. Ids that do not exist are left out.
    fn works<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, Listed<Work, WorkId>>;

    /// The ids of all work items below `before`, newest first, including those that cannot be read.
    fn ids(&self, before: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>>;

    /// The ids of these tenants' work items in a range, both ends included.
    fn between<'a>(
        &'a self,
        first: WorkId,
        last: WorkId,
        tenants: &'a Tenants,
        limit: usize,
    ) -> StoreFuture<'a, Vec<WorkId>>;

    /// The tenant of each work item. Ids that do not exist are left out.
    fn tenants_of<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, HashMap<WorkId, String>>;

    /// The matching work items below `before`, newest id first.
    fn list<'a>(
        &'a self,
        filter: &'a WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>>;

    fn counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<State, u64>>;

    fn steps(&self, work: WorkId) -> StoreFuture<'_, Vec<Step>>;

    /// The attempts of a work item, by fence.
    fn attempts(&self, work: WorkId) -> StoreFuture<'_, Vec<Attempt>>;

    /// Open work items whose due date is `at` or earlier, earliest first, after the given (due, id).
    fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Millis, WorkId)>>;

    /// The earliest due date.
    fn next_due(&self) -> StoreFuture<'_, Option<Millis>>;

    /// Work items whose lease was not found lapsed, by id, after the given one.
    fn leased(&self, after: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>>;
}

/// The log: the events of a work item, and the feed of all.
pub(crate) trait EventStore {
    /// The events of a work item after `seq`, in order.
    fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Listed<StoredEvent, EventKey>>;

    /// The evidence of a work item's events after `seq`, in order.
    fn evidence(&self, work: WorkId, after: u64) -> StoreFuture<'_, Vec<Evidence>>;

    /// All events after a position, in an order in which a reader never skips one.
    fn feed(&self, after: Position, limit: usize) -> StoreFuture<'_, Listed<StoredEvent, EventKey>>;

    /// The events of these tenants only, and the position up to which the feed was searched. A page can be short and
    /// still be `full`, if more events follow.
    fn feed_of<'a>(
        &'a self,
        tenants: &'a [String],
        after: Position,
        limit: usize,
    ) -> StoreFuture<'a, (Listed<StoredEvent, EventKey>, Position)>;

    /// The current end of the feed. No reader has seen an event after it.
    fn tail(&self) -> StoreFuture<'_, Position>;

    fn payloads<'a>(&'a self, keys: &'a [(WorkId, u64)]) -> StoreFuture<'a, Payloads>;

    /// The positions and hashes of all events after a position, pruned ones included, in the order of the feed.
    fn links(&self, after: Position, limit: usize) -> StoreFuture<'_, Vec<(Position, Digest)>>;
}

/// Waits, and early answers that are kept for them.
pub(crate) trait WaitStore {
    /// Matching waits by (opened_at, id).
    fn waits<'a>(
        &'a self,
        filter: &'a WaitFilter,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Wait, (Millis, WaitId)>>;

    /// The early answer that is stored for a reference of a tenant.
    fn kept<'a>(&'a self, tenant: &'a str, reference: &'a str) -> StoreFuture<'a, Option<Kept>>;

    /// Deletes early answers that were stored at `at` or before.
    fn forget_kept(&self, at: Millis) -> StoreFuture<'_, u64>;

    /// Drops all early answers of a tenant.
    fn forget_kept_of<'a>(&'a self, tenant: &'a str) -> StoreFuture<'a, u64>;
}

/// Sessions of work items.
pub(crate) trait SessionStore {
    /// The holder of a tenant's session, and the next work item in it.
    fn session<'a>(&'a self, tenant: &'a str, session: &'a str) -> StoreFuture<'a, SessionView>;
}

/// Commands (recorded side effects).
pub(crate) trait CommandStore {
    /// Commands by id. Ids that do not exist are left out.
    fn commands<'a>(&'a self, ids: &'a [CommandId]) -> StoreFuture<'a, Listed<Command, CommandId>>;

    /// The matching commands below `before`, newest id first.
    fn list_commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Command, CommandId>>;

    fn command_counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<CommandState, u64>>;

    /// The first open command for each of these targets, in the order given.
    fn heads<'a>(&'a self, lines: &'a [TargetKey]) -> StoreFuture<'a, Vec<Option<CommandId>>>;

    /// Commands that are due for this duty, earliest first, after the given (due, id), without those of the tenants in
    /// `except`. Of ordered commands, only the first one of each target.
    fn due_commands<'a>(
        &'a self,
        duty: Duty,
        at: Millis,
        after: Option<(Millis, CommandId)>,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>>;

    /// The due lookups of these tenants only.
    fn due_lookups<'a>(
        &'a self,
        tenants: &'a [String],
        at: Millis,
        after: Option<(Millis, CommandId)>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>>;

    /// The earliest due date for this duty.
    fn next_due_command(&self, duty: Duty) -> StoreFuture<'_, Option<Millis>>;
}

/// Budgets and their counters.
pub(crate) trait BudgetStore {
    /// The counters of these keys. Keys without a counter are left out.
    fn budgets<'a>(&'a self, keys: &'a [BudgetKey]) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>>;

    /// All counters after a key, in the order of the keys' text.
    fn all_budgets<'a>(&'a self, after: &'a str, limit: usize) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>>;
}

/// Credentials: a small table that the write path does not use.
pub(crate) trait CredentialStore {
    /// Adds a credential, unless its hash exists already or there are too many.
    fn add_credential<'a>(&'a self, credential: &'a Credential) -> StoreFuture<'a, ()>;

    fn credential(&self, hash: Digest) -> StoreFuture<'_, Option<Credential>>;

    /// Newest id first, below `before`.
    fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> StoreFuture<'_, Listed<Credential, CredentialId>>;

    /// The credentials of a principal, newest id first, revoked ones included.
    fn credentials_of(&self, principal: PrincipalId, limit: usize) -> StoreFuture<'_, Vec<Credential>>;

    /// The number of credentials that are not revoked: of all, or of those that are bound to tenants and reach this
    /// one.
    fn count_credentials<'a>(&'a self, tenant: Option<&'a str>) -> StoreFuture<'a, u64>;

    /// The revoked ones among these.
    fn revoked_among<'a>(&'a self, ids: &'a [CredentialId]) -> StoreFuture<'a, Vec<CredentialId>>;

    /// Revokes a credential that is not revoked yet. None: it does not exist, or it is the last one that opens
    /// everything ([`Credential::opens_everything`]) by the scopes `keeping`. Concurrent revocations, by any process,
    /// are decided one after another.
    fn revoke_credential<'a>(
        &'a self,
        id: CredentialId,
        revocation: &'a Revocation,
        keeping: Option<&'a [String]>,
    ) -> StoreFuture<'a, Option<Credential>>;
}

/// Schedules and the changes that people made to them.
pub(crate) trait ScheduleStore {
    fn schedule<'a>(&'a self, tenant: &'a str, name: &'a str) -> StoreFuture<'a, Option<Schedule>>;

    /// By tenant and name, after the given ones.
    fn schedules<'a>(
        &'a self,
        tenants: &'a Tenants,
        after: (&'a str, &'a str),
        limit: usize,
    ) -> StoreFuture<'a, Listed<Schedule, schedule::Key>>;

    /// The schedules that are due at `at`, earliest first, without those of the tenants in `except`.
    fn schedules_due<'a>(
        &'a self,
        at: Millis,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<Schedule>>;

    /// Saves the schedules whose stored revision is the previous one, and returns their keys.
    fn save_schedules<'a>(&'a self, schedules: &'a [Schedule]) -> StoreFuture<'a, Vec<schedule::Key>>;

    /// Saves a person's change of one schedule, together with its record: adds it at its first revision if there is
    /// room, or deletes it. False: nothing was written.
    fn change_schedule<'a>(
        &'a self,
        schedule: &'a Schedule,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, bool>;

    /// Newest first.
    fn schedule_changes<'a>(
        &'a self,
        tenant: &'a str,
        name: &'a str,
        limit: usize,
    ) -> StoreFuture<'a, Vec<ScheduleChange>>;
}

/// Pauses of the intake.
pub(crate) trait IntakeStore {
    /// The pauses in effect, by tenant.
    fn pauses(&self) -> StoreFuture<'_, Vec<IntakeChange>>;

    fn change_intake<'a>(&'a self, change: &'a IntakeChange) -> StoreFuture<'a, ()>;

    /// Newest first.
    fn intake_changes(&self, limit: usize) -> StoreFuture<'_, Vec<IntakeChange>>;
}

/// Pruning and its tombstones.
pub(crate) trait RetentionStore {
    /// Work items that may be pruned: ended before a time, not needed by an open one, and with every generation of
    /// their identity.
    fn prunable(&self, before: Before, limit: usize) -> StoreFuture<'_, Vec<WorkId>>;

    /// Adds the record of a pruning.
    fn add_pruning<'a>(&'a self, pruning: &'a Pruning) -> StoreFuture<'a, ()>;

    /// Newest first.
    fn prunings(&self, limit: usize) -> StoreFuture<'_, Vec<Pruning>>;

    /// Deletes the work items among these that may still be pruned, and leaves tombstones.
    fn prune<'a>(&'a self, works: &'a [WorkId], before: Before, at: Millis) -> StoreFuture<'a, Pruned>;

    fn tombstone(&self, work: WorkId) -> StoreFuture<'_, Option<Tombstone>>;

    /// Overwrites what the ledger's own files still have of deleted content. False: it was not possible now, or is the
    /// database's own task.
    fn overwrite_erased(&self) -> StoreFuture<'_, bool>;

    /// Whether any work item was pruned.
    fn any_pruned(&self) -> StoreFuture<'_, bool>;
}

/// The queries of `verify`, and the anchor that it compares with.
pub(crate) trait CheckStore {
    /// Faults that only the database itself can find: its integrity check, narrow tables that disagree with their work
    /// items, rows without events.
    fn self_check(&self) -> StoreFuture<'_, SelfCheck>;

    /// The stored anchor. Every ledger has one from its creation: a missing or foreign anchor is corruption.
    fn anchor(&self) -> StoreFuture<'_, Anchor>;

    /// Stores an anchor, unless the stored one covers more.
    fn set_anchor(&self, anchor: Anchor) -> StoreFuture<'_, ()>;
}

/// The result of a database's own checks, in sentences.
#[derive(Debug, Default)]
pub(crate) struct SelfCheck {
    pub faults: Vec<String>,
    /// Checks that could not be made, each with the way to make it.
    pub not_checked: Vec<String>,
}

impl From<Vec<String>> for SelfCheck {
    fn from(faults: Vec<String>) -> Self {
        Self { faults, not_checked: Vec::new() }
    }
}

/// Figures for metrics.
pub(crate) trait GaugeStore {
    /// Figures of the open work items and commands.
    fn gauges(&self, at: Millis) -> StoreFuture<'_, Gauges>;
}

/// Work items that may not progress. The core decides which of them do not.
pub(crate) trait StuckStore {
    /// Set aside, stalled, held with an expired lease or without an event since `quiet`, or with an overdue retry;
    /// oldest first, at most so many of each state and, if tenants are named, of each of them.
    fn suspects<'a>(
        &'a self,
        tenants: &'a Tenants,
        signs: Signs,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>>;

    /// The ones that can be claimed and were recorded before `signs.queued`, among so many of the oldest queued ones;
    /// oldest first.
    fn unclaimed<'a>(
        &'a self,
        tenants: &'a Tenants,
        signs: Signs,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>>;

    /// The tenants, source systems and kinds of which somebody holds a work item now.
    fn busy_lanes<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, Vec<Lane>>;
}

/// A tenant, a source system and a kind.
pub(crate) type Lane = (String, String, String);

/// The states that a work item may be stuck in, but for queued and waiting ones.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const SUSPECT_STATES: [State; 5] =
    [State::Running, State::CancelRequested, State::RetryScheduled, State::Stalled, State::Quarantined];

/// The signs that make a work item a suspect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signs {
    /// Leases that expired before.
    pub expired: Millis,
    /// Held work items without an event since then. None: nobody judges spinning.
    pub quiet: Option<Millis>,
    /// Retries that were due before.
    pub retry: Millis,
    /// Queued work items that were recorded before.
    pub queued: Millis,
}

impl Signs {
    /// The reference definition of [`StuckStore::suspects`].
    pub fn suspect(&self, work: &Work) -> bool {
        match work.state {
            State::Quarantined | State::Stalled => true,
            State::Running | State::CancelRequested => {
                work.lease.as_ref().is_some_and(|lease| lease.expires_at < self.expired)
                    || self.quiet.is_some_and(|quiet| work.updated_at <= quiet)
            }
            State::RetryScheduled => work.next_retry_at.is_none_or(|at| at < self.retry),
            _ => false,
        }
    }
}

/// The database's description of itself.
pub(crate) trait DiagnosisStore {
    /// The database software, whether its commits are durable, and the version of its schema.
    fn diagnosis(&self) -> StoreFuture<'_, Diagnosis>;
}

/// Copies of the whole ledger.
pub(crate) trait BackupStore {
    /// Copies the whole ledger into a new file.
    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, ()>;
}
