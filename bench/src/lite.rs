//! Shared by the SQLite limits: a connection like that of the ledger's writer.

use std::{path::Path, time::Duration};

use rusqlite::Connection;

use crate::Result;

/// Durable, with the cache size of the ledger's writer.
const SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384";

pub fn connect(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.execute_batch(SETTINGS)?;
    // A limit that is not durable would prove nothing.
    let journal: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    match (journal.as_str(), synchronous) {
        ("wal", 2) => Ok(connection),
        other => {
            Err(format!("SQLite gave journal_mode and synchronous {other:?}, not WAL and FULL (2)").into())
        }
    }
}
