//! Moments of PostgreSQL that only a second connection can bring about: somebody else holds a lock.
#![cfg(feature = "postgres")]

use std::time::{Duration, Instant};

use serde_json::json;
use tenure_store::{
    Caller, Ledger, NewWork, Options, Position,
    core::{
        Actor, WorkId,
        action::{ClaimFilter, Claimant},
        model::{Disposition, Worker},
    },
};
use tokio_postgres::{Client, NoTls};

/// Long enough for a lane to reach the lock that it is held up by.
const MOMENT: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);

async fn open() -> (Ledger, Client) {
    let url = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await.unwrap();
    let options = Options { lanes: 1, sweep: false, ..Options::default() };
    let ledger = Ledger::open_postgres(&url, options).await.unwrap();
    (ledger, connect(&url).await)
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn job(id: &str) -> NewWork {
    NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(id))
}

async fn ingest(ledger: &Ledger, new: NewWork) -> WorkId {
    ledger.caller(Actor::machine("test")).ingest(new).await.unwrap().work.id
}

fn claimant(request: &str) -> Claimant {
    Claimant::new(Worker::new("w", "w-1"), request)
}

fn one() -> ClaimFilter {
    ClaimFilter { max: 1, ..ClaimFilter::default() }
}

async fn hold(client: &Client, work: WorkId) {
    client.batch_execute("BEGIN").await.unwrap();
    client.execute("SELECT 1 FROM work WHERE id = $1 FOR UPDATE", &[&work.0]).await.unwrap();
}

fn claim(worker: &Caller, request: &str, wait: Option<Duration>) -> tokio::task::JoinHandle<Vec<WorkId>> {
    let (worker, claimant) = (worker.clone(), claimant(request));
    tokio::spawn(async move {
        let claimed = worker.claim(claimant, one(), wait).await.unwrap();
        claimed.into_iter().map(|one| one.work.id).collect()
    })
}

/// Invariant 20 has a second half: what has committed is seen, even if nothing is ever written again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_feed_tells_the_last_events_of_a_quiet_ledger() {
    // A server of its own: the writes of other tests would push the feed on.
    let cluster = tokio::task::spawn_blocking(tenure_testkit::Cluster::start).await.unwrap();
    let url = cluster.create_database();
    let options = Options { lanes: 1, sweep: false, ..Options::default() };
    let ledger = Ledger::open_postgres(&url, options).await.unwrap();
    let other = connect(&url).await;
    let works = vec![ingest(&ledger, job("a")).await, ingest(&ledger, job("b")).await];
    hold(&other, works[1]).await;
    let worker = ledger.caller(Actor::worker("w"));
    let claim = tokio::spawn(async move { worker.claim_ids(claimant("ids"), works).await.unwrap() });
    tokio::time::sleep(MOMENT).await;
    // Younger than the claim's transaction, and over before it.
    connect(&url).await.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(claim.await.unwrap().len(), 2);

    let since = Instant::now();
    loop {
        let told = ledger.feed(Position::default(), 100).await.unwrap().events.len();
        if told == 4 {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(5), "only {told} of 4 events are told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ledger.close().await.unwrap();
}

/// A group takes the parked claims that it could serve. Those that it did not serve wait on, not forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_claim_that_was_passed_over_is_answered_in_time() {
    let (ledger, other) = open().await;
    let parent = ingest(&ledger, job("parent")).await;
    let child = NewWork { parent: Some(parent), ..job("child") };
    ingest(&ledger, child.clone()).await;
    let worker = ledger.caller(Actor::worker("w"));
    for request in ["1", "2"] {
        assert_eq!(claim(&worker, request, None).await.unwrap().len(), 1, "the queue is emptied");
    }
    let parked = claim(&worker, "parked", Some(Duration::from_secs(3)));
    tokio::time::sleep(MOMENT).await;
    hold(&other, parent).await;
    let repeat = {
        let ledger = ledger.clone();
        tokio::spawn(async move { ingest(&ledger, child).await })
    };
    // Long enough for the claims' own look, which finds nobody parked.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    other.batch_execute("ROLLBACK").await.unwrap();
    repeat.await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, parked).await.expect("its time is over");
    assert!(answer.unwrap().is_empty());
    ledger.close().await.unwrap();
}

/// Invariant 7: a work that was read for a repeated claim, but is locked elsewhere, is nobody's to claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_decides_over_no_work_that_it_has_not_locked() {
    let (ledger, other) = open().await;
    let work = ingest(&ledger, job("a")).await;
    let worker = ledger.caller(Actor::worker("w"));
    let held = worker.claim(claimant("first"), one(), None).await.unwrap().remove(0);
    worker.release(&held.lease, None).await.unwrap();

    // Another process marks it as a parent and has not committed yet.
    other.batch_execute("BEGIN").await.unwrap();
    other.execute("UPDATE work SET children = true WHERE id = $1", &[&work.0]).await.unwrap();
    // The claims' lane is held up, so that the next two form one group.
    other.batch_execute("SELECT pg_advisory_lock(3, k) FROM generate_series(0, 1023) AS k").await.unwrap();
    let first = claim(&worker, "first", None);
    tokio::time::sleep(MOMENT).await;
    let new = claim(&worker, "new", None);
    tokio::time::sleep(MOMENT).await;
    let again = claim(&worker, "first", None);
    tokio::time::sleep(MOMENT).await;
    other.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    tokio::time::sleep(MOMENT).await;
    other.batch_execute("COMMIT").await.unwrap();
    for claim in [first, new, again] {
        tokio::time::timeout(PATIENCE, claim).await.expect("an answer").unwrap();
    }
    assert!(ledger.work(work).await.unwrap().children, "the other process's write is lost");
    ledger.close().await.unwrap();
}
