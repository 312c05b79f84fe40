//! A ledger with a manual clock, and the helpers that most cases need.

use std::{fmt::Debug, future::Future, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tenure_core::{
    Actor, Attempt, Code, Command, Millis, Payload, State, Step, Wait, Work, WorkId,
    action::{ClaimFilter, Claimant, CloseOut},
    model::{Disposition, Worker},
    policy::{Jitter, LeaseTimings, PolicyOverrides, RetryPolicy},
};

use crate::{
    Caller, Claimed, Clock, Error, LeaseRef, Ledger, Listed, ManualClock, NewWork, Options, Position,
    StoredEvent, Sweep, Sweeper, WaitFilter, WorkFilter,
};

/// The default tenant.
pub const TENANT: &str = "default";
/// The default ttl: short, so that a lapse takes few sweeper passes.
pub const LEASE: LeaseTimings = LeaseTimings { ttl_ms: 6_000, renew_ms: 2_000, grace_ms: 3_000 };
/// A lease that is not renewed for this long has lapsed.
pub const LAPSE_MS: Millis = 10_000;
/// The first time of the manual clock, in 2026.
pub const START: Millis = 1_790_000_000_000;
/// Nothing in a case takes longer unless the store hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A fresh ledger, its clock, and a sweeper that runs only when a case advances the time.
pub struct Bed {
    pub ledger: Ledger,
    pub clock: Arc<ManualClock>,
    sweeper: Sweeper,
    closed: bool,
}

impl Bed {
    /// Opens a fresh store and runs the sweeper once, so that it observes from the beginning.
    pub async fn open<F: Future<Output = Ledger>>(open: impl FnOnce(Options) -> F) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let options = Options { clock: Some(clock.clone()), lanes: 2, sweep: false, ..Options::default() };
        let sweeper = Sweeper::new(clock.clone());
        let mut bed = Self { ledger: open(options).await, clock, sweeper, closed: false };
        bed.sweep().await;
        bed
    }

    /// Ends a case: the ledger must be consistent.
    pub async fn verify(&self) {
        if self.closed {
            return;
        }
        let report = self.ledger.verify().await.expect("a ledger can be verified");
        assert!(report.faults.is_empty(), "verify found {:#?}", report.faults);
        let works = self.all().await;
        assert_eq!(report.works, works.len() as u64, "verify reads every work item");
        assert_eq!(report.events, works.iter().map(|work| work.seq).sum::<u64>(), "and every event");
    }

    /// Closes the ledger after a last verification.
    pub async fn close(&mut self) {
        self.verify().await;
        self.ledger.close().await.expect("a ledger can be closed");
        self.closed = true;
    }

    pub fn now(&self) -> Millis {
        self.clock.wall()
    }

    /// Advances the time in steps with sweeper passes: the sweeper judges leases only if it observes them
    /// without gaps.
    pub async fn pass(&mut self, ms: Millis) {
        let mut left = ms;
        while left > 0 {
            let step = left.min(1_000);
            self.clock.advance(step);
            self.sweep().await;
            left -= step;
        }
    }

    /// Advances the time in one step with one sweeper pass: enough for timers, not for leases.
    pub async fn skip(&mut self, ms: Millis) {
        self.clock.advance(ms);
        self.sweep().await;
    }

    pub async fn sweep(&mut self) -> Sweep {
        let sweep = self.sweeper.run_once(&self.ledger).await.expect("a sweep reaches the store");
        assert_eq!(sweep.failed, 0, "a row could not be ticked");
        sweep
    }

    /// A worker's caller.
    pub fn worker(&self, id: &str) -> Caller {
        self.ledger.caller(Actor::worker(id))
    }

    /// A person's caller.
    pub fn person(&self) -> Caller {
        self.ledger.caller(Actor::person("ada"))
    }

    /// The caller of a machine without a lease.
    pub fn machine(&self) -> Caller {
        self.ledger.caller(Actor::machine("gateway"))
    }

    pub async fn ingest(&self, new: NewWork) -> Work {
        let ingested = self.machine().ingest(new).await.expect("the work item is recorded");
        assert!(ingested.created, "the work item is new");
        ingested.work
    }

    /// Claims exactly this work item.
    pub async fn take(&self, work: WorkId, worker: &str) -> Claimed {
        let claimant = claimant(worker, &request());
        let claim = self.worker(worker).claim_ids(claimant, vec![work]).await;
        let mut claimed = claim.expect("it can be claimed");
        assert_eq!(claimed.len(), 1);
        claimed.remove(0)
    }

    /// A new work item, held by `worker`.
    pub async fn held(&self, new: NewWork, worker: &str) -> Claimed {
        let work = self.ingest(new).await;
        self.take(work.id, worker).await
    }

    /// Claims by filter, as a new request.
    pub async fn claim(&self, worker: &str, filter: ClaimFilter) -> Vec<Claimed> {
        self.worker(worker)
            .claim(claimant(worker, &request()), filter, None)
            .await
            .expect("a claim is answered")
    }

    pub async fn work(&self, id: WorkId) -> Work {
        self.ledger.work(id).await.expect("the work exists")
    }

    pub async fn state(&self, id: WorkId) -> State {
        self.work(id).await.state
    }

    pub async fn expect(&self, id: WorkId, state: State) {
        let work = self.work(id).await;
        assert_eq!(work.state, state, "{work:#?}");
    }

    /// The types of a work item's events, in order.
    pub async fn story(&self, id: WorkId) -> Vec<&'static str> {
        let known = |kind: &str| {
            tenure_core::Fact::TYPES.iter().find(|(known, _)| *known == kind).map(|(known, _)| *known)
        };
        self.events(id).await.iter().filter_map(|stored| known(stored.event.fact.kind())).collect()
    }

    pub async fn events(&self, id: WorkId) -> Vec<StoredEvent> {
        self.ledger.events(id, 0, 1_000).await.and_then(Listed::whole).expect("events can be read")
    }

    pub async fn waits(&self, work: WorkId) -> Vec<Wait> {
        let filter = WaitFilter { work: Some(work), ..WaitFilter::default() };
        self.ledger.waits(&filter, 1_000).await.and_then(Listed::whole).expect("waits can be read")
    }

    /// Every work item, newest first.
    pub async fn all(&self) -> Vec<Work> {
        let mut works: Vec<Work> = Vec::new();
        loop {
            let before = works.last().map(|work| work.id);
            let page = self.ledger.list(&WorkFilter::default(), before, 1_000).await.expect("a list");
            if page.is_empty() {
                return works;
            }
            works.extend(page);
        }
    }

    /// The whole feed from a position, once everything committed so far has settled.
    pub async fn settled(&self, after: Position, events: usize) -> Vec<StoredEvent> {
        let read = async {
            let mut feed: Vec<StoredEvent> = Vec::new();
            while feed.len() < events {
                let from = feed.last().map_or(after, |stored| stored.position);
                feed.extend(self.ledger.feed(from, 7).await.expect("a page of the feed").events);
                tokio::task::yield_now().await;
            }
            feed
        };
        tokio::time::timeout(PATIENCE, read).await.expect("the feed settles")
    }

    /// Everything that can be read about the ledger's work items.
    pub async fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for work in self.all().await {
            snapshot.events.extend(self.events(work.id).await);
            snapshot.attempts.extend(self.ledger.attempts(work.id).await.expect("attempts can be read"));
            snapshot.steps.extend(self.ledger.steps(work.id).await.expect("steps can be read"));
            snapshot.waits.extend(self.waits(work.id).await);
            snapshot.works.push(work);
        }
        snapshot
    }
}

/// Two snapshots are equal if nothing happened in between.
#[derive(Debug, Default, PartialEq)]
pub struct Snapshot {
    works: Vec<Work>,
    events: Vec<StoredEvent>,
    attempts: Vec<Attempt>,
    steps: Vec<Step>,
    waits: Vec<Wait>,
}

/// A rerunnable work item with its own identity, a short lease and exact backoff.
pub fn job(id: &str) -> NewWork {
    let retry = RetryPolicy { jitter: Jitter::None, ..RetryPolicy::default() };
    let policy = PolicyOverrides { lease: Some(LEASE), retry: Some(retry), ..PolicyOverrides::default() };
    NewWork { policy, ..NewWork::new("manual", id, "job", Disposition::Rerunnable, json!({ "ask": id })) }
}

pub fn owner_bound(id: &str) -> NewWork {
    NewWork { disposition: Disposition::OwnerBound, ..job(id) }
}

pub fn external(id: &str) -> NewWork {
    NewWork { disposition: Disposition::ExternallyOwned, ..job(id) }
}

/// A work item of a session.
pub fn said_in(session: &str, id: &str) -> NewWork {
    NewWork { session: Some(session.to_owned()), ..job(id) }
}

/// A worker's first incarnation, with a request id.
pub fn claimant(worker: &str, request: &str) -> Claimant {
    Claimant::new(Worker::new(worker, &format!("{worker}-1")), request)
}

/// A new request id.
pub fn request() -> String {
    uuid::Uuid::now_v7().to_string()
}

pub fn any(max: usize) -> ClaimFilter {
    ClaimFilter { max, ..ClaimFilter::default() }
}

pub fn payload(value: Value) -> Payload {
    Payload::new(&value).expect("a small payload")
}

pub fn success() -> CloseOut {
    CloseOut::succeeded(payload(json!("done")))
}

/// The code of a refusal; anything else fails the case.
pub fn refused<T: Debug>(result: Result<T, Error>) -> Code {
    match result.as_ref().map_err(Error::refusal) {
        Err(Some(refusal)) => {
            assert!(!refusal.detail.is_empty(), "a refusal says why");
            refusal.code
        }
        _ => panic!("a refusal was expected, not {result:?}"),
    }
}

/// Why a command was not dispatched, and the command as it is now.
pub fn not_dispatched<T: Debug>(result: Result<T, Error>) -> (Code, Command) {
    match result {
        Err(Error::NotDispatched(not)) => (not.refusal.code, not.command),
        other => panic!("a command that is not dispatched was expected, not {other:?}"),
    }
}

/// The same lease with a forged lease token.
pub fn forged(lease: &LeaseRef) -> LeaseRef {
    LeaseRef { token: "0".repeat(lease.token.len()), ..lease.clone() }
}
