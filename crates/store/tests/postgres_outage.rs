//! A server that goes away: callers get errors, nothing acknowledged is lost, and the ledger recovers by
//! itself.
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

#[tokio::test(flavor = "multi_thread")]
async fn away_at_start_it_is_unavailable_and_a_wrong_url_is_not() {
    let cluster = Cluster::start();
    let url = cluster.create_database();
    let open = async |url: &str| match Ledger::open_postgres(url, Options::default()).await {
        Err(error) => error,
        Ok(_) => panic!("{url} was opened"),
    };
    let error = open(&format!("{url}_missing")).await;
    assert!(matches!(&error, Error::Unusable(told) if told.contains("createdb")), "{error}");
    let error = open(&url.replace("tenure@", "nobody@")).await;
    assert!(matches!(&error, Error::Unusable(told) if told.contains("pg_hba")), "{error}");
    cluster.stop();
    let error = open(&url).await;
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    assert_eq!(error.retryable(), tenure_core::Retryable::Yes);
}

/// A server that comes back with weaker settings is not written to, and every caller gets the reason.
#[tokio::test(flavor = "multi_thread")]
async fn settings_are_checked_whenever_it_comes_back() {
    let cluster = Cluster::start();
    let url = cluster.create_database();
    let ledger = Ledger::open_postgres(&url, Options { sweep: false, ..Options::default() }).await.unwrap();
    let caller = ledger.caller(Actor::machine("m"));
    caller.ingest(new("before")).await.unwrap();
    assert_eq!(ledger.health().await.fault(), None);

    cluster.psql("postgres", "ALTER SYSTEM SET synchronous_commit = off");
    cluster.restart();
    let mut refused = 0;
    let told = async {
        while refused < 2 {
            match caller.ingest(new("meanwhile")).await {
                Err(Error::WeakSettings(told)) => {
                    assert!(told.contains("synchronous_commit is off"), "{told}");
                    refused += 1;
                }
                Err(Error::Unavailable(_) | Error::OutcomeUnknown(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), told).await.expect("the settings are seen");
    let fault = ledger.health().await.fault();
    assert!(fault.as_ref().is_some_and(|told| told.contains("synchronous_commit")), "{fault:?}");

    cluster.psql("postgres", "ALTER SYSTEM RESET synchronous_commit");
    cluster.restart();
    let again = async { while caller.ingest(new("after")).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(20), again).await.expect("it heals");
    let healthy = async { while ledger.health().await.fault().is_some() {} };
    tokio::time::timeout(Duration::from_secs(20), healthy).await.expect("and says so");
    ledger.close().await.unwrap();
}

/// Writers that never stop while the server crashes: every acknowledged work item still exists.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_there_after_a_crash() {
    let cluster = Cluster::start();
    let url = cluster.create_database();
    let ledger =
        Ledger::open_postgres(&url, Options { lanes: 2, sweep: false, ..Options::default() }).await.unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let (count, mut counted) = tokio::sync::watch::channel(0);
    let mut writers = Vec::new();
    for writer in 0..16 {
        let (ledger, stopped, count) = (ledger.clone(), stopped.clone(), count.clone());
        writers.push(tokio::spawn(async move {
            let caller = ledger.caller(Actor::machine("m"));
            let mut answered = Vec::new();
            for number in 0.. {
                if *stopped.borrow() {
                    break;
                }
                if let Ok(done) = caller.ingest(new(&format!("{writer}-{number}"))).await {
                    answered.push(done.work.id);
                    count.send_modify(|count| *count += 1);
                }
            }
            answered
        }));
    }
    let cluster = std::sync::Arc::new(cluster);
    for crash in 0..3 {
        let before = *counted.borrow();
        let going = counted.wait_for(|count| *count > before + 100);
        tokio::time::timeout(Duration::from_secs(20), going).await.expect("it heals").unwrap();
        let cluster = cluster.clone();
        let restart = move || {
            if crash < 2 {
                cluster.restart()
            }
        };
        tokio::task::spawn_blocking(restart).await.unwrap();
    }
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

/// A frozen server neither responds nor closes connections: callers get an error in time, and acknowledged
/// writes are kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_holds_nobody_for_ever() {
    let cluster = Cluster::start();
    let url = cluster.create_database();
    // Longer than a server that runs takes on a busy machine.
    let answer_within = Duration::from_secs(2);
    let options = Options { lanes: 2, sweep: false, answer_within, ..Options::default() };
    let ledger = Ledger::open_postgres(&url, options).await.unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let (count, mut counted) = tokio::sync::watch::channel((0, 0));
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let (ledger, stopped, count) = (ledger.clone(), stopped.clone(), count.clone());
            tokio::spawn(async move {
                let caller = ledger.caller(Actor::machine("m"));
                let mut answered = Vec::new();
                for number in 0.. {
                    if *stopped.borrow() {
                        break;
                    }
                    let asked = caller.ingest(new(&format!("{writer}-{number}")));
                    match tokio::time::timeout(Duration::from_secs(30), asked).await.expect("an answer") {
                        Ok(done) => {
                            answered.push(done.work.id);
                            count.send_modify(|count| count.0 += 1);
                        }
                        Err(Error::Unavailable(_) | Error::OutcomeUnknown(_)) => {
                            count.send_modify(|count| count.1 += 1);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                answered
            })
        })
        .collect();
    for _ in 0..2 {
        let (done, failed) = *counted.borrow();
        let going = counted.wait_for(|count| count.0 > done + 100);
        tokio::time::timeout(Duration::from_secs(30), going).await.expect("it heals").unwrap();
        let frozen = cluster.freeze();
        let told = counted.wait_for(|count| count.1 >= failed + 16);
        tokio::time::timeout(Duration::from_secs(30), told).await.expect("everybody is told").unwrap();
        let read = async { ledger.list(&WorkFilter::default(), None, 1).await };
        let read = tokio::time::timeout(Duration::from_secs(30), read).await.expect("an answer");
        assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
        drop(frozen);
    }
    let (done, _) = *counted.borrow();
    let again = counted.wait_for(|count| count.0 > done + 100);
    tokio::time::timeout(Duration::from_secs(30), again).await.expect("it heals by itself").unwrap();
    stop.send(true).unwrap();
    let patient = Ledger::open_postgres(&url, Options { sweep: false, ..Options::default() }).await.unwrap();
    for writer in writers {
        for ids in writer.await.unwrap().chunks(500) {
            assert_eq!(patient.works(ids).await.unwrap().len(), ids.len(), "what was answered is there");
        }
    }
    assert_eq!(patient.verify().await.unwrap().faults, []);
    ledger.close().await.unwrap();
}
