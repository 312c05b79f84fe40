//! The transition without a ledger: a row update and an event insert on two plain tables, as fast as the
//! database and the disk allow; no rules, constraints or hash chain. It must not know the ledger.

mod postgres;
mod sqlite;

use std::time::Duration;

use crate::{Result, plan::Commit, site::Place, stats::Rate};

pub enum Bare {
    Sqlite(sqlite::Bare),
    Postgres(postgres::Bare),
}

impl Bare {
    /// Creates the tables and `rows` rows to cycle through.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg;

    const SLICE: Duration = Duration::from_millis(20);

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite_keeps_what_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bare.db");
        let mut bare = Bare::open(&Place::Sqlite(path.clone()), 10, 1).await.unwrap();
        let mut count = 0;
        for size in [1, 7] {
            count += bare.run(Commit { connections: 1, size }, SLICE).await.unwrap().count;
        }
        let connection = rusqlite::Connection::open(path).unwrap();
        let kept: (i64, i64) = connection
            .query_row("SELECT (SELECT count(*) FROM history), (SELECT sum(attempt) FROM item)", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!(kept, (count as i64, count as i64));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgres_keeps_what_is_counted() {
        let url = tenure_testkit::shared().create_database();
        let mut bare = Bare::open(&Place::Postgres(url.clone()), 20, 2).await.unwrap();
        let mut count = 0;
        for (connections, size) in [(1, 1), (2, 7)] {
            count += bare.run(Commit { connections, size }, SLICE).await.unwrap().count;
        }
        let sql = "SELECT (SELECT count(*) FROM history), (SELECT sum(attempt) FROM item)";
        let row = pg::connect(&url).await.unwrap().query_one(sql, &[]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (count as i64, count as i64));
    }
}
