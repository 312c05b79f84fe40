//! For the benchmark only: the ledger's own statements and settings, so that raw transitions are made of
//! the very same.

use std::path::Path;

use rusqlite::Connection;

use super::settings;
pub use super::tables::{EVENT_INSERT, WORK_UPDATE};
use crate::Error;

/// A connection set up as the ledger's writer is.
pub fn connect(path: &Path) -> Result<Connection, Error> {
    settings::writer(path, false)
}
