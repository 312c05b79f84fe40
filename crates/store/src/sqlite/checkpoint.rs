//! Moves committed pages from the WAL into the file while the writer goes on: a checkpoint of its own
//! would hold up everybody in the queue.

use std::{
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use rusqlite::Connection;

use super::settings;
use crate::Error;

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
}

impl Checkpoints {
    pub fn start(path: &Path) -> Result<Self, Error> {
        let conn = settings::checkpointer(path)?;
        let (due, wanted) = sync_channel(1);
        thread::Builder::new()
            .name("ledger-wal".into())
            .spawn(move || run(&conn, &wanted))
            .map_err(|error| Error::Unavailable(format!("no thread for checkpoints: {error}")))?;
        Ok(Self { due, since: 0 })
    }

    pub fn committed(&mut self, submissions: usize) {
        self.since += EACH + submissions / SHARED_BY;
        // A full channel means that one is due already.
        if self.since >= EVERY && self.due.try_send(()).is_ok() {
            self.since = 0;
        }
    }
}

fn run(conn: &Connection, wanted: &Receiver<()>) {
    while wanted.recv().is_ok() {
        // The writer's own, at a far larger WAL, makes up for one that failed.
        if let Err(error) = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            tracing::warn!(%error, "a checkpoint failed");
        }
    }
}
