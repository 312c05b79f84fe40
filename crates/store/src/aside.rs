//! What blocks has threads of its own. The pool that tokio keeps for blocking calls is shared by everything in the process:
//! names that nobody answers for would hold up whatever else is in it.

use std::{io, thread};

use tokio::sync::oneshot;

/// Small: what runs here calls into the system and hashes files.
const STACK: usize = 512 * 1024;

/// Runs a blocking call on a new thread of this name. A caller that stops waiting for it leaves it to finish, and so does the
/// end of the process.
pub async fn aside<T: Send + 'static>(
    name: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    aside_with_stack(name, STACK, call).await
}

/// The same, for calls that go deep.
pub async fn aside_with_stack<T: Send + 'static>(
    name: &str,
    stack: usize,
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (reply, answer) = oneshot::channel();
    let run = move || _ = reply.send(call());
    thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn(run)?;
    answer.await.map_err(|_| io::Error::other(format!("the thread `{name}` broke off; the log says where")))
}
