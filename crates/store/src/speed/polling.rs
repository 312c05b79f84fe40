//! Polling for a moment instead of sleeping, while that pays: the SQLite writer for its next message, and a caller that is
//! alone for its reply.

#[cfg(feature = "sqlite")]
use std::{
    sync::mpsc::{self, TryRecvError as InboxError},
    thread,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot::{self, error::TryRecvError};

/// How long the writer polls after a batch.
#[cfg(feature = "sqlite")]
const WRITER: Duration = Duration::from_micros(200);

/// How long a caller that is alone polls: longer than a small commit to a file takes.
const CALLER: Duration = Duration::from_micros(500);

/// However often polling failed, it is tried again one time in 64.
const MOST: u32 = 6;

/// Polling fails on a slow disk, where nothing comes in time, and on a busy machine, where other threads use the core
/// meanwhile. After each failure but a single one, it is skipped more often.
#[derive(Debug, Default)]
struct Polling {
    failures: u32,
    skips: u32,
}

impl Polling {
    /// Whether to poll this time. The caller then reports the result with `went`, if there is one.
    fn pays(&mut self) -> bool {
        let skip = self.skips > 0;
        self.skips = self.skips.saturating_sub(1);
        !skip
    }

    fn went(&mut self, well: bool) {
        (self.skips, self.failures) = match well {
            true => (0, 0),
            false => ((1 << self.failures) - 1, (self.failures + 1).min(MOST)),
        };
    }
}

/// The writer's side.
#[cfg(feature = "sqlite")]
#[derive(Default)]
pub(crate) struct PollingWriter(Polling);

#[cfg(feature = "sqlite")]
impl PollingWriter {
    /// The next message, if it comes soon: a caller that just received its reply often sends again. Other threads that need
    /// the core get it, and may keep it for long.
    pub fn receive<T>(&mut self, inbox: &mpsc::Receiver<T>) -> Option<T> {
        if !self.0.pays() {
            return None;
        }
        let until = Instant::now() + WRITER;
        loop {
            let in_time = Instant::now() < until;
            match inbox.try_recv() {
                Err(InboxError::Empty) if in_time => thread::yield_now(),
                received => {
                    let message = received.ok();
                    self.0.went(in_time && message.is_some());
                    return message;
                }
            }
        }
    }
}

/// The callers of a ledger that wait for a reply now. Only for SQLite: the reply of a PostgreSQL server takes longer, and the
/// server may need the core.
#[derive(Clone, Default)]
pub(crate) struct PollingCallers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: AtomicUsize,
    polling: Mutex<Polling>,
}

impl PollingCallers {
    /// Waits for a reply that comes with the next commit. None: there will be none. Other tasks that need the thread get it.
    pub async fn receive<T>(self, mut reply: oneshot::Receiver<T>) -> Option<T> {
        let waiting = Waiting::enter(self.0);
        if waiting.is_alone() && waiting.with_polling(Polling::pays) {
            let until = Instant::now() + CALLER;
            while waiting.is_alone() {
                let in_time = Instant::now() < until;
                match reply.try_recv() {
                    Ok(reply) => {
                        waiting.with_polling(|polling| polling.went(in_time));
                        return Some(reply);
                    }
                    Err(TryRecvError::Closed) => return None,
                    Err(TryRecvError::Empty) if in_time => tokio::task::yield_now().await,
                    Err(TryRecvError::Empty) => {
                        waiting.with_polling(|polling| polling.went(false));
                        break;
                    }
                }
            }
        }
        reply.await.ok()
    }
}

/// One caller that waits.
struct Waiting(Arc<Shared>);

impl Waiting {
    fn enter(shared: Arc<Shared>) -> Self {
        shared.waiting.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }

    fn is_alone(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) == 1
    }

    fn with_polling<T>(&self, ask: impl FnOnce(&mut Polling) -> T) -> T {
        ask(&mut self.0.polling.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many times polling is skipped before the next try.
    fn skipped(polling: &mut Polling) -> usize {
        (0..).take_while(|_| !polling.pays()).count()
    }

    #[test]
    fn polling_that_fails_is_tried_less_and_less_until_it_pays_again() {
        let mut polling = Polling::default();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pauses.push(skipped(&mut polling));
            polling.went(false);
        }
        assert_eq!(pauses, [0, 0, 1, 3, 7, 15, 31, 63]);
        assert_eq!(skipped(&mut polling), 63);
        polling.went(true);
        assert!(polling.pays() && polling.pays());
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn the_writer_gets_what_is_there_and_waits_no_longer_for_what_is_not() {
        let (sender, inbox) = mpsc::channel();
        let mut polling = PollingWriter::default();
        assert_eq!(polling.receive(&inbox), None);
        sender.send(7).unwrap();
        assert_eq!(polling.receive(&inbox), Some(7));
        drop(sender);
        assert_eq!(polling.receive(&inbox), None);
    }

    #[tokio::test]
    async fn a_caller_gets_its_reply_or_learns_that_there_is_none() {
        let callers = PollingCallers::default();
        let (sender, reply) = oneshot::channel();
        sender.send(7).unwrap();
        assert_eq!(callers.clone().receive(reply).await, Some(7));
        let (sender, reply) = oneshot::channel::<u8>();
        drop(sender);
        assert_eq!(callers.clone().receive(reply).await, None);
        assert_eq!(callers.0.waiting.load(Ordering::Relaxed), 0);
    }
}
