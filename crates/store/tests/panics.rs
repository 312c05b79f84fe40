//! A panic inside the store: every caller gets a reply, nothing more is written, and the ledger reports it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tenure_store::{
    Clock, Error, Ledger, NewWork, Options, SystemClock,
    core::{
        Actor, Millis,
        action::{ClaimFilter, Claimant},
        model::{Disposition, Worker},
    },
};

/// Stands for any bug in a store's own task: it panics where the store reads the time.
#[derive(Default)]
struct Bomb {
    clock: SystemClock,
    armed: AtomicBool,
}

impl Clock for Bomb {
    fn wall(&self) -> Millis {
        assert!(!self.armed.swap(false, Ordering::SeqCst), "as planned");
        self.clock.wall()
    }

    fn monotonic(&self) -> Millis {
        self.clock.monotonic()
    }
}

fn new(id: &str) -> NewWork {
    NewWork::new("manual", id, "job", Disposition::Rerunnable, serde_json::json!(1))
}

/// A panic while a work item is recorded, with a long-polling claim beside it.
async fn nobody_is_left_waiting(bomb: Arc<Bomb>, ledger: Ledger) {
    let caller = ledger.caller(Actor::machine("m"));
    caller.ingest(new("before")).await.unwrap();
    assert_eq!(ledger.health().await.fault(), None);
    let parked = {
        let caller = caller.clone();
        let nothing = ClaimFilter { kinds: vec!["nobody".to_owned()], max: 1, ..ClaimFilter::default() };
        let claimant = Claimant::new(Worker::new("w", "1"), "r");
        tokio::spawn(async move { caller.claim(claimant, nothing, Some(Duration::from_secs(600))).await })
    };
    caller.ingest(new("beside")).await.unwrap();

    bomb.armed.store(true, Ordering::SeqCst);
    let hit = caller.ingest(new("hit")).await;
    assert!(matches!(hit, Err(Error::OutcomeUnknown(_))), "{hit:?}");
    let after = async {
        loop {
            match caller.ingest(new("after")).await {
                Err(Error::Stopped(why)) => return why,
                // Taken before the panic was noticed, by another lane even.
                Err(Error::OutcomeUnknown(_)) | Ok(_) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    let why = tokio::time::timeout(Duration::from_secs(20), after).await.expect("everybody is answered");
    assert!(why.contains("panicked"), "{why}");
    let parked = tokio::time::timeout(Duration::from_secs(20), parked).await.expect("parked claims too");
    assert!(parked.unwrap().is_err());
    let fault = ledger.health().await.fault();
    assert!(fault.as_ref().is_some_and(|told| told.contains("panicked")), "{fault:?}");
    ledger.close().await.unwrap();
}

fn options(bomb: &Arc<Bomb>) -> Options {
    Options { clock: Some(bomb.clone()), sweep: false, ..Options::default() }
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let bomb = Arc::new(Bomb::default());
    let ledger = Ledger::open_sqlite(folder.path().join("ledger.db"), options(&bomb)).await.unwrap();
    nobody_is_left_waiting(bomb, ledger).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn postgres() {
    let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await;
    let bomb = Arc::new(Bomb::default());
    let ledger = Ledger::open_postgres(&made.unwrap(), options(&bomb)).await.unwrap();
    nobody_is_left_waiting(bomb, ledger).await;
}
