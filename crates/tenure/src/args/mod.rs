//! What can be typed. Every verb has a sentence and an example.

mod answer;
mod command;
mod demo;
mod hold;
mod intake;
mod keep;
mod operate;
mod read;
mod schedule;
mod serve;
mod tools;

use std::path::PathBuf;

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ContextValue},
};

pub use answer::{Approve, Decision as Answered, Reject, Resolve};
pub use command::{
    CommandCancel, CommandsList, CommandsPlan, CommandsVerb, Needs, Reconcile, Record, Replay,
};
pub use demo::Demo;
pub use hold::{Claim, CloseOut, Fail, Release, Renew, Step, Wait};
pub use intake::{IntakeAct, IntakeVerb, WaitsRevoke, WaitsVerb};
pub use keep::{Backup, ConfigVerb, Prune, Restore, TokenCreate, TokenRevoke, TokenVerb};
pub use operate::{Abandon, Act, Cancel, Decide, Drain, Quarantine, Requeue, Rerun, Retry};
pub use read::{Events, Explain, Filter, Ingest, List, Ps, Show, Watch, Workers};
pub use schedule::{Schedule, ScheduleAct, ScheduleRun, ScheduleSet, ScheduleVerb};
pub use serve::Serve;
pub use tools::{ToolsCheck, ToolsVerb};

use crate::exit;

#[derive(Parser)]
#[command(
    name = "tenure",
    version,
    about = "The work ledger for AI agent runtimes: who holds this work, is that holder alive, what is it waiting for, and did it happen?",
    after_help = exit::CODES,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Args, Clone)]
#[command(next_help_heading = "Everywhere")]
pub struct Global {
    /// The daemon to talk to
    #[arg(
        long,
        global = true,
        env = "TENURE_URL",
        default_value = "http://127.0.0.1:7171",
        value_name = "URL"
    )]
    pub url: String,
    /// The access token; without it, the file that the first `serve` left beside its ledger
    #[arg(long, global = true, env = "TENURE_TOKEN", hide_env_values = true, value_name = "SECRET")]
    pub token: Option<String>,
    /// Work on this ledger itself, with no daemon: an SQLite file, or postgres://…
    #[arg(long, global = true, value_name = "PATH")]
    pub db: Option<String>,
    /// Open an SQLite ledger whose write-ahead log is missing or damaged, with what is left of it
    #[arg(long, global = true)]
    pub accept_loss: bool,
    /// How to print what was asked for; messages go to stderr
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// One document
    Json,
    /// One document a line
    Jsonl,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Run the daemon
    Serve(Serve),
    /// Watch a small fleet live: a crash, approvals, a lost reply, an expired login, a retry storm, a sleeping laptop
    Demo(Demo),

    /// Record a work
    Ingest(Box<Ingest>),
    /// What runs, and is it alive
    Ps(Ps),
    /// Works by any filter, newest first
    List(List),
    /// Everything about one work or command: state, why, next, lease, waits, last events
    Show(Show),
    /// What happened, in order
    Events(Events),
    /// Why a work or a command stands where it stands, and what to type next
    Explain(Explain),
    /// State changes as they happen
    Watch(Watch),
    /// Who is being waited for: approvals, questions, logins, doubts, what was set aside
    Needs(Needs),

    /// What runs, live in this terminal: lights, leases, who waits for you
    #[command(
        after_help = "Example:\n  tenure top\n\nKeys: j k move, Enter shows a work, / filters, ? helps, q quits."
    )]
    Top,

    /// Take ownership of works
    Claim(Claim),
    /// Keep a lease
    Renew(Renew),
    /// Wait for a work to end, or, as its holder, pause it until something is answered
    Wait(Wait),
    /// Answer what a work waits for
    Resolve(Resolve),
    /// Say yes: to a command that needs an approval, or to what a work in waiting_approval asks
    Approve(Approve),
    /// Say no to it
    Reject(Reject),
    /// Declare how a work that you hold ended
    CloseOut(CloseOut),
    /// Report that a work that you hold failed; its retry policy decides what follows
    Fail(Fail),
    /// Hand a work that you hold back
    Release(Release),
    /// Begin or complete a checkpoint of a work that you hold
    Step(Step),

    /// Cut a retry's backoff short
    Retry(Retry),
    /// Ask a work to stop
    Cancel(Cancel),
    /// Run a quarantined work again
    Requeue(Requeue),
    /// Decide over a quarantined work
    Decide(Decide),
    /// Run an ended work again, as a new work linked to it
    Rerun(Rerun),
    /// Set a work aside for a person
    Quarantine(Quarantine),
    /// Ask to give a work up once its lease lapses
    Abandon(Abandon),
    /// Ask everything that a worker holds to stop
    Drain(Drain),
    /// Who holds works, and are they alive
    Workers(Workers),
    /// Side effects: what was intended, and did it happen
    #[command(subcommand)]
    Commands(CommandsVerb),
    /// Thresholds that are crossed now; exit code 7 if there are any
    #[command(after_help = "Example:\n  tenure alerts || page-somebody")]
    Alerts,

    /// What works wait for
    #[command(subcommand)]
    Waits(WaitsVerb),
    /// Whether new works are let in
    #[command(subcommand)]
    Intake(IntakeVerb),
    /// Works that come by themselves, by a clock
    #[command(subcommand)]
    Schedule(ScheduleVerb),

    /// Forget works that ended long ago
    Prune(Prune),
    /// Read everything back and tell what contradicts itself
    #[command(after_help = "Example:\n  tenure verify && echo sound")]
    Verify,
    /// Copy the ledger while it is in use
    Backup(Backup),
    /// Make a ledger of a backup, in a new file
    Restore(Restore),
    /// What is healthy, what is not, and the fix
    #[command(after_help = "Example:\n  tenure doctor --db tenure.db")]
    Doctor,
    /// Access tokens
    #[command(subcommand)]
    Token(TokenVerb),
    /// The configuration file
    #[command(subcommand)]
    Config(ConfigVerb),
    /// The tools and policies that a configuration declares
    #[command(subcommand)]
    Tools(ToolsVerb),
    /// A completion script for your shell
    #[command(after_help = "Example:\n  tenure completions bash > /etc/bash_completion.d/tenure")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

impl Verb {
    /// Whether it only asks what would happen.
    pub fn dry_run(&self) -> bool {
        match self {
            Verb::Ingest(args) => args.dry_run,
            Verb::Renew(args) => args.dry_run,
            Verb::Wait(args) => args.dry_run,
            Verb::CloseOut(args) => args.dry_run,
            Verb::Fail(args) => args.dry_run,
            Verb::Release(args) => args.dry_run,
            Verb::Step(args) => args.dry_run,
            Verb::Resolve(args) => args.dry_run,
            Verb::Approve(args) => args.decision.dry_run,
            Verb::Reject(args) => args.decision.dry_run,
            Verb::Retry(args) => args.act.dry_run,
            Verb::Cancel(args) => args.act.dry_run,
            Verb::Requeue(args) => args.act.dry_run,
            Verb::Decide(args) => args.act.dry_run,
            Verb::Rerun(args) => args.act.dry_run,
            Verb::Quarantine(args) => args.act.dry_run,
            Verb::Abandon(args) => args.act.dry_run,
            Verb::Drain(args) => args.act.dry_run,
            Verb::Schedule(verb) => verb.dry_run(),
            Verb::Intake(verb) => verb.dry_run(),
            Verb::Waits(WaitsVerb::Revoke(args)) => args.act.dry_run,
            Verb::Commands(verb) => verb.dry_run(),
            Verb::Prune(args) => args.act.dry_run,
            Verb::Token(TokenVerb::Revoke(args)) => args.act.dry_run,
            // These change nothing, or cannot be tried: a claim, a backup, a token.
            Verb::Serve(_)
            | Verb::Demo(_)
            | Verb::Ps(_)
            | Verb::List(_)
            | Verb::Show(_)
            | Verb::Events(_)
            | Verb::Explain(_)
            | Verb::Watch(_)
            | Verb::Top
            | Verb::Claim(_)
            | Verb::Workers(_)
            | Verb::Alerts
            | Verb::Needs(_)
            | Verb::Verify
            | Verb::Backup(_)
            | Verb::Restore(_)
            | Verb::Doctor
            | Verb::Token(_)
            | Verb::Config(_)
            | Verb::Tools(_)
            | Verb::Completions { .. } => false,
        }
    }
}

/// Usage as it is typed: what came from the environment is no part of it.
pub fn unasked(mut error: clap::Error) -> clap::Error {
    const FROM_OUTSIDE: [&str; 3] = [" --url <URL>", " --token <SECRET>", " --output <FORMAT>"];
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        let usage = FROM_OUTSIDE.iter().fold(usage.to_string(), |usage, option| usage.replace(option, ""));
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage.into()));
    }
    error
}

/// Durations as people write them: `500ms`, `30s`, `5m`, `2h`, `7d`.
pub fn period(text: &str) -> Result<std::time::Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let per = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("write a number and a unit: 500ms, 30s, 5m, 2h or 7d".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "the number is missing: write 30s, 5m or 2h".to_owned())?;
    let ms = number.checked_mul(per).ok_or("that is too long")?;
    Ok(std::time::Duration::from_millis(ms))
}

/// How many of a list to show.
pub fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("write a whole number, such as 200".to_owned()),
    }
}

/// JSON given on the command line, `@FILE` to read a file, or `-` to read stdin.
pub fn json(text: &str) -> Result<serde_json::Value, String> {
    let text = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(PathBuf::from(path)).map_err(|e| format!("{path}: {e}"))?,
        None if text == "-" => std::io::read_to_string(std::io::stdin()).map_err(|e| e.to_string())?,
        None => text.to_owned(),
    };
    tenure_api::strict::from_slice(text.as_bytes())
        .map_err(|e| format!("this is no JSON ({e}); quote text: '\"like this\"'"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_says_what_it_is_for() {
        fn look(command: &clap::Command) {
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                assert!(arg.get_help().is_some(), "{}: {}", command.get_name(), arg.get_id());
            }
            command.get_subcommands().for_each(look);
        }
        look(&Cli::command());
    }

    #[test]
    fn usage_asks_for_nothing_that_the_environment_gave() {
        let typed = ["tenure", "--url", "http://u", "--token", "s", "show"];
        let error = unasked(Cli::try_parse_from(typed).err().unwrap()).to_string();
        assert!(error.contains("tenure show <ID>") && !error.contains("--url"), "{error}");
    }

    #[test]
    fn serve_shows_what_is_its_own() {
        let mut cli = Cli::command();
        cli.build();
        let help = cli.find_subcommand_mut("serve").unwrap().render_long_help().to_string();
        assert!(help.contains("TENURE_DB") && !help.contains("no daemon"), "{help}");
        assert!(!help.contains("--url") && !help.contains("--output"), "{help}");
        let cli = Cli::try_parse_from(["tenure", "serve", "--db", "x.db"]).unwrap();
        assert_eq!(cli.global.db.as_deref(), Some("x.db"));
    }

    #[test]
    fn periods_are_read_as_people_write_them() {
        assert_eq!(period("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(period("2h"), Ok(Duration::from_secs(7_200)));
        for bad in ["", "5", "s", "-5s", "5 s", "99999999999999999999d"] {
            assert!(period(bad).is_err(), "{bad}");
        }
    }
}
