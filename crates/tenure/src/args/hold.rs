//! The holder's verbs.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;
use tenure_api::wire::{ErrorClass, OnTimeout, State, Usage, WaitKind};

use super::{json, period};

fn usage(text: &str) -> Result<Usage, String> {
    serde_json::from_value(json(text)?).map_err(|error| error.to_string())
}

/// The lease that `claim` printed.
#[derive(Args, Clone)]
pub struct LeaseArgs {
    /// The lease's fence
    #[arg(long, env = "TENURE_FENCE")]
    pub fence: u64,
    /// The lease's token
    #[arg(long, env = "TENURE_LEASE", hide_env_values = true, value_name = "TOKEN")]
    pub lease: String,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure claim --worker me --kind review --max 2 --wait 30s -o json\n  tenure claim --worker me w_0198\n\n\
Each lease is printed with its fence and token: the holder's verbs carry both."
)]
pub struct Claim {
    /// These works, all or none; without ids, by filter
    pub ids: Vec<String>,
    /// Who claims
    #[arg(long, env = "TENURE_WORKER")]
    pub worker: String,
    /// New at each boot of the worker; made up if left out
    #[arg(long, env = "TENURE_INCARNATION")]
    pub incarnation: Option<String>,
    /// The same again returns the same leases; made up if left out
    #[arg(long)]
    pub request_id: Option<String>,
    /// Only from these source systems
    #[arg(long, value_delimiter = ',')]
    pub source: Vec<String>,
    /// Only of these kinds
    #[arg(long, value_delimiter = ',')]
    pub kind: Vec<String>,
    /// Only of these tenants
    #[arg(long, value_delimiter = ',')]
    pub tenant: Vec<String>,
    /// At most so many
    #[arg(long, default_value_t = 1)]
    pub max: u32,
    /// How long to wait at an empty queue
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub wait: Option<Duration>,
    /// Owner-bound work is started by its first verb, not by the claim
    #[arg(long)]
    pub defer_start: bool,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure renew w_0198 --fence 1795000000000000 --lease w_0198….5f0c…")]
pub struct Renew {
    /// A work's id, or a beginning of it that no other has
    pub id: String,
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// What to show as progress: JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json)]
    pub progress: Option<Value>,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WaitFor {
    Terminal,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure wait w_0198 --for=terminal --timeout 10m\n  \
tenure wait w_0198 --fence … --lease … --kind approval --ref deploy-7 --prompt 'Deploy build 7?'\n\n\
With --for it ends with the work: exit code 0 if that succeeded, 7 if not, 8 if the time was over first.")]
pub struct Wait {
    /// A work's id, or a beginning of it that no other has
    pub id: String,
    /// Wait here until the work has ended
    #[arg(long = "for", value_enum, conflicts_with_all = ["kind", "reference"])]
    pub until: Option<WaitFor>,
    /// With --for: give up after this. As a holder: the wait's deadline
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub timeout: Option<Duration>,
    /// The lease's fence
    #[arg(long, env = "TENURE_FENCE")]
    pub fence: Option<u64>,
    /// The lease's token
    #[arg(long, env = "TENURE_LEASE", hide_env_values = true, value_name = "TOKEN")]
    pub lease: Option<String>,
    /// Who must answer: approval, auth, user, tool or external
    #[arg(long, requires_all = ["reference", "fence", "lease"])]
    pub kind: Option<WaitKind>,
    /// What an answer refers to
    #[arg(long = "ref", value_name = "REF", requires = "kind")]
    pub reference: Option<String>,
    /// What is asked
    #[arg(long)]
    pub prompt: Option<String>,
    /// Who is asked
    #[arg(long)]
    pub assignee: Option<String>,
    /// Without a deadline
    #[arg(long, conflicts_with = "timeout")]
    pub endless: bool,
    /// time_out, fail, warn, cancel, escalate or default
    #[arg(long)]
    pub on_timeout: Option<OnTimeout>,
    /// The answer that a missed deadline gives: JSON
    #[arg(long, value_parser = json)]
    pub default: Option<Value>,
    /// A JSON Schema that an answer must match
    #[arg(long, value_parser = json)]
    pub schema: Option<Value>,
    /// What it used, as its holder: JSON. May be repeated
    #[arg(long, value_parser = usage, value_name = "JSON", requires = "kind")]
    pub usage: Vec<Usage>,
    /// Say what would happen, or why not, and write nothing
    #[arg(long, requires = "kind")]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure close-out w_0198 --fence … --lease … --result '{\"ok\": true}'\n  \
tenure close-out w_0198 --fence … --lease … --state failed --class validation --message 'no such file'"
)]
pub struct CloseOut {
    /// A work's id, or a beginning of it that no other has
    pub id: String,
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// succeeded, completed_with_warnings, failed, timed_out, cancelled or abandoned
    #[arg(long, default_value = "succeeded")]
    pub state: State,
    /// JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json)]
    pub result: Option<Value>,
    /// Where the result is kept
    #[arg(long)]
    pub result_ref: Option<String>,
    /// There is nothing to show
    #[arg(long)]
    pub no_output: bool,
    /// May be repeated
    #[arg(long = "warning", value_name = "TEXT")]
    pub warnings: Vec<String>,
    /// What kind of error it was
    #[arg(long)]
    pub class: Option<ErrorClass>,
    /// What the error says
    #[arg(long, requires = "class")]
    pub message: Option<String>,
    /// What it used, as `{"model": "m", "input_tokens": 7}`: JSON. May be repeated
    #[arg(long, value_parser = usage, value_name = "JSON")]
    pub usage: Vec<Usage>,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure step w_0198 draft --fence … --lease … --input '{\"of\": 7}'\n  \
tenure step w_0198 draft --fence … --lease … --input '{\"of\": 7}' --result '{\"file\": \"a.md\"}'\n\n\
Without --result it is begun: if it was completed before, with the same input, its result is printed and nothing \
need be done again. With --result it is completed.")]
pub struct Step {
    /// A work's id, or a beginning of it that no other has
    pub id: String,
    /// The step's name
    pub step: String,
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// What it works on; another input is another step: JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json, default_value = "null")]
    pub input: Value,
    /// It is done, and this came of it: JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json)]
    pub result: Option<Value>,
    /// Do it again, and whatever came after it
    #[arg(long, conflicts_with = "result")]
    pub restart: bool,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure fail w_0198 --fence … --lease … --class rate_limited --message '429' --retry-after 30s\n  \
tenure fail w_0198 --fence … --lease … --class validation --message 'no such file'"
)]
pub struct Fail {
    /// A work's id, or a beginning of it that no other has
    pub id: String,
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// transport, timeout, rate_limited and unavailable are tried again; validation, auth, quota, policy_denied,
    /// misconfigured and unsupported are not; unknown a few times
    #[arg(long)]
    pub class: ErrorClass,
    /// What the error says
    #[arg(long, default_value = "", hide_default_value = true)]
    pub message: String,
    /// Wait at least so long before the next attempt
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub retry_after: Option<Duration>,
    /// What equal failures have in common; three of class unknown in a row set the work aside
    #[arg(long, value_name = "TEXT")]
    pub fingerprint: Option<String>,
    /// What it used: JSON. May be repeated
    #[arg(long, value_parser = usage, value_name = "JSON")]
    pub usage: Vec<Usage>,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure release w_0198 --fence … --lease … --message 'not mine'")]
pub struct Release {
    /// A work's id, or a beginning of it that no other has
    pub id: String,
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Why; it is kept
    #[arg(long)]
    pub message: Option<String>,
    /// What it used: JSON. May be repeated
    #[arg(long, value_parser = usage, value_name = "JSON")]
    pub usage: Vec<Usage>,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}
