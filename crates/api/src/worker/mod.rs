//! The worker loop: claims up to its capacity, renews all leases in one call, runs handlers, delivers their
//! outcomes, and drains. A program with a loop of its own uses [`LeasedWork`] instead.
//!
//! Silence is never taken as success: a lease is valid until its ttl has passed since the last confirmed
//! renewal was *sent*, by this process's monotonic clock; then the handler is stopped, because somebody else
//! may hold the work item.

mod command;
mod deliver;
mod drain;
mod job;
mod lease;
mod leased;
mod run;

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

pub use command::{Evidence, Fate, Trouble};
pub use deliver::Attempt;
pub use job::Job;
pub use leased::{ClaimOptions, Holder, LeasedWork, Recorded};
pub use run::run;

use crate::{
    Error,
    wire::{End, ErrorClass, Failure, Lever, Liveness, NewWait, WaitReason, Worker},
};

/// The settings of a worker: its identity, its filters and its time limits.
#[derive(Clone, Debug)]
pub struct Options {
    /// The same after a restart.
    pub id: String,
    /// New at each start.
    pub incarnation: String,
    /// How a sweeper can check that it is alive, besides its renewals.
    pub liveness: Liveness,
    /// How many work items it holds at once, at most 1,000.
    pub capacity: usize,
    /// Only work items of these sources; empty means any.
    pub sources: Vec<String>,
    /// Only work items of these kinds; empty means any.
    pub kinds: Vec<String>,
    /// Only work items of these tenants; empty means any.
    pub tenants: Vec<String>,
    /// Owner-bound work is started by the holder's first verb instead of the claim.
    pub defer_start: bool,
    /// How long one claim waits when the queue is empty.
    pub poll: Duration,
    /// The steps of a drain.
    pub levers: Vec<Lever>,
    /// How long handlers have to stop once a drain asks them to.
    pub stop_within: Duration,
    /// The time limit of a whole drain.
    pub drain_within: Duration,
}

impl Options {
    /// A worker of this process, with a new incarnation.
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

/// The outcome of a handler. A `Result` whose value can be written as JSON converts: its error is a
/// [`Failure`], an [`Error`] of the client, or any other outcome.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It succeeded, with its result.
    Ok(Value),
    /// It failed: the retry policy decides whether the work item is retried.
    Err(Failure),
    /// It pauses until these waits are answered. If they are answered already, the handler runs again with
    /// the answers.
    Wait(Vec<NewWait>, WaitReason),
    /// It releases the work item, with a reason.
    Release(String),
    /// It stopped because it was asked to: cancelled if the ledger requested that, released if only a drain
    /// did.
    Stopped,
    /// Any other end.
    End(Box<End>),
}

impl Outcome {
    /// It pauses until this wait is answered.
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

/// A failed call to the ledger fails the attempt: a retry helps unless the call itself was wrong.
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
    /// This process under this id; each call is another incarnation.
    pub fn of_this_process(id: &str) -> Self {
        let incarnation = Uuid::now_v7().simple().to_string();
        Self { id: id.to_owned(), incarnation, liveness: local_process() }
    }
}

/// Completes when the process is asked to end: SIGTERM or Ctrl-C.
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

/// This process as evidence of life, if the system exposes it; otherwise none besides its renewals.
pub fn local_process() -> Liveness {
    read_process().unwrap_or(Liveness::Opaque)
}

#[cfg(target_os = "linux")]
fn read_process() -> Option<Liveness> {
    use std::{fs, os::unix::fs::MetadataExt};
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name may contain spaces and parentheses, so count from its end; the start time is the 22nd field.
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
