//! Reads on PostgreSQL that take long: somebody holds a lock that they need.
#![cfg(feature = "postgres")]

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tenure_store::{
    Error, Ledger, NewWork, Options,
    core::{Actor, WorkId, model::Disposition, payload::Digest},
    fair,
};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

/// Nothing here takes longer unless the store hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A ledger with one work, somebody who locks its tables, and somebody who looks.
struct Bed {
    ledger: Ledger,
    work: WorkId,
    other: Client,
    watcher: Client,
}

impl Bed {
    async fn new() -> Self {
        let url = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await.unwrap();
        let options = Options { lanes: 1, sweep: false, ..Options::default() };
        let ledger = Ledger::open_postgres(&url, options).await.unwrap();
        let new = NewWork::new("manual", "w", "job", Disposition::Rerunnable, json!(1));
        let work = ledger.caller(Actor::machine("test")).ingest(new).await.unwrap().work.id;
        Self { ledger, work, other: connect(&url).await, watcher: connect(&url).await }
    }

    async fn lock(&self, table: &str) {
        let sql = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        self.other.batch_execute(&sql).await.unwrap();
    }

    async fn unlock(&self) {
        self.other.batch_execute("ROLLBACK").await.unwrap();
    }

    async fn read(&self) -> Result<(), Error> {
        fair::on_behalf_of(Arc::from("t"), self.ledger.work(self.work)).await.map(drop)
    }

    async fn count(&self, of: &str) -> i64 {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'tenure' AND {of}"
        );
        self.watcher.query_one(&sql, &[]).await.unwrap().get(0)
    }

    async fn until_somebody_waits(&self) {
        let look = async { while self.count("wait_event_type = 'Lock'").await == 0 {} };
        timeout(PATIENCE, look).await.expect("somebody comes for the lock");
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn askers_that_leave_slow_reads_do_not_take_ever_more_connections() {
    let bed = Bed::new().await;
    bed.read().await.unwrap();
    let before = bed.count("true").await;
    bed.lock("work").await;
    for _ in 0..200 {
        let left = timeout(Duration::from_millis(10), bed.read()).await;
        assert!(left.is_err(), "it cannot be answered");
    }
    let taken = bed.count("true").await - before;
    assert!(taken <= 2, "one tenant has {taken} connections more than with one read");
    bed.unlock().await;
    timeout(PATIENCE, bed.read()).await.expect("its turn comes back").unwrap();
    bed.ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_is_stopped_at_its_deadline_and_its_connection_used_again() {
    let bed = Bed::new().await;
    bed.read().await.unwrap();
    let before = bed.count("true").await;
    bed.lock("work").await;
    let stopped = timeout(PATIENCE, bed.read()).await.expect("it has a deadline");
    assert!(matches!(stopped, Err(Error::ReadTimeout)), "{stopped:?}");
    bed.unlock().await;
    bed.read().await.unwrap();
    assert_eq!(bed.count("true").await, before, "the connection was used again");
    bed.ledger.close().await.unwrap();
}

/// Figures are added up over everything that is open, however much a tenant has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_figures_delay_neither_credentials_nor_the_clock_nor_the_feed() {
    let bed = Bed::new().await;
    bed.lock("ready").await;
    let ledger = bed.ledger.clone();
    let gauges = tokio::spawn(async move { ledger.gauges().await });
    bed.until_somebody_waits().await;
    let others = async {
        assert!(bed.ledger.credential(Digest::of("nobody")).await.unwrap().is_none());
        bed.ledger.now().await.unwrap();
        bed.ledger.tail().await.unwrap();
        bed.ledger.work(bed.work).await.unwrap();
    };
    timeout(PATIENCE, others).await.expect("they do not wait for the gauges");
    assert!(!gauges.is_finished());
    bed.unlock().await;
    gauges.await.unwrap().unwrap();
    bed.ledger.close().await.unwrap();
}
