//! For the benchmark only: the ledger's own statements and settings, so that raw transitions use exactly these.

use std::path::Path;

use rusqlite::Connection;

pub use super::{
    command::{INSERT as INSERT_COMMAND, UPDATE as UPDATE_COMMAND},
    tables::{INSERT_EVENT, UPDATE_WORK},
};
use super::{fault::Fault, settings};
use crate::Error;

/// A connection with the settings of the ledger's writer. There is no checkpoint thread here, so SQLite makes its own
/// checkpoints.
pub fn connect(path: &Path) -> Result<Connection, Error> {
    let conn = settings::writer(path, false)?;
    let usual = conn.pragma_update(None, "wal_autocheckpoint", 1_000);
    usual.map_err(|error| Fault::from(error).into_error())?;
    Ok(conn)
}
