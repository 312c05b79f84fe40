//! The feed never skips: an event that commits late appears after the ones that were read.
#![cfg(feature = "postgres")]

use std::time::Duration;

use tenure_core::{
    Actor, WorkId,
    action::Claimant,
    model::{Disposition, Worker},
};
use tenure_store::{LeaseRef, Ledger, NewWork, Options, Position, StoredEvent};
use tenure_testkit::shared;
use tokio_postgres::{Client, NoTls};

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn open(url: &str) -> Ledger {
    Ledger::open_postgres(url, Options { lanes: 2, sweep: false, ..Options::default() }).await.unwrap()
}

async fn ingest(ledger: &Ledger, id: &str) -> (WorkId, LeaseRef) {
    let worker = Worker { id: "w".into(), incarnation: "1".into(), liveness: Default::default() };
    let mut new = NewWork::new("manual", id, "k", Disposition::Rerunnable, serde_json::json!({}));
    new.claim = Some(Claimant { worker, request_id: id.into(), defer_start: false });
    let done = ledger.caller(Actor::worker("w")).ingest(new).await.unwrap();
    (done.work.id, done.lease.unwrap().lease)
}

async fn progress(ledger: &Ledger, lease: &LeaseRef, n: u32) {
    let caller = ledger.caller(Actor::worker("w"));
    caller.progress(lease, &serde_json::json!({ "n": n }), None).await.unwrap();
}

async fn everything(ledger: &Ledger) -> Vec<StoredEvent> {
    ledger.feed(Default::default(), 1_000).await.unwrap().events
}

/// Transactions of the whole server delay the feed, those of other tests too: it is polled until it has them.
async fn follow(ledger: &Ledger, after: Position, count: usize) -> Vec<StoredEvent> {
    let mut seen: Vec<StoredEvent> = Vec::new();
    let reading = async {
        while seen.len() < count {
            let after = seen.last().map_or(after, |event| event.position);
            seen.extend(ledger.feed(after, 7).await.unwrap().events);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reading).await.expect("the feed goes on");
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_delays_the_feed_and_nothing_is_skipped() {
    let url = shared().create_database();
    let ledger = open(&url).await;
    ingest(&ledger, "before").await;
    let before = follow(&ledger, Position::default(), 2).await;

    let writer = connect(&url).await;
    writer.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    ingest(&ledger, "behind").await;
    assert_eq!(everything(&ledger).await.len(), 2, "an older transaction may still write");
    writer.batch_execute("COMMIT").await.unwrap();

    // What was held back follows the cursor.
    follow(&ledger, before[1].position, 2).await;
    ledger.close().await.unwrap();
}

/// A group that got its transaction id early and waited for a work item must not sort before the groups it
/// waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_works_events_are_in_order_though_transactions_are_not() {
    let url = shared().create_database();
    let (one, other) = (open(&url).await, open(&url).await);
    let (work, lease) = ingest(&one, "work").await;
    let blocker = connect(&url).await;
    blocker.batch_execute("BEGIN; SELECT id FROM work FOR UPDATE").await.unwrap();
    let (early, late) = {
        let (lease, lease2) = (lease.clone(), lease.clone());
        let (one, other) = (one.clone(), other.clone());
        (
            tokio::spawn(async move { progress(&one, &lease, 1).await }),
            tokio::spawn(async move { progress(&other, &lease2, 2).await }),
        )
    };
    // Both wait for the work item while other transactions begin and end.
    let watcher = connect(&url).await;
    while waiting(&watcher).await < 2 {
        watcher.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
    }
    blocker.batch_execute("COMMIT").await.unwrap();
    early.await.unwrap();
    late.await.unwrap();
    for n in 3..6 {
        progress(&one, &lease, n).await;
        progress(&other, &lease, n + 10).await;
    }
    let events = follow(&one, Position::default(), 10).await;
    assert!(events.iter().all(|event| event.event.work == work));
    assert_eq!(events.iter().map(|event| event.event.seq).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    one.close().await.unwrap();
    other.close().await.unwrap();
}

async fn waiting(client: &Client) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
               AND wait_event_type = 'Lock'";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Readers race writers on two ledgers; each reader sees every event once, and those of each work item in
/// order.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_follows_sees_everything_once() {
    let url = shared().create_database();
    let ledgers = [open(&url).await, open(&url).await];
    let (works, steps) = (16, 20);
    let mut writers = Vec::new();
    for number in 0..works {
        let ledger = ledgers[number % 2].clone();
        writers.push(tokio::spawn(async move {
            let (_, lease) = ingest(&ledger, &format!("work-{number}")).await;
            for n in 0..steps {
                progress(&ledger, &lease, n).await;
            }
        }));
    }
    let wanted = works * (2 + steps as usize);
    let seen = follow(&ledgers[0], Position::default(), wanted).await;
    for writer in writers {
        writer.await.unwrap();
    }
    let mut next = std::collections::HashMap::new();
    for event in &seen {
        let seq = next.entry(event.event.work).or_insert(1_u64);
        assert_eq!(event.event.seq, *seq);
        *seq += 1;
    }
    assert_eq!(seen.len(), wanted);
    for ledger in ledgers {
        ledger.close().await.unwrap();
    }
}

/// After a dump and a restore the server's transaction ids start again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_ledger_starts_an_epoch() {
    let url = shared().create_database();
    let ledger = open(&url).await;
    let (work, lease) = ingest(&ledger, "work").await;
    ledger.close().await.unwrap();
    let database = url.rsplit('/').next().unwrap();
    // As the other server would have numbered them.
    shared().psql(
        database,
        "ALTER TABLE event DISABLE TRIGGER USER; UPDATE event SET txn = txn + 1000000000; \
         ALTER TABLE event ENABLE TRIGGER USER",
    );
    let ledger = open(&url).await;
    progress(&ledger, &lease, 1).await;
    let events = follow(&ledger, Position::default(), 3).await;
    assert!(events.iter().all(|event| event.event.work == work));
    assert_eq!(events.iter().map(|event| event.event.seq).collect::<Vec<_>>(), [1, 2, 3]);
    ledger.close().await.unwrap();
}
