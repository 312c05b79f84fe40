//! The delay of work items without competition: from before the ingest to the return of a long-polling claim.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::mpsc;

use crate::{Result, subject::Subject};

const KIND: &str = "started";
const PER_S: u32 = 50;
const CLAIMERS: usize = 4;

/// The timeout of a long-polling claim: longer than the pause between two ingests, even on a slow machine.
const PARK: Duration = Duration::from_secs(10);

/// One latency in milliseconds for each ingested work item.
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
    // Drops the long-polling claims with them.
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
    // A closed channel means that nobody is waiting for the result.
    let _ = arrived.send(Err(failed));
}
