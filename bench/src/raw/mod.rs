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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg;

    const SLICE: Duration = Duration::from_millis(20);
    const WORKS: usize = 20;

    /// Each work has been ingested, claimed and reported on before raw takes over.
    const BEFORE: u64 = 3 * WORKS as u64;

    const KEPT: &str = "SELECT (SELECT count(*) FROM event), (SELECT CAST(sum(seq) AS bigint) FROM work)";

    async fn transitions(raw: &mut Raw, commits: &[(usize, usize)]) -> i64 {
        let mut count = BEFORE;
        for (connections, size) in commits.iter().copied() {
            count += raw.run(Commit { connections, size }, SLICE).await.unwrap().count;
        }
        assert!(count > BEFORE);
        count as i64
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite_keeps_what_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw.db");
        let mut raw = Raw::open(&Place::Sqlite(path.clone()), WORKS, 1).await.unwrap();
        let count = transitions(&mut raw, &[(1, 1), (1, 7)]).await;
        let connection = rusqlite::Connection::open(path).unwrap();
        let kept: (i64, i64) = connection.query_row(KEPT, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(kept, (count, count));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgres_keeps_what_is_counted() {
        let url = tenure_testkit::shared().create_database();
        let mut raw = Raw::open(&Place::Postgres(url.clone()), WORKS, 2).await.unwrap();
        let count = transitions(&mut raw, &[(1, 1), (2, 5)]).await;
        let row = pg::connect(&url).await.unwrap().query_one(KEPT, &[]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (count, count));
    }
}
