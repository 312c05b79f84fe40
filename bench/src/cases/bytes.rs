//! The size of a work item on disk, with its three events: ingested, claimed, closed out.

use rusqlite::Connection;

use crate::{Result, pg, site::Place, subject::Subject};

const KIND: &str = "stored";

const TABLES: &str = "
    SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'";

/// Bytes for each work item, on top of an empty ledger.
pub async fn run(place: &Place, works: usize) -> Result<f64> {
    place.ledger().await?.close().await?;
    let empty = stored(place).await?;

    let subject = Subject::new(place.ledger().await?)?;
    subject.fill(KIND, works).await?;
    let mut ended = 0;
    while ended < works {
        let claimed = subject.claim(KIND, 100, None).await?;
        if claimed.is_empty() {
            return Err(format!("of {works} works, only {ended} could be claimed").into());
        }
        subject.close_out_all(&claimed).await?;
        ended += claimed.len();
    }
    subject.close().await?;
    Ok((stored(place).await? - empty) as f64 / works as f64)
}

/// SQLite's file with its write-ahead log folded in; PostgreSQL's tables with their indexes and toast.
async fn stored(place: &Place) -> Result<i64> {
    match place {
        Place::Sqlite(path) => {
            Connection::open(path)?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            Ok(std::fs::metadata(path)?.len() as i64)
        }
        Place::Postgres(url) => {
            let client = pg::connect(url).await?;
            Ok(client.query_one(TABLES, &[]).await?.get(0))
        }
    }
}
