//! Invariant 11 on a database in which one row was damaged: sweep, claims and verify continue without it.
#![cfg(feature = "postgres")]

use std::sync::Arc;

use serde_json::json;
use tenure_store::{
    Ledger, ManualClock, NewWork, Options, Sweeper,
    core::{
        Actor, State, WorkId,
        action::{ClaimFilter, Claimant},
        model::{Disposition, Worker},
        policy::{PolicyOverrides, Timeouts},
    },
};
use tenure_testkit::shared;

async fn ingest(ledger: &Ledger, id: &str) -> WorkId {
    let timeouts = Some(Timeouts { start_ms: Some(1_000), ..Timeouts::default() });
    let policy = PolicyOverrides { timeouts, ..PolicyOverrides::default() };
    let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(id));
    ledger.caller(Actor::machine("test")).ingest(NewWork { policy, ..new }).await.unwrap().work.id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_row_is_in_nobodys_way() {
    let url = tokio::task::spawn_blocking(|| shared().create_database()).await.unwrap();
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let options = || Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
    let ledger = Ledger::open_postgres(&url, options()).await.unwrap();
    let bad = ingest(&ledger, "bad").await;
    let good = ingest(&ledger, "good").await;
    let late = ingest(&ledger, "late").await;
    ledger.close().await.unwrap();
    let sql = format!("UPDATE work SET body = 'not json' WHERE id = '{}'", bad.0);
    shared().psql(url.rsplit('/').next().unwrap(), &sql);

    let ledger = Ledger::open_postgres(&url, options()).await.unwrap();
    for (request, expected) in [("r1", good), ("r2", late)] {
        let claimant = Claimant::new(Worker::new("w", "w-1"), request);
        let filter = ClaimFilter { max: 1, ..ClaimFilter::default() };
        let claimed = ledger.caller(Actor::worker("w")).claim(claimant, filter, None).await.unwrap();
        assert_eq!(claimed.iter().map(|one| one.work.id).collect::<Vec<_>>(), [expected]);
    }
    let other = ingest(&ledger, "other").await;
    clock.advance(2_000);
    let sweep = Sweeper::new(clock.clone()).run_once(&ledger).await.unwrap();
    assert_eq!(sweep.failed, 1);
    assert_eq!(ledger.work(other).await.unwrap().state, State::TimedOut, "the sweep went on");
    let report = ledger.verify().await.unwrap();
    assert!(report.faults.iter().any(|fault| fault.work == Some(bad)), "{:?}", report.faults);
    ledger.close().await.unwrap();
}
