//! Moves committed pages from the WAL into the file while the writer goes on: a checkpoint of its own
//! would hold up everybody in the queue.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use rusqlite::Connection;
use tenure_core::Millis;

use super::settings;
use crate::{Clock, Error};

/// Pages between two checkpoints. A WAL that stays small is written over and over in the same place, and
/// syncing it takes less than syncing a file that grows.
const EVERY: usize = 1_000;

/// Pages of a commit, whatever is in it; and submissions that share one more.
const EACH: usize = 4;
const SHARED_BY: usize = 4;

/// The writer's side: tells when there is something to move.
pub(super) struct Checkpoints {
    due: SyncSender<()>,
    since: usize,
    pub last: LastCheckpoint,
}

/// When the whole WAL was last moved; zero until it was.
#[derive(Clone, Default)]
pub(super) struct LastCheckpoint(Arc<AtomicI64>);

impl LastCheckpoint {
    pub fn get(&self) -> Option<Millis> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }
}

impl Checkpoints {
    pub fn start(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let conn = settings::checkpointer(path)?;
        let (due, wanted) = sync_channel(1);
        let last = LastCheckpoint::default();
        let noted = last.clone();
        thread::Builder::new()
            .name("ledger-wal".into())
            .spawn(move || run(&conn, &wanted, &*clock, &noted))
            .map_err(|error| Error::Unavailable(format!("no thread for checkpoints: {error}")))?;
        Ok(Self { due, since: 0, last })
    }

    pub fn committed(&mut self, submissions: usize) {
        self.since += EACH + submissions / SHARED_BY;
        // A full channel means that one is due already.
        if self.since >= EVERY && self.due.try_send(()).is_ok() {
            self.since = 0;
        }
    }
}

fn run(conn: &Connection, wanted: &Receiver<()>, clock: &dyn Clock, last: &LastCheckpoint) {
    while wanted.recv().is_ok() {
        let moved = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok(row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
        });
        match moved {
            Ok(true) => last.0.store(clock.wall(), Ordering::Relaxed),
            // A reader that still needs the rest keeps it where it is.
            Ok(false) => {}
            // The writer's own, at a far larger WAL, makes up for one that failed.
            Err(error) => tracing::warn!(%error, "a checkpoint failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    #[test]
    fn it_is_noted_when_everything_was_moved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let writer = settings::writer(&path, false).unwrap();
        let conn = settings::checkpointer(&path).unwrap();
        let (last, clock) = (LastCheckpoint::default(), ManualClock::new(42));
        let checkpoint = || {
            let (due, wanted) = sync_channel(1);
            due.send(()).unwrap();
            drop(due);
            run(&conn, &wanted, &clock, &last);
        };
        writer.execute_batch("CREATE TABLE t (x)").unwrap();
        let reader = settings::reader(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        writer.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        checkpoint();
        assert_eq!(last.get(), None, "a reader still needs the state before");
        reader.execute_batch("COMMIT").unwrap();
        checkpoint();
        assert_eq!(last.get(), Some(42));
    }
}
