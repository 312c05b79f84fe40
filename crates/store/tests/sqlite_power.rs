//! A failed sync, a restart, a power cut: what was acknowledged after the restart is there.
//!
//! The ledger runs in child processes under `strace`; `tenure_testkit::Disk` keeps from its recording what the disk has.
#![cfg(feature = "sqlite")]

use std::{fs, path::Path, process::Command};

use serde_json::json;
use tenure_store::{Ledger, NewWork, Options, WorkFilter, core::Actor, core::model::Disposition};
use tenure_testkit::{Change, Disk, FileCall};

const FOLDER: &str = "TENURE_TEST_FOLDER";
const FIRST: &str = "TENURE_TEST_FIRST";
/// Works of each life of the ledger.
const EACH: usize = 8;

fn options() -> Options {
    Options { sweep: false, ..Options::default() }
}

/// One life of the ledger: it takes some works in, tells which, and is gone. Nothing where no test has started it.
#[tokio::test]
async fn one_life() {
    let (Some(folder), Ok(first)) = (std::env::var_os(FOLDER), std::env::var(FIRST)) else { return };
    let ledger = Ledger::open_sqlite(Path::new(&folder).join("ledger.db"), options()).await.unwrap();
    let first: usize = first.parse().unwrap();
    for number in first..first + EACH {
        let input = json!("x".repeat(6_000));
        let new = NewWork::new("manual", &number.to_string(), "job", Disposition::Rerunnable, input);
        ledger.caller(Actor::machine("m")).ingest(new).await.unwrap();
    }
    std::process::abort();
}

/// What a life did to its files.
fn life(folder: &Path, first: usize) -> Vec<FileCall> {
    let log = folder.with_extension(format!("trace-{first}"));
    Command::new("strace")
        .args(FileCall::STRACE)
        .arg("-o")
        .arg(&log)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "one_life", "--nocapture"])
        .env(FOLDER, folder)
        .env(FIRST, first.to_string())
        .output()
        .expect("strace is installed");
    let calls = FileCall::read(&log, "ledger.db");
    assert!(calls.iter().any(|call| call.change == Change::Sync), "strace saw no sync");
    calls
}

async fn works(file: &Path) -> Vec<usize> {
    let ledger = Ledger::open_sqlite(file, options()).await.unwrap();
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    let works = ledger.list(&WorkFilter::default(), None, 1_000).await.unwrap();
    ledger.close().await.unwrap();
    works.iter().map(|work| work.spec.source.id.parse().unwrap()).collect()
}

#[tokio::test]
async fn what_is_acknowledged_after_a_failed_sync_and_a_restart_survives_a_power_cut() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("in-use");
    fs::create_dir(&folder).unwrap();
    let log = folder.join("ledger.db-wal");

    let mut before = life(&folder, 0);
    let is_log_sync = |call: &FileCall| call.change == Change::Sync && call.file == log;
    let last = before.iter().rposition(is_log_sync).unwrap();
    // Its caller was told that the outcome is unknown, and the process stopped: the calls end with that sync.
    before.truncate(last + 1);
    before[last].change = Change::FailedSync;
    let mut disk = Disk::default();
    before.iter().for_each(|call| disk.play(call));
    life(&folder, EACH).iter().for_each(|call| disk.play(call));

    let cut = home.path().join("cut");
    fs::create_dir(&cut).unwrap();
    for (file, cached) in disk.cached() {
        assert_eq!(cached, fs::read(file).unwrap(), "{}: the model is what happened", file.display());
    }
    disk.cut(&cut, || false).unwrap();
    let kept = works(&cut.join("ledger.db")).await;
    for number in (0..EACH - 1).chain(EACH..2 * EACH) {
        assert!(kept.contains(&number), "{number} was acknowledged and is lost; kept: {kept:?}");
    }
}
