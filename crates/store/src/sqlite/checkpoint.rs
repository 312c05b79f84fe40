//! Checkpoints on a thread of their own: it moves committed pages from the WAL into the file while the writer goes on.
//! A checkpoint by the writer would delay every caller in the queue.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use rusqlite::Connection;
use tenure_core::Millis;

use super::settings;
use crate::{CheckpointFailure, Clock, Error, Wal};

/// Pages between two checkpoints. A small WAL is overwritten in place, and syncing it is faster than syncing a file
/// that grows.
const EVERY: usize = 1_000;

/// Pages that every commit writes, and the number of submissions that add one more page.
const EACH: usize = 4;
const SHARED_BY: usize = 4;

/// The writer's side: starts a checkpoint when there is enough to move.
pub(super) struct Checkpoints {
    due: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    since: usize,
    pub progress: Progress,
}

/// The results of this process's checkpoints.
#[derive(Clone, Default)]
pub(super) struct Progress(Arc<Mutex<Inner>>);

#[derive(Clone, Default)]
struct Inner {
    /// When a checkpoint last moved the whole WAL.
    moved_at: Option<Millis>,
    /// The first checkpoint since then that left a part of it.
    behind_since: Option<Millis>,
    failure: Option<CheckpointFailure>,
}

impl Progress {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn failure(&self) -> Option<CheckpointFailure> {
        self.inner().failure.clone()
    }

    /// The figures, with the size of the WAL.
    pub fn of(&self, bytes: u64) -> Wal {
        let Inner { moved_at, behind_since, failure } = self.inner().clone();
        Wal { bytes, checkpointed_at: moved_at, behind_since, failure }
    }

    /// Records the result of a checkpoint. True: it moved everything. False: a reader still needs the rest of the WAL.
    fn note(&self, outcome: rusqlite::Result<bool>, at: Millis) {
        let mut inner = self.inner();
        match outcome {
            Ok(true) => *inner = Inner { moved_at: Some(at), ..Inner::default() },
            Ok(false) => {
                inner.failure = None;
                inner.behind_since.get_or_insert(at);
            }
            Err(error) => {
                let why = error.to_string();
                tracing::warn!(why, "a checkpoint failed; the log grows until one succeeds");
                inner.behind_since.get_or_insert(at);
                let (count, since) = inner.failure.as_ref().map_or((0, at), |last| (last.count, last.since));
                inner.failure = Some(CheckpointFailure { count: count + 1, since, why });
            }
        }
    }
}

impl Checkpoints {
    pub fn start(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let conn = settings::checkpointer(path)?;
        let (due, wanted) = sync_channel(1);
        let progress = Progress::default();
        let noted = progress.clone();
        let thread = thread::Builder::new()
            .name("ledger-wal".into())
            .spawn(move || run(&conn, &wanted, &*clock, &noted))
            .map_err(|error| Error::Unavailable(format!("no thread for checkpoints: {error}")))?;
        Ok(Self { due: Some(due), thread: Some(thread), since: 0, progress })
    }

    pub fn committed(&mut self, submissions: usize) {
        self.since += EACH + submissions / SHARED_BY;
        // A full channel means that a checkpoint is requested already.
        if self.since >= EVERY && self.due.as_ref().is_some_and(|due| due.try_send(()).is_ok()) {
            self.since = 0;
        }
    }

    /// Waits for a running checkpoint. Afterwards its connection is closed.
    pub fn stop(&mut self) {
        self.due = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread for checkpoints panicked");
        }
    }
}

fn run(conn: &Connection, wanted: &Receiver<()>, clock: &dyn Clock, progress: &Progress) {
    while wanted.recv().is_ok() {
        progress.note(passive(conn), clock.wall());
    }
}

/// Moves all pages that no reader needs. True: nothing was left.
pub(super) fn passive(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        Ok(row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
    })
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
        let (progress, clock) = (Progress::default(), ManualClock::new(42));
        let checkpoint = || {
            let (due, wanted) = sync_channel(1);
            due.send(()).unwrap();
            drop(due);
            run(&conn, &wanted, &clock, &progress);
            progress.of(0)
        };
        writer.execute_batch("CREATE TABLE t (x)").unwrap();
        let reader = settings::reader(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        writer.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        let held = checkpoint();
        assert_eq!(
            (held.checkpointed_at, held.behind_since),
            (None, Some(42)),
            "a reader still needs the rest"
        );
        reader.execute_batch("COMMIT").unwrap();
        let moved = checkpoint();
        assert_eq!((moved.checkpointed_at, moved.behind_since), (Some(42), None));
    }

    #[test]
    fn a_checkpoint_that_fails_is_counted_with_its_reason_until_one_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let writer = settings::writer(&path, false).unwrap();
        writer.execute_batch("CREATE TABLE t (x)").unwrap();
        let conn = settings::checkpointer(&path).unwrap();
        let progress = Progress::default();
        // A checkpoint inside a transaction always fails.
        conn.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        progress.note(passive(&conn), 1);
        progress.note(passive(&conn), 2);
        let failure = progress.failure().unwrap();
        assert_eq!((failure.count, failure.since), (2, 1));
        assert!(failure.why.contains("locked"), "{}", failure.why);
        conn.execute_batch("COMMIT").unwrap();
        progress.note(passive(&conn), 3);
        assert_eq!(progress.failure(), None);
    }
}
