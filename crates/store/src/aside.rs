//! Threads for blocking calls, apart from the pool that tokio shares between everything in the process: a DNS
//! lookup without a response would block other users of that pool.

use std::{io, thread};

use tokio::sync::oneshot;

/// Small: the closures only make system calls and hash files.
const STACK: usize = 512 * 1024;

/// Runs a blocking call on a new thread of this name. If the caller stops waiting, or the process ends, the
/// thread is not waited for.
pub async fn aside<T: Send + 'static>(
    name: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    aside_with_stack(name, STACK, call).await
}

/// The same with a larger stack, for deep recursion.
pub async fn aside_with_stack<T: Send + 'static>(
    name: &str,
    stack: usize,
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (reply, answer) = oneshot::channel();
    let run = move || _ = reply.send(call());
    thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn(run)?;
    answer.await.map_err(|_| io::Error::other(format!("the thread `{name}` panicked; see the log")))
}
