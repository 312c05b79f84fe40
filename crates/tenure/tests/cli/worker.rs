//! The worker loop against a real daemon.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::Deserialize;
use serde_json::json;
use tenure_api::{
    Client,
    wire::{
        Disposition, ErrorClass, Failure, Ingest, NewWait, Resolve, RetryPolicy, Source, State, WaitKind,
        WorkPolicy,
    },
    worker::{self, Job, Options, Outcome},
};
use tokio_util::sync::CancellationToken;

use crate::bed::Bed;

const WORKS: usize = 200;
const WORKERS: usize = 4;

#[test]
fn on_sqlite_everything_is_done_once() {
    work_it_off(&Bed::sqlite());
}

#[test]
fn on_postgres_everything_is_done_once() {
    work_it_off(&Bed::postgres());
}

fn work_it_off(bed: &Bed) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let client = Client::http(&bed.daemon.as_ref().unwrap().url, Some(&bed.token())).unwrap();
    let all = work_all(client);
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), all).await }).unwrap();
}

/// One in ten waits for an answer, one in ten fails at first; the rest succeed.
async fn work_all(client: Client) {
    let ids: Vec<_> = futures_util::future::join_all((0..WORKS).map(|n| {
        let client = client.clone();
        async move {
            let source = Source { system: "manual".into(), id: n.to_string(), run_id: String::new() };
            let retry = RetryPolicy { initial_ms: Some(1), max_ms: Some(1), ..RetryPolicy::default() };
            let policy = WorkPolicy { retry: Some(retry), ..WorkPolicy::default() };
            let new = Ingest::new(source, "k", Disposition::Rerunnable, json!({ "n": n }));
            client.ingest(&Ingest { policy: Some(policy), ..new }).await.unwrap().work.id
        }
    }))
    .await;
    let done: Arc<Mutex<BTreeMap<u64, u32>>> = Arc::default();
    let stop = CancellationToken::new();
    let workers: Vec<_> = (0..WORKERS)
        .map(|n| {
            let options = Options { capacity: 8, ..Options::new(&format!("worker-{n}")) };
            let done = done.clone();
            let handler = move |job: Job| handle(job, done.clone());
            let stop = stop.clone();
            tokio::spawn(worker::run(client.clone(), options, handler, stop.cancelled_owned()))
        })
        .collect();
    for (n, id) in ids.iter().enumerate() {
        if n.is_multiple_of(10) {
            let answer = Resolve {
                reference: Some(format!("gate-{n}")),
                token: None,
                tenant: None,
                payload: json!("go"),
                claim: None,
            };
            client.resolve(&answer).await.unwrap();
        }
        let ended = client.work_at_end(id, Duration::from_secs(60)).await.unwrap();
        assert_eq!(ended.state, State::Succeeded, "{ended:?}");
    }
    stop.cancel();
    for worker in workers {
        let report = worker.await.unwrap();
        assert!(report.deferred.is_empty(), "{report:?}");
    }
    assert!(client.verify().await.unwrap().faults.is_empty());
    let done = done.lock().unwrap();
    assert_eq!(done.len(), WORKS);
    assert!(done.values().all(|times| *times == 1), "{done:?}");
}

async fn handle(job: Job, done: Arc<Mutex<BTreeMap<u64, u32>>>) -> Result<u64, Outcome> {
    let Input { n } = job.input()?;
    let gate = format!("gate-{n}");
    if n.is_multiple_of(10) && job.answer::<String>(&gate)?.is_none() {
        return Err(Outcome::wait(NewWait::new(WaitKind::External, &gate)));
    }
    if n % 10 == 1 && job.grant.work.attempt == 1 {
        return Err(Failure::new(ErrorClass::Transport, "the first try never works").into());
    }
    *done.lock().unwrap().entry(n).or_default() += 1;
    Ok(n)
}

#[derive(Deserialize)]
struct Input {
    n: u64,
}
