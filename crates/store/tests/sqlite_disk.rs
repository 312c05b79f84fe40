//! Disks that are full or read-only: what opening and writing say then, and that nothing is lost.
//!
//! Each case runs in a child process under a small file system of its own, which needs no privileges where the
//! system lets users have namespaces.
#![cfg(feature = "sqlite")]

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::json;
use tenure_store::{Cure, Error, Ledger, NewWork, Options, core::Actor, core::model::Disposition};

const FOLDER: &str = "TENURE_TEST_DISK";
const PATIENCE: Duration = Duration::from_secs(30);
const STAGE: &str = "TENURE_TEST_STAGE";

/// Runs a script in a folder with mounts that only it sees. In it, `stage NAME` runs this test once more, in a
/// process that finds the stage's name where this one finds none.
fn in_a_mount(test: &str, script: &str) {
    let folder = tempfile::tempdir().unwrap();
    let stage = format!("stage() {{ {STAGE}=$1 \"$EXE\" --exact {test} --nocapture; }}\n{script}");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec", &stage])
        .env(FOLDER, folder.path())
        .env("EXE", std::env::current_exe().unwrap())
        .output()
        .expect("util-linux has unshare");
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (told(&output.stdout), told(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(out.matches("1 passed").count(), script.matches("stage ").count(), "each stage ran: {out}");
}

fn stage() -> Option<String> {
    std::env::var(STAGE).ok()
}

fn file() -> PathBuf {
    Path::new(&std::env::var_os(FOLDER).expect("a child of another test")).join("ledger.db")
}

async fn open() -> Result<Ledger, Error> {
    Ledger::open_sqlite(file(), Options { sweep: false, ..Options::default() }).await
}

fn new(number: usize) -> NewWork {
    let input = json!("x".repeat(4_000));
    NewWork::new("manual", &number.to_string(), "job", Disposition::Rerunnable, input)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk() {
    match stage().as_deref() {
        Some("fill") => fills_it().await,
        Some("full") => finds_it_full().await,
        Some(_) => goes_on().await,
        None => in_a_mount(
            "a_full_disk",
            "mount -t tmpfs -o size=8m none \"$TENURE_TEST_DISK\"
             stage fill
             rm \"$TENURE_TEST_DISK/ballast\"
             stage on
             cat /dev/zero > \"$TENURE_TEST_DISK/ballast\" || true
             stage full
             rm \"$TENURE_TEST_DISK/ballast\"
             stage on",
        ),
    }
}

#[tokio::test]
async fn a_disk_that_is_full_from_the_start() {
    match stage() {
        Some(_) => finds_it_full().await,
        None => in_a_mount(
            "a_disk_that_is_full_from_the_start",
            "mount -t tmpfs -o size=64k none \"$TENURE_TEST_DISK\"
             stage full",
        ),
    }
}

#[tokio::test]
async fn a_read_only_disk() {
    match stage().as_deref() {
        Some("on") => goes_on().await,
        Some("read") => finds_it_read_only().await,
        Some(_) => cannot_make_it().await,
        None => in_a_mount(
            "a_read_only_disk",
            "mount -t tmpfs -o size=8m none \"$TENURE_TEST_DISK\"
             stage on
             mount -o remount,ro \"$TENURE_TEST_DISK\"
             stage read
             mount -o remount,rw \"$TENURE_TEST_DISK\"
             rm \"$TENURE_TEST_DISK\"/ledger.db*
             mount -o remount,ro \"$TENURE_TEST_DISK\"
             stage make",
        ),
    }
}

/// Takes up to 2 MB, or what is left.
fn fill(ballast: &Path) {
    let full = std::fs::write(ballast, vec![0; 2_000_000]);
    assert!(full.is_ok() || full.is_err_and(|error| error.kind() == std::io::ErrorKind::StorageFull));
}

/// Writes until the disk is full: the one who hit it is told, and everybody after. With room again it goes on.
async fn fills_it() {
    let ledger = open().await.unwrap();
    let caller = ledger.caller(Actor::machine("m"));
    caller.ingest(new(0)).await.unwrap();
    let ballast = file().with_file_name("ballast");
    for round in 0..2 {
        fill(&ballast);
        let mut acknowledged = Vec::new();
        let mut number = round * 1_000_000;
        let told = loop {
            number += 1;
            match caller.ingest(new(number)).await {
                Ok(_) => acknowledged.push(number.to_string()),
                Err(Error::Stopped(told) | Error::OutcomeUnknown(told)) => break told,
                Err(other) => panic!("{other}"),
            }
        };
        assert!(told.contains("disk is full"), "{told}");
        let full = async {
            while ledger.stopped().is_none() {
                _ = caller.ingest(new(number)).await;
            }
        };
        tokio::time::timeout(PATIENCE, full).await.expect("it is known");
        let stop = ledger.stopped().unwrap();
        assert!(stop.why.contains("disk is full") && stop.cure == Cure::Space, "{stop:?}");
        assert!(ledger.list(&Default::default(), None, 10).await.is_ok(), "what is there can still be read");

        std::fs::remove_file(&ballast).unwrap();
        let heals = async {
            while let Err(error) = caller.ingest(new(number)).await {
                assert!(matches!(error, Error::Stopped(_) | Error::OutcomeUnknown(_)), "{error}");
            }
        };
        tokio::time::timeout(PATIENCE, heals).await.expect("it finds the space by itself");
        assert_eq!(ledger.health().await.fault(), None);
        for id in acknowledged {
            assert!(!caller.ingest(new(id.parse().unwrap())).await.unwrap().created, "{id} was acknowledged");
        }
    }
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    // The next stage finds it as a process that ended while the disk was full has left it.
    fill(&ballast);
    let mut number = 5_000_000;
    while caller.ingest(new(number)).await.is_ok() {
        number += 1;
    }
    ledger.close().await.unwrap();
}

async fn finds_it_full() {
    match open().await {
        Err(Error::Unavailable(told)) => {
            assert!(told.contains("disk is full") && told.contains("Free some space"), "{told}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("there was room"),
    }
}

/// With room again, everything that was answered is there, and more can be written.
async fn goes_on() {
    let ledger = open().await.unwrap();
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    let again = ledger.caller(Actor::machine("m")).ingest(new(0)).await.unwrap();
    assert_eq!(again.created, ledger.list(&Default::default(), None, 2).await.unwrap().len() == 1);
    ledger.caller(Actor::machine("m")).ingest(new(1_000_000)).await.unwrap();
    ledger.close().await.unwrap();
}

async fn finds_it_read_only() {
    match open().await {
        Err(Error::Unusable(told)) => {
            assert!(told.contains("ledger.db is read-only here") && told.contains("writable"), "{told}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was opened"),
    }
}

async fn cannot_make_it() {
    match open().await {
        Err(Error::Unusable(told)) => assert!(told.contains("ledger.db") && told.contains("write"), "{told}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was opened"),
    }
}
