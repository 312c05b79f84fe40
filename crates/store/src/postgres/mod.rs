//! The ledger in PostgreSQL: any number of lanes and processes over one database.
//!
//! Owns connections, transactions and SQL. It knows no rules: what is claimable, due or legal the core says.

#[doc(hidden)]
pub mod bench_support;
mod cache;
mod check;
mod claim;
mod fault;
mod group;
mod lane;
mod load;
mod migrate;
mod queue;
mod read;
mod row;
mod save;
mod session;
mod wake;

use std::{
    collections::{BTreeMap, HashSet},
    str::FromStr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tenure_core::{Attempt, Millis, State, Step, Wait, Work, WorkId, action::Tenants};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};
use tokio_postgres::{Client, Config};

use self::{
    cache::Recent,
    fault::describe,
    queue::{Parked, Queue},
    read::Reader,
    session::Session,
};
use crate::{
    Clock, Error, Options, Position, StoredEvent, WaitFilter, WorkFilter,
    job::{Job, Payloads},
    store::{Answer, Store},
    token::Key,
};

/// The oldest server that is tried in the tests' own features: `pg_current_xact_id` came with it.
const OLDEST: i32 = 130_000;

/// What the lanes share.
struct Shared {
    config: Config,
    allow_weak: bool,
    clock: Option<Arc<dyn Clock>>,
    writes: Queue,
    claims: Queue,
    parked: Parked,
    /// Set when parked claims should look again.
    nudged: AtomicBool,
    /// To be told to the other processes.
    announced: Notify,
    recent: Recent,
    lanes: Mutex<HashSet<i64>>,
    stopped: OnceLock<String>,
    closed: watch::Sender<bool>,
}

impl Shared {
    fn stopped(&self) -> Option<String> {
        self.stopped.get().cloned()
    }

    /// A write failed below us: nothing more is written until the ledger is opened again.
    fn stop(&self, text: &str) {
        tracing::error!(text, "writing has stopped");
        let _first_wins = self.stopped.set(text.to_owned());
    }

    fn knows_lane(&self, id: i64) -> bool {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    fn learn_lanes(&self, ids: &[i64]) {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
    }

    /// Lets the parked claims look again.
    fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        self.claims.nudge();
    }

    fn take_nudge(&self) -> bool {
        self.nudged.swap(false, Ordering::AcqRel)
    }

    /// There is more to claim than before: here, and for the others.
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
    key: Key,
    /// One for single records, one for lists and the feed.
    points: Reader,
    lists: Reader,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Opens the ledger, bringing its schema up to date.
pub(crate) async fn open(url: &str, options: &Options) -> Result<Arc<dyn Store>, Error> {
    let mut config = Config::from_str(url)
        .map_err(|e| Error::Unusable(format!("the URL cannot be read: {}", describe(&e))))?;
    if config.get_application_name().is_none() {
        config.application_name("tenure");
    }
    let mut session = Session::connect(&config).await?;
    check_settings(&session.client, options.allow_weak_settings).await?;
    let key = migrate::migrate(&mut session.client).await?;
    drop(session);
    let shared = Arc::new(Shared {
        config: config.clone(),
        allow_weak: options.allow_weak_settings,
        clock: options.clock.clone(),
        writes: Queue::default(),
        claims: Queue::default(),
        parked: Parked::default(),
        nudged: AtomicBool::new(false),
        announced: Notify::new(),
        recent: Recent::default(),
        lanes: Mutex::default(),
        stopped: OnceLock::new(),
        closed: watch::Sender::new(false),
    });
    let mut tasks: Vec<JoinHandle<()>> =
        (0..options.lanes.max(1)).map(|_| tokio::spawn(lane::run(shared.clone()))).collect();
    tasks.push(tokio::spawn(claim::run(shared.clone())));
    tasks.push(tokio::spawn(wake::run(shared.clone())));
    Ok(Arc::new(Postgres {
        shared,
        key,
        points: Reader::new(config.clone()),
        lists: Reader::new(config),
        tasks: Mutex::new(tasks),
    }))
}

/// A lane's connection: durable, and in the current epoch. Whichever server answers now is checked.
async fn open_session(config: &Config, allow_weak: bool) -> Result<Session, Error> {
    let mut session = Session::connect(config).await?;
    check_settings(&session.client, allow_weak).await?;
    session.epoch = migrate::epoch(&mut session.client).await?;
    Ok(session)
}

/// Refuses settings under which a commit that was answered could be lost.
async fn check_settings(client: &Client, allow_weak: bool) -> Result<(), Error> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int, current_setting('fsync'), \
             current_setting('full_page_writes'), current_setting('synchronous_commit')",
            &[],
        )
        .await
        .map_err(|e| Error::Unavailable(describe(&e)))?;
    let (version, fsync, pages, commit): (i32, String, String, String) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    if version < OLDEST {
        return Err(Error::Unusable(format!("the server has version {version}; 13 or newer is needed")));
    }
    let mut weak = Vec::new();
    for (name, value) in [("fsync", &fsync), ("full_page_writes", &pages)] {
        if value != "on" {
            weak.push(format!("{name} is {value}"));
        }
    }
    if commit != "on" && commit != "remote_apply" {
        weak.push(format!("synchronous_commit is {commit}"));
    }
    if weak.is_empty() {
        return Ok(());
    }
    let weak = weak.join(", ");
    if !allow_weak {
        return Err(Error::WeakSettings(format!("{weak}. Turn it on, or allow weak settings")));
    }
    tracing::warn!(weak, "commits that were answered may be lost: for throw-away data only");
    Ok(())
}

impl Drop for Postgres {
    /// Lanes finish what is queued, and end.
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Store for Postgres {
    fn key(&self) -> &Key {
        &self.key
    }

    fn send(&self, job: Job) {
        if let Some(text) = self.shared.stopped() {
            return job.answer(Err(Error::Stopped(text)));
        }
        if job.claim_filter().is_some() {
            self.shared.claims.push(job);
        } else {
            self.shared.writes.push(job);
        }
    }

    fn now(&self) -> Answer<'_, Millis> {
        Box::pin(async {
            match &self.shared.clock {
                Some(clock) => Ok(clock.wall()),
                None => self.points.now().await,
            }
        })
    }

    fn works<'a>(&'a self, ids: &'a [WorkId]) -> Answer<'a, Vec<Work>> {
        Box::pin(self.points.works(ids))
    }

    fn ids(&self, before: Option<WorkId>, limit: usize) -> Answer<'_, Vec<WorkId>> {
        Box::pin(self.lists.ids(before, limit))
    }

    fn list<'a>(
        &'a self,
        filter: &'a WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> Answer<'a, Vec<Work>> {
        Box::pin(self.lists.list(filter, before, limit))
    }

    fn counts<'a>(&'a self, tenants: &'a Tenants) -> Answer<'a, BTreeMap<State, u64>> {
        Box::pin(self.lists.counts(tenants))
    }

    fn events(&self, work: WorkId, after: u64, limit: usize) -> Answer<'_, Vec<StoredEvent>> {
        Box::pin(self.points.events(work, after, limit))
    }

    fn feed(&self, after: Position, limit: usize) -> Answer<'_, Vec<StoredEvent>> {
        Box::pin(self.lists.feed(after, limit))
    }

    fn payloads<'a>(&'a self, keys: &'a [(WorkId, u64)]) -> Answer<'a, Payloads> {
        Box::pin(self.points.payloads(keys))
    }

    fn steps(&self, work: WorkId) -> Answer<'_, Vec<Step>> {
        Box::pin(self.points.steps(work))
    }

    fn attempts(&self, work: WorkId) -> Answer<'_, Vec<Attempt>> {
        Box::pin(self.points.attempts(work))
    }

    fn waits<'a>(&'a self, filter: &'a WaitFilter, limit: usize) -> Answer<'a, Vec<Wait>> {
        Box::pin(self.lists.waits(filter, limit))
    }

    fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> Answer<'_, Vec<(Millis, WorkId)>> {
        Box::pin(self.points.due(at, after, limit))
    }

    fn next_due(&self) -> Answer<'_, Option<Millis>> {
        Box::pin(self.points.next_due())
    }

    fn leased(&self, after: Option<WorkId>, limit: usize) -> Answer<'_, Vec<WorkId>> {
        Box::pin(self.points.leased(after, limit))
    }

    fn forget_kept(&self, at: Millis) -> Answer<'_, u64> {
        Box::pin(self.points.forget_kept(at))
    }

    fn self_check(&self) -> Answer<'_, Vec<String>> {
        Box::pin(self.lists.self_check())
    }

    fn close(&self) -> Answer<'_, ()> {
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
