//! Arguments of the verbs on commands (recorded side effects), and of `needs`.

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use serde_json::Value;
use tenure_api::wire::{CommandState, LookupOutcome, Timestamp};

use super::{Act, count, json, read::Redraw, words};

#[derive(Subcommand)]
pub enum CommandsVerb {
    /// List commands, newest first
    List(CommandsList),
    /// Show everything about one: explanation, next step, arguments, policy, approval, calls, receipt
    #[command(after_help = "Example:\n  tenure commands show c_0198")]
    Show(CommandShow),
    /// Show what a rerun of a work item would do with its commands and those of earlier runs
    Plan(CommandsPlan),
    /// Report what a lookup found of a command in doubt
    Reconcile(Reconcile),
    /// Record how a command in doubt ended, after finding it out
    Record(Record),
    /// Replay a failed command
    Replay(Replay),
    /// Cancel a command before it is dispatched
    #[command(after_help = "Example:\n  tenure commands cancel c_0198 --reason 'the order was withdrawn'")]
    Cancel(CommandCancel),
}

impl CommandsVerb {
    /// Whether this is a dry run.
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
    #[arg(long, value_delimiter = ',', value_parser = words(CommandState::ALL))]
    pub state: Vec<CommandState>,
    /// Only this tool
    #[arg(long)]
    pub tool: Option<String>,
    /// Only this target
    #[arg(long)]
    pub target: Option<String>,
    /// Only this work item
    #[arg(long)]
    pub work: Option<String>,
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only commands that are blocked until a person approves
    #[arg(long)]
    pub needs_approval: bool,
    /// Only commands in doubt that need a person
    #[arg(long)]
    pub needs_person: bool,
    /// Created at or after, as 2026-01-31T08:15:00Z
    #[arg(long, value_name = "TIME")]
    pub created_after: Option<Timestamp>,
    /// Created before, as 2026-01-31T08:15:00Z
    #[arg(long, value_name = "TIME")]
    pub created_before: Option<Timestamp>,
    /// The maximum number
    #[arg(long, value_parser = count, default_value = "50", value_name = "COUNT")]
    pub limit: usize,
    /// Sort the rows that are shown, which are the newest that match
    #[arg(long, value_enum, default_value_t, hide_default_value = true, value_name = "ORDER")]
    pub sort: CommandSort,
    #[command(flatten)]
    pub redraw: Redraw,
}

/// The order of a list of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CommandSort {
    /// Newest first
    #[default]
    Newest,
    Oldest,
    /// Changed last first
    Updated,
    State,
    Tool,
    /// Most dispatches first
    Dispatches,
}

#[derive(Args)]
pub struct CommandShow {
    /// A command's id, or its beginning or ending
    pub id: String,
    #[command(flatten)]
    pub redraw: Redraw,
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  tenure commands plan w_0198 --execute c_0198\n\nNothing is written; `tenure rerun` shows the same before it asks."
)]
pub struct CommandsPlan {
    /// A work item: its id, the beginning or ending of its id, or the id in its source
    pub work: String,
    /// Commands to execute again in any case: ids or keys, or unique prefixes of them
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub execute: Vec<String>,
}

/// The evidence of an outcome.
#[derive(Args)]
pub struct Shown {
    /// The provider's id of the effect
    #[arg(long, value_name = "ID")]
    pub external_id: Option<String>,
    /// A reference to where the effect can be seen
    #[arg(long = "ref", value_name = "REF")]
    pub reference: Option<String>,
    /// The provider's response: JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json, value_name = "JSON")]
    pub response: Option<Value>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
tenure commands reconcile c_0198 found --external-id msg-7 --reason 'in the mailbox'\n  \
tenure commands reconcile c_0198 absent --reason 'not in the mailbox'\n\n\
`found` needs evidence; `absent` counts once the tool's consistency delay has passed.")]
pub struct Reconcile {
    /// A command's id, or its beginning or ending
    pub id: String,
    /// What the lookup showed
    #[arg(value_parser = words(LookupOutcome::ALL))]
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
tenure commands record c_0198 --did-not-happen --requeue --reason 'the bank has no record of it'\n\n\
Only a person's access token can record. --happened needs evidence."
)]
pub struct Record {
    /// A command's id, or its beginning or ending
    pub id: String,
    /// It took effect
    #[arg(long)]
    pub happened: bool,
    /// It did not take effect, and will not
    #[arg(long, conflicts_with_all = ["external_id", "reference", "response"])]
    pub did_not_happen: bool,
    #[command(flatten)]
    pub shown: Shown,
    /// Then queue its work item again, if it was quarantined and nothing else of it is in doubt
    #[arg(long)]
    pub requeue: bool,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure commands replay c_0198 --dry-run --reason check\n  \
tenure commands replay c_0198 --reason 'the account is open again'\n\n\
Only a person's access token can replay. At high risk a fresh approval is required before it is dispatched.")]
pub struct Replay {
    /// A command's id, or its beginning or ending
    pub id: String,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
pub struct CommandCancel {
    /// A command's id, or its beginning or ending
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
    /// The maximum number
    #[arg(long, value_parser = count, default_value = "50", value_name = "COUNT")]
    pub limit: usize,
    #[command(flatten)]
    pub redraw: Redraw,
}
