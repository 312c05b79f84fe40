//! A group in which one submission cannot be stored: it fails alone.
#![cfg(feature = "sqlite")]

use rusqlite::Connection;
use serde_json::json;
use tenure_store::{
    Error, Ledger, NewWork, Options,
    core::{
        Actor,
        action::{ClaimFilter, Claimant},
        liveness::Liveness,
        model::{Disposition, Worker},
    },
};

const POISON: &str = "CREATE TRIGGER poison BEFORE INSERT ON event WHEN NEW.actor_id = 'poison' \
     BEGIN SELECT raise(ROLLBACK, 'poison'); END";

fn new(id: usize) -> NewWork {
    NewWork::new("manual", &format!("work-{id}"), "job", Disposition::Rerunnable, json!(id))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_stored_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let ledger = Ledger::open_sqlite(&file, Options { sweep: false, ..Options::default() }).await.unwrap();
    let other = Connection::open(&file).unwrap();
    other.execute_batch(POISON).unwrap();

    // While another connection holds the lock everything queues up, and then goes as one group.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|id| {
            let actor = if id % 25 == 7 { "poison" } else { "gateway" };
            let caller = ledger.caller(Actor::machine(actor));
            tokio::spawn(async move { (id, caller.ingest(new(id)).await) })
        })
        .collect();
    let worker =
        Worker { id: "w".to_owned(), incarnation: "first".to_owned(), liveness: Liveness::default() };
    let claimant = Claimant { worker, request_id: "all".to_owned(), defer_start: false };
    let filter = ClaimFilter { max: 1_000, ..ClaimFilter::default() };
    let claimer = ledger.caller(Actor::worker("w"));
    other.execute_batch("COMMIT").unwrap();

    for task in tasks {
        let (id, answer) = task.await.unwrap();
        match answer {
            Ok(ingested) => assert!(ingested.created && id % 25 != 7, "{id}"),
            Err(Error::Corrupt(why)) => assert!(id % 25 == 7 && why.contains("poison"), "{id}: {why}"),
            Err(other) => panic!("{id}: {other}"),
        }
    }
    assert_eq!(claimer.claim(claimant, filter, None).await.unwrap().len(), 48);
    other.execute_batch("DROP TRIGGER poison").unwrap();
    let report = ledger.verify().await.unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert_eq!((report.works, report.events), (48, 96));
    ledger.close().await.unwrap();
}
