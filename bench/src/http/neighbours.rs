//! A quiet tenant beside an attacking one: the quiet tenant's reads and renewals with and without the attack,
//! in alternating slices, and the daemon's memory throughout. Quotas, rates and leases are the defaults.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tenure_testkit::Neighbour;
use tokio::task::JoinHandle;

use super::{
    Plan,
    connection::Connection,
    daemon::{self, Daemon},
};
use crate::{
    Result,
    args::{HttpArgs, Store},
    report::Row,
    site::Site,
    stats::percentile,
};

/// Work items of the hostile tenant with lists that are slow to serialize, and ones with large events.
const SMALL: usize = 1_000;
const HEAVY: usize = 10;
/// Work items that the quiet tenant reads.
const OWN: usize = 100;

/// Pauses of the quiet tenant between its reads, and between its renewals.
const READ_EVERY: Duration = Duration::from_millis(20);
const RENEW_EVERY: Duration = Duration::from_millis(100);
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

const SCOPES: [&str; 4] = ["view", "payload", "submit", "work"];

pub async fn measure(store: Store, args: &HttpArgs, binary: &Path, plan: &Plan) -> Result<Vec<Row>> {
    let say = |what: &str| eprintln!("{} beside an attack: {what}", store.name());
    let site = Site::new(store, &args.common)?;
    let (daemon, _) = Daemon::start(binary, &site.empty("neighbours"), "").await?;
    let hostile = token(&daemon, "hostile").await?;
    let quiet = token(&daemon, "quiet").await?;
    fill(&mut Connection::of(&daemon, &hostile).await?).await?;
    let lease = lease(&mut Connection::of(&daemon, &quiet).await?).await?;
    let memory = watch(daemon.pid());
    say("ready");

    let (mut alone, mut attacked) = (Spent::default(), Spent::default());
    for round in 1..=plan.rounds {
        alone.add(&daemon, &quiet, &lease, plan.attack / 2).await?;
        let attack = Neighbour::attack(&daemon.address, &hostile, round as u32);
        let spent = attacked.add(&daemon, &quiet, &lease, plan.attack).await;
        let (answered, refused) = tokio::task::spawn_blocking(move || attack.stop()).await?;
        spent?;
        say(&format!("round {round} of {}: {answered} calls answered, {refused} refused", plan.rounds));
    }
    let most = memory.stop().await?;
    daemon.stop().await?;

    let row = |case: &'static str| Row { bench: "http", ..Row::new(store, case) };
    let reads = |case, reads: &[f64]| Row {
        p50_ms: percentile(reads, 50.0),
        p99_ms: percentile(reads, 99.0),
        ..row(case)
    };
    let renewals = |case, renewals: &[f64]| Row {
        p50_ms: percentile(renewals, 50.0),
        p99_ms: percentile(renewals, 99.0),
        max_ms: percentile(renewals, 100.0),
        ..row(case)
    };
    Ok(vec![
        reads("reads_alone", &alone.reads),
        reads("reads_attacked", &attacked.reads),
        renewals("renewals_alone", &alone.renewals),
        renewals("renewals_attacked", &attacked.renewals),
        Row { bytes: Some(most), ..row("memory_attacked") },
    ])
}

async fn token(daemon: &Daemon, tenant: &str) -> Result<String> {
    let made = json!({ "name": tenant, "kind": "machine", "scopes": SCOPES, "tenants": [tenant] });
    let made = posted(&mut Connection::open(daemon).await?, "/v1/tokens", &made).await?;
    made["secret"].as_str().map(str::to_owned).ok_or_else(|| "a credential has no secret".into())
}

async fn posted(connection: &mut Connection, path: &str, body: &Value) -> Result<Value> {
    Ok(serde_json::from_slice(&connection.post(path, body).await?)?)
}

fn work(id: &str, input: &str) -> Value {
    let source = json!({ "system": "manual", "id": id });
    json!({ "source": source, "kind": "job", "disposition": "rerunnable", "input": input })
}

async fn fill(hostile: &mut Connection) -> Result<()> {
    let items: Vec<Value> =
        (0..SMALL).map(|n| json!({ "path": "/v1/work", "body": work(&format!("small-{n}"), "x") })).collect();
    hostile.post("/v1/batch", &json!({ "items": items })).await?;
    for n in 0..HEAVY {
        hostile.post("/v1/work", &work(&format!("heavy-{n}"), &"x".repeat(900_000))).await?;
    }
    Ok(())
}

/// Work items to read, and the lease of one of them as the body of its renewals.
async fn lease(quiet: &mut Connection) -> Result<Value> {
    for n in 0..OWN {
        quiet.post("/v1/work", &work(&n.to_string(), "x")).await?;
    }
    let worker = json!({ "id": "quiet", "incarnation": "1" });
    let claimed = posted(quiet, "/v1/work/claim", &json!({ "worker": worker, "request_id": "held" })).await?;
    let lease = &claimed["leases"][0];
    let held = json!({ "id": lease["work"]["id"], "fence": lease["fence"], "token": lease["token"] });
    Ok(json!({ "leases": [held] }))
}

/// The duration of each call, in milliseconds.
#[derive(Default)]
struct Spent {
    reads: Vec<f64>,
    renewals: Vec<f64>,
}

impl Spent {
    async fn add(&mut self, daemon: &Daemon, token: &str, lease: &Value, slice: Duration) -> Result<()> {
        let began = Instant::now();
        let mut reader = Connection::of(daemon, token).await?;
        let mut holder = Connection::of(daemon, token).await?;
        let reading = async {
            let mut ticks = tokio::time::interval(READ_EVERY);
            while began.elapsed() < slice {
                ticks.tick().await;
                let asked = Instant::now();
                let (status, _) = reader.get("/v1/work?limit=50").await?;
                if !status.is_success() {
                    return Err(format!("the quiet tenant's read was answered with {status}").into());
                }
                self.reads.push(asked.elapsed().as_secs_f64() * 1_000.0);
            }
            Result::Ok(())
        };
        let renewing = async {
            let mut ticks = tokio::time::interval(RENEW_EVERY);
            while began.elapsed() < slice {
                ticks.tick().await;
                let asked = Instant::now();
                let renewed = posted(&mut holder, "/v1/work/renew", lease).await?;
                if renewed["leases"][0].get("problem").is_some() {
                    return Err(format!("the quiet tenant lost its lease: {renewed}").into());
                }
                self.renewals.push(asked.elapsed().as_secs_f64() * 1_000.0);
            }
            Result::Ok(())
        };
        tokio::try_join!(reading, renewing).map(drop)
    }
}

/// The peak memory of a process, until it is read.
struct Watch {
    over: Arc<AtomicBool>,
    most: JoinHandle<Result<f64>>,
}

fn watch(pid: u32) -> Watch {
    let over = Arc::new(AtomicBool::default());
    let most = tokio::spawn({
        let over = over.clone();
        async move {
            let (mut ticks, mut most) = (tokio::time::interval(SAMPLE_EVERY), 0.0);
            while !over.load(Relaxed) {
                ticks.tick().await;
                most = daemon::resident(pid)?.max(most);
            }
            Ok(most)
        }
    });
    Watch { over, most }
}

impl Watch {
    async fn stop(self) -> Result<f64> {
        self.over.store(true, Relaxed);
        self.most.await?
    }
}
