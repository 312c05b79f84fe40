//! Verbs that look, and the one that records.

use clap::Args;
use serde_json::Value;
use std::time::Duration;
use tenure_api::wire::{Disposition, Phase, State, Timestamp};

use super::{count, json, period};

#[derive(Args)]
#[command(
    after_help = "Example:\n  tenure ingest manual fix-7 --kind review --disposition rerunnable --input '{\"pr\": 7}'\n\n\
The same source and id with the same content again returns the work that is there."
)]
pub struct Ingest {
    /// The source system: conversation, control, scheduler, manual, or a configured one
    pub system: String,
    /// The work's id in that system
    pub id: String,
    /// The run; required for the scheduler
    #[arg(long, default_value = "", hide_default_value = true)]
    pub run_id: String,
    /// What sort of work it is; workers claim by it
    #[arg(long)]
    pub kind: String,
    /// What may be done when its worker is lost: rerunnable, owner_bound or externally_owned
    #[arg(long)]
    pub disposition: Disposition,
    /// JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json, default_value = "null")]
    pub input: Value,
    /// Lower comes first
    #[arg(long)]
    pub priority: Option<i16>,
    /// At most one work of a session is held at a time
    #[arg(long)]
    pub session: Option<String>,
    /// Whose work it is; needed where the token has several tenants
    #[arg(long)]
    pub tenant: Option<String>,
    /// What it belongs to elsewhere; made up if left out
    #[arg(long)]
    pub correlation_id: Option<String>,
    /// The work that it is a part of
    #[arg(long, value_name = "WORK")]
    pub parent: Option<String>,
    /// Fail it if it was not claimed within this time
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub start_within: Option<Duration>,
    /// End it if it has not ended within this time
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub end_within: Option<Duration>,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Redraws until interrupted.
#[derive(Args, Clone)]
pub struct Redraw {
    /// Redraw every two seconds until interrupted
    #[arg(long)]
    pub watch: bool,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure ps --watch")]
pub struct Ps {
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only what this worker holds
    #[arg(long, value_name = "WORKER")]
    pub owner: Option<String>,
    #[command(flatten)]
    pub redraw: Redraw,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure list --state queued,running --system conversation\n  tenure list --phase waiting -o jsonl | jq .id"
)]
pub struct List {
    #[command(flatten)]
    pub filter: Filter,
    #[command(flatten)]
    pub redraw: Redraw,
}

#[derive(Args, Clone)]
pub struct Filter {
    /// Several states are separated by commas
    #[arg(long, value_delimiter = ',')]
    pub state: Vec<State>,
    /// pending, active, waiting, held or terminal
    #[arg(long)]
    pub phase: Option<Phase>,
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// The source system
    #[arg(long)]
    pub system: Option<String>,
    /// The id in the source system
    #[arg(long)]
    pub source_id: Option<String>,
    /// Only of this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Only of this workflow, by its id
    #[arg(long)]
    pub workflow: Option<String>,
    /// Only of this session
    #[arg(long)]
    pub session: Option<String>,
    /// The worker that holds it
    #[arg(long, value_name = "WORKER")]
    pub owner: Option<String>,
    /// Only parts of this work
    #[arg(long, value_name = "WORK")]
    pub parent: Option<String>,
    /// Only what belongs together so
    #[arg(long)]
    pub correlation_id: Option<String>,
    /// As 2026-01-31T08:15:00Z
    #[arg(long, value_name = "TIME")]
    pub created_after: Option<Timestamp>,
    /// As 2026-01-31T08:15:00Z
    #[arg(long, value_name = "TIME")]
    pub created_before: Option<Timestamp>,
    /// Something is due before then, as 2026-01-31T08:15:00Z
    #[arg(long, value_name = "TIME")]
    pub due_before: Option<Timestamp>,
    /// At most so many
    #[arg(long, value_parser = count, default_value = "50", value_name = "COUNT")]
    pub limit: usize,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure show w_0198\n  tenure show c_0198")]
pub struct Show {
    /// The id of a work or a command, or a beginning of it that no other has
    pub id: String,
    #[command(flatten)]
    pub redraw: Redraw,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure events w_0198\n  tenure events --follow --after 0-0-2a -o jsonl")]
pub struct Events {
    /// Only this work's; without it, everybody's
    pub id: Option<String>,
    /// Go on as things happen
    #[arg(long, short)]
    pub follow: bool,
    /// Start after this: an event's number for one work, a cursor for everybody's
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// At most so many, unless following
    #[arg(long, value_parser = count, default_value = "100", value_name = "COUNT")]
    pub limit: usize,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure explain w_0198\n  tenure explain c_0198")]
pub struct Explain {
    /// The id of a work or a command, or a beginning of it that no other has
    pub id: String,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure watch w_0198\n  tenure watch --tenant acme\n\n\
With an id it ends with the work: exit code 0 if that succeeded, 7 if not.")]
pub struct Watch {
    /// Only this work's; without it, everybody's
    pub id: Option<String>,
    /// Only this tenant
    #[arg(long)]
    pub tenant: Option<String>,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure workers --watch")]
pub struct Workers {
    #[command(flatten)]
    pub redraw: Redraw,
}
