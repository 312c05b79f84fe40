//! What verify finds in a file that somebody edited behind the ledger's back.
#![cfg(feature = "sqlite")]

mod verify;

use std::{path::Path, sync::Arc};

use rusqlite::{Connection, config::DbConfig};
use tenure_store::{Ledger, ManualClock};
use verify::Edit;

async fn open(file: &Path, clock: &Arc<ManualClock>) -> Ledger {
    Ledger::open_sqlite(file, verify::options(clock)).await.unwrap()
}

/// Makes each edit to a copy of one ledger, and verifies that; also against a copy of its anchor, if wanted.
async fn all_are_found(edits: Vec<Edit>, pruned: bool, with_copy: bool) {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.db");
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let ledger = open(&whole, &clock).await;
    verify::populate(&ledger, &clock, pruned).await;
    let copy = if with_copy { Some(ledger.signed_anchor().await.unwrap()) } else { None };
    ledger.close().await.unwrap();
    for (number, Edit { sqlite: sql, told, .. }) in edits.into_iter().enumerate() {
        if sql.is_empty() {
            continue;
        }
        let file = folder.path().join(format!("{number}.db"));
        std::fs::copy(&whole, &file).unwrap();
        let conn = Connection::open(&file).unwrap();
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).unwrap();
        conn.execute_batch(&sql).unwrap();
        drop(conn);
        let ledger = open(&file, &clock).await;
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
    let folder = tempfile::tempdir().unwrap();
    let (whole, older) = (folder.path().join("whole.db"), folder.path().join("older.db"));
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let ledger = open(&whole, &clock).await;
    verify::populate(&ledger, &clock, true).await;
    ledger.close().await.unwrap();
    std::fs::copy(&whole, &older).unwrap();
    let (whole, older) = (open(&whole, &clock).await, open(&older, &clock).await);
    verify::an_older_copy_is_found(&whole, &clock, &older).await;
    whole.close().await.unwrap();
    older.close().await.unwrap();
}
