//! What the file says of itself.

use std::{fs, path::Path};

use rusqlite::Connection;

use super::{checkpoint::Progress, migrate, row::Read, settings, wal};
use crate::diagnosis::{Diagnosis, Schema};

/// On the writer's connection: `synchronous` is a matter of each.
pub(super) fn of(conn: &Connection, path: &Path, checkpoints: &Progress) -> Read<Diagnosis> {
    let known = migrate::MIGRATIONS.last().map_or(0, |last| last.number);
    let applied: i64 =
        conn.query_row("SELECT coalesce(max(number), 0) FROM migration", [], |row| row.get(0))?;
    let bytes = fs::metadata(wal::beside(path)).map_or(0, |file| file.len());
    Ok(Diagnosis {
        engine: "sqlite",
        version: rusqlite::version().to_owned(),
        schema: Some(Schema { known: known as u32, applied: applied as u32 }),
        settings: settings::durability(conn)?,
        wal: Some(checkpoints.of(bytes)),
        file: Some(path.to_owned()),
        backup: None,
    })
}
