//! The one writer of this process: takes the queued jobs, runs them as a group, replies, and keeps waiting claims. No
//! reply is sent before its commit has returned.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant as StdInstant},
};

use rusqlite::Connection;
use tenure_core::Reply;
use tokio::{sync::oneshot, time::Instant};

use super::{
    checkpoint::Checkpoints,
    fault::Fault,
    file::LedgerFile,
    group::{Claimed, Committed, Failure, Group, JobResult},
    loss, settings,
    tables::Tables,
    time,
};
use crate::{
    Error,
    counters::Counters,
    job::{Job, Payloads},
    ledger::LedgerReply,
    ledger_settings::LedgerSettings,
    speed::{PollingWriter, Responder},
    steady::{Offset, SteadyClock},
    token::Key,
    writing::{Cure, Writing},
};

/// The maximum number of submissions in one group.
const GROUP: usize = 1_024;

/// How often a parked claim checks for work items that other processes have queued.
const LOOK: Duration = Duration::from_millis(50);

/// Boxed, because a job is large and is moved several times.
type Jobs = Vec<Box<Job>>;

/// A write that is not part of a group. It replies to its caller, and reports a failure of the disk.
pub(super) type Aside = Box<dyn FnOnce(Result<&Connection, Error>) -> Option<(String, Cure)> + Send>;

pub(super) enum Message {
    Job(Box<Job>),
    Aside(Aside),
    /// The clock jumped: the new offset must be stored for processes that open the file later.
    Jumped,
    Close(oneshot::Sender<()>),
}

/// The writer's inbox, clock and shared state, without its tables.
pub(super) struct Desk {
    pub key: Key,
    pub clock: Arc<SteadyClock>,
    pub inbox: Receiver<Message>,
    pub queued: Arc<AtomicUsize>,
    pub counters: Arc<Counters>,
    pub ledger_settings: Arc<LedgerSettings>,
    pub writing: Arc<Writing>,
    pub file: LedgerFile,
    pub checkpoints: Checkpoints,
    pub responder: Responder,
}

impl Drop for Desk {
    /// Runs before the inbox is dropped: a caller that finds it closed must find the reason.
    fn drop(&mut self) {
        if thread::panicking() {
            self.writing.stop("the writer panicked; the log says where", Cure::Restart);
        }
    }
}

impl Desk {
    /// The error for callers while writing has stopped.
    fn refusal(&self) -> Error {
        Error::Stopped(self.writing.stopped().map_or_else(String::new, |stop| stop.why))
    }
}

/// Tells the caller of `close` that the writer has ended. None: the store was dropped.
type Closing = Option<oneshot::Sender<()>>;

/// Why writing on a connection ended.
enum End {
    Closing(Closing),
    /// The last write may not be on the disk.
    Stopped,
}

struct Writer<'w> {
    tables: Tables<'w>,
    desk: &'w mut Desk,
    parked: Jobs,
    looked: Instant,
    look: bool,
    /// The stored offset of the clock.
    offset: Offset,
    polling: PollingWriter,
    /// A write failed: this connection is not written to any more.
    stopped: bool,
}

/// The writer's thread. It ends when the store is closed or dropped.
pub(super) fn run(mut conn: Connection, mut desk: Desk) {
    let closing = loop {
        match write(&conn, &mut desk) {
            End::Closing(closing) => break closing,
            End::Stopped => {}
        }
        drop(conn);
        conn = match reopen(&mut desk) {
            Ok(conn) => conn,
            Err(closing) => break closing,
        };
    };
    if let Some(closing) = closing {
        let _gone = closing.send(());
    }
}

/// Writes until the store is closed or a write fails.
fn write(conn: &Connection, desk: &mut Desk) -> End {
    let tables = match Tables::new(conn, desk.key.clone(), desk.ledger_settings.clone()) {
        Ok(tables) => tables,
        Err(fault) => {
            let cure = fault.cure().unwrap_or(Cure::Reopening);
            desk.writing.stop(fault.into_error().to_string(), cure);
            return End::Stopped;
        }
    };
    let (parked, looked) = (Vec::new(), Instant::now());
    // An offset that cannot be read is stored again.
    let offset = time::stored(conn).map_or_else(|_| Offset::default(), |stored| stored.offset);
    let (look, polling, stopped) = (false, PollingWriter::default(), false);
    let mut writer = Writer { tables, desk, parked, looked, look, offset, polling, stopped };
    let end = writer.serve();
    if matches!(end, End::Stopped) {
        return end;
    }
    writer.finish();
    // After a failed write the file stays as it is: the next open recovers it.
    let stopped = writer.stopped;
    if !stopped {
        writer.keep_offset();
    }
    // Before the reply, because the caller may move the file at once.
    writer.desk.checkpoints.stop();
    if !stopped && let Err(error) = close(conn) {
        tracing::warn!(%error, "the last checkpoint failed; the next open repeats it");
    }
    end
}

/// A clean close: afterwards the file alone is the whole ledger.
fn close(conn: &Connection) -> rusqlite::Result<()> {
    loss::unmark(conn)?;
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    if loss::leave_to_others(conn)? {
        return Ok(());
    }
    settings::keep_log(conn, false)
}

/// Reopens the file, until that succeeds: only then is everything in it known to be on the disk. Requests are refused
/// meanwhile. After a failed write the file stays as it is: this open, or the next, recovers it.
fn reopen(desk: &mut Desk) -> Result<Connection, Closing> {
    loop {
        let again = desk.writing.again();
        if again <= StdInstant::now() {
            match desk.file.open() {
                Ok(conn) => {
                    desk.writing.reopened();
                    return Ok(conn);
                }
                Err((why, cure)) => desk.writing.stop(why, cure),
            }
            continue;
        }
        match desk.inbox.recv_timeout(again.saturating_duration_since(StdInstant::now())) {
            Ok(Message::Job(job)) => {
                desk.queued.fetch_sub(1, Ordering::Relaxed);
                job.answer(Err(desk.refusal()));
            }
            Ok(Message::Aside(write)) => _ = write(Err(desk.refusal())),
            Ok(Message::Jumped) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Message::Close(closing)) => {
                desk.checkpoints.stop();
                return Err(Some(closing));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(None),
        }
    }
}

impl Writer<'_> {
    fn serve(&mut self) -> End {
        let mut busy = false;
        while !self.stopped {
            let mut jobs = Vec::new();
            let mut next = match self.wait(busy) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return End::Closing(None),
            };
            let mut closing = None;
            while let Some(message) = next {
                match message {
                    Message::Job(job) => jobs.push(job),
                    Message::Aside(write) => self.aside(write),
                    Message::Jumped => self.keep_offset(),
                    Message::Close(closed) => {
                        closing = Some(closed);
                        break;
                    }
                }
                if jobs.len() >= GROUP || self.stopped {
                    break;
                }
                next = self.desk.inbox.try_recv().ok();
            }
            self.desk.queued.fetch_sub(jobs.len(), Ordering::Relaxed);
            busy = !jobs.is_empty();
            self.take(jobs);
            if closing.is_some() {
                return End::Closing(closing);
            }
        }
        End::Stopped
    }

    /// Waits for a message, but with parked claims only until one of them needs attention.
    fn wait(&mut self, busy: bool) -> Result<Option<Message>, RecvTimeoutError> {
        if busy && let Some(message) = self.polling.receive(&self.desk.inbox) {
            return Ok(Some(message));
        }
        if self.parked.is_empty() {
            return self.desk.inbox.recv().map(Some).map_err(|_| RecvTimeoutError::Disconnected);
        }
        let deadlines = self.parked.iter().filter_map(|job| job.park_until);
        let until = deadlines.chain([self.looked + LOOK]).min().unwrap_or(self.looked);
        self.desk.inbox.recv_timeout(until.saturating_duration_since(Instant::now())).map(Some)
    }

    fn take(&mut self, jobs: Jobs) {
        self.expire();
        if self.stopped {
            return refuse(jobs.into_iter().chain(self.parked.drain(..)), &self.desk.refusal());
        }
        let (claims, submits): (Jobs, Jobs) = jobs.into_iter().partition(|job| job.claim_filter().is_some());
        self.look_around();
        if submits.is_empty() && claims.is_empty() && !self.look {
            return;
        }
        self.group(submits, claims);
    }

    /// Drops parked claims whose callers have left, and replies to those whose time is over.
    fn expire(&mut self) {
        if self.parked.is_empty() {
            return;
        }
        let now = Instant::now();
        for job in std::mem::take(&mut self.parked) {
            if job.abandoned() {
                continue;
            }
            if job.park_until.is_none_or(|until| until <= now) {
                let reply = Reply::Claimed(Vec::new());
                job.answer(Ok(LedgerReply { reply, payloads: Payloads::new() }));
            } else {
                self.parked.push(job);
            }
        }
    }

    /// Checks whether another process has committed since the last check.
    fn look_around(&mut self) {
        if self.parked.is_empty() {
            return;
        }
        let now = Instant::now();
        if now < self.looked + LOOK {
            return;
        }
        self.looked = now;
        match self.tables.version() {
            Ok(version) => self.look |= version != self.tables.seen && !self.parked.is_empty(),
            Err(fault) => {
                let error = fault.into_error();
                tracing::warn!(%error, "cannot see what other processes did");
            }
        }
    }

    fn group(&mut self, submits: Jobs, claims: Jobs) {
        self.keep_offset();
        if self.stopped {
            return refuse(submits.into_iter().chain(claims), &self.desk.refusal());
        }
        let group = Group { submits: &submits, parked: &self.parked, claims: &claims, look: self.look };
        let began = Instant::now();
        match group.run(&mut self.tables, &*self.desk.clock) {
            Ok(answers) => {
                self.desk.counters.committed(submits.len() + claims.len(), began.elapsed());
                self.desk.writing.committed();
                self.look = false;
                self.answer(answers, submits, claims);
            }
            Err(Failure::Before(Fault::Data(error))) => {
                let alone = submits.len() + claims.len() == 1 && self.parked.is_empty();
                match (alone, submits.into_iter().chain(claims)) {
                    (true, jobs) => refuse(jobs, &error),
                    (false, jobs) => self.one_by_one(jobs),
                }
            }
            Err(Failure::Before(Fault::Busy(error))) => refuse(submits.into_iter().chain(claims), &error),
            Err(Failure::Before(Fault::Full(why))) => {
                self.stop(why.clone(), Cure::Space);
                refuse(submits.into_iter().chain(claims), &Error::Stopped(why));
            }
            Err(Failure::Before(Fault::Broken(why))) => {
                self.stop(why.clone(), Cure::Reopening);
                refuse(submits.into_iter().chain(claims), &Error::Stopped(why));
            }
            Err(Failure::AtCommit(fault)) => {
                let cure = fault.cure();
                let why = match fault {
                    Fault::Full(why) | Fault::Broken(why) => why,
                    Fault::Data(error) | Fault::Busy(error) => error.to_string(),
                };
                if let Some(cure) = cure {
                    self.stop(why.clone(), cure);
                }
                refuse(submits.into_iter().chain(claims), &Error::OutcomeUnknown(why));
            }
        }
    }

    /// One job of the group cannot be stored: each is tried alone, so that only that one fails. Parked claims are not
    /// served meanwhile; afterwards they are treated as jobs.
    fn one_by_one(&mut self, jobs: impl Iterator<Item = Box<Job>>) {
        let parked = std::mem::take(&mut self.parked);
        let mut still = Vec::new();
        self.look = false;
        for job in jobs.chain(parked) {
            let (submits, claims) =
                if job.claim_filter().is_some() { (Vec::new(), vec![job]) } else { (vec![job], Vec::new()) };
            if self.stopped {
                refuse(submits.into_iter().chain(claims), &self.desk.refusal());
                continue;
            }
            self.group(submits, claims);
            still.append(&mut self.parked);
        }
        self.parked = still;
    }

    fn answer(&mut self, answers: Committed, submits: Jobs, claims: Jobs) {
        self.desk.checkpoints.committed(submits.len() + claims.len());
        let mut told: Vec<(Box<Job>, JobResult)> = submits.into_iter().zip(answers.submitted).collect();
        if answers.parked.iter().any(Option::is_some) {
            for (job, answer) in std::mem::take(&mut self.parked).into_iter().zip(answers.parked) {
                match answer {
                    Some(answer) => told.push((job, answer)),
                    None => self.parked.push(job),
                }
            }
        }
        for (job, claimed) in claims.into_iter().zip(answers.claims) {
            match claimed {
                Claimed::Nothing(_) if job.park_until.is_some() => self.parked.push(job),
                Claimed::Nothing(answer) | Claimed::JobResult(answer) => told.push((job, answer)),
            }
        }
        self.desk.responder.reply(told, answers.spent);
    }

    /// Stops writing until the file has been reopened.
    fn stop(&mut self, why: String, cure: Cure) {
        self.stopped = true;
        refuse(self.parked.drain(..), &Error::Stopped(why.clone()));
        self.desk.writing.stop(why, cure);
    }

    fn aside(&mut self, write: Aside) {
        let conn = if self.stopped { Err(self.desk.refusal()) } else { Ok(self.tables.conn) };
        if let Some((why, cure)) = write(conn) {
            self.stop(why, cure);
        }
    }

    /// Stores the clock's offset if it has changed.
    fn keep_offset(&mut self) {
        match time::keep(self.tables.conn, &self.desk.clock, self.offset).map_err(Fault::from) {
            Ok(offset) => self.offset = offset,
            Err(fault) => {
                tracing::warn!(?fault, "the offset of the clock could not be stored; trying again");
                if let Some(cure) = fault.cure() {
                    self.stop(fault.into_error().to_string(), cure);
                }
            }
        }
    }

    /// The store is closing: later jobs are refused, and waiting claims get nothing.
    fn finish(&mut self) {
        for job in self.parked.drain(..) {
            let reply = Reply::Claimed(Vec::new());
            job.answer(Ok(LedgerReply { reply, payloads: Payloads::new() }));
        }
        while let Ok(message) = self.desk.inbox.try_recv() {
            if let Message::Job(job) = message {
                job.answer(Err(closed()));
            }
        }
    }
}

fn refuse(jobs: impl Iterator<Item = Box<Job>>, error: &Error) {
    jobs.for_each(|job| job.answer(Err(error.clone())));
}

pub(super) fn closed() -> Error {
    Error::Unavailable("this ledger was closed".into())
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::mpsc::channel};

    use serde_json::json;
    use tenure_core::{Action, Actor, Submission, action::Tenants, model::Disposition, policy::Settings};

    use super::*;
    use crate::{NewWork, SystemClock, sqlite::migrate, sqlite::settings};

    type Receiving = oneshot::Receiver<Result<LedgerReply, Error>>;

    fn ingest(number: usize) -> (Message, Receiving) {
        let input = json!("x".repeat(2_000));
        let new = NewWork::new("manual", &number.to_string(), "job", Disposition::Rerunnable, input);
        let action = Action::Ingest(Box::new(new.settle(&Settings::default()).unwrap()));
        let submission = Submission::new(Actor::machine("test"), Tenants::All, action, [0; 16]);
        let (reply, answer) = oneshot::channel();
        (Message::Job(Box::new(Job::new(submission, None, reply))), answer)
    }

    fn new_file(path: &Path) -> Connection {
        let mut conn = settings::writer(path, false).unwrap();
        migrate::run(&mut conn, migrate::MIGRATIONS, 0).unwrap();
        conn
    }

    /// A writer's state with these messages, and no later ones.
    fn desk(path: &Path, messages: Vec<Message>) -> Desk {
        let (inbox, received) = channel();
        let queued = Arc::new(AtomicUsize::new(messages.len()));
        messages.into_iter().for_each(|message| inbox.send(message).unwrap());
        let (closed, _) = oneshot::channel();
        inbox.send(Message::Close(closed)).unwrap();
        Desk {
            key: Key::new([0; 32]),
            ledger_settings: Arc::default(),
            clock: Arc::new(SteadyClock::of(None)),
            inbox: received,
            queued,
            counters: Arc::default(),
            writing: Arc::default(),
            file: LedgerFile::of(path, false, Arc::new(SystemClock)),
            checkpoints: Checkpoints::start(path, Arc::new(SystemClock)).unwrap(),
            responder: Responder::start().unwrap(),
        }
    }

    #[test]
    fn what_was_written_is_at_hand_for_what_comes_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let conn = new_file(&path);
        let (Message::Job(job), _answer) = ingest(1) else { panic!() };
        let mut tables = Tables::new(&conn, Key::new([0; 32]), Arc::default()).unwrap();
        let group = Group { submits: &[job], parked: &[], claims: &[], look: false };
        let Ok(committed) = group.run(&mut tables, &SystemClock) else { panic!() };
        let Reply::Ingested { work, .. } = &committed.submitted[0].as_ref().unwrap().reply else { panic!() };
        let (_, remembered) = tables.works.take(work.id).unwrap();
        assert_eq!(*remembered.work, **work);
    }

    #[test]
    fn a_full_disk_stops_all_writing_until_the_file_was_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let conn = new_file(&path);
        let pages: i64 = conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        conn.pragma_update(None, "max_page_count", pages + 20).unwrap();

        let (messages, answers): (Vec<_>, Vec<_>) = (0..200).map(ingest).unzip();
        let desk = desk(&path, messages);
        let writing = desk.writing.clone();
        run(conn, desk);
        assert_eq!(writing.stopped().unwrap().cure, Cure::Space);
        let stored = |conn: &Connection| -> i64 {
            conn.query_row("SELECT count(*) FROM work", [], |row| row.get(0)).unwrap()
        };
        assert_eq!(
            stored(&Connection::open(&path).unwrap()),
            0,
            "the group did not fit, so none of it stands"
        );
        for answer in answers {
            let error = answer.blocking_recv().unwrap().unwrap_err();
            assert!(matches!(error, Error::Stopped(_)), "{error}");
        }
    }

    /// A different file or WAL in its place does not contain the acknowledged commits.
    #[test]
    fn a_file_that_was_replaced_is_not_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        drop(new_file(&path));
        let file = LedgerFile::of(&path, false, Arc::new(SystemClock));
        file.open().unwrap();
        std::fs::rename(&path, folder.path().join("moved.db")).unwrap();
        let missing = file.open().map(drop).unwrap_err();
        assert!(missing.0.contains("another file") && missing.1 == Cure::Restart, "{missing:?}");
        assert!(!path.exists(), "and none is made");
    }
}
