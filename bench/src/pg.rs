//! What the PostgreSQL limits share: connections, and several of them at work at once.

use std::time::{Duration, Instant};

use tenure_store::postgres_bench_support::SETTINGS;
use tokio_postgres::{Client, NoTls};

use crate::{Result, plan::Commit, stats::Rate};

/// A connection with rows of its own to go round on.
pub trait Lane: Send + 'static {
    /// Takes `size` rows through what is counted, in commits of so many.
    fn turn(&mut self, size: usize) -> impl Future<Output = Result<()>> + Send;
}

/// Set up as a ledger's lane is.
pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // It ends with its client; what goes wrong on the way, the client's own calls say.
    tokio::spawn(connection);
    client.batch_execute(SETTINGS).await?;
    Ok(client)
}

/// Runs as many lanes as the commit asks for, each as a task of its own.
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
