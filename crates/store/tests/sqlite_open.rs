//! Opening a file: what is refused, with which words, and what is still there after a close.
#![cfg(feature = "sqlite")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rusqlite::Connection;
use serde_json::json;
use tenure_store::{Error, Ledger, NewWork, Options, core::Actor, core::model::Disposition};

async fn open(file: &Path) -> Result<Ledger, Error> {
    Ledger::open_sqlite(file, Options { sweep: false, ..Options::default() }).await
}

/// Why the file cannot be a ledger.
async fn refusal(file: &Path) -> String {
    match open(file).await {
        Err(Error::Unusable(why)) => why,
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(_) => panic!("{} was opened", file.display()),
    }
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let why = refusal(&folder.path().join("nowhere/ledger.db")).await;
    assert!(why.contains("nowhere") && why.contains("Create it"), "{why}");
}

/// It holds payloads and the key of every token.
#[tokio::test]
async fn a_new_ledger_and_its_copies_are_for_their_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    let ledger = open(&folder.path().join("ledger.db")).await.unwrap();
    ledger.backup(&folder.path().join("copy.db")).await.unwrap();
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm", "copy.db"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    ledger.close().await.unwrap();
    // Whoever widened it meant it.
    fs::set_permissions(folder.path().join("ledger.db"), fs::Permissions::from_mode(0o640)).unwrap();
    open(&folder.path().join("ledger.db")).await.unwrap().close().await.unwrap();
    assert_eq!(mode("ledger.db"), 0o640);
}

#[tokio::test]
async fn a_folder_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let why = refusal(folder.path()).await;
    assert!(why.contains("is a folder"), "{why}");
}

#[tokio::test]
async fn other_files_are_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("letter.txt");
    let text = "Dear all,\n".repeat(1_000);
    fs::write(&file, &text).unwrap();
    let why = refusal(&file).await;
    assert!(why.contains("not an SQLite database"), "{why}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[tokio::test]
async fn other_databases_are_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.db");
    Connection::open(&file).unwrap().execute_batch("CREATE TABLE note (text TEXT)").unwrap();
    let before = fs::read(&file).unwrap();
    let why = refusal(&file).await;
    assert!(why.contains("something else"), "{why}");
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[tokio::test]
async fn a_newer_ledger_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    open(&file).await.unwrap().close().await.unwrap();
    let conn = Connection::open(&file).unwrap();
    conn.execute("INSERT INTO migration VALUES (7000, 'beyond', 1, 0)", []).unwrap();
    drop(conn);
    let why = refusal(&file).await;
    assert!(why.contains("7000") && why.contains("newer version"), "{why}");
}

/// A ledger whose first page is whole and whose others are not.
#[tokio::test]
async fn a_damaged_ledger_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    open(&file).await.unwrap().close().await.unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[100..].fill(0xff);
    fs::write(&file, bytes).unwrap();
    let why = refusal(&file).await;
    assert!(why.contains("ledger.db is damaged") && why.contains("restore a backup"), "{why}");
}

#[tokio::test]
async fn a_locked_file_is_worth_another_try() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    open(&file).await.unwrap().close().await.unwrap();
    let conn = Connection::open(&file).unwrap();
    conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; DELETE FROM kept").unwrap();
    match open(&file).await {
        Err(Error::Unavailable(why)) => {
            assert!(why.contains("ledger.db is locked") && why.contains("try again"), "{why}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let ledger = open(&file).await.unwrap();
    let caller = ledger.caller(Actor::machine("gateway"));
    let new = || NewWork::new("manual", "one", "job", Disposition::ExternallyOwned, json!(1));
    let first = caller.ingest(new()).await.unwrap();
    ledger.close().await.unwrap();
    assert!(caller.ingest(new()).await.is_err(), "a closed ledger takes nothing");
    let wal = fs::metadata(folder.path().join("ledger.db-wal")).map_or(0, |wal| wal.len());
    assert_eq!(wal, 0, "closing moves everything into the file");

    let ledger = open(&file).await.unwrap();
    let again = ledger.caller(Actor::machine("gateway")).ingest(new()).await.unwrap();
    assert_eq!((again.work.id, again.created), (first.work.id, false));
    assert_eq!(again.completion_token, first.completion_token, "the key is the ledger's, not the process's");
    ledger.close().await.unwrap();
}
