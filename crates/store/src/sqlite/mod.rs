//! A ledger in one SQLite file. One thread writes, in groups; reads have connections of their own and
//! never wait for it. Several processes may share the file.

mod answers;
#[doc(hidden)]
pub mod bench_support;
mod check;
mod checkpoint;
mod claim;
mod command;
mod credential;
mod diagnosis;
mod facts;
mod fault;
mod group;
mod intake;
mod load;
mod log;
mod migrate;
#[cfg(test)]
mod plan;
mod read;
mod retention;
mod row;
mod save;
mod schedule;
mod settings;
mod tables;
mod writer;

use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    thread,
};

use rusqlite::Connection;
use tenure_core::{
    Attempt, Command, CommandId, CommandState, CredentialId, Evidence, Millis, State, Step, Submission, Wait,
    Work, WorkId,
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
    Anchor, Clock, CommandFilter, Credential, Diagnosis, Error, Facts, IntakeChange, Options, Position,
    Pruned, ScheduleChange, StoredEvent, SystemClock, WaitFilter, WorkFilter,
    ahead::Ahead,
    job::{Job, Payloads},
    retention::{Before, Tombstone},
    schedule::Key as ScheduleKey,
    stats::Counters,
    store::{Answer, Store},
    terms::Terms,
    token::Key,
};
use answers::Answers;
use checkpoint::{Checkpoints, LastCheckpoint};
use read::Reader;
use row::Read;
use tables::Works;
use writer::{Desk, Message};

/// Connections for reads; more would only compete for the two or three cores of a small machine.
const READERS: usize = 2;

/// Jobs that may wait for the writer. Beyond that, something is wrong and callers should know.
const QUEUE: usize = 1_000_000;

/// Jobs before one that will have its turn soon: what is decided for it now should stand then.
const SOON: usize = 2_048;

const FORGET_KEPT: &str = "DELETE FROM kept WHERE kept_at <= ?1";

struct SqliteStore {
    key: Key,
    clock: Arc<dyn Clock>,
    inbox: Sender<Message>,
    path: PathBuf,
    queued: Arc<AtomicUsize>,
    counters: Arc<Counters>,
    terms: Arc<Terms>,
    works: Arc<Works>,
    stopped: Arc<OnceLock<String>>,
    readers: [Arc<Mutex<Reader>>; READERS],
    next_reader: AtomicUsize,
    last_checkpoint: LastCheckpoint,
}

/// Opens the ledger in a file, making it where there is none.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Arc<dyn Store>, Error> {
    let clock: Arc<dyn Clock> = options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::default()));
    let mut conn = settings::writer(path, options.allow_weak_settings)?;
    migrate::run(&mut conn, migrate::MIGRATIONS, clock.wall())?;
    let key = migrate::key(&conn)?;
    let reader = || Ok::<_, Error>(Arc::new(Mutex::new(Reader::new(settings::reader(path)?))));
    let readers = [reader()?, reader()?];
    let (inbox, received) = mpsc::channel();
    let queued = Arc::new(AtomicUsize::new(0));
    let checkpoints = Checkpoints::start(path, clock.clone())?;
    let last_checkpoint = checkpoints.last.clone();
    let answers = Answers::start()?;
    let counters = Arc::new(Counters::default());
    let stopped = Arc::new(OnceLock::new());
    let terms = Arc::new(Terms::default());
    let works = Arc::new(Works::default());
    let desk = Desk {
        clock: clock.clone(),
        inbox: received,
        queued: queued.clone(),
        counters: counters.clone(),
        terms: terms.clone(),
        works: works.clone(),
        stopped: stopped.clone(),
        checkpoints,
        answers,
    };
    start(conn, desk, path.to_owned())?;
    let next_reader = AtomicUsize::new(0);
    let path = path.to_owned();
    Ok(Arc::new(SqliteStore {
        key,
        path,
        clock,
        inbox,
        queued,
        counters,
        terms,
        works,
        stopped,
        readers,
        next_reader,
        last_checkpoint,
    }))
}

fn start(conn: Connection, desk: Desk, path: PathBuf) -> Result<(), Error> {
    let stopped = desk.stopped.clone();
    let writer = move || {
        if let Err(error) = writer::run(&conn, desk) {
            tracing::error!(path = %path.display(), %error, "the writer could not start");
            let _first_wins = stopped.set(format!("the writer could not start: {error}"));
        }
    };
    let thread = thread::Builder::new().name("ledger-writer".into()).spawn(writer);
    thread.map(drop).map_err(|error| Error::Unavailable(format!("no thread for the writer: {error}")))
}

impl SqliteStore {
    /// Runs a read on one of the readers, off the async threads.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Reader) -> Read<T> + Send + 'static,
    ) -> Answer<'_, T> {
        let turn = self.next_reader.fetch_add(1, Ordering::Relaxed) % READERS;
        let reader = self.readers[turn].clone();
        let task = tokio::task::spawn_blocking(move || {
            // A panic in an earlier read left nothing half-done: readers only read.
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            read(&mut reader).map_err(fault::Fault::into_error)
        });
        Box::pin(async move {
            task.await.map_err(|error| Error::Unavailable(format!("the read did not finish: {error}")))?
        })
    }

    /// Has the writer do something besides its groups, between two of them.
    fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Connection) -> Read<T> + Send + 'static,
    ) -> Answer<'_, T> {
        let (reply, answer) = oneshot::channel();
        let aside = move |conn: Result<&Connection, Error>| {
            let written = conn.map(write);
            let broken = match &written {
                Ok(Err(fault::Fault::Broken(why))) => Some(why.clone()),
                Ok(_) | Err(_) => None,
            };
            let _gone = reply.send(written.and_then(|written| written.map_err(fault::Fault::into_error)));
            broken
        };
        let sent = self.inbox.send(Message::Aside(Box::new(aside)));
        Box::pin(async move {
            sent.map_err(|_| self.gone())?;
            answer.await.map_err(|_| self.gone())?
        })
    }

    /// What this submission comes to, as far as memory knows. Whatever makes the core panic is the writer's to find.
    fn ahead(&self, submission: &Submission) -> Option<Ahead> {
        let decide = || Ahead::decide(submission, |id| self.works.guess(id), &self.terms, &*self.clock);
        catch_unwind(AssertUnwindSafe(decide)).ok().flatten()
    }

    /// Why there is no writer any more.
    fn gone(&self) -> Error {
        self.stopped().map_or_else(writer::closed, Error::Stopped)
    }
}

impl Store for SqliteStore {
    fn key(&self) -> &Key {
        &self.key
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn stopped(&self) -> Option<String> {
        self.stopped.get().cloned()
    }

    fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    fn send(&self, mut job: Job) {
        if self.queued() < SOON {
            job.ahead = self.ahead(&job.submission);
        }
        if self.queued.fetch_add(1, Ordering::Relaxed) >= QUEUE {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            return job.answer(Err(Error::Unavailable(format!("{QUEUE} submissions are queued already"))));
        }
        if let Err(mpsc::SendError(Message::Job(job))) = self.inbox.send(Message::Job(Box::new(job))) {
            job.answer(Err(self.gone()));
        }
    }

    fn now(&self) -> Answer<'_, Millis> {
        let now = self.clock.wall();
        Box::pin(async move { Ok(now) })
    }

    fn works<'a>(&'a self, ids: &'a [WorkId]) -> Answer<'a, Vec<Work>> {
        let ids = ids.to_vec();
        self.read(move |reader| reader.works(&ids))
    }

    fn ids(&self, before: Option<WorkId>, limit: usize) -> Answer<'_, Vec<WorkId>> {
        self.read(move |reader| reader.all_ids(before, limit))
    }

    fn between<'a>(
        &'a self,
        first: WorkId,
        last: WorkId,
        tenants: &'a Tenants,
        limit: usize,
    ) -> Answer<'a, Vec<WorkId>> {
        let tenants = tenants.clone();
        self.read(move |reader| reader.between(first, last, &tenants, limit))
    }

    fn tenants_of<'a>(&'a self, ids: &'a [WorkId]) -> Answer<'a, HashMap<WorkId, String>> {
        let ids = ids.to_vec();
        self.read(move |reader| reader.tenants_of(&ids))
    }

    fn list<'a>(
        &'a self,
        filter: &'a WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> Answer<'a, Vec<Work>> {
        let filter = filter.clone();
        self.read(move |reader| reader.list(&filter, before, limit))
    }

    fn counts<'a>(&'a self, tenants: &'a Tenants) -> Answer<'a, BTreeMap<State, u64>> {
        let tenants = tenants.clone();
        self.read(move |reader| reader.counts(&tenants))
    }

    fn facts(&self, at: Millis) -> Answer<'_, Facts> {
        self.read(move |reader| reader.facts(at))
    }

    fn events(&self, work: WorkId, after: u64, limit: usize) -> Answer<'_, Vec<StoredEvent>> {
        self.read(move |reader| reader.events(work, after, limit))
    }

    fn evidence(&self, work: WorkId, after: u64) -> Answer<'_, Vec<Evidence>> {
        self.read(move |reader| reader.evidence(work, after))
    }

    fn feed(&self, after: Position, limit: usize) -> Answer<'_, Vec<StoredEvent>> {
        self.read(move |reader| reader.feed(after, limit))
    }

    fn tail(&self) -> Answer<'_, Position> {
        self.read(|reader| reader.tail())
    }

    fn payloads<'a>(&'a self, keys: &'a [(WorkId, u64)]) -> Answer<'a, Payloads> {
        let keys = keys.to_vec();
        self.read(move |reader| reader.payloads(&keys))
    }

    fn steps(&self, work: WorkId) -> Answer<'_, Vec<Step>> {
        self.read(move |reader| reader.steps(work))
    }

    fn attempts(&self, work: WorkId) -> Answer<'_, Vec<Attempt>> {
        self.read(move |reader| reader.attempts(work))
    }

    fn waits<'a>(&'a self, filter: &'a WaitFilter, limit: usize) -> Answer<'a, Vec<Wait>> {
        let filter = filter.clone();
        self.read(move |reader| reader.waits(&filter, limit))
    }

    fn session<'a>(&'a self, tenant: &'a str, session: &'a str) -> Answer<'a, SessionView> {
        let key = (tenant.to_owned(), session.to_owned());
        self.read(move |reader| reader.session(&key))
    }

    fn kept<'a>(&'a self, tenant: &'a str, reference: &'a str) -> Answer<'a, Option<Kept>> {
        let key = (tenant.to_owned(), reference.to_owned());
        self.read(move |reader| reader.kept(&key))
    }

    fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> Answer<'_, Vec<(Millis, WorkId)>> {
        self.read(move |reader| reader.due(at, after, limit))
    }

    fn next_due(&self) -> Answer<'_, Option<Millis>> {
        self.read(Reader::next_due)
    }

    fn leased(&self, after: Option<WorkId>, limit: usize) -> Answer<'_, Vec<WorkId>> {
        self.read(move |reader| reader.leased(after, limit))
    }

    fn forget_kept(&self, at: Millis) -> Answer<'_, u64> {
        self.write(move |conn| Ok(conn.execute(FORGET_KEPT, [at])? as u64))
    }

    fn add_credential<'a>(&'a self, credential: &'a Credential) -> Answer<'a, ()> {
        let credential = credential.clone();
        self.write(move |conn| credential::add(conn, &credential))
    }

    fn credential(&self, hash: Digest) -> Answer<'_, Option<Credential>> {
        self.read(move |reader| reader.credential(hash))
    }

    fn credentials(&self, before: Option<CredentialId>, limit: usize) -> Answer<'_, Vec<Credential>> {
        self.read(move |reader| reader.credentials(before, limit))
    }

    fn revoke_credential<'a>(
        &'a self,
        id: CredentialId,
        at: Millis,
        keeping: Option<&'a str>,
    ) -> Answer<'a, Option<Credential>> {
        let keeping = keeping.map(str::to_owned);
        self.write(move |conn| credential::revoke(conn, id, at, keeping.as_deref()))
    }

    fn schedule<'a>(&'a self, tenant: &'a str, name: &'a str) -> Answer<'a, Option<Schedule>> {
        let key = (tenant.to_owned(), name.to_owned());
        self.read(move |reader| reader.schedule(&key))
    }

    fn schedules<'a>(
        &'a self,
        tenants: &'a Tenants,
        after: (&'a str, &'a str),
        limit: usize,
    ) -> Answer<'a, Vec<Schedule>> {
        let (tenants, after) = (tenants.clone(), (after.0.to_owned(), after.1.to_owned()));
        self.read(move |reader| reader.schedules(&tenants, &after, limit))
    }

    fn schedules_due<'a>(
        &'a self,
        at: Millis,
        except: &'a [String],
        limit: usize,
    ) -> Answer<'a, Vec<Schedule>> {
        let except = except.to_vec();
        self.read(move |reader| reader.schedules_due(at, &except, limit))
    }

    fn save_schedules<'a>(&'a self, schedules: &'a [Schedule]) -> Answer<'a, Vec<ScheduleKey>> {
        let schedules = schedules.to_vec();
        self.write(move |conn| schedule::save(conn, &schedules))
    }

    fn change_schedule<'a>(&'a self, schedule: &'a Schedule, change: &'a ScheduleChange) -> Answer<'a, bool> {
        let (schedule, change) = (schedule.clone(), change.clone());
        self.write(move |conn| schedule::change(conn, &schedule, &change))
    }

    fn schedule_changes<'a>(
        &'a self,
        tenant: &'a str,
        name: &'a str,
        limit: usize,
    ) -> Answer<'a, Vec<ScheduleChange>> {
        let key = (tenant.to_owned(), name.to_owned());
        self.read(move |reader| reader.schedule_changes(&key, limit))
    }

    fn pauses(&self) -> Answer<'_, Vec<IntakeChange>> {
        self.read(|reader| reader.pauses())
    }

    fn change_intake<'a>(&'a self, change: &'a IntakeChange) -> Answer<'a, ()> {
        let change = change.clone();
        self.write(move |conn| intake::add(conn, &change))
    }

    fn intake_changes(&self, limit: usize) -> Answer<'_, Vec<IntakeChange>> {
        self.read(move |reader| reader.intake_changes(limit))
    }

    fn prunable(&self, before: Before, limit: usize) -> Answer<'_, Vec<WorkId>> {
        self.read(move |reader| reader.prunable(before, limit))
    }

    fn prune<'a>(&'a self, works: &'a [WorkId], before: Before, at: Millis) -> Answer<'a, Pruned> {
        Box::pin(async move {
            let mut pruned = Pruned::default();
            for piece in retention::pieces(works) {
                let one = self.write(move |conn| retention::prune(conn, &piece, before, at)).await?;
                pruned.works += one.works;
                pruned.events += one.events;
            }
            Ok(pruned)
        })
    }

    fn tombstone(&self, work: WorkId) -> Answer<'_, Option<Tombstone>> {
        self.read(move |reader| reader.tombstone(work))
    }

    fn links(&self, after: Position, limit: usize) -> Answer<'_, Vec<(Position, Digest)>> {
        self.read(move |reader| reader.links(after, limit))
    }

    fn anchor(&self) -> Answer<'_, Option<Anchor>> {
        self.read(Reader::anchor)
    }

    fn set_anchor(&self, anchor: Anchor) -> Answer<'_, ()> {
        self.write(move |conn| retention::set_anchor(conn, &anchor))
    }

    fn backup<'a>(&'a self, to: &'a Path) -> Answer<'a, ()> {
        let (from, to) = (self.path.clone(), to.to_owned());
        let task = tokio::task::spawn_blocking(move || retention::backup(&from, &to));
        Box::pin(async move {
            task.await.map_err(|error| Error::Unavailable(format!("the backup did not finish: {error}")))?
        })
    }

    fn self_check(&self) -> Answer<'_, Vec<String>> {
        self.read(Reader::self_check)
    }

    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn commands<'a>(&'a self, ids: &'a [CommandId]) -> Answer<'a, Vec<Command>> {
        let ids = ids.to_vec();
        self.read(move |reader| reader.commands(&ids))
    }

    fn list_commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> Answer<'a, Vec<Command>> {
        let filter = filter.clone();
        self.read(move |reader| reader.list_commands(&filter, before, limit))
    }

    fn command_counts<'a>(&'a self, tenants: &'a Tenants) -> Answer<'a, BTreeMap<CommandState, u64>> {
        let tenants = tenants.clone();
        self.read(move |reader| reader.command_counts(&tenants))
    }

    fn due_commands(
        &self,
        duty: Duty,
        at: Millis,
        after: Option<(Millis, CommandId)>,
        limit: usize,
    ) -> Answer<'_, Vec<(Millis, CommandId)>> {
        self.read(move |reader| reader.due_commands(duty, at, after, limit))
    }

    fn heads<'a>(&'a self, lines: &'a [TargetKey]) -> Answer<'a, Vec<Option<CommandId>>> {
        let lines = lines.to_vec();
        self.read(move |reader| reader.heads(&lines))
    }

    fn next_due_command(&self, duty: Duty) -> Answer<'_, Option<Millis>> {
        self.read(move |reader| reader.next_due_command(duty))
    }

    fn budgets<'a>(&'a self, keys: &'a [BudgetKey]) -> Answer<'a, Vec<(BudgetKey, Budget)>> {
        let keys = keys.to_vec();
        self.read(move |reader| reader.budgets(&keys))
    }

    fn all_budgets<'a>(&'a self, after: &'a str, limit: usize) -> Answer<'a, Vec<(BudgetKey, Budget)>> {
        let after = after.to_owned();
        self.read(move |reader| reader.all_budgets(&after, limit))
    }

    fn any_pruned(&self) -> Answer<'_, bool> {
        self.read(Reader::any_pruned)
    }

    fn diagnosis(&self) -> Answer<'_, Diagnosis> {
        let (path, checkpointed_at) = (self.path.clone(), self.last_checkpoint.get());
        self.write(move |conn| diagnosis::of(conn, &path, checkpointed_at))
    }

    fn close(&self) -> Answer<'_, ()> {
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
