//! Whether a claim becomes slower as the queue becomes longer.

use std::time::{Duration, Instant};

use crate::{Result, args::Store, plan::Plan, report::Row, site::Site, stats::percentile, subject::Subject};

const KIND: &str = "queued";

/// Claims timed on one queue before the other has its turn, so that the disk affects both equally.
const TURN: usize = 50;

pub async fn run(store: Store, site: &Site, plan: &Plan) -> Result<Vec<Row>> {
    let mut queues = Vec::new();
    for queued in plan.queued {
        let subject = Subject::new(site.empty(&format!("queued-{queued}")).ledger().await?)?;
        let began = Instant::now();
        subject.fill(KIND, queued).await?;
        let took = began.elapsed().as_secs_f64();
        eprintln!("{}: {queued} works queued in {took:.1} s", store.name());
        queues.push((queued, subject, Vec::new()));
    }
    for _ in 0..plan.claims.div_ceil(TURN) {
        for (_, subject, times) in &mut queues {
            for _ in 0..TURN {
                times.push(timed_claim(subject).await?.as_secs_f64() * 1_000.0);
            }
            subject.fill(KIND, TURN).await?;
        }
    }
    let mut rows = Vec::new();
    for (queued, subject, times) in &queues {
        subject.close().await?;
        let mut row = Row::new(store, "claim_1m");
        row.queued = Some(*queued);
        (row.p50_ms, row.p99_ms) = (percentile(times, 50.0), percentile(times, 99.0));
        let shortest = rows.first().and_then(|first: &Row| first.p99_ms);
        row.ratio = row.p99_ms.zip(shortest).map(|(p99, shortest)| p99 / shortest);
        rows.push(row);
    }
    Ok(rows)
}

async fn timed_claim(subject: &Subject) -> Result<Duration> {
    let began = Instant::now();
    let claimed = subject.claim(KIND, 1, None).await?;
    let took = began.elapsed();
    if claimed.len() == 1 { Ok(took) } else { Err("a claim found nothing in a full queue".into()) }
}
