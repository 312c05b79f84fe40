//! Verbs about recovery.

use clap::Args;

use super::read::Redraw;

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
