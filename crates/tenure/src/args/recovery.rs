//! Verbs about recovery.

use clap::Args;

use super::{count, read::Redraw};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure victims\n  tenure victims --worker mailer-3 --all\n  tenure victims -o json | jq -r '.[].if_silent.sentence'\n\n\
Lists the work items whose holder missed a renewal or lapsed: the last proven effect, the effects that may have \
happened, and what recovery decides next. It changes nothing."
)]
pub struct Victims {
    /// Only those that this worker holds
    #[arg(long)]
    pub worker: Option<String>,
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Also those whose holder is alive: what its loss would put at risk
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub redraw: Redraw,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure stuck\n  tenure stuck --tenant acme --limit 100\n  tenure stuck -o json | jq -r '.groups[].cause'\n\n\
Groups open work items that do not progress by cause: in doubt, poison, a circle of waits, a wait that nobody answers, a lost \
lease, an overdue retry, a spinning holder, no worker. Each has its evidence and a command to type. It changes nothing."
)]
pub struct Stuck {
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// The maximum number shown of each cause
    #[arg(long, value_parser = count, default_value = "20", value_name = "COUNT")]
    pub limit: usize,
    #[command(flatten)]
    pub redraw: Redraw,
}
