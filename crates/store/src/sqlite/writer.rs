//! The one writer of this process: takes what is queued, runs it as a group, answers, keeps claims that
//! wait. Nothing is answered before its commit returned.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    thread,
    time::Duration,
};

use rusqlite::{Connection, config::DbConfig};
use tenure_core::Reply;
use tokio::{sync::oneshot, time::Instant};

use super::{
    answers::Answers,
    checkpoint::Checkpoints,
    fault::Fault,
    group::{Answer, Claimed, Committed, Failure, Group},
    tables::{Tables, Works},
};
use crate::{
    Clock, Error, awake::Awake, job::Job, job::Payloads, ledger::Outcome, stats::Counters, terms::Terms,
};

/// Submissions in one group at most.
const GROUP: usize = 1_024;

/// How often a parked claim looks for what other processes have queued.
const LOOK: Duration = Duration::from_millis(50);

/// How long the writer stays awake after a group.
const LINGER: Duration = Duration::from_micros(200);

/// Boxed: a job is large, and is handed on several times.
type Jobs = Vec<Box<Job>>;

/// A write besides the groups. It answers whoever asked, and says so if the disk failed it.
pub(super) type Aside = Box<dyn FnOnce(Result<&Connection, Error>) -> Option<String> + Send>;

pub(super) enum Message {
    Job(Box<Job>),
    Aside(Aside),
    Close(oneshot::Sender<()>),
}

/// What the writer works with besides its tables.
pub(super) struct Desk {
    pub clock: Arc<dyn Clock>,
    pub inbox: Receiver<Message>,
    pub queued: Arc<AtomicUsize>,
    pub counters: Arc<Counters>,
    pub terms: Arc<Terms>,
    pub works: Arc<Works>,
    /// Why nothing is written any more.
    pub stopped: Arc<OnceLock<String>>,
    pub checkpoints: Checkpoints,
    pub answers: Answers,
}

impl Drop for Desk {
    /// Before the inbox goes: whoever finds it gone must find out why.
    fn drop(&mut self) {
        if thread::panicking() {
            let why = "the writer panicked; the log says where";
            tracing::error!(why, "writing has stopped");
            let _first_wins = self.stopped.set(why.to_owned());
        }
    }
}

struct Writer<'c> {
    tables: Tables<'c>,
    desk: Desk,
    parked: Jobs,
    looked: Instant,
    look: bool,
    awake: Awake,
}

/// The writer's thread. It ends when the store closes or is dropped.
pub(super) fn run(conn: &Connection, desk: Desk) -> Result<(), Error> {
    let tables = Tables::new(conn, desk.terms.clone(), desk.works.clone()).map_err(Fault::into_error)?;
    let (parked, looked) = (Vec::new(), Instant::now());
    let mut writer = Writer { tables, desk, parked, looked, look: false, awake: Awake::default() };
    let closed = writer.serve();
    writer.finish();
    // Before the answer: whoever closed may move the file at once. After a failed write the file is left as
    // it is: the next open recovers it.
    if writer.desk.stopped.get().is_some() {
        if let Err(error) = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            tracing::warn!(%error, "closing may still write a checkpoint");
        }
    } else if let Err(error) = conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
        tracing::warn!(%error, "the last checkpoint failed; the next open repeats it");
    }
    if let Some(closed) = closed {
        let _gone = closed.send(());
    }
    Ok(())
}

impl Writer<'_> {
    fn serve(&mut self) -> Option<oneshot::Sender<()>> {
        let mut busy = false;
        loop {
            let mut jobs = Vec::new();
            let mut next = match self.wait(busy) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return None,
            };
            let mut closing = None;
            while let Some(message) = next {
                match message {
                    Message::Job(job) => jobs.push(job),
                    Message::Aside(write) => self.aside(write),
                    Message::Close(closed) => {
                        closing = Some(closed);
                        break;
                    }
                }
                if jobs.len() >= GROUP {
                    break;
                }
                next = self.desk.inbox.try_recv().ok();
            }
            self.desk.queued.fetch_sub(jobs.len(), Ordering::Relaxed);
            busy = !jobs.is_empty();
            self.take(jobs);
            if closing.is_some() {
                return closing;
            }
        }
    }

    /// Waits for a message; with parked claims no longer than until one of them must be seen to.
    fn wait(&mut self, busy: bool) -> Result<Option<Message>, RecvTimeoutError> {
        if busy
            && self.awake.pays()
            && let Some(message) = self.linger()
        {
            return Ok(Some(message));
        }
        if self.parked.is_empty() {
            return self.desk.inbox.recv().map(Some).map_err(|_| RecvTimeoutError::Disconnected);
        }
        let deadlines = self.parked.iter().filter_map(|job| job.park_until);
        let until = deadlines.chain([self.looked + LOOK]).min().unwrap_or(self.looked);
        self.desk.inbox.recv_timeout(until.saturating_duration_since(Instant::now())).map(Some)
    }

    /// Whoever was just answered often has more to say. For a moment the thread stays awake: to fall asleep
    /// and be woken takes longer than a small commit. Others that want the core get it, and may keep it for long.
    fn linger(&mut self) -> Option<Message> {
        let until = Instant::now() + LINGER;
        loop {
            let in_time = Instant::now() < until;
            let message = match self.desk.inbox.try_recv() {
                Err(TryRecvError::Empty) if in_time => {
                    thread::yield_now();
                    continue;
                }
                received => received.ok(),
            };
            self.awake.went(in_time && message.is_some());
            return message;
        }
    }

    fn take(&mut self, jobs: Jobs) {
        self.expire();
        if let Some(why) = self.desk.stopped.get() {
            for job in jobs.into_iter().chain(self.parked.drain(..)) {
                job.answer(Err(Error::Stopped(why.clone())));
            }
            return;
        }
        let (claims, submits): (Jobs, Jobs) = jobs.into_iter().partition(|job| job.claim_filter().is_some());
        self.look_around();
        if submits.is_empty() && claims.is_empty() && !self.look {
            return;
        }
        self.group(submits, claims);
    }

    /// Drops parked claims that nobody waits for, and answers those that have waited long enough.
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
                job.answer(Ok(Outcome { reply, payloads: Payloads::new() }));
            } else {
                self.parked.push(job);
            }
        }
    }

    /// Sees whether another process has committed since the last look.
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

    fn group(&mut self, mut submits: Jobs, claims: Jobs) {
        let mut group =
            Group { submits: &mut submits, parked: &self.parked, claims: &claims, look: self.look };
        let began = Instant::now();
        match group.run(&mut self.tables, &*self.desk.clock) {
            Ok(answers) => {
                self.desk.counters.committed(submits.len() + claims.len(), began.elapsed());
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
            Err(Failure::Before(Fault::Broken(why))) => {
                self.stop(why, submits.into_iter().chain(claims), Error::Stopped);
            }
            Err(Failure::AtCommit(Fault::Broken(why))) => {
                self.stop(why, submits.into_iter().chain(claims), Error::OutcomeUnknown);
            }
            Err(Failure::AtCommit(fault)) => {
                let error = Error::OutcomeUnknown(fault.into_error().to_string());
                refuse(submits.into_iter().chain(claims), &error);
            }
        }
    }

    /// One of them cannot be stored: each is tried alone, so that it fails alone. Parked claims are not
    /// offered anything meanwhile; afterwards they are jobs like the others.
    fn one_by_one(&mut self, jobs: impl Iterator<Item = Box<Job>>) {
        let parked = std::mem::take(&mut self.parked);
        let mut still = Vec::new();
        self.look = false;
        for job in jobs.chain(parked) {
            let (submits, claims) =
                if job.claim_filter().is_some() { (Vec::new(), vec![job]) } else { (vec![job], Vec::new()) };
            if let Some(why) = self.desk.stopped.get() {
                let error = Error::Stopped(why.clone());
                refuse(submits.into_iter().chain(claims), &error);
                continue;
            }
            self.group(submits, claims);
            still.append(&mut self.parked);
        }
        self.parked = still;
    }

    fn answer(&mut self, answers: Committed, submits: Jobs, claims: Jobs) {
        self.desk.checkpoints.committed(submits.len() + claims.len());
        let mut told: Vec<(Box<Job>, Answer)> = submits.into_iter().zip(answers.submitted).collect();
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
                Claimed::Nothing(answer) | Claimed::Answer(answer) => told.push((job, answer)),
            }
        }
        self.desk.answers.tell(told, answers.spent);
    }

    /// Nothing more is written until the ledger is opened again.
    fn stop(&mut self, why: String, jobs: impl Iterator<Item = Box<Job>>, told: impl Fn(String) -> Error) {
        tracing::error!(why, "writing has stopped");
        refuse(jobs, &told(why.clone()));
        refuse(self.parked.drain(..), &Error::Stopped(why.clone()));
        let _first_wins = self.desk.stopped.set(why);
    }

    fn aside(&mut self, write: Aside) {
        let conn = match self.desk.stopped.get() {
            Some(why) => Err(Error::Stopped(why.clone())),
            None => Ok(self.tables.conn),
        };
        if let Some(why) = write(conn) {
            self.stop(why, std::iter::empty(), Error::Stopped);
        }
    }

    /// The store is closing: what came after is refused, what waits gets nothing.
    fn finish(&mut self) {
        for job in self.parked.drain(..) {
            let reply = Reply::Claimed(Vec::new());
            job.answer(Ok(Outcome { reply, payloads: Payloads::new() }));
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

    type Answered = oneshot::Receiver<Result<Outcome, Error>>;

    fn ingest(number: usize) -> (Message, Answered) {
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

    /// A desk with these messages, and nothing after them.
    fn desk(path: &Path, messages: Vec<Message>) -> Desk {
        let (inbox, received) = channel();
        let queued = Arc::new(AtomicUsize::new(messages.len()));
        messages.into_iter().for_each(|message| inbox.send(message).unwrap());
        let (closed, _) = oneshot::channel();
        inbox.send(Message::Close(closed)).unwrap();
        Desk {
            terms: Arc::default(),
            works: Arc::default(),
            clock: Arc::new(SystemClock::default()),
            inbox: received,
            queued,
            counters: Arc::default(),
            stopped: Arc::default(),
            checkpoints: Checkpoints::start(path, Arc::new(SystemClock::default())).unwrap(),
            answers: Answers::start().unwrap(),
        }
    }

    #[test]
    fn what_was_written_is_at_hand_for_what_comes_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let conn = new_file(&path);
        let (message, answer) = ingest(1);
        let desk = desk(&path, vec![message]);
        let works = desk.works.clone();
        run(&conn, desk).unwrap();
        let Reply::Ingested { work, .. } = answer.blocking_recv().unwrap().unwrap().reply else { panic!() };
        assert_eq!(*works.guess(work.id).unwrap().work, *work);
    }

    #[test]
    fn a_full_disk_stops_all_writing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let conn = new_file(&path);
        let pages: i64 = conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        conn.pragma_update(None, "max_page_count", pages + 20).unwrap();

        let (messages, answers): (Vec<_>, Vec<_>) = (0..200).map(ingest).unzip();
        run(&conn, desk(&path, messages)).unwrap();
        let stored: i64 = conn.query_row("SELECT count(*) FROM work", [], |row| row.get(0)).unwrap();
        assert_eq!(stored, 0, "the group did not fit, so none of it stands");
        for answer in answers {
            let error = answer.blocking_recv().unwrap().unwrap_err();
            assert!(matches!(error, Error::Stopped(_)), "{error}");
        }
    }
}
