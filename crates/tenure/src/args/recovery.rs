//! Verbs about recovery.

use clap::{Args, Subcommand};

use super::{Act, count, read::Redraw};

#[derive(Subcommand)]
pub enum RecoverVerb {
    /// List work items that lost or may lose their holder, and what recovery will decide
    Victims(Victims),
    /// Show what recovery would do now with the work items that lost their holder, and whether it is safe
    Plan(RecoverPlan),
    /// Carry out a recovery plan: exactly what it says, or nothing
    Apply(RecoverApply),
}

impl RecoverVerb {
    pub fn dry_run(&self) -> bool {
        match self {
            RecoverVerb::Victims(_) | RecoverVerb::Plan(_) => false,
            RecoverVerb::Apply(args) => args.act.dry_run,
        }
    }
}

#[derive(Args, Clone)]
pub struct RecoverFilter {
    /// Only those that this worker holds or held last
    #[arg(long)]
    pub worker: Option<String>,
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only this kind
    #[arg(long)]
    pub kind: Option<String>,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure recover plan\n  tenure recover plan --worker mailer-3\n  tenure recover plan --report > recovery.md\n\n\
Computes the decision on each work item that lost its holder or was set aside because of that: the verdict, the rule, the last \
receipt, the effects that may have happened, and the proof of death. It changes nothing. The plan's id is the hash of its rows."
)]
pub struct RecoverPlan {
    #[command(flatten)]
    pub filter: RecoverFilter,
    /// Print a report in Markdown, for a ticket or a colleague
    #[arg(long)]
    pub report: bool,
    #[command(flatten)]
    pub redraw: Redraw,
}

#[derive(Args, Clone)]
#[command(after_help = "Examples:\n  tenure recover apply p_5f0c --reason 'the host is gone'\n  \
tenure recover apply p_5f0c --worker mailer-3 --row w_0198 --reason 'the host is gone'\n  \
tenure recover apply p_5f0c --quarantine w_0198 --reason 'it needs a second look'\n\n\
Give the filters of the plan again. Safe rows are carried out; the others are left, and the reason is shown. If anything has \
changed since the plan, nothing is done. Exit code 6: some rows were refused.")]
pub struct RecoverApply {
    /// The plan's id, as `tenure recover plan` shows it, or a prefix of at least six characters
    pub plan: String,
    #[command(flatten)]
    pub filter: RecoverFilter,
    /// Only these work items of the plan: ids, or unique prefixes of them
    #[arg(long = "row", value_name = "ID", value_delimiter = ',')]
    pub rows: Vec<String>,
    /// Set these aside for a person instead; people only
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub quarantine: Vec<String>,
    /// Abandon these instead, once their leases have lapsed; people only
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub abandon: Vec<String>,
    /// Leave these as they are; people only
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub leave: Vec<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure recover victims\n  tenure recover victims --worker mailer-3 --all\n  tenure recover victims -o json | jq -r '.[].if_silent.sentence'\n\n\
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
