//! Copies one state of the file while the writer goes on. Each page is read once and written once.

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use rusqlite::{
    Connection,
    backup::{Backup, StepResult},
};

use super::{settings::explain, wal};
use crate::{Error, diagnosis::Copied};

/// Pages between two checks whether a caller still waits for the copy.
const PAGES: i32 = 1_000;

/// The pause between two attempts while another connection has the copy's lock.
const AGAIN: Duration = Duration::from_millis(5);

/// The WAL cannot restart while the copied state is in use. It may grow by the size of the file, and at least by this;
/// beyond that the copy is given up, before the WAL fills the disk.
const GROWTH: u64 = 1024 * 1024 * 1024;

/// The progress of a copy, and whether its caller has left.
#[derive(Default)]
pub(super) struct Copying {
    left: AtomicBool,
    bytes: AtomicU64,
    total: AtomicU64,
}

/// The caller of a copy. When it is dropped, the copy ends.
pub(super) struct Waiting(pub Arc<Copying>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.left.store(true, Relaxed);
    }
}

/// The running copy, if any.
#[derive(Default)]
pub(super) struct Current(Mutex<Weak<Copying>>);

impl Current {
    /// Begins a copy, unless one is running.
    pub fn begin(&self) -> Result<Arc<Copying>, Error> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if current.strong_count() > 0 {
            return Err(Error::Unavailable("another backup is being made: let it finish first".to_owned()));
        }
        let copying = Arc::default();
        *current = Arc::downgrade(&copying);
        Ok(copying)
    }

    pub fn progress(&self) -> Option<Copied> {
        let copying = self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()?;
        Some(Copied { bytes: copying.bytes.load(Relaxed), total: copying.total.load(Relaxed) })
    }
}

/// Copies one state of a ledger. A read transaction keeps that state: without it, SQLite would start again after each
/// commit between two steps, and never finish under load.
pub(super) fn copy(source: &Connection, target: &mut Connection, copying: &Copying) -> Result<(), Error> {
    let from = Path::new(source.path().unwrap_or_default()).to_owned();
    let failed = |error: rusqlite::Error| explain(&from, &error);
    let state = source.unchecked_transaction().map_err(failed)?;
    let page: i64 = state.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(failed)?;
    // A transaction's state is fixed by its first read.
    state.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(failed)?;
    let log = wal::beside(&from);
    let length = |file: &Path| fs::metadata(file).map_or(0, |file| file.len());
    let most = length(&log) + length(&from).max(GROWTH);
    let to = Path::new(target.path().unwrap_or_default()).to_owned();
    let backup = Backup::new(&state, target).map_err(|error| explain(&to, &error))?;
    loop {
        let step = backup.step(PAGES).map_err(|error| explain(&to, &error))?;
        let (total, remaining) = (backup.progress().pagecount, backup.progress().remaining);
        copying.total.store(total as u64 * page as u64, Relaxed);
        copying.bytes.store((total - remaining) as u64 * page as u64, Relaxed);
        match step {
            StepResult::Done => return Ok(()),
            StepResult::Busy | StepResult::Locked => std::thread::sleep(AGAIN),
            _ => {}
        }
        if copying.left.load(Relaxed) {
            return Err(Error::Unavailable("nobody waits for the backup any more".to_owned()));
        }
        if length(&log) > most {
            return Err(Error::Unavailable(format!(
                "the ledger is written faster than it can be copied ({} grew by {} MiB meanwhile). Write the backup \
                 to a faster disk, or when less is going on",
                log.display(),
                length(&from).max(GROWTH) >> 20
            )));
        }
    }
}
