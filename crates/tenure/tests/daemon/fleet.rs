//! A fleet: two daemons on one PostgreSQL, four workers each, and a crash in the middle.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use tenure_api::{
    Client,
    wire::{Batch, BatchItem, EventQuery},
    worker::{self, Job, Options, Outcome},
};
use tokio_util::sync::CancellationToken;

use crate::bed::{Home, work};

/// The full size is set by `scripts/prove`.
const WORKS: &str = "TENURE_FLEET_WORKS";
const BATCH: usize = 500;
const WORKERS: usize = 4;
/// Longer than a crash and a restart take, so that no lease of a living worker lapses.
const LEASE: [u64; 3] = [15_000, 5_000, 5_000];

/// How often the handler ran, by source id.
type Runs = Arc<Mutex<HashMap<String, u32>>>;

#[test]
fn two_daemons_lose_nothing_and_do_nothing_twice_though_one_is_killed() {
    let works: usize = std::env::var(WORKS).map_or(2_000, |text| text.parse().unwrap());
    let one = Home::postgres();
    let other = one.beside();
    let (first, second) = (one.serve(), other.serve());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let clients = [first.client(), second.client()];
    let runs: Runs = Arc::default();
    let stop = CancellationToken::new();
    runtime.block_on(ingest(&clients[0], works));
    let workers: Vec<_> = (0..2 * WORKERS)
        .map(|n| {
            let options = Options { capacity: 50, ..Options::new(&format!("worker-{n}")) };
            let runs = runs.clone();
            let handler = move |job: Job| handle(job, runs.clone());
            let client = clients[n % 2].clone();
            runtime.spawn(worker::run(client, options, handler, stop.clone().cancelled_owned()))
        })
        .collect();
    let done = || runs.lock().unwrap().len();
    runtime.block_on(reached(works / 3, done));
    first.kill();
    runtime.block_on(reached(works / 2, done));
    let first = one.serve();
    runtime.block_on(reached(works, done));
    stop.cancel();
    for worker in workers {
        let report = runtime.block_on(worker).unwrap();
        assert!(report.deferred.is_empty(), "{report:?}");
    }
    let twice: Vec<_> = runs.lock().unwrap().clone().into_iter().filter(|(_, runs)| *runs != 1).collect();
    assert!(twice.is_empty(), "handled more than once: {twice:?}");
    runtime.block_on(checked(&first.client(), works));
}

async fn handle(job: Job, runs: Runs) -> Outcome {
    *runs.lock().unwrap().entry(job.grant.work.source.id.clone()).or_default() += 1;
    Outcome::Ok(job.grant.input.clone())
}

async fn ingest(client: &Client, works: usize) {
    let ids: Vec<usize> = (0..works).collect();
    for some in ids.chunks(BATCH) {
        let item = |n: &usize| {
            let mut body = work(&n.to_string());
            let [ttl, renew, grace] = LEASE;
            body["policy"] = json!({ "lease": { "ttl_ms": ttl, "renew_ms": renew, "grace_ms": grace } });
            BatchItem { method: None, path: "/v1/work".to_owned(), body: Some(body) }
        };
        let reply = client.batch(&Batch { items: some.iter().map(item).collect() }).await.unwrap();
        let refused = reply.items.iter().find(|answer| answer.status != 201);
        assert_eq!(refused, None);
    }
}

/// Waits until this many are done, polling after each end.
async fn reached(count: usize, done: impl Fn() -> usize) {
    let deadline = Duration::from_secs(600);
    let look = async {
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        while done() < count {
            looks.tick().await;
        }
    };
    tokio::time::timeout(deadline, look).await.unwrap_or_else(|_| panic!("{} of {count} are done", done()));
}

/// The ledger's own data: every work item ended once, and the ledger has no faults.
async fn checked(client: &Client, works: usize) {
    let mut ends: HashMap<String, u32> = HashMap::new();
    let mut after = None;
    loop {
        let query = EventQuery { after: after.take(), limit: Some(1_000), tenant: None };
        let page = client.events(&query).await.unwrap();
        if page.items.is_empty() {
            break;
        }
        for event in page.items.iter().filter(|event| event.to.as_str() == "succeeded") {
            *ends.entry(event.work.to_string()).or_default() += 1;
        }
        after = Some(page.next);
    }
    assert_eq!(ends.len(), works, "each work has ended");
    assert!(ends.values().all(|times| *times == 1), "and none twice");
    let report = client.verify().await.unwrap();
    assert_eq!((report.works, report.faults), (works as u64, vec![]));
}
