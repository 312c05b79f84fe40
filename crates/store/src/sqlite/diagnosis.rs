//! The file's description of itself.

use std::fs;

use super::{SqliteStore, migrate, settings, wal};
use crate::{
    diagnosis::{Diagnosis, Schema},
    store::{DiagnosisStore, StoreFuture},
};

impl DiagnosisStore for SqliteStore {
    /// Uses the writer's connection, because `synchronous` is a setting of each connection.
    fn diagnosis(&self) -> StoreFuture<'_, Diagnosis> {
        let (path, checkpoints) = (self.path.clone(), self.checkpoints.clone());
        let backup = self.backup.progress();
        self.write(move |conn| {
            let known = migrate::MIGRATIONS.last().map_or(0, |last| last.number);
            let applied: i64 =
                conn.query_row("SELECT coalesce(max(number), 0) FROM migration", [], |row| row.get(0))?;
            let bytes = fs::metadata(wal::beside(&path)).map_or(0, |file| file.len());
            Ok(Diagnosis {
                engine: "sqlite",
                version: rusqlite::version().to_owned(),
                schema: Some(Schema { known: known as u32, applied: applied as u32 }),
                settings: settings::durability(conn)?,
                wal: Some(checkpoints.of(bytes)),
                file: Some(path),
                backup,
            })
        })
    }
}
