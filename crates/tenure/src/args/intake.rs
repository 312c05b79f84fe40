//! Arguments of `intake` and `waits`.

use clap::{Args, Subcommand};

use super::Act;

#[derive(Subcommand)]
pub enum IntakeVerb {
    /// Show whether new work items are accepted, who paused the intake, and why
    #[command(after_help = "Example:\n  tenure intake show")]
    Show,
    /// Refuse new work items; recorded work goes on
    #[command(after_help = "Examples:\n  tenure intake pause --reason 'the database moves'\n  \
tenure intake pause --tenant acme --reason 'their keys leaked'\n\n\
New work items are refused with the advice to retry later; repeated ones return the existing item. \
Schedules wait, and catch up as each is configured.")]
    Pause(IntakeAct),
    /// Accept new work items again
    #[command(after_help = "Examples:\n  tenure intake resume --reason 'the database has moved'\n  \
tenure intake resume --tenant acme --reason 'new keys are out'\n\n\
The pause of one tenant and the pause of all tenants are separate: each is resumed on its own.")]
    Resume(IntakeAct),
}

impl IntakeVerb {
    pub fn dry_run(&self) -> bool {
        match self {
            IntakeVerb::Show => false,
            IntakeVerb::Pause(args) | IntakeVerb::Resume(args) => args.act.dry_run,
        }
    }
}

#[derive(Args)]
pub struct IntakeAct {
    /// Only this tenant; by default, all tenants
    #[arg(long)]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Subcommand)]
pub enum WaitsVerb {
    /// Revoke every open wait of a session; its work items continue without answers
    #[command(
        after_help = "Example:\n  tenure waits revoke --session chat-7 --reason 'the user has left'\n\n\
Each work item is queued again, and the worker that claims it finds its waits cancelled."
    )]
    Revoke(WaitsRevoke),
}

#[derive(Args)]
pub struct WaitsRevoke {
    /// The session, whose work items run one after another
    #[arg(long)]
    pub session: String,
    /// The session's tenant; required if the access token covers several
    #[arg(long)]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub act: Act,
}
