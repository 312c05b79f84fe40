//! The ledger as a Rust program uses it: open it, get a [`Caller`], submit, read.

mod caller;
mod commands;
mod credentials;
mod due;
mod health;
mod intake;
mod new;
mod quota;
mod reads;
mod retention;
mod schedules;
mod schema;
mod scoped;
mod workers;

use std::{
    future::Future,
    path::Path,
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
    speed::AwakeCallers,
    store::Store,
    sweeper::Sweeper,
    token,
};

pub use caller::{Caller, Resolved, Waiting};
pub use commands::{DispatchRef, Reserved, Sending};
pub use due::{Due, DueCursor, DuePage};
pub use health::Health;
pub use new::{NewWait, NewWork, new_worker};
pub use workers::{WorkerView, Workers};

/// KiB of the payloads of replies that are in memory at once, and of one tenant; and how long a call waits to load its own.
const LOADS_KIB: usize = 32 * 1024;
const LOADS_OF_A_TENANT_KIB: usize = LOADS_KIB / 2;
const LOADED_WITHIN: Duration = Duration::from_secs(5);

/// No claim stays parked for longer.
const PARK_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Submissions that are queued at once, and those of one tenant: enough for large groups.
const WRITES: usize = 2_048;
const WRITES_OF_A_TENANT: usize = 256;

/// How to open a ledger.
#[derive(Clone)]
pub struct Options {
    /// Sources and their default policies.
    pub settings: Settings,
    /// None: the process's clock on SQLite, the server's on PostgreSQL.
    pub clock: Option<Arc<dyn Clock>>,
    /// Concurrent writers on PostgreSQL, besides the one for claims; two to four unless told otherwise, as
    /// there are cores. SQLite has one writer.
    pub lanes: usize,
    /// Whether to start a sweeper and a scheduler.
    pub sweep: bool,
    /// How long PostgreSQL may take to answer before its connection is given up and callers are told. The server
    /// itself ends a statement sooner: only one that no longer answers at all takes so long.
    pub answer_within: Duration,
    /// Opens databases whose settings would let a commit be lost. For throw-away data only.
    pub allow_weak_settings: bool,
    /// Opens an SQLite ledger whose write-ahead log is missing or damaged, with what is left of it.
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

/// A reply, with the payloads that it refers to.
#[derive(Clone, Debug)]
pub struct LedgerReply {
    pub reply: Reply,
    pub(crate) payloads: Payloads,
}

impl LedgerReply {
    /// The payload of an event that the reply refers to.
    pub fn payload(&self, work: WorkId, seq: u64) -> Option<&Payload> {
        self.payloads.get(&(work, seq))
    }
}

/// What a holder shows with every write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRef {
    pub work: WorkId,
    pub fence: u64,
    pub token: String,
}

impl LeaseRef {
    /// The lease whose token this is. Whether it is genuine is checked where it is used.
    pub fn of_token(token: String, fence: u64) -> Result<Self, Refusal> {
        let work = token::work_of(&token).ok_or_else(|| {
            Refusal::new(Code::LeaseLost, "This is not the token of a lease. Send what the claim gave you.")
        })?;
        Ok(Self { work, fence, token })
    }
}

/// A lease with all that its holder needs to go on.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub lease: LeaseRef,
    pub work: Work,
    /// None only after an erasure.
    pub input: Option<Payload>,
    pub expires_at: Millis,
    /// Renew at least so often.
    pub renew_every: Duration,
    /// Checkpoints, with the results of the completed ones.
    pub steps: Vec<(Step, Option<Payload>)>,
    /// Waits that have ended, with their answers.
    pub answers: Vec<(Wait, Option<Payload>)>,
}

#[derive(Clone, Debug)]
pub struct Ingested {
    pub work: Work,
    /// False where the same work was already there.
    pub created: bool,
    pub lease: Option<Claimed>,
    /// For externally owned work: what its owner completes it with. Shown here only.
    pub completion_token: Option<String>,
}

/// An open ledger. Cheap to clone; the last clone to go leaves what is queued to be finished.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

/// A ledger that does not keep it open.
pub(crate) struct WeakLedger(Weak<Inner>);

impl WeakLedger {
    pub fn upgrade(&self) -> Option<Ledger> {
        self.0.upgrade().map(Ledger)
    }
}

struct Inner {
    store: Arc<dyn Store>,
    settings: RwLock<Arc<Settings>>,
    closed: watch::Sender<bool>,
    /// Where a commit takes no longer than to fall asleep and be woken.
    callers: Option<AwakeCallers>,
    rooms: Arc<quota::QuotaUsage>,
    /// What callers that are bound to tenants have queued. The writer takes it in the order in which it came: who queues
    /// much would be first for long.
    writes: Arc<Fair>,
    /// When the sweeper last finished a look, or was started.
    swept: Mutex<Option<Instant>>,
    /// The bytes that callers load to complete their replies.
    loads: Arc<Fair>,
}

impl Ledger {
    /// A ledger that is gone with the process: for tests of what embeds one.
    pub async fn open_memory(options: Options) -> Result<Self, Error> {
        let store = memory::open(&options)?;
        Self::start(store, options, None).await
    }

    /// Opens or creates a ledger in an SQLite file. Several processes may share it.
    #[cfg(feature = "sqlite")]
    pub async fn open_sqlite(path: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let wanted = options.clone();
        let store = tokio::task::spawn_blocking(move || crate::sqlite::open(&path, &wanted))
            .await
            .map_err(|e| Error::Unavailable(format!("opening was interrupted: {e}")))??;
        Self::start(store, options, Some(AwakeCallers::default())).await
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
        callers: Option<AwakeCallers>,
    ) -> Result<Self, Error> {
        let (closed, _) = watch::channel(false);
        let swept = Mutex::new(options.sweep.then(Instant::now));
        let settings = RwLock::new(Arc::new(options.settings));
        let (rooms, writes) = (Arc::default(), Fair::new(WRITES, WRITES_OF_A_TENANT));
        let loads = Fair::new(LOADS_KIB, LOADS_OF_A_TENANT_KIB);
        let ledger = Self(Arc::new(Inner { store, settings, closed, callers, rooms, writes, swept, loads }));
        ledger.look_at_intake().await?;
        if options.sweep {
            let clock = options.clock.unwrap_or_else(|| Arc::new(SystemClock));
            tokio::spawn(Sweeper::new(clock).run(WeakLedger(Arc::downgrade(&ledger.0))));
            tokio::spawn(Scheduler.run(WeakLedger(Arc::downgrade(&ledger.0))));
            tokio::spawn(IntakeWorker.run(WeakLedger(Arc::downgrade(&ledger.0))));
        }
        Ok(ledger)
    }

    /// Everything that `actor` does, in every tenant.
    pub fn caller(&self, actor: Actor) -> Caller {
        Caller::new(self.clone(), actor, Tenants::All)
    }

    /// Submits an action as it is. [`Caller`] has a method for each.
    pub async fn submit(&self, submission: Submission) -> Result<LedgerReply, Error> {
        let turn = match &submission.tenants {
            Tenants::All => None,
            bound => Some(self.0.writes.turn(fair::key_of(bound)).await),
        };
        self.begin(submission, turn).await?.await
    }

    /// Takes room for what a submission adds, and queues it; the future that is returned ends when its group has committed.
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

    /// `wait`: how long a claim by filter that finds nothing stays parked.
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
            let unknown = || Err(Error::OutcomeUnknown("the ledger stopped before it answered".to_owned()));
            let outcome = answer.unwrap_or_else(unknown)?;
            match missing(&outcome) {
                keys if keys.is_empty() => Ok(outcome),
                // Apart: the future of every other call stays small.
                keys => Box::pin(ledger.completed(outcome, keys)).await,
            }
        }
    }

    /// A reply with the payloads that the store left to its caller. Their bytes are bounded by tenant and in all, and count
    /// until the answer of the call has left.
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
            let what = "the call was made, and too many large answers of this tenant are on their way";
            Error::OutcomeUnknown(what.to_owned())
        })?;
        let loaded = self.store().payloads(&keys).await.map_err(|error| {
            Error::OutcomeUnknown(format!("the call was made, and its payloads could not be read: {error}"))
        })?;
        turn.shrink(kib(loaded.values().map(|payload| payload.text().len()).sum()));
        fair::keep(turn);
        outcome.payloads.extend(loaded);
        Ok(outcome)
    }

    /// Why a submission does not reach the store. A store that is closing may drop what it did not take; here it
    /// is certain that nothing was written.
    fn turned_away(&self, submission: &Submission) -> Option<Error> {
        if *self.0.closed.borrow() {
            return Some(Error::Unavailable("the ledger is closed".to_owned()));
        }
        submission.check().err().map(Error::from)
    }

    /// Checks a holder's token. The action carries the outcome.
    pub fn holder(&self, lease: &LeaseRef) -> Holder {
        let expected = self.0.store.key().lease(lease.work, lease.fence);
        Holder { work: lease.work, fence: lease.fence, genuine: token::same(&expected, &lease.token) }
    }

    /// The token that answers a wait; for whoever opened it.
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

    /// Other sources and default policies, for works that come from now on.
    pub fn set_settings(&self, settings: Settings) {
        *self.0.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// For a task that waits without keeping the ledger open.
    pub(crate) fn shared_store(&self) -> Arc<dyn Store> {
        self.0.store.clone()
    }

    /// A grant as its holder gets it: with the token, and the payloads that it may see.
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

    /// What this process has done with the ledger since it opened it.
    pub fn stats(&self) -> CounterSnapshot {
        let store = self.store();
        store.counters().stats(store.queued(), store.clock())
    }

    /// The sweeper has finished a look.
    pub(crate) fn swept(&self) {
        *self.0.swept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn swept_ago(&self) -> Option<Duration> {
        self.0.swept.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed())
    }

    /// Ends when the ledger is closed or gone.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let mut closed = self.0.closed.subscribe();
        async move {
            // An error means that the ledger is gone, which is as good as closed.
            let _ = closed.wait_for(|closed| *closed).await;
        }
    }

    /// Finishes what is queued, answers parked claims, stops the sweeper and the scheduler. Later submissions are refused.
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

/// Randomness of a submission.
pub(crate) fn seed() -> Result<[u8; 16], Error> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).map_err(|e| Error::Unavailable(format!("no randomness: {e}")))?;
    Ok(seed)
}
