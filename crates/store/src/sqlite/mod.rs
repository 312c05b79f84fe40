//! A ledger in one SQLite file. One thread writes, in groups; reads have connections of their own and
//! never wait for it. Several processes may share the file.

#[doc(hidden)]
pub mod bench_support;
mod check;
mod checkpoint;
mod claim;
mod command;
mod copied;
mod credential;
mod diagnosis;
mod fault;
mod file;
mod gauges;
mod group;
mod intake;
mod load;
mod log;
mod loss;
mod migrate;
#[cfg(test)]
mod plan;
mod read;
mod readers;
mod responder;
mod retention;
mod row;
mod save;
mod schedule;
mod settings;
mod snapshot;
mod tables;
mod time;
mod unlogged;
mod wal;
mod writer;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    thread,
};

use rusqlite::Connection;
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
use tokio::sync::oneshot;

use crate::{
    Anchor, CheckpointFailure, Clock, CommandFilter, Credential, Diagnosis, Error, EventKey, Gauges,
    IntakeChange, Listed, Options, Position, Pruned, Pruning, Revocation, ScheduleChange, StoredEvent,
    WaitFilter, WorkFilter, aside,
    counters::Counters,
    damaged::DamagedSet,
    job::{Job, Payloads},
    ledger_settings::LedgerSettings,
    retention::{Before, Tombstone},
    schedule::Key as ScheduleKey,
    steady::SteadyClock,
    store::{Store, StoreFuture},
    token::Key,
    writing::{Cure, Stop, Writing},
};
use checkpoint::{Checkpoints, Progress};
use fault::Fault;
use file::LedgerFile;
use read::Reader;
use readers::Readers;
use responder::Responder;
use row::Read;
use writer::{Desk, Message};

/// Jobs that may wait for the writer. Beyond that, something is wrong and callers should know.
const QUEUE: usize = 1_000_000;

const FORGET_KEPT: &str = "DELETE FROM kept WHERE kept_at <= ?1";

struct SqliteStore {
    key: Key,
    clock: Arc<SteadyClock>,
    inbox: Sender<Message>,
    path: PathBuf,
    queued: Arc<AtomicUsize>,
    counters: Arc<Counters>,
    ledger_settings: Arc<LedgerSettings>,
    damaged: DamagedSet,
    writing: Arc<Writing>,
    readers: Readers,
    checkpoints: Progress,
    /// Jumps of the clock that the writer was told of.
    jumps: AtomicU64,
    backup: snapshot::Current,
}

/// Opens the ledger in a file, making it where there is none.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Arc<dyn Store>, Error> {
    let clock = Arc::new(SteadyClock::of(options.clock.as_ref()));
    match loss::refuse(path) {
        Err(lost) if options.accept_loss => tracing::warn!(%lost, "the loss was accepted"),
        checked => checked?,
    }
    let in_use = loss::marked(path);
    let conn = file::connect(path, options.allow_weak_settings, &*clock)?;
    let key = migrate::key(&conn)?;
    clock.take_up(time::stored(&conn)?, in_use);
    let readers = Readers::start(path)?;
    let (inbox, received) = mpsc::channel();
    let queued = Arc::new(AtomicUsize::new(0));
    let checkpoints = Checkpoints::start(path, clock.clone())?;
    let checkpoints_progress = checkpoints.progress.clone();
    let responder = Responder::start()?;
    let counters = Arc::new(Counters::default());
    let writing = Arc::new(Writing::default());
    let ledger_settings = Arc::new(LedgerSettings::default());
    let desk = Desk {
        key: key.clone(),
        clock: clock.clone(),
        inbox: received,
        queued: queued.clone(),
        counters: counters.clone(),
        ledger_settings: ledger_settings.clone(),
        writing: writing.clone(),
        file: LedgerFile::of(path, options.allow_weak_settings, clock.clone()),
        checkpoints,
        responder,
    };
    start(conn, desk)?;
    let path = path.to_owned();
    Ok(Arc::new(SqliteStore {
        key,
        path,
        clock,
        inbox,
        queued,
        counters,
        ledger_settings,
        damaged: DamagedSet::default(),
        writing,
        readers,
        checkpoints: checkpoints_progress,
        jumps: AtomicU64::new(0),
        backup: snapshot::Current::default(),
    }))
}

fn start(conn: Connection, desk: Desk) -> Result<(), Error> {
    let writer = move || writer::run(conn, desk);
    let thread = thread::Builder::new().name("ledger-writer".into()).spawn(writer);
    thread.map(drop).map_err(|error| Error::Unavailable(format!("no thread for the writer: {error}")))
}

impl SqliteStore {
    /// Runs a read off the async threads.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Reader) -> Read<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(self.readers.read(read))
    }

    /// Has the writer do something besides its groups, between two of them.
    fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Connection) -> Read<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        let (reply, answer) = oneshot::channel();
        let aside = move |conn: Result<&Connection, Error>| {
            let written = conn.map(write);
            let (told, stops) = match written {
                // It may have been at its commit.
                Ok(Err(Fault::Full(why))) => {
                    (Err(Error::OutcomeUnknown(why.clone())), Some((why, Cure::Space)))
                }
                Ok(Err(Fault::Broken(why))) => {
                    (Err(Error::OutcomeUnknown(why.clone())), Some((why, Cure::Reopening)))
                }
                Ok(written) => (written.map_err(Fault::into_error), None),
                Err(refused) => (Err(refused), None),
            };
            let _gone = reply.send(told);
            stops
        };
        let sent = self.inbox.send(Message::Aside(Box::new(aside)));
        Box::pin(async move {
            sent.map_err(|_| self.gone())?;
            answer.await.map_err(|_| self.gone())?
        })
    }

    /// Why there is no writer any more.
    fn gone(&self) -> Error {
        self.stopped().map_or_else(writer::closed, |stop| Error::Stopped(stop.why))
    }
}

impl Store for SqliteStore {
    fn key(&self) -> &Key {
        &self.key
    }

    fn damaged(&self) -> &DamagedSet {
        &self.damaged
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn stopped(&self) -> Option<Stop> {
        self.writing.stopped()
    }

    fn checkpoint_failure(&self) -> Option<CheckpointFailure> {
        self.checkpoints.failure()
    }

    fn clock(&self) -> (u64, Millis) {
        self.clock.told()
    }

    fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    fn send(&self, job: Job) {
        if self.queued.fetch_add(1, Ordering::Relaxed) >= QUEUE {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            return job.answer(Err(Error::Unavailable(format!("{QUEUE} submissions are queued already"))));
        }
        if let Err(mpsc::SendError(Message::Job(job))) = self.inbox.send(Message::Job(Box::new(job))) {
            job.answer(Err(self.gone()));
        }
    }

    fn now(&self) -> StoreFuture<'_, Millis> {
        let now = self.clock.wall();
        let jumps = self.clock.told().0;
        if self.jumps.swap(jumps, Ordering::Relaxed) != jumps {
            // Where it is gone, its offset is stored already.
            let _gone = self.inbox.send(Message::Jumped);
        }
        Box::pin(async move { Ok(now) })
    }

    fn works<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, Listed<Work, WorkId>> {
        let ids = ids.to_vec();
        self.read(move |reader| reader.works(&ids))
    }

    fn ids(&self, before: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        self.read(move |reader| reader.all_ids(before, limit))
    }

    fn between<'a>(
        &'a self,
        first: WorkId,
        last: WorkId,
        tenants: &'a Tenants,
        limit: usize,
    ) -> StoreFuture<'a, Vec<WorkId>> {
        let tenants = tenants.clone();
        self.read(move |reader| reader.between(first, last, &tenants, limit))
    }

    fn tenants_of<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, HashMap<WorkId, String>> {
        let ids = ids.to_vec();
        self.read(move |reader| reader.tenants_of(&ids))
    }

    fn list<'a>(
        &'a self,
        filter: &'a WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        let filter = filter.clone();
        self.read(move |reader| reader.list(&filter, before, limit))
    }

    fn counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<State, u64>> {
        let tenants = tenants.clone();
        self.read(move |reader| reader.counts(&tenants))
    }

    fn gauges(&self, at: Millis) -> StoreFuture<'_, Gauges> {
        self.read(move |reader| reader.gauges(at))
    }

    fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        self.read(move |reader| reader.events(work, after, limit))
    }

    fn evidence(&self, work: WorkId, after: u64) -> StoreFuture<'_, Vec<Evidence>> {
        self.read(move |reader| reader.evidence(work, after))
    }

    fn feed(&self, after: Position, limit: usize) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        self.read(move |reader| reader.feed(after, limit))
    }

    fn feed_of<'a>(
        &'a self,
        tenants: &'a [String],
        after: Position,
        limit: usize,
    ) -> StoreFuture<'a, (Listed<StoredEvent, EventKey>, Position)> {
        let tenants = tenants.to_vec();
        self.read(move |reader| reader.feed_of(&tenants, after, limit))
    }

    fn tail(&self) -> StoreFuture<'_, Position> {
        self.read(|reader| reader.tail())
    }

    fn payloads<'a>(&'a self, keys: &'a [(WorkId, u64)]) -> StoreFuture<'a, Payloads> {
        let keys = keys.to_vec();
        self.read(move |reader| reader.payloads(&keys))
    }

    fn steps(&self, work: WorkId) -> StoreFuture<'_, Vec<Step>> {
        self.read(move |reader| reader.steps(work))
    }

    fn attempts(&self, work: WorkId) -> StoreFuture<'_, Vec<Attempt>> {
        self.read(move |reader| reader.attempts(work))
    }

    fn waits<'a>(
        &'a self,
        filter: &'a WaitFilter,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Wait, (Millis, WaitId)>> {
        let filter = filter.clone();
        self.read(move |reader| reader.waits(&filter, limit))
    }

    fn session<'a>(&'a self, tenant: &'a str, session: &'a str) -> StoreFuture<'a, SessionView> {
        let key = (tenant.to_owned(), session.to_owned());
        self.read(move |reader| reader.session(&key))
    }

    fn kept<'a>(&'a self, tenant: &'a str, reference: &'a str) -> StoreFuture<'a, Option<Kept>> {
        let key = (tenant.to_owned(), reference.to_owned());
        self.read(move |reader| reader.kept(&key))
    }

    fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Millis, WorkId)>> {
        self.read(move |reader| reader.due(at, after, limit))
    }

    fn next_due(&self) -> StoreFuture<'_, Option<Millis>> {
        self.read(Reader::next_due)
    }

    fn leased(&self, after: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        self.read(move |reader| reader.leased(after, limit))
    }

    fn forget_kept(&self, at: Millis) -> StoreFuture<'_, u64> {
        self.write(move |conn| Ok(conn.execute(FORGET_KEPT, [at])? as u64))
    }

    fn add_credential<'a>(&'a self, credential: &'a Credential) -> StoreFuture<'a, ()> {
        let (credential, mac) = (credential.clone(), self.key.row_mac(credential));
        self.write(move |conn| credential::add(conn, &credential, mac))
    }

    fn credential(&self, hash: Digest) -> StoreFuture<'_, Option<Credential>> {
        Box::pin(self.readers.credentials(move |reader| reader.credential(hash)))
    }

    fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> StoreFuture<'_, Listed<Credential, CredentialId>> {
        self.read(move |reader| reader.credentials(before, limit))
    }

    fn credentials_of(&self, principal: PrincipalId, limit: usize) -> StoreFuture<'_, Vec<Credential>> {
        self.read(move |reader| reader.credentials_of(principal, limit))
    }

    fn count_credentials<'a>(&'a self, tenant: Option<&'a str>) -> StoreFuture<'a, u64> {
        let tenant = tenant.map(str::to_owned);
        self.read(move |reader| reader.count_credentials(tenant.as_deref()))
    }

    fn revoked_among<'a>(&'a self, ids: &'a [CredentialId]) -> StoreFuture<'a, Vec<CredentialId>> {
        let ids = ids.to_vec();
        self.read(move |reader| reader.revoked_among(&ids))
    }

    fn revoke_credential<'a>(
        &'a self,
        id: CredentialId,
        revocation: &'a Revocation,
        keeping: Option<&'a [String]>,
    ) -> StoreFuture<'a, Option<Credential>> {
        let (revocation, keeping) = (revocation.clone(), keeping.map(<[String]>::to_vec));
        let key = self.key.clone();
        self.write(move |conn| credential::revoke(conn, &key, id, &revocation, keeping.as_deref()))
    }

    fn schedule<'a>(&'a self, tenant: &'a str, name: &'a str) -> StoreFuture<'a, Option<Schedule>> {
        let key = (tenant.to_owned(), name.to_owned());
        self.read(move |reader| reader.schedule(&key))
    }

    fn schedules<'a>(
        &'a self,
        tenants: &'a Tenants,
        after: (&'a str, &'a str),
        limit: usize,
    ) -> StoreFuture<'a, Listed<Schedule, ScheduleKey>> {
        let (tenants, after) = (tenants.clone(), (after.0.to_owned(), after.1.to_owned()));
        self.read(move |reader| reader.schedules(&tenants, &after, limit))
    }

    fn schedules_due<'a>(
        &'a self,
        at: Millis,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<Schedule>> {
        let except = except.to_vec();
        self.read(move |reader| reader.schedules_due(at, &except, limit))
    }

    fn save_schedules<'a>(&'a self, schedules: &'a [Schedule]) -> StoreFuture<'a, Vec<ScheduleKey>> {
        let schedules = schedules.to_vec();
        self.write(move |conn| schedule::save(conn, &schedules))
    }

    fn change_schedule<'a>(
        &'a self,
        schedule: &'a Schedule,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, bool> {
        let (schedule, change) = (schedule.clone(), change.clone());
        self.write(move |conn| schedule::change(conn, &schedule, &change))
    }

    fn schedule_changes<'a>(
        &'a self,
        tenant: &'a str,
        name: &'a str,
        limit: usize,
    ) -> StoreFuture<'a, Vec<ScheduleChange>> {
        let key = (tenant.to_owned(), name.to_owned());
        self.read(move |reader| reader.schedule_changes(&key, limit))
    }

    fn pauses(&self) -> StoreFuture<'_, Vec<IntakeChange>> {
        self.read(|reader| reader.pauses())
    }

    fn change_intake<'a>(&'a self, change: &'a IntakeChange) -> StoreFuture<'a, ()> {
        let change = change.clone();
        self.write(move |conn| intake::add(conn, &change))
    }

    fn intake_changes(&self, limit: usize) -> StoreFuture<'_, Vec<IntakeChange>> {
        self.read(move |reader| reader.intake_changes(limit))
    }

    fn prunable(&self, before: Before, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        Box::pin(readers::at_leisure(&self.path, move |reader| reader.prunable(before, limit)))
    }

    fn add_pruning<'a>(&'a self, pruning: &'a Pruning) -> StoreFuture<'a, ()> {
        let (pruning, mac) = (pruning.clone(), self.key.row_mac(pruning));
        self.write(move |conn| retention::add(conn, &pruning, mac))
    }

    fn prunings(&self, limit: usize) -> StoreFuture<'_, Vec<Pruning>> {
        self.read(move |reader| reader.prunings(limit))
    }

    fn prune<'a>(&'a self, works: &'a [WorkId], before: Before, at: Millis) -> StoreFuture<'a, Pruned> {
        Box::pin(async move {
            let mut pruned = Pruned::default();
            for piece in retention::pieces(works) {
                let key = self.key.clone();
                let one = self.write(move |conn| retention::prune(conn, &key, &piece, before, at)).await?;
                pruned.works += one.works;
                pruned.events += one.events;
            }
            Ok(pruned)
        })
    }

    fn tombstone(&self, work: WorkId) -> StoreFuture<'_, Option<Tombstone>> {
        self.read(move |reader| reader.tombstone(work))
    }

    fn links(&self, after: Position, limit: usize) -> StoreFuture<'_, Vec<(Position, Digest)>> {
        self.read(move |reader| reader.links(after, limit))
    }

    fn anchor(&self) -> StoreFuture<'_, Anchor> {
        let key = self.key.clone();
        self.read(move |reader| reader.anchor(&key))
    }

    fn set_anchor(&self, anchor: Anchor) -> StoreFuture<'_, ()> {
        let stored = self.key.with_mac(anchor);
        self.write(move |conn| retention::set_anchor(conn, &stored, anchor.events))
    }

    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, ()> {
        let copying = match self.backup.begin() {
            Ok(copying) => copying,
            Err(error) => return Box::pin(async move { Err(error) }),
        };
        let caller = snapshot::Waiting(copying.clone());
        let (from, to) = (self.path.clone(), to.to_owned());
        Box::pin(async move {
            let _caller = caller;
            let copied = aside("backup", move || retention::backup(&from, &to, &copying)).await;
            copied.map_err(|error| Error::Unavailable(format!("the backup did not finish: {error}")))?
        })
    }

    fn self_check(&self) -> StoreFuture<'_, Vec<String>> {
        let key = self.key.clone();
        Box::pin(readers::at_leisure(&self.path, move |reader| reader.self_check(&key)))
    }

    fn ledger_settings(&self) -> &LedgerSettings {
        &self.ledger_settings
    }

    fn commands<'a>(&'a self, ids: &'a [CommandId]) -> StoreFuture<'a, Listed<Command, CommandId>> {
        let ids = ids.to_vec();
        self.read(move |reader| reader.commands(&ids))
    }

    fn list_commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Command, CommandId>> {
        let filter = filter.clone();
        self.read(move |reader| reader.list_commands(&filter, before, limit))
    }

    fn command_counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<CommandState, u64>> {
        let tenants = tenants.clone();
        self.read(move |reader| reader.command_counts(&tenants))
    }

    fn due_commands(
        &self,
        duty: Duty,
        at: Millis,
        after: Option<(Millis, CommandId)>,
        except: &[String],
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Millis, CommandId)>> {
        let except = except.to_vec();
        self.read(move |reader| reader.due_commands(duty, at, after, &except, limit))
    }

    fn due_lookups<'a>(
        &'a self,
        tenants: &'a [String],
        at: Millis,
        after: Option<(Millis, CommandId)>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>> {
        let tenants: BTreeSet<String> = tenants.iter().cloned().collect();
        self.read(move |reader| reader.due_lookups(&tenants, at, after, limit))
    }

    fn heads<'a>(&'a self, lines: &'a [TargetKey]) -> StoreFuture<'a, Vec<Option<CommandId>>> {
        let lines = lines.to_vec();
        self.read(move |reader| reader.heads(&lines))
    }

    fn next_due_command(&self, duty: Duty) -> StoreFuture<'_, Option<Millis>> {
        self.read(move |reader| reader.next_due_command(duty))
    }

    fn budgets<'a>(&'a self, keys: &'a [BudgetKey]) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        let keys = keys.to_vec();
        self.read(move |reader| reader.budgets(&keys))
    }

    fn all_budgets<'a>(&'a self, after: &'a str, limit: usize) -> StoreFuture<'a, Vec<(BudgetKey, Budget)>> {
        let after = after.to_owned();
        self.read(move |reader| reader.all_budgets(&after, limit))
    }

    fn any_pruned(&self) -> StoreFuture<'_, bool> {
        self.read(Reader::any_pruned)
    }

    fn diagnosis(&self) -> StoreFuture<'_, Diagnosis> {
        let (path, checkpoints) = (self.path.clone(), self.checkpoints.clone());
        let backup = self.backup.progress();
        self.write(move |conn| Ok(Diagnosis { backup, ..diagnosis::of(conn, &path, &checkpoints)? }))
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Message::Close(reply));
        Box::pin(async move {
            // A writer that is gone has finished already.
            if sent.is_ok() {
                let _finished = answer.await;
            }
            Ok(())
        })
    }
}
