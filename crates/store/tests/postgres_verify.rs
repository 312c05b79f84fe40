//! What verify finds in a database that somebody edited behind the ledger's back.
#![cfg(feature = "postgres")]

mod verify;

use std::sync::Arc;

use tenure_store::{Ledger, ManualClock};
use tenure_testkit::shared;
use verify::Edit;

async fn open(url: &str, clock: &Arc<ManualClock>) -> Ledger {
    Ledger::open_postgres(url, verify::options(clock)).await.unwrap()
}

fn name(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

/// A copy of a database fails while somebody is connected to it.
fn close_connections(source: &str) {
    shared().psql("postgres", &format!("ALTER DATABASE {source} ALLOW_CONNECTIONS false"));
    let end =
        format!("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{source}'");
    shared().psql("postgres", &end);
}

/// Makes each edit to a copy of one ledger, and verifies that; also against a copy of its anchor, if wanted.
async fn all_are_found(edits: Vec<Edit>, pruned: bool, with_copy: bool) {
    let whole = shared().create_database();
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let ledger = open(&whole, &clock).await;
    verify::populate(&ledger, &clock, pruned).await;
    let copy = if with_copy { Some(ledger.signed_anchor().await.unwrap()) } else { None };
    ledger.close().await.unwrap();
    drop(ledger);
    let source = name(&whole);
    close_connections(source);
    for (number, Edit { postgres: sql, told, .. }) in edits.into_iter().enumerate() {
        if sql.is_empty() {
            continue;
        }
        let edited = format!("{source}_{number}");
        shared().psql("postgres", &format!("CREATE DATABASE {edited} TEMPLATE {source}"));
        shared().psql(&edited, &format!("SET session_replication_role = replica; {sql}"));
        let ledger = open(&whole.replace(source, &edited), &clock).await;
        let faults = ledger.verify_with(copy.as_ref()).await.unwrap().faults;
        for told in told {
            assert!(faults.iter().any(|fault| fault.what.contains(told)), "{sql}: {told}: {faults:#?}");
        }
        ledger.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_record_is_checked_against_the_log() {
    all_are_found(verify::records(), false, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_no_log_tells_of_are_the_ledgers_own() {
    all_are_found(verify::unlogged(), true, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_trigger_is_found() {
    all_are_found(verify::schema(), false, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_anchor_shows_what_is_gone() {
    all_are_found(verify::against_a_copy(), true, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_is_found() {
    let whole = shared().create_database();
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let ledger = open(&whole, &clock).await;
    verify::populate(&ledger, &clock, true).await;
    ledger.close().await.unwrap();
    drop(ledger);
    let source = name(&whole);
    let copy = format!("{source}_older");
    close_connections(source);
    shared().psql("postgres", &format!("CREATE DATABASE {copy} TEMPLATE {source}"));
    shared().psql("postgres", &format!("ALTER DATABASE {source} ALLOW_CONNECTIONS true"));
    let (whole, older) = (open(&whole, &clock).await, open(&whole.replace(source, &copy), &clock).await);
    verify::an_older_copy_is_found(&whole, &clock, &older).await;
    whole.close().await.unwrap();
    older.close().await.unwrap();
}

/// The set-up of docs/intake-table.md: the ledger's role owns its schema, and may create no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_the_role_may_not_make_is_no_fault() {
    let url = shared().create_database();
    let database = name(&url);
    let role = format!("ledger_{database}");
    shared().psql(database, &format!("CREATE ROLE {role} LOGIN; CREATE SCHEMA tenure AUTHORIZATION {role}"));
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let port = shared().port();
    let own = format!("postgres://{role}@127.0.0.1:{port}/{database}?options=-csearch_path%3Dtenure");
    let ledger = open(&own, &clock).await;
    verify::populate(&ledger, &clock, true).await;
    let report = ledger.verify().await.unwrap();
    assert_eq!(report.faults, []);
    assert!(report.not_checked.iter().any(|what| what.contains("GRANT CREATE ON DATABASE")), "{report:?}");
    shared().psql(database, &format!("GRANT CREATE ON DATABASE {database} TO {role}"));
    let report = ledger.verify().await.unwrap();
    assert_eq!((report.faults, report.not_checked), (vec![], Vec::<String>::new()));
    shared().psql(database, "DROP TRIGGER event_unchanged ON tenure.event");
    let faults = ledger.verify().await.unwrap().faults;
    let told = "`event_unchanged on event` is missing";
    assert!(faults.iter().any(|fault| fault.what.contains(told)), "{faults:?}");
    ledger.close().await.unwrap();
    shared().psql(database, &format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}
