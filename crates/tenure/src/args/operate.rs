//! The operators' verbs. Each needs a reason, which is kept.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tenure_api::wire::{Decision, ErrorClass};

use super::{json, period};

/// What every operator's act carries.
#[derive(Args, Clone)]
pub struct Act {
    /// Why; it is kept
    #[arg(long)]
    pub reason: String,
    /// Do not ask; needed where there is no terminal
    #[arg(long, short)]
    pub yes: bool,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure retry w_0198 --reason 'the API is back'")]
pub struct Retry {
    /// Ids of works, or beginnings that no other has
    #[arg(required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure cancel w_0198 --reason 'asked by the user' --within 30s")]
pub struct Cancel {
    /// Ids of works, or beginnings that no other has
    #[arg(required = true)]
    pub ids: Vec<String>,
    /// How long its holder has to stop
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub within: Option<Duration>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure requeue w_0198 --reason 'the input was repaired'")]
pub struct Requeue {
    /// Ids of works, or beginnings that no other has
    #[arg(required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure decide w_0198 failed --reason 'the file is gone'\n  \
tenure decide w_0198 succeeded --no-output --reason 'seen in the mailbox'")]
pub struct Decide {
    /// A work's id, or a beginning of it that no other has
    pub id: String,
    /// requeue, succeeded, failed, cancelled or abandoned
    pub decision: Decision,
    /// For a success: JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json)]
    pub result: Option<Value>,
    /// For a success: where the result is kept
    #[arg(long)]
    pub result_ref: Option<String>,
    /// For a success: there is nothing to show
    #[arg(long)]
    pub no_output: bool,
    /// For a failure: what kind of error it was
    #[arg(long)]
    pub class: Option<ErrorClass>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  tenure rerun w_0198 --from-step draft --reason 'the model was replaced'\n\n\
What becomes of its commands is shown first: what happened is not done again, unless --execute names it."
)]
pub struct Rerun {
    /// Ids of works, or beginnings that no other has
    #[arg(required = true)]
    pub ids: Vec<String>,
    /// Steps before this one keep their results
    #[arg(long)]
    pub from_step: Option<String>,
    /// Commands to be executed again, whatever became of them: ids or keys, or beginnings of them
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub execute: Vec<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure quarantine w_0198 --reason 'it spends too much'")]
pub struct Quarantine {
    /// Ids of works, or beginnings that no other has
    #[arg(required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure abandon w_0198 --reason 'the machine is gone for good'")]
pub struct Abandon {
    /// Ids of works, or beginnings that no other has
    #[arg(required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure drain worker-3 --reason 'the host is replaced' --yes\n\n\
What a worker holds is asked to stop. Rerunnable work goes back to the queue; started owner-bound work is cancelled. \
To let it finish by itself, send the worker SIGTERM instead.")]
pub struct Drain {
    /// A worker's id, as `tenure workers` shows it
    pub worker: String,
    /// Only this incarnation
    #[arg(long)]
    pub incarnation: Option<String>,
    /// Also give up started owner-bound work once its lease lapsed
    #[arg(long)]
    pub abandon: bool,
    #[command(flatten)]
    pub act: Act,
}
