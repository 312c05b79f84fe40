//! A copy of a ledger that is in use is a ledger.
#![cfg(feature = "sqlite")]

use std::{fs, path::Path};

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

fn named(file: &std::io::Result<fs::DirEntry>, name: &str) -> bool {
    file.as_ref().unwrap().file_name().to_string_lossy().starts_with(name)
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn postgresql_has_its_own_tools() {
    let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await;
    let ledger = Ledger::open_postgres(&made.unwrap(), Options::default()).await.unwrap();
    match ledger.backup("/var/backups/ledger.dump").await {
        Err(Error::Refused(refusal)) => {
            assert_eq!(refusal.code, Code::Invalid);
            assert!(refusal.detail.contains("pg_dump --format=custom --file=/var/backups/ledger.dump"));
        }
        other => panic!("{other:?}"),
    }
    ledger.close().await.unwrap();
}
