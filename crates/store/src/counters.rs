//! Counters of this process since it opened the ledger. Each costs the hot path one addition.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::Fired;

#[derive(Default)]
pub(crate) struct Counters {
    groups: AtomicU64,
    submissions: AtomicU64,
    micros: AtomicU64,
    last_micros: AtomicU64,
    renewals_refused: AtomicU64,
    server_changes: AtomicU64,
    server_changed: Mutex<Option<Instant>>,
    runs_fired: AtomicU64,
    runs_skipped: AtomicU64,
    runs_refused: AtomicU64,
}

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Committed groups, and the submissions in them.
    pub groups: u64,
    /// Submissions that were decided.
    pub submissions: u64,
    /// The time from the first read of a group to its commit: the total, and that of the last group.
    pub group_time: Duration,
    /// How long the last batch took, from its first read to its commit.
    pub last_group: Duration,
    /// Submissions that wait for a group.
    pub queued: u64,
    /// Renewals that were refused.
    pub renewals_refused: u64,
    /// How often a different database server responded than before, for example after a failover.
    pub server_changes: u64,
    /// How long ago this process noticed the last of these changes.
    pub server_changed: Option<Duration>,
    /// Detected clock jumps, and how far the ledger's time is ahead of the clock now.
    pub clock_jumps: u64,
    /// How far the ledger's time is ahead of the machine's clock.
    pub clock_offset_ms: i64,
    /// Schedule runs that this process ingested, skipped, or that were refused.
    pub runs_fired: u64,
    /// Runs of schedules that were skipped.
    pub runs_skipped: u64,
    /// Runs of schedules that were refused.
    pub runs_refused: u64,
}

impl Counters {
    pub fn committed(&self, submissions: usize, took: Duration) {
        let micros = took.as_micros() as u64;
        self.groups.fetch_add(1, Relaxed);
        self.submissions.fetch_add(submissions as u64, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
        self.last_micros.store(micros, Relaxed);
    }

    pub fn renewals_refused(&self, count: usize) {
        self.renewals_refused.fetch_add(count as u64, Relaxed);
    }

    #[cfg(feature = "postgres")]
    pub fn server_changes(&self, count: u64) {
        if self.server_changes.fetch_max(count, Relaxed) < count {
            *self.server_changed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }

    pub fn scheduled(&self, fired: &Fired) {
        self.runs_fired.fetch_add(fired.fired as u64, Relaxed);
        self.runs_skipped.fetch_add(fired.skipped as u64, Relaxed);
        self.runs_refused.fetch_add(fired.refused as u64, Relaxed);
    }

    pub fn stats(&self, queued: usize, (clock_jumps, clock_offset_ms): (u64, i64)) -> CounterSnapshot {
        CounterSnapshot {
            groups: self.groups.load(Relaxed),
            submissions: self.submissions.load(Relaxed),
            group_time: Duration::from_micros(self.micros.load(Relaxed)),
            last_group: Duration::from_micros(self.last_micros.load(Relaxed)),
            queued: queued as u64,
            clock_jumps,
            clock_offset_ms,
            renewals_refused: self.renewals_refused.load(Relaxed),
            server_changes: self.server_changes.load(Relaxed),
            server_changed: self
                .server_changed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .map(|at| at.elapsed()),
            runs_fired: self.runs_fired.load(Relaxed),
            runs_skipped: self.runs_skipped.load(Relaxed),
            runs_refused: self.runs_refused.load(Relaxed),
        }
    }
}
