//! The intake of new works, and waits that are called off.

use clap::{Args, Subcommand};

use super::Act;

#[derive(Subcommand)]
pub enum IntakeVerb {
    /// Whether new works are let in, who stopped it, and why
    #[command(after_help = "Example:\n  tenure intake show")]
    Show,
    /// Let no new work in; what is in goes on
    #[command(after_help = "Examples:\n  tenure intake pause --reason 'the database moves'\n  \
tenure intake pause --tenant acme --reason 'their keys leaked'\n\n\
Whoever sends something new is told to send it again later; what is sent again is answered as before. \
Schedules wait, and catch up as far as each says.")]
    Pause(IntakeAct),
    /// Let new works in again
    #[command(after_help = "Examples:\n  tenure intake resume --reason 'the database has moved'\n  \
tenure intake resume --tenant acme --reason 'new keys are out'\n\n\
The pause of a tenant and the pause of all are two: each is ended by itself.")]
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
    /// Only this tenant; without it, every one
    #[arg(long)]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Subcommand)]
pub enum WaitsVerb {
    /// Call off every open wait of a session; its works go on without answers
    #[command(
        after_help = "Example:\n  tenure waits revoke --session chat-7 --reason 'the user has left'\n\n\
Each work is queued again, and whoever claims it finds its waits cancelled."
    )]
    Revoke(WaitsRevoke),
}

#[derive(Args)]
pub struct WaitsRevoke {
    /// Whose waits: works of one session are done one after another
    #[arg(long)]
    pub session: String,
    /// The tenant of the session, where the token has several
    #[arg(long)]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub act: Act,
}
