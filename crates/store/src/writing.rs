//! Whether this process can write; if not, why, since when, what resolves it, and when the next attempt is.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The pause between two attempts: doubled from the first value to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a process tries to recover by itself before a restart is advised.
const HEALS_WITHIN: Duration = Duration::from_secs(60);

/// What resolves a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cure {
    /// The next write tries again: the server rolled the failed one back.
    NextWrite,
    /// Free disk space. The file is reopened automatically; a restart would not help.
    Space,
    /// The file is reopened automatically.
    Reopening,
    /// Only a restart of the process.
    Restart,
}

/// Why writing has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Why the store stopped writing.
    pub why: String,
    /// Since when.
    pub since: Instant,
    /// What ends it.
    pub cure: Cure,
}

impl Stop {
    /// Whether a supervisor should restart this process at `now`.
    pub fn needs_restart(&self, now: Instant) -> bool {
        match self.cure {
            Cure::NextWrite | Cure::Space => false,
            Cure::Reopening => now.saturating_duration_since(self.since) >= HEALS_WITHIN,
            Cure::Restart => true,
        }
    }
}

#[derive(Default)]
pub(crate) struct Writing(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    stop: Option<Stop>,
    /// Since the last commit.
    failures: u32,
    /// When the next attempt is.
    again: Option<Instant>,
}

impl Writing {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failed write.
    pub fn stop(&self, why: impl Into<String>, cure: Cure) {
        let why = why.into();
        let mut inner = self.inner();
        if inner.stop.as_ref().is_some_and(|stop| stop.cure == Cure::Restart) {
            return;
        }
        tracing::error!(why, ?cure, "writing has stopped");
        let pause = FIRST_PAUSE.saturating_mul(1 << inner.failures.min(16)).min(LONGEST_PAUSE);
        inner.failures += 1;
        let now = Instant::now();
        inner.again = Some(now + pause);
        let since = inner.stop.as_ref().map_or(now, |stop| stop.since);
        inner.stop = Some(Stop { why, since, cure });
    }

    /// The file was reopened. The pause is reset only by a commit.
    #[cfg(feature = "sqlite")]
    pub fn reopened(&self) {
        tracing::info!("the ledger was reopened: writing continues");
        self.inner().stop = None;
    }

    /// Records a committed group.
    pub fn committed(&self) {
        let mut inner = self.inner();
        if inner.failures > 0 && inner.stop.as_ref().is_none_or(|stop| stop.cure != Cure::Restart) {
            *inner = Inner::default();
        }
    }

    /// Why writing has stopped. None after the pause: the next write decides.
    pub fn stopped(&self) -> Option<Stop> {
        let inner = self.inner();
        let over = inner.again.is_none_or(|again| again <= Instant::now());
        inner.stop.clone().filter(|stop| stop.cure != Cure::NextWrite || !over)
    }

    /// When the next attempt is.
    #[cfg(feature = "sqlite")]
    pub fn again(&self) -> Instant {
        let inner = self.inner();
        let never = inner.stop.as_ref().is_some_and(|stop| stop.cure == Cure::Restart);
        let now = Instant::now();
        if never { now + HEALS_WITHIN } else { inner.again.unwrap_or(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_advised_where_the_process_cannot_heal_by_itself() {
        let now = Instant::now();
        let advised = |cure, seconds| {
            let stop = Stop { why: "x".to_owned(), since: now, cure };
            stop.needs_restart(now + Duration::from_secs(seconds))
        };
        assert!(advised(Cure::Restart, 0));
        assert!(!advised(Cure::Reopening, 59) && advised(Cure::Reopening, 60));
        assert!(!advised(Cure::Space, 86_400), "a restart makes no room, and ends the reads");
        assert!(!advised(Cure::NextWrite, 86_400));
    }

    #[test]
    fn a_stop_begins_once_and_ends_with_a_commit_unless_only_a_restart_helps() {
        let writing = Writing::default();
        assert!(writing.stopped().is_none());
        writing.stop("full", Cure::Space);
        let since = writing.stopped().unwrap().since;
        writing.stop("still full", Cure::Space);
        let stop = writing.stopped().unwrap();
        assert_eq!((stop.why.as_str(), stop.since), ("still full", since));
        writing.committed();
        assert!(writing.stopped().is_none());
        writing.stop("panicked", Cure::Restart);
        writing.stop("full", Cure::Space);
        writing.committed();
        assert_eq!(writing.stopped().unwrap().why, "panicked");
    }

    #[test]
    fn the_pause_between_two_tries_grows_until_a_commit() {
        let writing = Writing::default();
        let pause = || writing.inner().again.unwrap().saturating_duration_since(Instant::now());
        for _ in 0..10 {
            writing.stop("full", Cure::Space);
        }
        assert!(pause() > LONGEST_PAUSE / 2 && pause() <= LONGEST_PAUSE);
        writing.committed();
        writing.stop("full", Cure::Space);
        assert!(pause() <= FIRST_PAUSE);
    }
}
