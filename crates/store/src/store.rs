//! What a store must do. Everything that changes anything goes through [`Store::send`].

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

/// A whole ledger: how it is written to, and the sum of what can be read and kept, one trait for each noun.
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
    + DiagnosisStore
    + BackupStore
    + Send
    + Sync
    + 'static
{
    /// The key of this ledger's tokens, read at open.
    fn key(&self) -> &Key;

    fn counters(&self) -> &Counters;

    /// What cannot be read, and is passed over.
    fn damaged(&self) -> &DamagedSet;

    /// Why nothing is written now.
    fn stopped(&self) -> Option<Stop> {
        None
    }

    /// Why the write-ahead log is no longer moved into the file, if this process moves it.
    fn checkpoint_failure(&self) -> Option<CheckpointFailure> {
        None
    }

    /// How many submissions wait for a group.
    fn queued(&self) -> usize;

    /// Jumps of the clock that were noticed, and how far ahead of the clock the ledger's time is.
    fn clock(&self) -> (u64, Millis);

    /// Queues a submission; it is answered when its group has committed.
    fn send(&self, job: Job);

    /// The store's clock.
    fn now(&self) -> StoreFuture<'_, Millis>;

    /// What groups are decided under.
    fn ledger_settings(&self) -> &LedgerSettings;

    /// Finishes what is queued and refuses what comes after.
    fn close(&self) -> StoreFuture<'_, ()>;
}

/// Work items, with their steps and attempts.
pub(crate) trait WorkStore {
    /// Works by id; those that do not exist are left out.
    fn works<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, Listed<Work, WorkId>>;

    /// The ids of all works, newest first, below `before`: also of those that cannot be read.
    fn ids(&self, before: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>>;

    /// The ids of these tenants' works in a range, both ends included.
    fn between<'a>(
        &'a self,
        first: WorkId,
        last: WorkId,
        tenants: &'a Tenants,
        limit: usize,
    ) -> StoreFuture<'a, Vec<WorkId>>;

    /// The tenant of each work; those that do not exist are left out.
    fn tenants_of<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, HashMap<WorkId, String>>;

    /// Matching works, newest id first, below `before`.
    fn list<'a>(
        &'a self,
        filter: &'a WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>>;

    fn counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<State, u64>>;

    fn steps(&self, work: WorkId) -> StoreFuture<'_, Vec<Step>>;

    /// In the order of their fences.
    fn attempts(&self, work: WorkId) -> StoreFuture<'_, Vec<Attempt>>;

    /// Open works whose due date is `at` or earlier, earliest first, after the given (due, id).
    fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Millis, WorkId)>>;

    /// The earliest due date of all.
    fn next_due(&self) -> StoreFuture<'_, Option<Millis>>;

    /// Works with a lease that nobody found lapsed, by id, after the given one.
    fn leased(&self, after: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>>;
}

/// The log: the events of a work item, and the feed of all.
pub(crate) trait EventStore {
    /// A work's events after `seq`, in order.
    fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Listed<StoredEvent, EventKey>>;

    /// What supports a work's events after `seq`, in order.
    fn evidence(&self, work: WorkId, after: u64) -> StoreFuture<'_, Vec<Evidence>>;

    /// All events after a position, in an order in which none is ever skipped.
    fn feed(&self, after: Position, limit: usize) -> StoreFuture<'_, Listed<StoredEvent, EventKey>>;

    /// The events of these tenants alone, with how far the feed was looked at. A page may be short while more follow: then
    /// it is `full` all the same.
    fn feed_of<'a>(
        &'a self,
        tenants: &'a [String],
        after: Position,
        limit: usize,
    ) -> StoreFuture<'a, (Listed<StoredEvent, EventKey>, Position)>;

    /// Where the feed ends now: after it come only events that no reader has been shown yet.
    fn tail(&self) -> StoreFuture<'_, Position>;

    fn payloads<'a>(&'a self, keys: &'a [(WorkId, u64)]) -> StoreFuture<'a, Payloads>;

    /// The places and hashes of all events after a position, pruned ones too, in the order of the feed.
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

    /// The early answer that is kept for a tenant's reference.
    fn kept<'a>(&'a self, tenant: &'a str, reference: &'a str) -> StoreFuture<'a, Option<Kept>>;

    /// Drops early answers kept at `at` or before.
    fn forget_kept(&self, at: Millis) -> StoreFuture<'_, u64>;

    /// Drops all early answers of a tenant.
    fn forget_kept_of<'a>(&'a self, tenant: &'a str) -> StoreFuture<'a, u64>;
}

/// Sessions of work items.
pub(crate) trait SessionStore {
    /// Who occupies a tenant's session, and who is next.
    fn session<'a>(&'a self, tenant: &'a str, session: &'a str) -> StoreFuture<'a, SessionView>;
}

/// Commands (recorded side effects).
pub(crate) trait CommandStore {
    /// Commands by id; those that do not exist are left out.
    fn commands<'a>(&'a self, ids: &'a [CommandId]) -> StoreFuture<'a, Listed<Command, CommandId>>;

    /// Matching commands, newest id first, below `before`.
    fn list_commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Command, CommandId>>;

    fn command_counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<CommandState, u64>>;

    /// The first open command of each of these lines, in their order.
    fn heads<'a>(&'a self, lines: &'a [TargetKey]) -> StoreFuture<'a, Vec<Option<CommandId>>>;

    /// Commands whose turn of this kind has come, but for those of some tenants, earliest first, after the given (due,
    /// id). Of what is to be sent in order, only what nothing comes before.
    fn due_commands<'a>(
        &'a self,
        duty: Duty,
        at: Millis,
        after: Option<(Millis, CommandId)>,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>>;

    /// The same of these tenants' lookups alone.
    fn due_lookups<'a>(
        &'a self,
        tenants: &'a [String],
        at: Millis,
        after: Option<(Millis, CommandId)>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>>;

    /// The earliest turn of this kind.
    fn next_due_command(&self, duty: Duty) -> StoreFuture<'_, Option<Millis>>;
}

/// Budgets and what has been spent of them.
pub(crate) trait BudgetStore {
    /// What the counters of these keys stand at; those that nobody has counted on are left out.
    fn budgets<'a>(&'a self, keys: &'a [BudgetKey]) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>>;

    /// All counters after a key's text, in its order.
    fn all_budgets<'a>(&'a self, after: &'a str, limit: usize) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>>;
}

/// Credentials. A small table, away from the hot path.
pub(crate) trait CredentialStore {
    /// Keeps a credential, unless its hash is there already or there are too many.
    fn add_credential<'a>(&'a self, credential: &'a Credential) -> StoreFuture<'a, ()>;

    fn credential(&self, hash: Digest) -> StoreFuture<'_, Option<Credential>>;

    /// Newest id first, below `before`.
    fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> StoreFuture<'_, Listed<Credential, CredentialId>>;

    /// Those of a principal, newest id first, revoked ones too.
    fn credentials_of(&self, principal: PrincipalId, limit: usize) -> StoreFuture<'_, Vec<Credential>>;

    /// How many are not revoked: of all, or of those that are bound to some tenants and reach this one.
    fn count_credentials<'a>(&'a self, tenant: Option<&'a str>) -> StoreFuture<'a, u64>;

    /// Those of these that were revoked.
    fn revoked_among<'a>(&'a self, ids: &'a [CredentialId]) -> StoreFuture<'a, Vec<CredentialId>>;

    /// Revokes, unless it was revoked before. None: there is no such credential, or it is the last that opens
    /// everything ([`Credential::opens_everything`]) by the scopes `keeping`. Whoever else revokes at the same
    /// moment, in whatever process, is judged after this one, or before it.
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

    /// Those that somebody must look at by then, earliest first, but for those of some tenants.
    fn schedules_due<'a>(
        &'a self,
        at: Millis,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<Schedule>>;

    /// Saves those whose stored revision is the one before; returns them.
    fn save_schedules<'a>(&'a self, schedules: &'a [Schedule]) -> StoreFuture<'a, Vec<schedule::Key>>;

    /// The same for one, by a person: added at its first revision if there is room, deleted by that act, and never
    /// without its trace. False: nothing was written.
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
    /// Pauses that stand, by tenant.
    fn pauses(&self) -> StoreFuture<'_, Vec<IntakeChange>>;

    fn change_intake<'a>(&'a self, change: &'a IntakeChange) -> StoreFuture<'a, ()>;

    /// Newest first.
    fn intake_changes(&self, limit: usize) -> StoreFuture<'_, Vec<IntakeChange>>;
}

/// Pruning and its tombstones.
pub(crate) trait RetentionStore {
    /// Works that may be pruned: ended before a moment, needed by nothing open, whole identities.
    fn prunable(&self, before: Before, limit: usize) -> StoreFuture<'_, Vec<WorkId>>;

    /// Deletes those of them that still may be, leaving tombstones.
    fn add_pruning<'a>(&'a self, pruning: &'a Pruning) -> StoreFuture<'a, ()>;

    /// Newest first.
    fn prunings(&self, limit: usize) -> StoreFuture<'_, Vec<Pruning>>;

    fn prune<'a>(&'a self, works: &'a [WorkId], before: Before, at: Millis) -> StoreFuture<'a, Pruned>;

    fn tombstone(&self, work: WorkId) -> StoreFuture<'_, Option<Tombstone>>;

    /// Overwrites what the ledger's own files still have of deleted content. False: it was not possible now, or is the
    /// database's own task.
    fn overwrite_erased(&self) -> StoreFuture<'_, bool>;

    /// Whether some work's log is gone.
    fn any_pruned(&self) -> StoreFuture<'_, bool>;
}

/// What `verify` reads, and the anchor that it compares with.
pub(crate) trait CheckStore {
    /// Faults that only the database itself can see: its own integrity check, narrow tables that
    /// disagree with their works, rows without events. Each is a sentence.
    fn self_check(&self) -> StoreFuture<'_, Vec<String>>;

    /// A ledger has one from its beginning: one that is gone, or was written by somebody else, is corrupt.
    fn anchor(&self) -> StoreFuture<'_, Anchor>;

    /// Keeps an anchor, unless one that covers more is kept already.
    fn set_anchor(&self, anchor: Anchor) -> StoreFuture<'_, ()>;
}

/// Figures of what is open.
pub(crate) trait GaugeStore {
    /// Figures of what is open.
    fn gauges(&self, at: Millis) -> StoreFuture<'_, Gauges>;
}

/// What the database says of itself.
pub(crate) trait DiagnosisStore {
    /// Which database this is, whether its commits last, which schema it has.
    fn diagnosis(&self) -> StoreFuture<'_, Diagnosis>;
}

/// Copies of the whole ledger.
pub(crate) trait BackupStore {
    /// Copies the whole ledger into a new file.
    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, ()>;
}
