//! A copy of a ledger that is in use is a ledger.
#![cfg(feature = "sqlite")]

use std::{
    fs,
    future::Future,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use serde_json::json;
use tenure_store::{Error, Ledger, NewWork, Options, core::Actor, core::Code, core::model::Disposition};

async fn open(file: &Path) -> Ledger {
    Ledger::open_sqlite(file, Options { sweep: false, ..Options::default() }).await.unwrap()
}

fn new(number: usize) -> NewWork {
    NewWork::new("manual", &number.to_string(), "job", Disposition::Rerunnable, json!("x".repeat(2_000)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_has_everything_that_was_answered_before() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(&folder.path().join("ledger.db")).await;
    let caller = ledger.caller(Actor::machine("m"));
    for number in 0..300 {
        caller.ingest(new(number)).await.unwrap();
    }
    let copy = folder.path().join("copy.db");
    let writer = {
        let caller = caller.clone();
        tokio::spawn(async move {
            for number in 300..600 {
                caller.ingest(new(number)).await.unwrap();
            }
        })
    };
    ledger.backup(&copy).await.unwrap();
    writer.await.unwrap();
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().filter(|file| named(file, "copy")).count(),
        1,
        "one file"
    );

    let restored = open(&copy).await;
    let report = restored.verify().await.unwrap();
    assert_eq!(report.faults, []);
    assert!(report.works >= 300 && report.works <= 600, "{}", report.works);
    let again = restored.caller(Actor::machine("m")).ingest(new(0)).await.unwrap();
    assert!(!again.created);
    restored.close().await.unwrap();

    let before = fs::read(&copy).unwrap();
    let twice = ledger.backup(&copy).await;
    assert!(matches!(&twice, Err(Error::Unusable(told)) if told.contains("new file")), "{twice:?}");
    assert_eq!(fs::read(&copy).unwrap(), before, "what is there is left alone");
    let nowhere = ledger.backup(folder.path().join("nowhere/copy.db")).await;
    assert!(matches!(&nowhere, Err(Error::Unusable(told)) if told.contains("nowhere")), "{nowhere:?}");
    ledger.close().await.unwrap();
}

/// A reader goes on from its cursor, whichever copy of the ledger is served next.
#[tokio::test]
async fn a_cursor_from_before_a_restore_skips_no_event() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let ingest = async |ledger: &Ledger, number| {
        ledger.caller(Actor::machine("m")).ingest(new(number)).await.unwrap().work.id
    };
    let ledger = open(&at("ledger.db")).await;
    ingest(&ledger, 0).await;
    ledger.backup(&at("backup.db")).await.unwrap();
    for lost in 1..50 {
        ingest(&ledger, lost).await;
    }
    let mut cursor = ledger.tail().await.unwrap();
    ledger.close().await.unwrap();

    // Twice from one backup: a reader of the first restored ledger goes on at the second.
    for restored in ["once.db", "again.db"] {
        fs::copy(at("backup.db"), at(restored)).unwrap();
        let ledger = open(&at(restored)).await;
        let after = [ingest(&ledger, 100).await, ingest(&ledger, 101).await];
        let seen = ledger.feed(cursor, 100).await.unwrap().events;
        assert_eq!(seen.iter().map(|event| event.event.work).collect::<Vec<_>>(), after, "{restored}");
        cursor = ledger.tail().await.unwrap();
        assert_eq!(ledger.verify().await.unwrap().faults, []);
        ledger.close().await.unwrap();

        let ledger = open(&at(restored)).await;
        ingest(&ledger, 102).await;
        assert_eq!(ledger.feed(cursor, 100).await.unwrap().events.len(), 1, "it counts on where it is");
        ledger.close().await.unwrap();
    }
}

fn named(file: &std::io::Result<fs::DirEntry>, name: &str) -> bool {
    file.as_ref().unwrap().file_name().to_string_lossy().starts_with(name)
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn postgresql_has_its_own_tools() {
    let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await;
    let ledger = Ledger::open_postgres(&made.unwrap(), Options::default()).await.unwrap();
    for (to, word) in [
        ("/var/backups/ledger.dump", "/var/backups/ledger.dump"),
        ("/var/backups/a b; rm -r c.dump", "'/var/backups/a b; rm -r c.dump'"),
        ("/it's", r"'/it'\''s'"),
    ] {
        match ledger.backup(to).await {
            Err(Error::Refused(refusal)) => {
                assert_eq!(refusal.code, Code::Invalid);
                let typed = format!("pg_dump --format=custom --file={word} \"$");
                assert!(refusal.detail.contains(&typed), "{}", refusal.detail);
            }
            other => panic!("{other:?}"),
        }
    }
    ledger.close().await.unwrap();
}

/// A ledger of some 12 MiB: many steps of a copy.
async fn large(folder: &Path) -> Ledger {
    let ledger = open(&folder.join("ledger.db")).await;
    for number in 0..24 {
        let input = json!("x".repeat(500_000));
        let new = NewWork::new("manual", &format!("large {number}"), "job", Disposition::Rerunnable, input);
        ledger.caller(Actor::machine("m")).ingest(new).await.unwrap();
    }
    ledger
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_ends() {
    const ENOUGH: usize = 3_000;
    let folder = tempfile::tempdir().unwrap();
    let ledger = large(folder.path()).await;
    let copy = folder.path().join("copy.db");
    let done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (caller, done) = (ledger.caller(Actor::machine("m")), done.clone());
        tokio::spawn(async move {
            let mut written = 0;
            while !done.load(Ordering::Relaxed) && written < ENOUGH {
                caller.ingest(new(written)).await.unwrap();
                written += 1;
            }
            written
        })
    };
    ledger.backup(&copy).await.unwrap();
    done.store(true, Ordering::Relaxed);
    let written = writer.await.unwrap();
    assert!(written < ENOUGH, "the backup ended only when nothing was written any more");
    assert_eq!(ledger.diagnosis().await.unwrap().backup, None);
    ledger.close().await.unwrap();
    let restored = open(&copy).await;
    let report = restored.verify().await.unwrap();
    assert_eq!(report.faults, []);
    assert!(report.works >= 24 && report.works <= 24 + written as u64, "{}", report.works);
    restored.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_whose_caller_has_left_ends_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = large(folder.path()).await;
    let (left, copy) = (folder.path().join("left.db"), folder.path().join("copy.db"));
    let mut caller = Box::pin(ledger.backup(&left));
    assert!(std::future::poll_fn(|cx| Poll::Ready(caller.as_mut().poll(cx))).await.is_pending());
    // One at a time: a second would only read the same disk.
    let second = ledger.backup(&copy).await;
    assert!(
        matches!(&second, Err(Error::Unavailable(told)) if told.contains("another backup")),
        "{second:?}"
    );
    drop(caller);
    while let Err(error) = ledger.backup(&copy).await {
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        tokio::task::yield_now().await;
    }
    assert!(!left.exists(), "a piece of a copy is no backup");
    ledger.close().await.unwrap();
}
