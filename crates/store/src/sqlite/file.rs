//! The identity of the ledger's file, for opening it again after a failed write.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rusqlite::Connection;

use super::{copied, loss, migrate, settings, wal};
use crate::{Clock, Error, writing::Cure};

/// Device and inode. None: the file does not exist.
type Identity = Option<(u64, u64)>;

pub(super) struct LedgerFile {
    path: PathBuf,
    allow_weak: bool,
    clock: Arc<dyn Clock>,
    /// Of the file and of its WAL.
    identities: [Identity; 2],
}

impl LedgerFile {
    /// The file as it is open now.
    pub fn of(path: &Path, allow_weak: bool, clock: Arc<dyn Clock>) -> Self {
        Self { path: path.to_owned(), allow_weak, clock, identities: identities(path) }
    }

    /// A new connection to the same file, after everything in it has been synced. This process still reads the file, so
    /// a different file or WAL in its place must not be opened.
    pub fn open(&self) -> Result<Connection, (String, Cure)> {
        if identities(&self.path) != self.identities {
            let why = format!(
                "another file is in the place of {} or of its log. Put it back, and restart",
                self.path.display()
            );
            return Err((why, Cure::Restart));
        }
        connect(&self.path, self.allow_weak, &*self.clock).map_err(|error| {
            let cure = if settings::is_full(&error) { Cure::Space } else { Cure::Reopening };
            (error.to_string(), cure)
        })
    }
}

fn identities(path: &Path) -> [Identity; 2] {
    let of = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    [of(path), of(&wal::beside(path))]
}

/// The writer's connection, opened after the WAL was made durable and the schema brought up to date.
pub(super) fn connect(path: &Path, allow_weak: bool, clock: &dyn Clock) -> Result<Connection, Error> {
    let mut conn = settings::writer(path, allow_weak)?;
    wal::make_durable(&mut conn)?;
    migrate::run(&mut conn, migrate::MIGRATIONS, clock.wall())?;
    copied::lift_positions(&mut conn, clock.wall())?;
    loss::mark_in_file(path, &conn)?;
    Ok(conn)
}
