//! The daemon over HTTP: many connections with one request at a time each, on the same cores.

mod connection;
mod daemon;
mod embedded;
mod neighbours;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};

use crate::{
    Result,
    args::{HttpArgs, Store},
    cases::{at_once, at_once_until},
    report::Row,
    site::{Place, Site},
    stats::{Rate, median, percentile},
};
use connection::Connection;
use daemon::{Daemon, NO_LIMIT};
use embedded::Embedded;

const CONNECTIONS: usize = 64;

/// Ingests in one request of the batch case.
const BATCH: usize = 100;

/// Work items ingested each second while starts are timed: a light load.
const LIGHT: u32 = 50;

/// The time from the end of a load until the daemon has released the memory that only the load needed.
const REST: Duration = Duration::from_secs(3);

/// The sizes of the measurement.
struct Plan {
    rounds: usize,
    slice: Duration,
    start_slice: Duration,
    /// Of an attack, and of the quiet phase before it.
    attack: Duration,
    /// Work items in the ledger when memory and a cold start are measured.
    stored: u64,
}

pub async fn run(args: &HttpArgs) -> Result<Vec<Row>> {
    let binary = daemon::binary(args.tenure.as_deref())?;
    let plan = if args.common.quick {
        Plan {
            rounds: 3,
            slice: Duration::from_millis(600),
            start_slice: Duration::from_secs(2),
            attack: Duration::from_secs(4),
            stored: 30_000,
        }
    } else {
        Plan {
            rounds: 5,
            slice: Duration::from_secs(2),
            start_slice: Duration::from_secs(4),
            attack: Duration::from_secs(10),
            stored: 1_000_000,
        }
    };
    let mut rows = Vec::new();
    for store in args.common.stores() {
        rows.extend(measure(store, args, &binary, &plan).await?);
        rows.extend(neighbours::measure(store, args, &binary, &plan).await?);
    }
    Ok(rows)
}

async fn measure(store: Store, args: &HttpArgs, binary: &Path, plan: &Plan) -> Result<Vec<Row>> {
    let began = Instant::now();
    let say =
        |what: &str| eprintln!("{} over HTTP: {what} ({:.0} s)", store.name(), began.elapsed().as_secs_f64());
    let site = Site::new(store, &args.common)?;
    let place = site.empty("http");
    let (daemon, _) = Daemon::start(binary, &place, NO_LIMIT).await?;
    let load = Load::open(&daemon).await?;
    let embedded = Embedded::open(&site.empty("embedded")).await?;
    say("ready");

    let (mut single, mut batch, mut in_process) = (Vec::new(), Vec::new(), Vec::new());
    load.single(plan.slice / 4).await?;
    embedded.single(plan.slice / 4).await?;
    for round in 1..=plan.rounds {
        single.push(load.single(plan.slice).await?.per_s());
        batch.push(load.batch(plan.slice).await?.per_s() * BATCH as f64);
        in_process.push(embedded.single(plan.slice).await?.per_s());
        say(&format!("round {round} of {}", plan.rounds));
    }
    embedded.close().await?;
    let starts = starts(&daemon, plan.start_slice).await?;
    say("starts timed");
    load.fill(plan.stored).await?;
    say(&format!("{} works stored", plan.stored));
    let loaded = daemon.resident()?;
    drop(load);
    tokio::time::sleep(REST).await;
    let resting = daemon.resident()?;
    daemon.stop().await?;
    let cold = cold_start(binary, &place).await?;
    say("done");

    let row = |case: &'static str| Row { bench: "http", ..Row::new(store, case) };
    Ok(vec![
        Row { submitters: Some(CONNECTIONS), per_s: median(&single), ..row("ingest") },
        Row { submitters: Some(CONNECTIONS), per_s: median(&batch), ..row("batch") },
        Row { submitters: Some(CONNECTIONS), per_s: median(&in_process), ..row("embedded") },
        Row { p50_ms: percentile(&starts, 50.0), p99_ms: percentile(&starts, 99.0), ..row("start_ms") },
        Row { stored: Some(plan.stored as usize), bytes: Some(loaded), ..row("memory_load") },
        Row { stored: Some(plan.stored as usize), bytes: Some(resting), ..row("memory") },
        Row { stored: Some(plan.stored as usize), p50_ms: Some(cold), ..row("cold_start") },
    ])
}

/// The median of a few starts on an existing ledger, in milliseconds.
async fn cold_start(binary: &Path, place: &Place) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..3 {
        let (daemon, took) = Daemon::start(binary, place, NO_LIMIT).await?;
        times.push(took.as_secs_f64() * 1_000.0);
        daemon.stop().await?;
    }
    median(&times).ok_or_else(|| "nothing was timed".into())
}

/// Open connections, and the number of the next work item.
struct Load {
    connections: Vec<Arc<Mutex<Connection>>>,
    next: Arc<AtomicU64>,
}

impl Load {
    async fn open(daemon: &Daemon) -> Result<Load> {
        let mut connections = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            connections.push(Arc::new(Mutex::new(Connection::open(daemon).await?)));
        }
        Ok(Load { connections, next: Arc::default() })
    }

    /// One work item in each request.
    async fn single(&self, slice: Duration) -> Result<Rate> {
        let (connections, next) = (self.connections.clone(), self.next.clone());
        at_once(CONNECTIONS, slice, move |submitter, _| {
            let (connection, next) = (connections[submitter].clone(), next.clone());
            async move {
                let work = work("single", next.fetch_add(1, Ordering::Relaxed));
                connection.lock().await.post("/v1/work", &work).await.map(drop)
            }
        })
        .await
    }

    /// Counts requests; each contains [`BATCH`] work items.
    async fn batch(&self, slice: Duration) -> Result<Rate> {
        let (connections, next) = (self.connections.clone(), self.next.clone());
        at_once(CONNECTIONS, slice, move |submitter, _| {
            let (connection, next) = (connections[submitter].clone(), next.clone());
            async move { batch(&mut *connection.lock().await, &next).await }
        })
        .await
    }

    /// Fills the ledger with this many work items.
    async fn fill(&self, stored: u64) -> Result<()> {
        let (connections, next) = (self.connections.clone(), self.next.clone());
        at_once_until(CONNECTIONS, move |submitter, _| {
            let (connection, next) = (connections[submitter].clone(), next.clone());
            async move {
                let missing = next.load(Ordering::Relaxed) < stored;
                if missing {
                    batch(&mut *connection.lock().await, &next).await?;
                }
                Ok(missing)
            }
        })
        .await?;
        Ok(())
    }
}

async fn batch(connection: &mut Connection, next: &AtomicU64) -> Result<()> {
    let first = next.fetch_add(BATCH as u64, Ordering::Relaxed);
    let items: Vec<Value> = (first..first + BATCH as u64)
        .map(|number| json!({ "path": "/v1/work", "body": work("batch", number) }))
        .collect();
    let answer: Value =
        serde_json::from_slice(&connection.post("/v1/batch", &json!({ "items": items })).await?)?;
    let answers = answer["items"].as_array().map_or(&[][..], Vec::as_slice);
    match answers.iter().find(|answer| answer["status"] != 201) {
        None if answers.len() == BATCH => Ok(()),
        None => Err(format!("a batch of {BATCH} had {} answers", answers.len()).into()),
        Some(other) => Err(format!("an ingest of a batch was answered with {other}").into()),
    }
}

fn work(kind: &str, number: u64) -> Value {
    json!({
        "source": { "system": "manual", "id": format!("bench-{number}") },
        "kind": kind,
        "disposition": "rerunnable",
        "input": { "prompt": "Summarise the thread and file it.", "thread": 4711 },
    })
}

/// From before an ingest to the return of a long-polling claim, in milliseconds.
async fn starts(daemon: &Daemon, slice: Duration) -> Result<Vec<f64>> {
    let mut producer = Connection::open(daemon).await?;
    let worker = Connection::open(daemon).await?;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let waiting = tokio::spawn(wait_for_work(worker, arrived));
    let began = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / LIGHT);
    let mut latencies = Vec::new();
    let mut number = 0;
    while began.elapsed() < slice {
        ticks.tick().await;
        let sent = Instant::now();
        producer.post("/v1/work", &work("started", 10_000_000_000 + number)).await?;
        number += 1;
        let came: Instant = arrivals.recv().await.ok_or("the waiting worker stopped")??;
        latencies.push(came.duration_since(sent).as_secs_f64() * 1_000.0);
    }
    waiting.abort();
    Ok(latencies)
}

/// Claims one work item after another by long poll, and closes each out.
async fn wait_for_work(mut connection: Connection, arrived: mpsc::UnboundedSender<Result<Instant>>) {
    for request in 0_u64.. {
        if let Err(error) = one_work(&mut connection, request, &arrived).await {
            // A closed channel means that the time is over.
            let _over = arrived.send(Err(error));
            return;
        }
    }
}

async fn one_work(
    connection: &mut Connection,
    request: u64,
    arrived: &mpsc::UnboundedSender<Result<Instant>>,
) -> Result<()> {
    let claim = json!({
        "worker": { "id": "bench", "incarnation": "first" },
        "request_id": format!("start-{request}"),
        "kinds": ["started"],
        "max": 1,
        "wait_ms": 10_000,
    });
    let claimed: Value = serde_json::from_slice(&connection.post("/v1/work/claim", &claim).await?)?;
    let came = Instant::now();
    for lease in claimed["leases"].as_array().into_iter().flatten() {
        arrived.send(Ok(came))?;
        let id = lease["work"]["id"].as_str().ok_or("a lease without a work")?;
        let close = json!({
            "fence": lease["fence"], "token": lease["token"], "state": "succeeded", "no_output": true,
        });
        connection.post(&format!("/v1/work/{id}/close-out"), &close).await?;
    }
    Ok(())
}
