//! What the SQLite limits share: a connection as the ledger's writer has it.

use std::{path::Path, time::Duration};

use rusqlite::Connection;

use crate::Result;

/// Durable, and with as much cache as the ledger's writer.
const SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -32768";

pub fn connect(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.execute_batch(SETTINGS)?;
    Ok(connection)
}
