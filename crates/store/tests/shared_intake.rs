//! Two ledgers over one database, as two replicas or processes have it: a pause on one applies to both.
#![cfg(all(feature = "sqlite", feature = "postgres"))]

use serde_json::json;
use tenure_store::{
    Error, Ledger, NewWork, Options, Scheduler,
    core::{Actor, Code, model::Disposition},
};

fn options() -> Options {
    Options { sweep: false, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let open = || async { Ledger::open_sqlite(&file, options()).await.unwrap() };
    stop_both(open).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres() {
    let url = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await.unwrap();
    let open = || async { Ledger::open_postgres(&url, options()).await.unwrap() };
    stop_both(open).await;
}

async fn is_open(ledger: &Ledger, id: &str) -> bool {
    let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!(1));
    match ledger.caller(Actor::machine("gateway")).ingest(new).await {
        Ok(_) => true,
        Err(Error::Refused(why)) if why.code == Code::IntakePaused => false,
        Err(other) => panic!("{other}"),
    }
}

async fn stop_both(open: impl AsyncFn() -> Ledger) {
    let (here, there) = (open().await, open().await);
    let person = here.caller(Actor::person("ana"));
    person.pause_intake(None, "the database moves").await.unwrap();
    assert!(!is_open(&here, "a").await, "at once where it was said");
    // Every second, in every process.
    Scheduler.run_once(&there).await.unwrap();
    assert!(!is_open(&there, "b").await);
    assert!(!is_open(&open().await, "c").await, "whoever comes later knows it from the start");
    there.caller(Actor::person("ben")).resume_intake(None, "moved").await.unwrap();
    assert!(is_open(&there, "d").await);
    Scheduler.run_once(&here).await.unwrap();
    assert!(is_open(&here, "e").await);
    for ledger in [here, there] {
        ledger.close().await.unwrap();
    }
}
