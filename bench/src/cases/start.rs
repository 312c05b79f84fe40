//! How long work waits when nothing is in its way: from before the ingest to the return of a parked claim.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::mpsc;

use crate::{Result, subject::Subject};

const KIND: &str = "started";
const PER_S: u32 = 50;
const CLAIMERS: usize = 4;

/// How long a parked claim waits: longer than the pause between two ingests, however slow the machine.
const PARK: Duration = Duration::from_secs(10);

/// One latency in milliseconds for each work ingested.
pub async fn run(subject: &Subject, slice: Duration) -> Result<Vec<f64>> {
    let epoch = Instant::now();
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let claimers: Vec<_> =
        (0..CLAIMERS).map(|_| tokio::spawn(claimer(subject.clone(), epoch, arrived.clone()))).collect();
    drop(arrived);

    let mut ticks = tokio::time::interval(Duration::from_secs(1) / PER_S);
    ticks.tick().await; // the first is at once: the claimers come to park in the meantime
    let mut latencies = Vec::new();
    let mut sent = 0;
    while epoch.elapsed() < slice {
        ticks.tick().await;
        subject.ingest_with(KIND, json!({ "sent_us": epoch.elapsed().as_micros() as u64 })).await?;
        sent += 1;
    }
    while latencies.len() < sent {
        let Some(latency) = arrivals.recv().await else { break };
        latencies.push(latency?);
    }
    // Parked claims of theirs go with them.
    claimers.iter().for_each(|claimer| claimer.abort());
    if latencies.len() == sent { Ok(latencies) } else { Err("a claimer stopped too early".into()) }
}

async fn claimer(subject: Subject, epoch: Instant, arrived: mpsc::UnboundedSender<Result<f64>>) {
    let failed = loop {
        let claimed = match subject.claim(KIND, 1, Some(PARK)).await {
            Ok(claimed) => claimed,
            Err(error) => break error,
        };
        let now = epoch.elapsed();
        for claimed in &claimed {
            let sent = claimed.input.as_ref().and_then(|input| input.value()["sent_us"].as_u64());
            let waited = sent.map(|sent| (now.as_micros() as f64 - sent as f64) / 1_000.0);
            if arrived.send(waited.ok_or_else(|| "a claim came without its input".into())).is_err() {
                return;
            }
        }
        if let Err(error) = subject.close_out_all(&claimed).await {
            break error;
        }
    };
    // Nobody listens any more: then nobody misses it.
    let _ = arrived.send(Err(failed));
}
