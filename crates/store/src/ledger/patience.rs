//! How a caller waits for its answer.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot::{Receiver, error::TryRecvError};

use crate::awake::Awake;

/// How long a caller that is alone stays awake: longer than a small commit to a file takes. To fall asleep and be woken
/// would cost it a third of that time once more. Tasks that want the thread get it. A server is not waited for like this:
/// its answer takes longer, and it may need the core.
const AWAKE: Duration = Duration::from_micros(500);

/// The callers of a ledger that wait for an answer now.
#[derive(Clone, Default)]
pub(super) struct Callers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: AtomicUsize,
    awake: Mutex<Awake>,
}

/// One of them.
struct Waiting(Callers);

impl Callers {
    fn enter(self) -> Waiting {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }
}

impl Waiting {
    fn is_alone(&self) -> bool {
        self.0.0.waiting.load(Ordering::Relaxed) == 1
    }

    fn with_awake<T>(&self, ask: impl FnOnce(&mut Awake) -> T) -> T {
        ask(&mut self.0.0.awake.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for an answer that comes with the next commit. None: there will be none.
pub(super) async fn soon<T>(mut answer: Receiver<T>, callers: Callers) -> Option<T> {
    let waiting = callers.enter();
    if waiting.is_alone() && waiting.with_awake(Awake::pays) {
        let until = Instant::now() + AWAKE;
        while waiting.is_alone() {
            let in_time = Instant::now() < until;
            match answer.try_recv() {
                Ok(answer) => {
                    waiting.with_awake(|awake| awake.went(in_time));
                    return Some(answer);
                }
                Err(TryRecvError::Closed) => return None,
                Err(TryRecvError::Empty) if in_time => tokio::task::yield_now().await,
                Err(TryRecvError::Empty) => {
                    waiting.with_awake(|awake| awake.went(false));
                    break;
                }
            }
        }
    }
    answer.await.ok()
}
