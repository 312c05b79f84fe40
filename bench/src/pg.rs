//! Shared by the PostgreSQL limits: connections, and running several of them concurrently.

use std::time::{Duration, Instant};

use tenure_store::postgres_bench_support::SETTINGS;
use tokio_postgres::{Client, NoTls};

use crate::{Result, plan::Commit, stats::Rate};

/// A connection with its own rows to cycle through.
pub trait Lane: Send + 'static {
    /// Takes `size` rows through the counted transitions, in commits of the given size.
    fn turn(&mut self, size: usize) -> impl Future<Output = Result<()>> + Send;
}

/// Configured like one of the ledger's lanes.
pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // It ends with its client, whose own calls report the errors.
    tokio::spawn(connection);
    client.batch_execute(SETTINGS).await?;
    Ok(client)
}

/// Runs as many lanes as the commit needs, each as a task of its own.
pub async fn run<L: Lane>(lanes: &mut Vec<L>, commit: Commit, slice: Duration) -> Result<Rate> {
    let began = Instant::now();
    let each = |mut lane: L| async move {
        let mut count = 0;
        while began.elapsed() < slice {
            lane.turn(commit.size).await?;
            count += commit.size as u64;
        }
        Result::Ok((lane, count))
    };
    let tasks: Vec<_> = lanes.drain(..commit.connections).map(|lane| tokio::spawn(each(lane))).collect();
    let mut count = 0;
    for task in tasks {
        let (lane, done) = task.await??;
        lanes.push(lane);
        count += done;
    }
    Ok(Rate { count, elapsed: began.elapsed() })
}
