//! A server that goes away: callers are told, nothing that was answered is lost, and it heals by itself.
#![cfg(feature = "postgres")]

use std::time::Duration;

use tenure_core::{Actor, model::Disposition};
use tenure_store::{Error, Ledger, NewWork, Options, WorkFilter};
use tenure_testkit::Cluster;

fn new(id: &str) -> NewWork {
    NewWork::new("manual", id, "k", Disposition::Rerunnable, serde_json::json!({}))
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_unavailable_and_then_heals() {
    let cluster = Cluster::start();
    let url = cluster.create_database();
    let ledger =
        Ledger::open_postgres(&url, Options { lanes: 2, sweep: false, ..Options::default() }).await.unwrap();
    let caller = ledger.caller(Actor::machine("m"));
    caller.ingest(new("before")).await.unwrap();

    cluster.stop();
    for number in 0..3 {
        let answer = caller.ingest(new(&format!("meanwhile-{number}"))).await;
        assert!(matches!(answer, Err(Error::Unavailable(_) | Error::OutcomeUnknown(_))), "{answer:?}");
    }
    assert!(matches!(ledger.list(&WorkFilter::default(), None, 10).await, Err(Error::Unavailable(_))));

    cluster.restart();
    let again = async {
        while let Err(error) = caller.ingest(new("after")).await {
            assert!(matches!(error, Error::Unavailable(_) | Error::OutcomeUnknown(_)), "{error}");
        }
        while ledger.list(&WorkFilter::default(), None, 10).await.is_err() {}
    };
    tokio::time::timeout(Duration::from_secs(20), again).await.expect("it heals");
    let works = ledger.list(&WorkFilter::default(), None, 10).await.unwrap();
    let mut ids: Vec<&str> = works.iter().map(|work| work.spec.source.id.as_str()).collect();
    ids.retain(|id| !id.starts_with("meanwhile"));
    assert_eq!(ids, ["after", "before"]);
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    ledger.close().await.unwrap();
}

/// Writers that never stop while the server crashes under them: whoever was answered finds its work.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_there_after_a_crash() {
    let cluster = Cluster::start();
    let url = cluster.create_database();
    let ledger =
        Ledger::open_postgres(&url, Options { lanes: 2, sweep: false, ..Options::default() }).await.unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut writers = Vec::new();
    for writer in 0..16 {
        let (ledger, stopped) = (ledger.clone(), stopped.clone());
        writers.push(tokio::spawn(async move {
            let caller = ledger.caller(Actor::machine("m"));
            let mut answered = Vec::new();
            for number in 0.. {
                if *stopped.borrow() {
                    break;
                }
                if let Ok(done) = caller.ingest(new(&format!("{writer}-{number}"))).await {
                    answered.push(done.work.id);
                }
            }
            answered
        }));
    }
    let cluster = tokio::task::spawn_blocking(move || {
        cluster.restart();
        cluster.restart();
        cluster
    })
    .await
    .unwrap();
    stop.send(true).unwrap();
    for writer in writers {
        let answered = writer.await.unwrap();
        for ids in answered.chunks(500) {
            let mut found = ledger.works(ids).await;
            while found.is_err() {
                found = ledger.works(ids).await;
            }
            assert_eq!(found.unwrap().len(), ids.len());
        }
    }
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    drop(cluster);
}
