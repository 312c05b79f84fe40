//! The offset of the ledger's time from the machine's clock, stored for processes that open the file later. Processes
//! that have it open notice a jump by themselves, because all are on this machine.

use rusqlite::{Connection, OptionalExtension};

use super::migrate::failed;
use crate::{
    Error,
    steady::{Offset, Shared, SteadyClock},
};

const READ: &str = "SELECT CAST(value AS TEXT) FROM meta WHERE key = 'clock'";
const WRITE: &str = "INSERT INTO meta (key, value) VALUES ('clock', CAST(?1 AS BLOB)) \
     ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// The offset that an earlier process stored.
pub(super) fn stored(conn: &Connection) -> Result<Shared, Error> {
    let text: Option<String> =
        conn.query_row(READ, [], |row| row.get(0)).optional().map_err(|error| failed(conn, &error))?;
    text.map_or(Ok(Shared::of(Offset::default())), |text| text.parse())
}

/// Stores the clock's offset if it has changed, and returns it.
pub(super) fn keep(conn: &Connection, clock: &SteadyClock, stored: Offset) -> rusqlite::Result<Offset> {
    let offset = clock.offset();
    if offset != stored {
        conn.execute(WRITE, [Shared::of(offset).to_string()])?;
    }
    Ok(offset)
}
