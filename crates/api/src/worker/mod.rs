//! The worker loop: claims to its capacity, renews all leases in one call, runs handlers, delivers how they
//! ended, and drains. A program with a loop of its own holds works by [`Held`] instead.
//!
//! It never trusts silence: a lease counts until its ttl has passed since the last confirmed renewal was *sent*,
//! by this process's monotonic clock; then the handler is stopped, for somebody else may hold the work.

#[allow(missing_docs)]
mod command;
mod deliver;
mod drain;
mod held;
mod job;
mod lease;
mod run;

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

pub use command::{Evidence, Fate, Trouble};
pub use deliver::Attempt;
pub use held::{ClaimOptions, Held, Holder, Recorded};
pub use job::Job;
pub use run::run;

use crate::{
    Error,
    wire::{End, ErrorClass, Failure, Lever, Liveness, NewWait, WaitReason, Worker},
};

/// How a worker presents itself and what it takes on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Stays over restarts.
    pub id: String,
    /// New at each boot.
    pub incarnation: String,
    /// What can be looked up of it besides its renewals.
    pub liveness: Liveness,
    /// How many works it holds at once, at most 1,000.
    pub capacity: usize,
    /// Only works of these sources; of any where it is empty.
    pub sources: Vec<String>,
    /// Only works of these kinds; of any where it is empty.
    pub kinds: Vec<String>,
    /// Only works of these tenants; of any where it is empty.
    pub tenants: Vec<String>,
    /// Owner-bound work is started by its first verb, not by the claim.
    pub defer_start: bool,
    /// How long one claim waits at an empty queue.
    pub poll: Duration,
    /// What a drain does.
    pub levers: Vec<Lever>,
    /// How long handlers have to stop once a drain asks them to.
    pub stop_within: Duration,
    /// How long a whole drain takes at most.
    pub drain_within: Duration,
}

impl Options {
    /// A worker of this process, as it boots.
    pub fn new(id: &str) -> Self {
        let Worker { id, incarnation, liveness } = Worker::of_this_process(id);
        Self {
            id,
            incarnation,
            liveness,
            capacity: 1,
            sources: Vec::new(),
            kinds: Vec::new(),
            tenants: Vec::new(),
            defer_start: false,
            poll: Duration::from_secs(10),
            levers: vec![
                Lever::StopClaiming,
                Lever::RequestCancel,
                Lever::Release,
                Lever::Abandon,
                Lever::Flush,
            ],
            stop_within: Duration::from_secs(10),
            drain_within: Duration::from_secs(25),
        }
    }
}

/// How a handler ended. A result of any value that can be written as JSON converts: its error is a [`Failure`], an
/// [`Error`] of the client, or any other outcome.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It succeeded, with its result as the proof.
    Ok(Value),
    /// It failed: the retry policy decides what becomes of the work.
    Err(Failure),
    /// It pauses until these are answered. If they are already, the handler runs again with the answers.
    Wait(Vec<NewWait>, WaitReason),
    /// It hands the work back.
    Release(String),
    /// It stopped because it was asked to: cancelled if the ledger asked, handed back if only a drain did.
    Stopped,
    /// Any other end.
    End(Box<End>),
}

impl Outcome {
    /// It pauses until this is answered.
    pub fn wait(wait: NewWait) -> Self {
        Outcome::Wait(vec![wait], WaitReason::default())
    }
}

impl<T: Serialize, E: Into<Outcome>> From<Result<T, E>> for Outcome {
    fn from(result: Result<T, E>) -> Self {
        match result.map(|value| job::to_json("the result", &value)) {
            Ok(Ok(value)) => Outcome::Ok(value),
            Ok(Err(error)) => error.into(),
            Err(other) => other.into(),
        }
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        Outcome::Err(failure)
    }
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        Outcome::Err(error.into())
    }
}

/// A failed call to the ledger fails the attempt: trying again helps unless the call itself was wrong.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let class = match &error {
            Error::Json { .. } => ErrorClass::Validation,
            Error::Setup { .. } => ErrorClass::Misconfigured,
            error if error.is_terminal() => ErrorClass::Unknown,
            _ => ErrorClass::Transport,
        };
        Failure::new(class, error.to_string())
    }
}

impl Worker {
    /// This process under this id, as it boots: each call is another incarnation.
    pub fn of_this_process(id: &str) -> Self {
        let incarnation = Uuid::now_v7().simple().to_string();
        Self { id: id.to_owned(), incarnation, liveness: local_process() }
    }
}

/// Ends when the process is asked to: SIGTERM or Ctrl-C.
pub async fn termination() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut term) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = term.recv() => return,
                _ = tokio::signal::ctrl_c() => return,
            }
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// This process as evidence of life, where the system shows it; otherwise nothing but renewals.
pub fn local_process() -> Liveness {
    read_process().unwrap_or(Liveness::Opaque)
}

#[cfg(target_os = "linux")]
fn read_process() -> Option<Liveness> {
    use std::{fs, os::unix::fs::MetadataExt};
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name may hold spaces and parentheses, so count from its end; the start time is the 22nd field.
    let start_time = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    Some(Liveness::LocalProcess {
        boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned(),
        pid_namespace: fs::metadata("/proc/self/ns/pid").ok()?.ino(),
        pid: std::process::id(),
        start_time,
    })
}

#[cfg(not(target_os = "linux"))]
fn read_process() -> Option<Liveness> {
    None
}
