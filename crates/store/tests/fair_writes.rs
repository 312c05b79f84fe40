//! One tenant queues writes without end; another tenant's renewal does not wait for all of them.
#![cfg(feature = "sqlite")]

use rusqlite::Connection;
use serde_json::json;
use tenure_store::{
    Caller, Ledger, NewWork, Options,
    core::{Actor, action::Claimant, model::Disposition},
    new_worker,
};
use tokio::task::JoinSet;

const FLOOD: usize = 3_000;

fn job(tenant: &str, id: &str) -> NewWork {
    let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(id));
    NewWork { tenant: tenant.to_owned(), ..new }
}

fn of(ledger: &Ledger, tenant: &str) -> Caller {
    ledger.caller(Actor::worker("w")).within(vec![tenant.to_owned()])
}

#[tokio::test]
async fn a_flood_of_writes_does_not_queue_ahead_of_another_tenants_renewal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let ledger = Ledger::open_sqlite(&file, Options { sweep: false, ..Options::default() }).await.unwrap();
    let quiet = of(&ledger, "quiet");
    let claim = Claimant::new(new_worker("w"), "r");
    let held = quiet.ingest(NewWork { claim: Some(claim), ..job("quiet", "own") }).await.unwrap();
    let lease = held.lease.unwrap().lease;

    // While another connection holds the lock nothing is written.
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut flood = JoinSet::new();
    for n in 0..FLOOD {
        let hostile = of(&ledger, "hostile");
        flood.spawn(async move { hostile.ingest(job("hostile", &n.to_string())).await.unwrap() });
    }
    while ledger.stats().queued == 0 {
        tokio::task::yield_now().await;
    }
    let renewing = tokio::spawn(async move { quiet.renew(&[(lease, None)]).await.unwrap() });
    for _ in 0..FLOOD {
        tokio::task::yield_now().await;
    }
    let queued = ledger.stats().queued;
    assert!(queued <= 300, "{queued} submissions of one tenant are in the queue");
    other.execute_batch("COMMIT").unwrap();
    let renewed = renewing.await.unwrap();
    assert!(renewed[0].outcome.is_ok(), "{renewed:?}");
    let mut before = 0;
    while flood.try_join_next().is_some() {
        before += 1;
    }
    assert!(before < FLOOD / 2, "{before} writes of another tenant came first");
    flood.join_all().await;
    ledger.close().await.unwrap();
}
