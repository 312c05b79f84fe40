//! How a caller waits for its answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot::{Receiver, error::TryRecvError};

/// How long a caller that is alone stays awake: about as long as a small commit to a file takes. To fall asleep
/// and be woken would cost it a third of that time once more. Tasks that want the thread get it. A server is
/// not waited for like this: its answer takes longer, and it may need the core.
const AWAKE: Duration = Duration::from_micros(300);

/// The callers of a ledger that wait for an answer now.
#[derive(Clone, Default)]
pub(super) struct Callers(Arc<AtomicUsize>);

/// One of them.
struct Waiting(Callers);

impl Callers {
    fn enter(self) -> Waiting {
        self.0.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }
}

impl Waiting {
    fn is_alone(&self) -> bool {
        self.0.0.load(Ordering::Relaxed) == 1
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for an answer that comes with the next commit. None: there will be none.
pub(super) async fn soon<T>(mut answer: Receiver<T>, callers: Callers) -> Option<T> {
    let waiting = callers.enter();
    let until = Instant::now() + AWAKE;
    while waiting.is_alone() && Instant::now() < until {
        match answer.try_recv() {
            Ok(answer) => return Some(answer),
            Err(TryRecvError::Closed) => return None,
            Err(TryRecvError::Empty) => tokio::task::yield_now().await,
        }
    }
    answer.await.ok()
}
