//! A sync that fails with EIO: its callers get an error, and nothing is acknowledged until the process has
//! reopened the file, which it does by itself.
//!
//! The ledger runs in a child process under `strace`, which makes one sync of its writer fail.
#![cfg(feature = "sqlite")]

use std::{path::Path, process::Command, time::Duration};

use serde_json::json;
use tenure_store::{Error, Ledger, NewWork, Options, core::Actor, core::model::Disposition};

const FOLDER: &str = "TENURE_TEST_FOLDER";
/// The sync of a thread that fails: the one that opens the file makes fewer, and by then the writer has made some that
/// were acknowledged.
const FAILS: usize = 14;

fn new(number: usize) -> NewWork {
    let input = json!("x".repeat(6_000));
    NewWork::new("manual", &number.to_string(), "job", Disposition::Rerunnable, input)
}

/// Takes works in until one sync has failed, and goes on. Nothing where no test has started it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_life() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let file = Path::new(&folder).join("ledger.db");
    let ledger = Ledger::open_sqlite(&file, Options { sweep: false, ..Options::default() }).await.unwrap();
    let caller = ledger.caller(Actor::machine("m"));
    let mut number = 0;
    let failed = loop {
        match caller.ingest(new(number)).await {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
        assert!(number < 50, "no sync has failed");
    };
    assert!(matches!(failed, Error::OutcomeUnknown(_)), "{failed}");
    assert!(number > 0);
    let goes_on = async {
        let mut refused = 0;
        while let Err(error) = caller.ingest(new(number)).await {
            assert!(matches!(error, Error::Stopped(_)), "nothing is acknowledged meanwhile: {error}");
            refused += 1;
        }
        refused
    };
    let refused = tokio::time::timeout(Duration::from_secs(30), goes_on).await.expect("it heals by itself");
    assert!(refused > 0, "it was not opened again");
    assert_eq!(ledger.health().await.fault(), None);
    for earlier in 0..number {
        assert!(!caller.ingest(new(earlier)).await.unwrap().created, "{earlier} was acknowledged");
    }
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    ledger.close().await.unwrap();
    println!("healed");
}

#[test]
fn a_failed_sync_stops_writing_until_the_process_has_opened_the_file_again() {
    let home = tempfile::tempdir().unwrap();
    let told = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=fdatasync", "-e"])
        .arg(format!("inject=fdatasync:error=EIO:when={FAILS}"))
        .arg("-o")
        .arg(home.path().join("trace"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "one_life", "--nocapture"])
        .env(FOLDER, home.path())
        .output()
        .expect("strace is installed");
    let said = String::from_utf8_lossy(&told.stdout).into_owned();
    let log = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.success() && said.contains("healed"), "{said}{log}");
    let trace = std::fs::read_to_string(home.path().join("trace")).unwrap();
    assert_eq!(trace.matches("EIO").count(), 1, "{trace}");
}
