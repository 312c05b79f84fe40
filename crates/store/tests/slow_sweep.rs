//! A sweep that takes longer than a lease: it keeps observing meanwhile.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::SeqCst},
};

use tenure_core::{
    Actor, Millis, State,
    action::Claimant,
    model::{Disposition, Worker},
    policy::LeaseTimings,
};
use tenure_store::{Clock, Ledger, ManualClock, NewWork, Options, Sweeper, WorkFilter};

/// The sweeper's clock. Once the store is slow, time passes at each reading: with each page.
struct Slow {
    clock: Arc<ManualClock>,
    step: AtomicI64,
}

impl Clock for Slow {
    fn wall(&self) -> Millis {
        self.clock.wall()
    }

    fn monotonic(&self) -> Millis {
        let now = self.clock.monotonic();
        self.clock.advance(self.step.load(SeqCst));
        now
    }
}

async fn goes_on_watching(clock: Arc<ManualClock>, ledger: Ledger) {
    const WORKS: usize = 2_000;
    let slow = Arc::new(Slow { clock: clock.clone(), step: AtomicI64::new(0) });
    let mut sweeper = Sweeper::new(slow.clone());
    let caller = ledger.caller(Actor::machine("m"));
    let mut given = tokio::task::JoinSet::new();
    for n in 0..WORKS {
        let id = n.to_string();
        let mut new = NewWork::new("manual", &id, "k", Disposition::Rerunnable, serde_json::json!({}));
        new.policy.lease = Some(LeaseTimings { ttl_ms: 6_000, renew_ms: 2_000, grace_ms: 500 });
        let worker = Worker { id: "w".into(), incarnation: "1".into(), liveness: Default::default() };
        new.claim = Some(Claimant { worker, request_id: id, defer_start: false });
        let caller = caller.clone();
        given.spawn(async move { caller.ingest(new).await.map(drop) });
    }
    while let Some(one) = given.join_next().await {
        one.unwrap().unwrap();
    }
    for _ in 0..7 {
        sweeper.run_once(&ledger).await.unwrap();
        clock.advance(1_000);
    }
    // From now on a page takes a second and a half, and all of them a whole lease.
    slow.step.store(1_500, SeqCst);
    let began = clock.monotonic();
    let sweep = sweeper.run_once(&ledger).await.unwrap();
    assert!(clock.monotonic() - began > 6_000, "it was not slow");
    assert_eq!((sweep.not_yet, sweep.acted), (0, WORKS));
    let running = WorkFilter { states: vec![State::Running], ..WorkFilter::default() };
    assert!(ledger.list(&running, None, 1).await.unwrap().is_empty());

    // The next pass continues from there.
    slow.step.store(0, SeqCst);
    let worker = Worker { id: "v".into(), incarnation: "1".into(), liveness: Default::default() };
    let claimant = Claimant { worker, request_id: "again".into(), defer_start: false };
    let filter = tenure_core::action::ClaimFilter { max: 1, ..Default::default() };
    caller.claim(claimant, filter, None).await.unwrap();
    for _ in 0..8 {
        clock.advance(1_000);
        assert_eq!(sweeper.run_once(&ledger).await.unwrap().not_yet, 0, "it was watched all the time");
    }
    assert!(ledger.list(&running, None, 1).await.unwrap().is_empty());
}

fn given() -> (Arc<ManualClock>, Options) {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    (clock.clone(), Options { clock: Some(clock), sweep: false, ..Options::default() })
}

mod a_long_sweep_does_not_interrupt_its_own_watch {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn memory() {
        let (clock, options) = given();
        goes_on_watching(clock, Ledger::open_memory(options).await.unwrap()).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sqlite() {
        let (clock, options) = given();
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open_sqlite(folder.path().join("ledger.db"), options).await.unwrap();
        goes_on_watching(clock, ledger).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn postgres() {
        let (clock, options) = given();
        let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await;
        let ledger = Ledger::open_postgres(&made.unwrap(), options).await.unwrap();
        goes_on_watching(clock, ledger).await;
    }
}
