//! The ledger in PostgreSQL: any number of lanes and processes over one database.
//!
//! Owns connections, transactions and SQL. It contains no rules: the core says what is claimable, due or legal.

mod around;
mod backup;
#[doc(hidden)]
pub mod bench_support;
mod budget;
mod cache;
mod check;
mod claim;
mod command;
mod connect;
mod connection;
mod credential;
mod diagnosis;
mod event;
mod fault;
mod gauges;
mod group;
mod intake;
mod intake_table;
mod lane;
mod load;
mod migrate;
mod queue;
mod read;
mod retention;
mod row;
mod save;
mod schedule;
mod seats;
mod selection;
mod server;
mod session;
mod stuck;
mod table;
mod time;
mod tls;
mod unlogged;
mod unreadable;
mod wait;
mod wake;
mod work;

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::FutureExt;
use tenure_core::{Millis, WorkId};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};

use self::{
    cache::Recent,
    connect::Connector,
    load::Mark,
    queue::{Parked, Queue},
    read::Reader,
    seats::Seats,
    selection::Selections,
    server::Fences,
    time::Time,
    unreadable::Unreadable,
};
use crate::{
    Error, Options,
    batch::Batch,
    counters::Counters,
    damaged::DamagedSet,
    job::Job,
    ledger_settings::LedgerSettings,
    store::{Store, StoreFuture},
    token::Key,
    writing::{Cure, Stop, Writing},
};

/// The state that lanes share.
struct Shared {
    key: Key,
    connector: Arc<Connector>,
    time: Time,
    writes: Queue,
    claims: Queue,
    parked: Parked,
    /// Set when parked claims should search again.
    nudged: AtomicBool,
    /// Notified when other processes should get a hint.
    announced: Notify,
    /// Notified when other programs may have committed rows of the intake table.
    intake: Notify,
    recent: Recent,
    counters: Counters,
    ledger_settings: LedgerSettings,
    damaged: DamagedSet,
    in_hand: Selections,
    unreadable: Unreadable,
    fences: Fences,
    writing: Writing,
    closed: watch::Sender<bool>,
}

impl Shared {
    /// Reports a queued work item that cannot be read. Claims skip it for a while.
    fn pass_over(&self, work: WorkId, error: &Error) {
        self.unreadable.put(work, error);
        self.damaged.add(work.to_string(), error, self.time.last());
    }

    /// Reports the queue as damaged if a part of it cannot be read.
    fn cannot_select(&self, error: &Error) {
        self.unreadable.put_queue();
        self.damaged.add(unreadable::QUEUE.to_owned(), error, self.time.last());
    }

    /// Caches the work items that a group wrote.
    fn committed(&self, batch: Batch, mark: Mark) {
        self.fences.saw(mark.now, batch.writes.begun.iter().map(|attempt| attempt.fence));
        // A transaction that wrote nothing does not have to be durable.
        if !batch.writes.events.is_empty() {
            self.connector.servers().committed(mark.by.server, mark.by.xid.whole(mark.txn));
        }
        self.recent.keep(batch, mark.by);
    }

    /// Makes the parked claims search again.
    fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        self.claims.nudge();
    }

    fn take_nudge(&self) -> bool {
        self.nudged.swap(false, Ordering::AcqRel)
    }

    /// There is more to claim than before, here and for other processes.
    fn ready_grew(&self) {
        self.nudge();
        self.announced.notify_one();
    }

    fn close(&self) {
        self.writes.close();
        self.claims.close();
        let _nobody = self.closed.send_replace(true);
    }
}

struct Postgres {
    shared: Arc<Shared>,
    /// One reader for single records, one for lists and the feed.
    points: Reader,
    lists: Reader,
    /// A reader for credentials, so that authentication does not wait for other reads.
    credentials: Reader,
    /// A reader for gauges, whose queries aggregate over everything that is open.
    gauges: Reader,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Opens the ledger and brings its schema up to date.
pub(crate) async fn open(url: &str, options: &Options) -> Result<Arc<dyn Store>, Error> {
    let connector = Arc::new(Connector::new(url, options)?);
    let mut session = connector.session().await?;
    let key = migrate::migrate(&mut session.client).await?;
    drop(session);
    let shared = Arc::new(Shared {
        key,
        connector,
        time: Time::new(options.clock.clone()),
        writes: Queue::default(),
        claims: Queue::default(),
        parked: Parked::default(),
        nudged: AtomicBool::new(false),
        announced: Notify::new(),
        intake: Notify::new(),
        recent: Recent::default(),
        counters: Counters::default(),
        ledger_settings: LedgerSettings::default(),
        damaged: DamagedSet::default(),
        in_hand: Selections::default(),
        unreadable: Unreadable::default(),
        fences: Fences::default(),
        writing: Writing::default(),
        closed: watch::Sender::new(false),
    });
    let mut tasks: Vec<JoinHandle<()>> =
        (0..options.lanes.max(1)).map(|_| tokio::spawn(guarded(shared.clone(), lane::run))).collect();
    for _ in 0..claim::LANES {
        tasks.push(tokio::spawn(guarded(shared.clone(), claim::run)));
    }
    tasks.push(tokio::spawn(guarded(shared.clone(), wake::run)));
    let seats = Seats::new(shared.connector.clone());
    Ok(Arc::new(Postgres {
        points: Reader::new(shared.clone(), seats.clone()),
        lists: Reader::new(shared.clone(), seats.clone()),
        credentials: Reader::new(shared.clone(), seats.clone()),
        gauges: Reader::new(shared.clone(), seats),
        shared,
        tasks: Mutex::new(tasks),
    }))
}

/// Runs one of the store's tasks. After a panic writing stops, and no caller is left waiting: the task restarts and
/// finds that writing has stopped.
async fn guarded<F: Future<Output = ()>>(shared: Arc<Shared>, run: impl Fn(Arc<Shared>) -> F) {
    while AssertUnwindSafe(run(shared.clone())).catch_unwind().await.is_err() {
        shared.writing.stop("a task of the ledger panicked; the log says where", Cure::Restart);
        shared.nudge();
    }
}

impl Drop for Postgres {
    /// Lanes finish the queue and end.
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Store for Postgres {
    fn key(&self) -> &Key {
        &self.shared.key
    }

    fn damaged(&self) -> &DamagedSet {
        &self.shared.damaged
    }

    fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    fn stopped(&self) -> Option<Stop> {
        self.shared.writing.stopped()
    }

    fn clock(&self) -> (u64, Millis) {
        self.shared.time.told()
    }

    fn queued(&self) -> usize {
        self.shared.writes.len() + self.shared.claims.len()
    }

    fn send(&self, job: Job) {
        if let Some(stop) = self.shared.writing.stopped() {
            return job.answer(Err(Error::Stopped(stop.why)));
        }
        if job.claim_filter().is_some() {
            self.shared.claims.push(job);
        } else {
            self.shared.writes.push(job);
        }
    }

    fn now(&self) -> StoreFuture<'_, Millis> {
        Box::pin(self.points.now(&self.shared.time))
    }

    fn ledger_settings(&self) -> &LedgerSettings {
        &self.shared.ledger_settings
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.shared.close();
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(async move {
            for task in tasks {
                task.await.map_err(|e| Error::Unavailable(format!("a lane ended badly: {e}")))?;
            }
            Ok(())
        })
    }
}
