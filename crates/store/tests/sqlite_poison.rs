//! Invariant 11 over a file in which one row was damaged: sweep, claims and verify go on around it.
#![cfg(feature = "sqlite")]

use std::sync::Arc;

use serde_json::json;
use tenure_store::{
    Ledger, ManualClock, NewSchedule, NewWork, Options, Scheduler, Sweeper,
    core::{
        Actor, State, WorkId,
        action::{ClaimFilter, Claimant},
        model::{Disposition, Worker},
        policy::{PolicyOverrides, Timeouts},
        schedule::{Overlap, Plan, Template, Timing},
    },
};

async fn ingest(ledger: &Ledger, id: &str) -> WorkId {
    let timeouts = Some(Timeouts { start_ms: Some(1_000), ..Timeouts::default() });
    let policy = PolicyOverrides { timeouts, ..PolicyOverrides::default() };
    let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(id));
    ledger.caller(Actor::machine("test")).ingest(NewWork { policy, ..new }).await.unwrap().work.id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_row_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
    let ledger = Ledger::open_sqlite(&file, options).await.unwrap();
    let before = ingest(&ledger, "before").await;
    let damaged = ingest(&ledger, "damaged").await;
    let after = ingest(&ledger, "after").await;
    let changed = rusqlite::Connection::open(&file)
        .unwrap()
        .execute("UPDATE work SET body = '{' WHERE source_id = 'damaged'", [])
        .unwrap();
    assert_eq!(changed, 1);
    assert!(ledger.work(damaged).await.is_err(), "it cannot be read");

    let worker = Claimant::new(Worker::new("w", "w-1"), "all");
    let filter = ClaimFilter { max: 3, ..ClaimFilter::default() };
    let claimed = ledger.caller(Actor::worker("w")).claim(worker, filter, None).await.unwrap();
    assert_eq!(claimed.iter().map(|one| one.work.id).collect::<Vec<_>>(), [before, after]);
    for one in claimed {
        ledger.caller(Actor::worker("w")).release(&one.lease, None).await.unwrap();
    }
    let (before, after) = (ingest(&ledger, "one more").await, ingest(&ledger, "another").await);

    let mut sweeper = Sweeper::new(clock.clone());
    clock.advance(2_000);
    let sweep = sweeper.run_once(&ledger).await.expect("the sweep goes on");
    assert_eq!((sweep.acted, sweep.failed), (2, 1));
    for id in [before, after] {
        assert_eq!(ledger.work(id).await.unwrap().state, State::TimedOut);
    }
    let report = ledger.verify().await.expect("verify goes on as well");
    assert_eq!(report.works, 5);
    assert_eq!(report.faults.iter().filter_map(|fault| fault.work).collect::<Vec<_>>(), [damaged]);

    let again = sweeper.run_once(&ledger).await.unwrap();
    assert_eq!((again.ticked, again.failed), (0, 0), "it is passed over for a while");
    ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_schedule_or_run_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
    let ledger = Ledger::open_sqlite(&file, options).await.unwrap();
    for name in ["unreadable", "its work is", "well"] {
        let template = Template {
            kind: "job".to_owned(),
            disposition: Disposition::Rerunnable,
            input: json!(name),
            priority: 3,
            session: None,
            correlation_id: None,
            workflow: None,
            policy: PolicyOverrides::default(),
        };
        let plan = Plan { timing: Timing::EveryMs(1_000), template, overlap: Overlap::Skip, catch_up_ms: 0 };
        let new = NewSchedule { tenant: "default".to_owned(), name: name.to_owned(), plan, paused: None };
        ledger.caller(Actor::person("ada")).set_schedule(new, "a test").await.unwrap();
    }
    clock.advance(1_000);
    assert_eq!(Scheduler.run_once(&ledger).await.unwrap().fired, 3);
    let well = ledger.caller(Actor::person("ada")).schedule("default", "well").await.unwrap();
    ledger.caller(Actor::person("ada")).cancel(well.last_work().unwrap(), "over", None).await.unwrap();
    let conn = rusqlite::Connection::open(&file).unwrap();
    conn.execute("UPDATE schedule SET body = '{' WHERE name = 'unreadable'", []).unwrap();
    conn.execute("UPDATE work SET body = '{' WHERE source_id = 'its work is'", []).unwrap();
    clock.advance(1_000);
    let fired = Scheduler.run_once(&ledger).await.expect("the look goes on");
    assert_eq!((fired.fired, fired.skipped), (1, 1), "what cannot be read counts as open");
}
