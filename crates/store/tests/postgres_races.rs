//! Races on PostgreSQL that need a second connection that holds a lock.
#![cfg(feature = "postgres")]

use std::{future::Future, time::Duration};

use serde_json::json;
use tenure_store::{
    Ledger, NewWork, Options, Position,
    core::{
        Actor, WorkId,
        action::{ClaimFilter, Claimant, Decide},
        model::{Disposition, Worker},
    },
};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

/// Nothing here takes longer unless the store hangs.
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

/// Claims one work item by filter.
async fn claim(ledger: &Ledger, request: &str, wait: Option<Duration>) -> Vec<WorkId> {
    let filter = ClaimFilter { max: 1, ..ClaimFilter::default() };
    let claimed = ledger.caller(Actor::worker("w")).claim(claimant(request), filter, wait).await.unwrap();
    claimed.into_iter().map(|one| one.work.id).collect()
}

async fn hold(client: &Client, work: WorkId) {
    client.batch_execute("BEGIN").await.unwrap();
    client.execute("SELECT 1 FROM work WHERE id = $1 FOR UPDATE", &[&work.0]).await.unwrap();
}

/// Waits until a connection waits for a lock of this client.
async fn in_the_way(client: &Client) {
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_locks l WHERE NOT l.granted \
               AND pg_backend_pid() = ANY (pg_blocking_pids(l.pid)))";
    let look = async { while !client.query_one(sql, &[]).await.unwrap().get::<_, bool>(0) {} };
    timeout(PATIENCE, look).await.expect("somebody comes for the lock");
}

/// Sends what `asked` asks for, then does `then`, whichever of them ends first.
async fn meanwhile<T>(asked: impl Future<Output = T>, then: impl Future<Output = ()>) -> T {
    let both = async { tokio::join!(asked, then) };
    timeout(PATIENCE, both).await.expect("an answer").0
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap();
}

/// Invariant 20 has a second half: what has committed is told, even if nothing is ever written again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_feed_tells_the_last_events_of_a_quiet_ledger() {
    // A server of its own: the writes of other tests would push the feed on.
    let cluster = tokio::task::spawn_blocking(tenure_testkit::Cluster::start).await.unwrap();
    let url = cluster.create_database();
    let options = Options { lanes: 1, sweep: false, ..Options::default() };
    let ledger = Ledger::open_postgres(&url, options).await.unwrap();
    let (other, third) = (connect(&url).await, connect(&url).await);
    let works = vec![ingest(&ledger, job("a")).await, ingest(&ledger, job("b")).await];
    hold(&other, works[1]).await;
    let worker = ledger.caller(Actor::worker("w"));
    let claimed = meanwhile(worker.claim_ids(claimant("ids"), works), async {
        in_the_way(&other).await;
        // Younger than the claim's transaction, and over before it.
        run(&third, "SELECT pg_current_xact_id()").await;
        run(&other, "ROLLBACK").await;
    });
    assert_eq!(claimed.await.unwrap().len(), 2);
    let told = async { while ledger.feed(Position::default(), 100).await.unwrap().events.len() < 4 {} };
    timeout(PATIENCE, told).await.expect("all four events are told");
    ledger.close().await.unwrap();
}

/// A group takes the long-polling claims that it could serve. The ones that it did not serve continue to
/// wait, for a limited time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_claim_that_was_passed_over_is_answered_in_time() {
    let (ledger, other) = open().await;
    let parent = ingest(&ledger, job("parent")).await;
    let child = NewWork { parent: Some(parent), ..job("child") };
    ingest(&ledger, child.clone()).await;
    for request in ["1", "2"] {
        assert_eq!(claim(&ledger, request, None).await.len(), 1, "the queue is emptied");
    }
    let parked = meanwhile(claim(&ledger, "parked", Some(Duration::from_secs(2))), async {
        // Claims are served in turn: after this one, the first is parked.
        claim(&ledger, "3", None).await;
        hold(&other, parent).await;
        meanwhile(ingest(&ledger, child), async {
            in_the_way(&other).await;
            // The claims' lane looks up, and finds nobody parked.
            claim(&ledger, "4", None).await;
            claim(&ledger, "5", None).await;
            run(&other, "ROLLBACK").await;
        })
        .await;
    });
    assert!(parked.await.is_empty());
    ledger.close().await.unwrap();
}

/// Invariant 7: a work item that was read for a repeated claim, but is locked elsewhere, cannot be claimed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_decides_over_no_work_that_it_has_not_locked() {
    let (ledger, other) = open().await;
    let work = ingest(&ledger, job("a")).await;
    let worker = ledger.caller(Actor::worker("w"));
    let held = worker.claim_ids(claimant("first"), vec![work]).await.unwrap().remove(0);
    worker.release(&held.lease, None).await.unwrap();

    // Another process marks it as a parent and has not committed yet.
    run(&other, "BEGIN").await;
    other.execute("UPDATE work SET children = true WHERE id = $1", &[&work.0]).await.unwrap();
    // The claims' lane is held up, so that the second and the third form one group.
    run(&other, "SELECT pg_advisory_lock(3, k) FROM generate_series(0, 1023) AS k").await;
    let group = async { tokio::join!(claim(&ledger, "new", None), claim(&ledger, "first", None)) };
    let (first, others) = {
        let mut others = None;
        let first = meanwhile(claim(&ledger, "first", None), async {
            in_the_way(&other).await;
            others = Some(meanwhile(group, run(&other, "SELECT pg_advisory_unlock_all()")).await);
        });
        (first.await, others.unwrap())
    };
    assert_eq!((first, others), (vec![], (vec![], vec![])), "nobody waited for it, and nobody has it");
    run(&other, "COMMIT").await;
    assert!(ledger.work(work).await.unwrap().children, "the other process's write stands");
    ledger.close().await.unwrap();
}

/// A work item that is claimed and queued again in one group is for its owner alone, with a session or
/// without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_back_bound_to_its_owner_is_in_nobody_elses_way() {
    for session in [None, Some("chat".to_owned())] {
        let (ledger, other) = open().await;
        let busy = ingest(&ledger, NewWork { priority: 9, ..job("busy") }).await;
        let bound = NewWork { disposition: Disposition::OwnerBound, session, ..job("bound") };
        let bound = ingest(&ledger, bound).await;
        let free = ingest(&ledger, job("free")).await;
        let (owner, ada) = (ledger.caller(Actor::worker("o")), ledger.caller(Actor::person("ada")));
        let its_owner = Claimant::new(Worker::new("o", "o-1"), "ids");
        let group = async {
            let (claimed, aside, back) = tokio::join!(
                owner.claim_ids(its_owner, vec![bound]),
                ada.quarantine(bound, "odd"),
                ada.decide(bound, "fine", Decide::Requeue),
            );
            (claimed.unwrap().len(), aside.unwrap(), back.unwrap())
        };
        // The lane is held up, so that these three form one group.
        hold(&other, busy).await;
        let cancelled = meanwhile(ada.cancel(busy, "not needed", None), async {
            in_the_way(&other).await;
            meanwhile(group, run(&other, "ROLLBACK")).await;
        });
        cancelled.await.unwrap();
        assert_eq!(claim(&ledger, "1", None).await, [free]);
        assert_eq!(ledger.verify().await.unwrap().faults, []);
        ledger.close().await.unwrap();
    }
}

/// Columns that are copied from the log for lists and claims cannot be changed, and verify detects changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_work_stays_what_it_was_ingested_as() {
    let (ledger, other) = open().await;
    let work = ingest(&ledger, job("a")).await;
    let edits = ["UPDATE work SET tenant = 'other'", "UPDATE work SET spec = '{}'", "DELETE FROM work"];
    for sql in edits {
        assert!(other.batch_execute(sql).await.is_err(), "{sql}");
    }
    other.batch_execute("SET session_replication_role = replica").await.unwrap();
    other
        .batch_execute(
            "UPDATE work SET tenant = 'other'; UPDATE status SET tenant = 'other'; \
             UPDATE ready SET tenant = 'other'",
        )
        .await
        .unwrap();
    let faults = ledger.verify().await.unwrap().faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].what.contains(&work.to_string()), "{faults:?}");
    ledger.close().await.unwrap();
}
