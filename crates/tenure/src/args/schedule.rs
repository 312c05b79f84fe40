//! Schedules: works that come by themselves.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;
use tenure_api::wire::{Disposition, Overlap};

use super::{Act, json, period};

#[derive(Subcommand)]
pub enum ScheduleVerb {
    /// Every schedule: when it runs next, and how the last run went
    #[command(after_help = "Example:\n  tenure schedule list")]
    List {
        /// Only this tenant
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Everything about one: its next five runs, its last one, who changed it and why
    #[command(after_help = "Example:\n  tenure schedule show digest")]
    Show(Schedule),
    /// Make one, or replace what it does
    Set(Box<ScheduleSet>),
    /// Stop one; what is due meanwhile is not caught up
    #[command(after_help = "Example:\n  tenure schedule pause digest --reason 'the mailbox moves'")]
    Pause(ScheduleAct),
    /// Start a paused one again, from its next due time on
    #[command(after_help = "Example:\n  tenure schedule resume digest --reason 'the mailbox has moved'")]
    Resume(ScheduleAct),
    /// Run one now, beside its due times
    #[command(after_help = "Example:\n  tenure schedule run digest --reason 'the first one failed'")]
    Run(ScheduleRun),
    /// Forget one; its works and who changed it stay
    #[command(after_help = "Example:\n  tenure schedule delete digest --reason 'nobody reads it'")]
    Delete(ScheduleAct),
}

impl ScheduleVerb {
    pub fn dry_run(&self) -> bool {
        match self {
            ScheduleVerb::List { .. } | ScheduleVerb::Show(_) => false,
            ScheduleVerb::Set(args) => args.act.dry_run,
            ScheduleVerb::Run(args) => args.act.dry_run,
            ScheduleVerb::Pause(args) | ScheduleVerb::Resume(args) | ScheduleVerb::Delete(args) => {
                args.act.dry_run
            }
        }
    }
}

#[derive(Args)]
pub struct Schedule {
    /// The schedule's name
    pub name: String,
    /// Whose it is; needed where the token has several tenants
    #[arg(long)]
    pub tenant: Option<String>,
}

#[derive(Args)]
pub struct ScheduleAct {
    #[command(flatten)]
    pub schedule: Schedule,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
pub struct ScheduleRun {
    #[command(flatten)]
    pub schedule: Schedule,
    /// The same again is the same run; a new one unless told otherwise
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
tenure schedule set digest --cron '0 7 * * mon-fri' --zone Europe/Berlin --kind digest \\\n    \
--disposition rerunnable --input '{\"of\": \"yesterday\"}' --reason 'asked by the team'\n  \
tenure schedule set poll --every 5m --kind poll --disposition rerunnable --overlap allow --reason trial\n\n\
Cron has five fields: minute, hour, day of month, month, day of week. Where both days are given, either will do.")]
pub struct ScheduleSet {
    #[command(flatten)]
    pub schedule: Schedule,
    /// When runs are due: '0 7 * * mon-fri'
    #[arg(long, value_name = "EXPRESSION", required_unless_present = "every", conflicts_with = "every")]
    pub cron: Option<String>,
    /// Whose clocks the expression goes by; UTC unless told otherwise
    #[arg(long, requires = "cron")]
    pub zone: Option<String>,
    /// Runs are due so often, counted from 1970: 1h is on the hour
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub every: Option<Duration>,
    /// What sort of work each run is
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
    /// Whether a run is skipped or allowed while the work of the last one is open; skip unless told otherwise
    #[arg(long)]
    pub overlap: Option<Overlap>,
    /// How late a missed run may still be fired; an hour unless told otherwise
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub catch_up: Option<Duration>,
    #[command(flatten)]
    pub act: Act,
}
