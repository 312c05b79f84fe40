//! The transition without a ledger, on a ledger's tables: its indexes, constraints and triggers, its own
//! statements, and the values of a progress event that it wrote itself. Nothing is loaded, decided or
//! chained: what is left is what the tables cost.

mod cells;
mod columns;
mod postgres;
mod sqlite;

use std::time::Duration;

use crate::{Result, plan::Commit, site::Place, stats::Rate, subject::Subject};

pub enum Raw {
    Sqlite(sqlite::Raw),
    Postgres(postgres::Raw),
}

impl Raw {
    /// Lets a ledger make the tables and `rows` running works, each with a progress event, then takes over.
    pub async fn open(place: &Place, rows: usize, connections: usize) -> Result<Raw> {
        let subject = Subject::new(place.ledger().await?)?;
        let held = subject.hold("raw", rows).await?;
        for some in held.chunks(rows.min(1_024)) {
            futures_util::future::try_join_all(some.iter().map(|lease| subject.progress(lease, 42))).await?;
        }
        subject.close().await?;
        Ok(match place {
            Place::Sqlite(path) => Raw::Sqlite(sqlite::Raw::open(path)?),
            Place::Postgres(url) => Raw::Postgres(postgres::Raw::open(url, connections).await?),
        })
    }

    pub async fn run(&mut self, commit: Commit, slice: Duration) -> Result<Rate> {
        match self {
            Raw::Sqlite(raw) => raw.run(commit.size, slice),
            Raw::Postgres(raw) => raw.run(commit, slice).await,
        }
    }
}
