//! The ledger for Rust programs: open it, get a [`Caller`], submit and read.

mod caller;
mod commands;
mod credentials;
mod due;
mod erase;
mod forecast;
mod health;
mod idle;
mod intake;
mod new;
mod past;
mod quota;
mod reads;
mod recovery;
mod retention;
mod schedules;
mod schema;
mod scoped;
mod stuck;
mod workers;

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError, RwLock, Weak},
    time::Duration,
};

use tenure_core::{
    Action, Actor, Code, Grant, Millis, Payload, Refusal, Reply, Step, Submission, Wait, WaitId, Work,
    WorkId,
    action::{Holder, Tenants, TokenCheck},
    limits,
    policy::Settings,
};
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use crate::{
    Clock, Error, SystemClock,
    counters::CounterSnapshot,
    fair::{self, Fair, Turn},
    intake_worker::IntakeWorker,
    job::{Job, Payloads, left, weight},
    memory,
    scheduler::Scheduler,
    speed::PollingCallers,
    store::Store,
    sweeper::Sweeper,
    token,
};

pub use caller::{Caller, Resolved, Waiting};
pub use commands::{DispatchRef, Reserved, Sending};
pub use due::{Due, DueCursor, DuePage};
pub use erase::Erased;
pub use forecast::AtRisk;
pub use health::Health;
pub use idle::IdleClaim;
pub use new::{NewWait, NewWork, new_worker};
pub use past::{PastPage, PastWork};
pub use recovery::{
    AppliedPlan, ApplyPlan, PLAN_MAX, PlanFilter, PlanOverride, PlannedRecovery, RecoveryPlan, RowOutcome,
};
pub use stuck::StuckReport;
pub use workers::{WorkerView, Workers};

/// The limits on payloads of replies in memory, in KiB, in total and for one tenant; and how long a call
/// waits to load its payloads.
const LOADS_KIB: usize = 32 * 1024;
const LOADS_OF_A_TENANT_KIB: usize = LOADS_KIB / 2;
const LOADED_WITHIN: Duration = Duration::from_secs(5);

/// The longest time of a long-polling claim.
const PARK_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The limits on queued submissions, in total and of one tenant: enough for large groups.
const WRITES: usize = 2_048;
const WRITES_OF_A_TENANT: usize = 256;

/// How to open a ledger.
#[derive(Clone)]
pub struct Options {
    /// Sources and their defaults.
    pub settings: Settings,
    /// None: the process's clock on SQLite, the server's clock on PostgreSQL.
    pub clock: Option<Arc<dyn Clock>>,
    /// Concurrent writers on PostgreSQL, not counting the one for claims; by default two to four, depending
    /// on the number of cores. SQLite has one writer.
    pub lanes: usize,
    /// Whether to start a sweeper and a scheduler.
    pub sweep: bool,
    /// How long PostgreSQL may take to respond before the connection is closed and callers get an error. The
    /// server itself ends a slow statement earlier: only a server that does not respond at all takes this
    /// long.
    pub answer_within: Duration,
    /// Opens databases with settings under which a commit can be lost. Only for disposable data.
    pub allow_weak_settings: bool,
    /// Opens an SQLite ledger whose write-ahead log is missing or damaged, with the commits that are left.
    pub accept_loss: bool,
}

impl Default for Options {
    fn default() -> Self {
        // While one lane waits for its commit, another decides.
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        Self {
            settings: Settings::default(),
            clock: None,
            lanes: cores.clamp(2, 4),
            sweep: true,
            answer_within: Duration::from_secs(30),
            allow_weak_settings: false,
            accept_loss: false,
        }
    }
}

/// A reply with the payloads that it refers to.
#[derive(Clone, Debug)]
pub struct LedgerReply {
    /// What the core replied.
    pub reply: Reply,
    pub(crate) payloads: Payloads,
}

impl LedgerReply {
    /// The payload of an event that the reply refers to.
    pub fn payload(&self, work: WorkId, seq: u64) -> Option<&Payload> {
        self.payloads.get(&(work, seq))
    }
}

/// Identifies a holder in each of its writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRef {
    /// The work item.
    pub work: WorkId,
    /// The fence of the lease.
    pub fence: u64,
    /// The lease token.
    pub token: String,
}

impl LeaseRef {
    /// The lease of this lease token. The token is authenticated later, when it is used.
    pub fn of_token(token: String, fence: u64) -> Result<Self, Refusal> {
        let work = token::work_of(&token).ok_or_else(|| {
            Refusal::new(
                Code::LeaseLost,
                "This is not a lease token. Send the token that the claim returned.",
            )
        })?;
        Ok(Self { work, fence, token })
    }
}

/// A lease with everything that its holder needs to continue.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// What the holder shows with each call.
    pub lease: LeaseRef,
    /// The work item as it was claimed.
    pub work: Work,
    /// None only after an erasure.
    pub input: Option<Payload>,
    /// When the lease expires unless it is renewed.
    pub expires_at: Millis,
    /// The longest time between two renewals.
    pub renew_every: Duration,
    /// Checkpoints, with the results of the completed ones.
    pub steps: Vec<(Step, Option<Payload>)>,
    /// Ended waits, with their answers.
    pub answers: Vec<(Wait, Option<Payload>)>,
}

/// The work item that an ingest recorded or found.
#[derive(Clone, Debug)]
pub struct Ingested {
    /// The work item.
    pub work: Work,
    /// False if the same work item existed already.
    pub created: bool,
    /// Its lease, if the ingest claimed it.
    pub lease: Option<Claimed>,
    /// The completion token of an externally owned work item. Returned here only.
    pub completion_token: Option<String>,
}

/// An open ledger. Cheap to clone; after the last clone is dropped, queued submissions are still completed.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

/// A reference that does not keep the ledger open.
pub(crate) struct WeakLedger(Weak<Inner>);

impl WeakLedger {
    /// The ledger, unless it was closed.
    pub fn upgrade(&self) -> Option<Ledger> {
        self.0.upgrade().map(Ledger)
    }
}

struct Inner {
    store: Arc<dyn Store>,
    settings: RwLock<Arc<Settings>>,
    closed: watch::Sender<bool>,
    /// Present if a commit is no slower than a thread's wake-up.
    callers: Option<PollingCallers>,
    rooms: Arc<quota::QuotaUsage>,
    /// The queue of callers that are bound to tenants. The writer takes submissions in order of arrival, so
    /// that without it a tenant with many submissions would go first for a long time.
    writes: Arc<Fair>,
    /// When the sweeper last finished a pass, or was started.
    swept: Mutex<Option<Instant>>,
    /// Since when this process's sweeper watches leases. None: it has no sweeper. `Millis::MAX`: it is about to begin.
    watched_since: Mutex<Option<Millis>>,
    /// Bounds the bytes that callers load to complete their replies.
    loads: Arc<Fair>,
    idle: idle::IdleWorkers,
}

impl Ledger {
    /// A ledger in memory, which ends with the process: for tests of programs that embed a ledger.
    pub async fn open_memory(options: Options) -> Result<Self, Error> {
        let store = memory::open(&options)?;
        Self::start(store, options, None).await
    }

    /// Opens or creates a ledger in an SQLite file. Several processes may share it.
    #[cfg(feature = "sqlite")]
    pub async fn open_sqlite(path: impl AsRef<std::path::Path>, options: Options) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let wanted = options.clone();
        let store = tokio::task::spawn_blocking(move || crate::sqlite::open(&path, &wanted))
            .await
            .map_err(|e| Error::Unavailable(format!("opening the ledger was interrupted: {e}")))??;
        Self::start(store, options, Some(PollingCallers::default())).await
    }

    /// Opens or creates a ledger in a PostgreSQL database. Any number of processes may share it.
    #[cfg(feature = "postgres")]
    pub async fn open_postgres(url: &str, options: Options) -> Result<Self, Error> {
        let store = crate::postgres::open(url, &options).await?;
        Self::start(store, options, None).await
    }

    async fn start(
        store: Arc<dyn Store>,
        options: Options,
        callers: Option<PollingCallers>,
    ) -> Result<Self, Error> {
        let (closed, _) = watch::channel(false);
        let swept = Mutex::new(options.sweep.then(Instant::now));
        let watched_since = Mutex::new(options.sweep.then_some(Millis::MAX));
        let settings = RwLock::new(Arc::new(options.settings));
        let (rooms, writes) = (Arc::default(), Fair::new(WRITES, WRITES_OF_A_TENANT));
        let loads = Fair::new(LOADS_KIB, LOADS_OF_A_TENANT_KIB);
        let idle = idle::IdleWorkers::default();
        let inner =
            Inner { store, settings, closed, callers, rooms, writes, swept, watched_since, loads, idle };
        let ledger = Self(Arc::new(inner));
        ledger.look_at_intake().await?;
        if options.sweep {
            let clock = options.clock.unwrap_or_else(|| Arc::new(SystemClock));
            tokio::spawn(Sweeper::new(clock).run(WeakLedger(Arc::downgrade(&ledger.0))));
            tokio::spawn(Scheduler.run(WeakLedger(Arc::downgrade(&ledger.0))));
            tokio::spawn(IntakeWorker.run(WeakLedger(Arc::downgrade(&ledger.0))));
        }
        Ok(ledger)
    }

    /// A caller for this actor, in every tenant.
    pub fn caller(&self, actor: Actor) -> Caller {
        Caller::new(self.clone(), actor, Tenants::All)
    }

    /// Submits an action as it is. [`Caller`] has a method for each action.
    pub async fn submit(&self, submission: Submission) -> Result<LedgerReply, Error> {
        let turn = match &submission.tenants {
            Tenants::All => None,
            bound => Some(self.0.writes.turn(fair::key_of(bound)).await),
        };
        self.begin(submission, turn).await?.await
    }

    /// Reserves quota for the submission and queues it; the returned future ends when its group has
    /// committed.
    pub(crate) async fn begin(
        &self,
        mut submission: Submission,
        turn: Option<Turn>,
    ) -> Result<impl Future<Output = Result<LedgerReply, Error>> + use<>, Error> {
        let place = match submission.tenants {
            Tenants::All => None,
            Tenants::Only(_) => Box::pin(self.room(&mut submission)).await?,
        };
        let dry_run = submission.dry_run;
        let answer = self.queue(submission, None, turn);
        Ok(async move {
            let outcome = answer.await;
            if let Some(place) = place {
                place.settle(&outcome, dry_run);
            }
            outcome
        })
    }

    /// Queues an action; the future ends when its group has committed.
    pub(crate) fn send(
        &self,
        actor: Actor,
        tenants: Tenants,
        action: Action,
    ) -> Result<impl Future<Output = Result<LedgerReply, Error>> + use<>, Error> {
        Ok(self.queue(Submission::new(actor, tenants, action, seed()?), None, None))
    }

    /// `wait`: the duration of the long poll of a claim by filter that finds nothing.
    pub(crate) fn queue(
        &self,
        submission: Submission,
        wait: Option<Duration>,
        turn: Option<Turn>,
    ) -> impl Future<Output = Result<LedgerReply, Error>> + use<> {
        let (reply, answer) = oneshot::channel();
        let park_until = wait.map(|wait| Instant::now() + wait.min(PARK_MAX));
        let mut job = Job::new(submission, park_until, reply);
        job.turn = turn;
        match self.turned_away(&job.submission) {
            Some(error) => job.answer(Err(error)),
            None => self.0.store.send(job),
        }
        let ledger = self.clone();
        async move {
            let answer = match (ledger.0.callers.clone(), park_until) {
                (Some(callers), None) => callers.receive(answer).await,
                (None, _) | (_, Some(_)) => answer.await.ok(),
            };
            let unknown = || Err(Error::OutcomeUnknown("the ledger stopped before it replied".to_owned()));
            let outcome = answer.unwrap_or_else(unknown)?;
            match missing(&outcome) {
                keys if keys.is_empty() => Ok(outcome),
                // Boxed, so that the future of every other call stays small.
                keys => Box::pin(ledger.completed(outcome, keys)).await,
            }
        }
    }

    /// Adds the payloads that the store leaves for the caller to load. Their bytes are limited per tenant and
    /// in total, and count until the response of the call is sent.
    async fn completed(
        &self,
        mut outcome: LedgerReply,
        keys: Vec<(WorkId, u64)>,
    ) -> Result<LedgerReply, Error> {
        let kib = |bytes: usize| bytes.div_ceil(1024);
        let most = match weight(&outcome.reply) {
            0 => keys.len() * limits::PAYLOAD_BYTES,
            bytes => bytes,
        };
        let tenant = fair::beneficiary().unwrap_or_default();
        let turn = tokio::time::timeout(LOADED_WITHIN, self.0.loads.turn_of(tenant, kib(most))).await;
        let mut turn = turn.map_err(|_| {
            let what = "the call was executed, but this tenant has too many large responses in progress";
            Error::OutcomeUnknown(what.to_owned())
        })?;
        let loaded = self.store().payloads(&keys).await.map_err(|error| {
            Error::OutcomeUnknown(format!(
                "the call was executed, but its payloads could not be read: {error}"
            ))
        })?;
        turn.shrink(kib(loaded.values().map(|payload| payload.text().len()).sum()));
        fair::keep(turn);
        outcome.payloads.extend(loaded);
        Ok(outcome)
    }

    /// Why a submission is not passed to the store. A closing store may drop what it did not take; here it is
    /// certain that nothing was written.
    fn turned_away(&self, submission: &Submission) -> Option<Error> {
        if *self.0.closed.borrow() {
            return Some(Error::Unavailable("the ledger is closed".to_owned()));
        }
        submission.check().err().map(Error::from)
    }

    /// Checks a lease token. The result is part of the action.
    pub fn holder(&self, lease: &LeaseRef) -> Holder {
        let expected = self.0.store.key().lease(lease.work, lease.fence);
        Holder { work: lease.work, fence: lease.fence, genuine: token::same(&expected, &lease.token) }
    }

    /// The wait token of a wait, for the caller that opened it.
    pub fn wait_token(&self, wait: WaitId) -> String {
        self.0.store.key().wait(wait)
    }

    pub(crate) fn check_wait(&self, wait: WaitId, token: Option<&str>) -> TokenCheck {
        match token {
            None => TokenCheck::Absent,
            Some(token) if token::same(&self.wait_token(wait), token) => TokenCheck::Genuine,
            Some(_) => TokenCheck::Wrong,
        }
    }

    pub(crate) fn completes(&self, work: WorkId, token: &str) -> bool {
        token::same(&self.0.store.key().complete(work), token)
    }

    pub(crate) fn completion_token(&self, work: WorkId) -> String {
        self.0.store.key().complete(work)
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.0.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the sources and their defaults for future work items.
    pub fn set_settings(&self, settings: Settings) {
        *self.0.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// The claims that wait for work in this process.
    pub(crate) fn idle(&self) -> &idle::IdleWorkers {
        &self.0.idle
    }

    /// How many workers wait for each kind in this process; those that claim any kind count under None.
    pub fn idle_by_kind(&self) -> std::collections::BTreeMap<Option<String>, u64> {
        self.0.idle.by_kind()
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// For a task that waits without keeping the ledger open.
    pub(crate) fn shared_store(&self) -> Arc<dyn Store> {
        self.0.store.clone()
    }

    /// A grant for its holder: with the lease token, and the payloads that it may see.
    pub(crate) fn claimed(&self, grant: Grant, payloads: &mut Payloads) -> Claimed {
        let work = grant.work;
        let fence = work.fence;
        let lease = LeaseRef { work: work.id, fence, token: self.0.store.key().lease(work.id, fence) };
        let result = |payloads: &Payloads, key: Option<(WorkId, u64)>| payloads.get(&key?).cloned();
        Claimed {
            lease,
            input: payloads.remove(&(work.id, 1)),
            expires_at: work.lease.as_ref().map_or(0, |lease| lease.expires_at),
            renew_every: Duration::from_millis(work.spec.policy.lease.renew_ms),
            steps: grant
                .steps
                .into_iter()
                .map(|step| {
                    let value = result(payloads, step.result);
                    (step, value)
                })
                .collect(),
            answers: grant
                .answers
                .into_iter()
                .map(|wait| {
                    let value = result(payloads, wait.answer_seq.map(|seq| (wait.work, seq)));
                    (wait, value)
                })
                .collect(),
            work,
        }
    }

    /// The counters of this process since it opened the ledger.
    pub fn stats(&self) -> CounterSnapshot {
        let store = self.store();
        store.counters().stats(store.queued(), store.clock())
    }

    /// Records that the sweeper has finished a pass.
    pub(crate) fn swept(&self) {
        *self.0.swept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Records since when the sweeper watches leases.
    pub(crate) fn watches(&self, since: Millis) {
        *self.0.watched_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(since);
    }

    fn watched_since(&self, now: Millis) -> Option<Millis> {
        self.0.watched_since.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.min(now))
    }

    fn swept_ago(&self) -> Option<Duration> {
        self.0.swept.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed())
    }

    /// Ends when the ledger is closed or dropped.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let mut closed = self.0.closed.subscribe();
        async move {
            // An error means that the ledger was dropped, which counts as closed.
            let _ = closed.wait_for(|closed| *closed).await;
        }
    }

    /// Completes the queue, answers long-polling claims, stops the sweeper and the scheduler. Refuses later
    /// submissions.
    pub async fn close(&self) -> Result<(), Error> {
        self.0.closed.send_replace(true);
        self.0.store.close().await
    }
}

/// The payloads that a reply lacks.
fn missing(outcome: &LedgerReply) -> Vec<(WorkId, u64)> {
    let mut keys = left(&outcome.reply);
    keys.retain(|key| !outcome.payloads.contains_key(key));
    keys
}

/// The random seed of a submission.
pub(crate) fn seed() -> Result<[u8; 16], Error> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).map_err(|e| Error::Unavailable(format!("no randomness: {e}")))?;
    Ok(seed)
}
