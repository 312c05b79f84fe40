//! The transition without a ledger: a row update and an event insert on two plain tables. What the database
//! and the disk give at best; no rule, no constraint, no chain. It must not know the ledger.

mod postgres;
mod sqlite;

use std::time::Duration;

use crate::{Result, plan::Commit, site::Place, stats::Rate};

pub enum Bare {
    Sqlite(sqlite::Bare),
    Postgres(postgres::Bare),
}

impl Bare {
    /// Makes the tables and `rows` rows to go round on.
    pub async fn open(place: &Place, rows: usize, connections: usize) -> Result<Bare> {
        Ok(match place {
            Place::Sqlite(path) => Bare::Sqlite(sqlite::Bare::open(path, rows)?),
            Place::Postgres(url) => Bare::Postgres(postgres::Bare::open(url, rows, connections).await?),
        })
    }

    pub async fn run(&mut self, commit: Commit, slice: Duration) -> Result<Rate> {
        match self {
            Bare::Sqlite(bare) => bare.run(commit.size, slice),
            Bare::Postgres(bare) => bare.run(commit, slice).await,
        }
    }
}
