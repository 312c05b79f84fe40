//! Arguments of the operators' verbs. Each needs a reason, which is recorded.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tenure_api::wire::{Decision, ErrorClass};

use super::{json, period};

/// Arguments common to all operators' verbs.
#[derive(Args, Clone)]
pub struct Act {
    /// The reason, which is recorded
    #[arg(long)]
    pub reason: String,
    /// Do not ask for confirmation; required without a terminal
    #[arg(long, short)]
    pub yes: bool,
    /// Show what would happen, or why not, without writing anything
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure retry w_0198 --reason 'the API is back'")]
pub struct Retry {
    /// Ids of work items, or unique prefixes of them
    #[arg(required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure cancel w_0198 --reason 'asked by the user' --within 30s")]
pub struct Cancel {
    /// Ids of work items, or unique prefixes of them
    #[arg(required = true)]
    pub ids: Vec<String>,
    /// The time that its holder has to stop
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub within: Option<Duration>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure requeue w_0198 --reason 'the input was repaired'")]
pub struct Requeue {
    /// Ids of work items, or unique prefixes of them
    #[arg(required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure decide w_0198 failed --reason 'the file is gone'\n  \
tenure decide w_0198 succeeded --no-output --reason 'seen in the mailbox'")]
pub struct Decide {
    /// A work item's id, or a unique prefix of it
    pub id: String,
    /// requeue, succeeded, failed, cancelled or abandoned
    pub decision: Decision,
    /// For a success, the result: JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json)]
    pub result: Option<Value>,
    /// For a success, a reference to where the result is stored
    #[arg(long)]
    pub result_ref: Option<String>,
    /// For a success, declare that there is no result
    #[arg(long)]
    pub no_output: bool,
    /// For a failure, the class of the error
    #[arg(long)]
    pub class: Option<ErrorClass>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  tenure rerun w_0198 --from-step draft --reason 'the model was replaced'\n\n\
The plan for its commands is shown first: a command that took effect is not executed again unless --execute names it."
)]
pub struct Rerun {
    /// Ids of work items, or unique prefixes of them
    #[arg(required = true)]
    pub ids: Vec<String>,
    /// Keep the results of the steps before this one
    #[arg(long)]
    pub from_step: Option<String>,
    /// Commands to execute again in any case: ids or keys, or unique prefixes of them
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub execute: Vec<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure quarantine w_0198 --reason 'it spends too much'")]
pub struct Quarantine {
    /// Ids of work items, or unique prefixes of them
    #[arg(required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure abandon w_0198 --reason 'the machine is gone for good'")]
pub struct Abandon {
    /// Ids of work items, or unique prefixes of them
    #[arg(required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure drain worker-3 --reason 'the host is replaced' --yes\n\n\
The worker is asked to stop everything that it holds. Rerunnable work goes back to the queue; started owner-bound work is cancelled. \
The report lists what is confirmed, and what is deferred and why. Only the worker itself can stop its claims: send it SIGTERM too, \
or SIGTERM instead, to let it finish its work first.")]
pub struct Drain {
    /// A worker's id, as `tenure workers` shows it
    pub worker: String,
    /// Only this incarnation
    #[arg(long)]
    pub incarnation: Option<String>,
    /// Also abandon started owner-bound work once its lease has lapsed
    #[arg(long)]
    pub abandon: bool,
    /// Also end the waits of started owner-bound work, which only this worker may continue
    #[arg(long)]
    pub revoke_waits: bool,
    #[command(flatten)]
    pub act: Act,
}
