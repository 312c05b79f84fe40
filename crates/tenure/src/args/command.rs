//! Commands: side effects that were recorded before they happened. And the list of what waits for people.

use clap::{ArgGroup, Args, Subcommand};
use serde_json::Value;
use tenure_api::wire::{CommandState, LookupOutcome, Timestamp};

use super::{Act, count, json, read::Redraw};

#[derive(Subcommand)]
pub enum CommandsVerb {
    /// Commands by any filter, newest first
    List(CommandsList),
    /// Everything about one: why, next, arguments, policy, approval, calls, receipt
    #[command(after_help = "Example:\n  tenure commands show c_0198")]
    Show(CommandShow),
    /// What a rerun of a work would do with each command of it and of the runs before it
    Plan(CommandsPlan),
    /// Say what the provider shows of a command in doubt
    Reconcile(Reconcile),
    /// Record how a command in doubt went, as a person who found out
    Record(Record),
    /// Have a failed command done again
    Replay(Replay),
    /// Call a command off, before it is dispatched
    #[command(after_help = "Example:\n  tenure commands cancel c_0198 --reason 'the order was withdrawn'")]
    Cancel(CommandCancel),
}

impl CommandsVerb {
    /// Whether it is only to say what would happen.
    pub fn dry_run(&self) -> bool {
        match self {
            CommandsVerb::List(_) | CommandsVerb::Show(_) | CommandsVerb::Plan(_) => false,
            CommandsVerb::Reconcile(args) => args.act.dry_run,
            CommandsVerb::Record(args) => args.act.dry_run,
            CommandsVerb::Replay(args) => args.act.dry_run,
            CommandsVerb::Cancel(args) => args.act.dry_run,
        }
    }
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure commands list --state uncertain,blocked\n  tenure commands list --work w_0198 -o jsonl | jq .receipt"
)]
pub struct CommandsList {
    /// Several states are separated by commas
    #[arg(long, value_delimiter = ',')]
    pub state: Vec<CommandState>,
    /// Only of this tool
    #[arg(long)]
    pub tool: Option<String>,
    /// Only to this target
    #[arg(long)]
    pub target: Option<String>,
    /// Only this work's
    #[arg(long)]
    pub work: Option<String>,
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only those that are stopped until a person approves
    #[arg(long)]
    pub needs_approval: bool,
    /// Only those in doubt of which nothing but a person can tell
    #[arg(long)]
    pub needs_person: bool,
    /// As 2026-01-31T08:15:00Z
    #[arg(long, value_name = "TIME")]
    pub created_after: Option<Timestamp>,
    /// As 2026-01-31T08:15:00Z
    #[arg(long, value_name = "TIME")]
    pub created_before: Option<Timestamp>,
    /// At most so many
    #[arg(long, value_parser = count, default_value = "50", value_name = "COUNT")]
    pub limit: usize,
    #[command(flatten)]
    pub redraw: Redraw,
}

#[derive(Args)]
pub struct CommandShow {
    /// A command's id, or a beginning of it that no other has
    pub id: String,
    #[command(flatten)]
    pub redraw: Redraw,
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  tenure commands plan w_0198 --execute c_0198\n\nNothing is written; `tenure rerun` shows the same before it asks."
)]
pub struct CommandsPlan {
    /// A work's id, or a beginning of it that no other has
    pub work: String,
    /// Commands to be executed again, whatever became of them: ids or keys, or beginnings of them
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub execute: Vec<String>,
}

/// What there is to show.
#[derive(Args)]
pub struct Shown {
    /// The provider's id of what it did
    #[arg(long, value_name = "ID")]
    pub external_id: Option<String>,
    /// Where it can be seen
    #[arg(long = "ref", value_name = "REF")]
    pub reference: Option<String>,
    /// What the provider answered: JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json, value_name = "JSON")]
    pub response: Option<Value>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
tenure commands reconcile c_0198 found --external-id msg-7 --reason 'in the mailbox'\n  \
tenure commands reconcile c_0198 absent --reason 'not in the mailbox'\n\n\
`found` needs something to show; `absent` counts once the tool's consistency delay has passed.")]
pub struct Reconcile {
    /// A command's id, or a beginning of it that no other has
    pub id: String,
    /// found, absent or unknown
    pub outcome: LookupOutcome,
    #[command(flatten)]
    pub shown: Shown,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(
    group(ArgGroup::new("outcome").required(true).args(["happened", "did_not_happen"])),
    after_help = "Examples:\n  \
tenure commands record c_0198 --happened --external-id tx-7 --reason 'the bank shows it'\n  \
tenure commands record c_0198 --did-not-happen --reason 'the bank knows nothing of it'\n\n\
Only a person's token records. What happened needs something to show."
)]
pub struct Record {
    /// A command's id, or a beginning of it that no other has
    pub id: String,
    /// It took effect
    #[arg(long)]
    pub happened: bool,
    /// It did not, and will not
    #[arg(long, conflicts_with_all = ["external_id", "reference", "response"])]
    pub did_not_happen: bool,
    #[command(flatten)]
    pub shown: Shown,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure commands replay c_0198 --dry-run --reason 'a look'\n  \
tenure commands replay c_0198 --reason 'the account is open again'\n\n\
Only a person's token replays. At high risk it needs a fresh approval before it is done.")]
pub struct Replay {
    /// A command's id, or a beginning of it that no other has
    pub id: String,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
pub struct CommandCancel {
    /// A command's id, or a beginning of it that no other has
    pub id: String,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure needs\n  tenure needs -o jsonl | jq -r .next")]
pub struct Needs {
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// At most so many
    #[arg(long, value_parser = count, default_value = "50", value_name = "COUNT")]
    pub limit: usize,
    #[command(flatten)]
    pub redraw: Redraw,
}
