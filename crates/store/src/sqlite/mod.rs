//! A ledger in one SQLite file. One thread writes, in groups; reads have their own connections and never wait for it.
//! Several processes may share the file.

mod backup;
#[doc(hidden)]
pub mod bench_support;
mod budget;
mod check;
mod checkpoint;
mod claim;
mod command;
mod copied;
mod credential;
mod diagnosis;
mod event;
mod fault;
mod file;
mod gauges;
mod group;
mod intake;
mod intake_table;
mod load;
mod log;
mod loss;
mod migrate;
#[cfg(test)]
mod plan;
mod read;
mod readers;
mod retention;
mod row;
mod save;
mod schedule;
mod session;
mod settings;
mod snapshot;
mod stuck;
mod table;
mod tables;
mod time;
mod unlogged;
mod wait;
mod wal;
mod work;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    thread,
};

use rusqlite::Connection;
use tenure_core::Millis;
use tokio::sync::oneshot;

use crate::{
    CheckpointFailure, Clock, Error, Options,
    counters::Counters,
    damaged::DamagedSet,
    job::Job,
    ledger_settings::LedgerSettings,
    speed::Responder,
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
use row::Read;
use writer::{Desk, Message};

/// The maximum number of queued jobs. More would mean a fault, which callers should learn of.
const QUEUE: usize = 1_000_000;

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
    /// The number of clock jumps.
    jumps: AtomicU64,
    backup: snapshot::Current,
}

/// Opens the ledger in a file, which is created if it does not exist.
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
    /// Runs a read on a reader thread.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Reader) -> Read<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(self.readers.read(read))
    }

    /// Has the writer execute a write between two groups.
    fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Connection) -> Read<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        let (reply, answer) = oneshot::channel();
        let aside = move |conn: Result<&Connection, Error>| {
            let written = conn.map(write);
            let (told, stops) = match written {
                // The commit may have been in progress.
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

    /// Why the writer has ended.
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
            // A writer that has ended stored its offset already.
            let _gone = self.inbox.send(Message::Jumped);
        }
        Box::pin(async move { Ok(now) })
    }

    fn ledger_settings(&self) -> &LedgerSettings {
        &self.ledger_settings
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Message::Close(reply));
        Box::pin(async move {
            // A writer that has ended has finished its queue.
            if sent.is_ok() {
                let _finished = answer.await;
            }
            Ok(())
        })
    }
}
