//! Several ledgers over one database, and works that wait for each other: nothing twice, no deadlock.
#![cfg(feature = "postgres")]

use std::{collections::BTreeSet, time::Duration};

use tenure_core::{
    Actor, State, WorkId,
    action::{ClaimFilter, Claimant, CloseOut},
    model::{Disposition, OnParentClose, Worker},
};
use tenure_store::{Ledger, NewWork, Options};
use tenure_testkit::shared;

async fn open(url: &str) -> Ledger {
    Ledger::open_postgres(url, Options { lanes: 2, sweep: false, ..Options::default() }).await.unwrap()
}

fn new(id: &str) -> NewWork {
    NewWork::new("manual", id, "k", Disposition::Rerunnable, serde_json::json!({ "id": id }))
}

fn claimant(worker: usize, request: usize) -> Claimant {
    let worker = Worker { id: format!("w{worker}"), incarnation: "1".into(), liveness: Default::default() };
    Claimant { worker, request_id: request.to_string(), defer_start: false }
}

fn done() -> CloseOut {
    CloseOut {
        state: State::Succeeded,
        result: None,
        result_ref: None,
        no_output: true,
        warnings: vec![],
        error: None,
        evidence: vec![],
        commands: Vec::new(),
        usage: vec![],
    }
}

fn up_to(max: usize) -> ClaimFilter {
    ClaimFilter { max, ..ClaimFilter::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_identity_is_one_work() {
    let url = shared().create_database();
    let ledgers = [open(&url).await, open(&url).await, open(&url).await];
    let mut tasks = Vec::new();
    for number in 0..300_usize {
        let ledger = ledgers[number % 3].clone();
        tasks.push(tokio::spawn(async move {
            let caller = ledger.caller(Actor::machine("m"));
            caller.ingest(new(&format!("{}", number % 20))).await.unwrap()
        }));
    }
    let (mut ids, mut created) = (BTreeSet::new(), 0);
    for task in tasks {
        let ingested = task.await.unwrap();
        ids.insert(ingested.work.id);
        created += usize::from(ingested.created);
    }
    assert_eq!((ids.len(), created), (20, 20));
    assert_eq!(ledgers[0].verify().await.unwrap().faults, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_work_is_claimed_twice() {
    let url = shared().create_database();
    let ledgers = [open(&url).await, open(&url).await];
    let caller = ledgers[0].caller(Actor::machine("m"));
    for number in 0..200 {
        caller.ingest(new(&number.to_string())).await.unwrap();
    }
    let mut workers = Vec::new();
    for worker in 0..16_usize {
        let ledger = ledgers[worker % 2].clone();
        workers.push(tokio::spawn(async move {
            let caller = ledger.caller(Actor::worker(format!("w{worker}")));
            let mut mine: Vec<WorkId> = Vec::new();
            for request in 0.. {
                let got = caller.claim(claimant(worker, request), up_to(7), None).await.unwrap();
                if got.is_empty() {
                    break;
                }
                for claimed in got {
                    caller.close_out(&claimed.lease, done()).await.unwrap();
                    mine.push(claimed.work.id);
                }
            }
            mine
        }));
    }
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.await.unwrap());
    }
    // Somebody whose selection was taken away by the other ledger may have stopped early.
    while let Some(left) = caller.claim(claimant(99, all.len()), up_to(100), None).await.unwrap().first() {
        all.push(left.work.id);
    }
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "a work was claimed twice");
    assert_eq!(ledgers[0].verify().await.unwrap().faults, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_claim_hears_of_work_that_another_process_brings() {
    let url = shared().create_database();
    let (here, there) = (open(&url).await, open(&url).await);
    let waiting = tokio::spawn(async move {
        let caller = here.caller(Actor::worker("w"));
        caller.claim(claimant(1, 1), up_to(1), Some(Duration::from_secs(30))).await.unwrap()
    });
    there.caller(Actor::machine("m")).ingest(new("one")).await.unwrap();
    let got = tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it is told").unwrap();
    assert_eq!(got.len(), 1);
}

/// Parents that close wake children that are being worked on, in sessions that they share, on two ledgers.
#[tokio::test(flavor = "multi_thread")]
async fn works_that_lead_to_each_other_do_not_deadlock() {
    let url = shared().create_database();
    let ledgers = [open(&url).await, open(&url).await];
    let caller = ledgers[0].caller(Actor::machine("m"));
    let mut families = Vec::new();
    for family in 0..12 {
        let parent = caller.ingest(new(&format!("parent-{family}"))).await.unwrap().work.id;
        let mut members = vec![parent];
        for child in 0..6 {
            let mut new = new(&format!("child-{family}-{child}"));
            new.parent = Some(parent);
            new.on_parent_close = OnParentClose::Cancel;
            new.session = Some(format!("session-{}", child % 3));
            members.push(caller.ingest(new).await.unwrap().work.id);
        }
        families.push(members);
    }
    let before = deadlocks(&url);
    let mut tasks = Vec::new();
    for (number, members) in families.iter().enumerate() {
        for (at, id) in members.iter().copied().enumerate() {
            let ledger = ledgers[(number + at) % 2].clone();
            tasks.push(tokio::spawn(async move {
                let caller = ledger.caller(Actor::person("p"));
                if at % 2 == 1 {
                    caller.quarantine(id, "to look at it").await.map(|_| ())
                } else {
                    caller.cancel(id, "enough", None).await.map(|_| ())
                }
            }));
        }
    }
    let all = async {
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("nobody waits for ever");
    assert_eq!(deadlocks(&url), before);
    assert_eq!(ledgers[0].verify().await.unwrap().faults, []);
}

fn deadlocks(url: &str) -> String {
    let sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    shared().psql(url.rsplit('/').next().unwrap(), sql)
}
