//! The command line: every verb with a sentence and an example.

mod answer;
mod command;
mod context;
mod demo;
mod help;
mod hold;
mod intake;
mod keep;
mod operate;
mod read;
mod recovery;
mod schedule;
mod serve;
mod tools;

use std::{ffi::OsStr, path::PathBuf, str::FromStr};

use clap::{
    Arg, Args, Command, Parser, Subcommand, ValueEnum,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
    error::{ContextKind, ContextValue},
};
use tenure_api::wire::{NotAWord, State, Words};
pub use tenure_server::config::period;

pub use answer::{Approve, Decision as Answered, Reconnect, Reject, Resolve};
pub use command::{
    CommandCancel, CommandSort, CommandsList, CommandsPlan, CommandsVerb, Needs, Reconcile, Record, Replay,
    Shown,
};
pub use context::{Login, Logout};
pub use demo::Demo;
pub use help::command;
pub use hold::*;
pub use intake::{IntakeAct, IntakeVerb, WaitsRevoke, WaitsVerb};
pub use keep::{
    Anchor, Backup, ConfigVerb, Erase, Prune, Restore, TokenCreate, TokenRevoke, TokenVerb, Verify,
};
pub use operate::{Abandon, Act, Cancel, Decide, Drain, Quarantine, Requeue, Rerun, Retry};
pub use read::{Events, Explain, Ingest, List, Of, Ps, Several, Show, Sort, Watch, Workers};
pub use recovery::{RecoverApply, RecoverFilter, RecoverPlan, RecoverVerb, Stuck, Victims};
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
    /// The daemon's URL; by default, that of the current context, or http://127.0.0.1:7171
    #[arg(long, global = true, env = "TENURE_URL", value_name = "URL")]
    pub url: Option<String>,
    /// The context to use: a daemon that you logged in to
    #[arg(long, global = true, env = "TENURE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// The access token; by default, that of the context, or the file that the first `serve` wrote beside its ledger.
    /// TENURE_TOKEN is sent only to TENURE_URL, or to the default URL
    #[arg(long, global = true, env = "TENURE_TOKEN", hide_env_values = true, value_name = "SECRET")]
    pub token: Option<String>,
    /// Open this ledger directly, without a daemon: an SQLite file, or postgres://…
    #[arg(long, global = true, value_name = "PATH")]
    pub db: Option<String>,
    /// Open an SQLite ledger whose write-ahead log is missing or damaged, without the lost commits
    #[arg(long, global = true)]
    pub accept_loss: bool,
    /// The output format of data on stdout; messages go to stderr
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// One JSON document
    Json,
    /// One JSON document per line
    Jsonl,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Run the daemon
    Serve(Serve),
    /// Watch a small fleet live: a crash, approvals, a lost reply, an expired login, a retry storm, a sleeping laptop
    Demo(Demo),

    /// Record a work item
    Ingest(Box<Ingest>),
    /// Show running work and whether its holder is alive
    Ps(Ps),
    /// List work items by filters, newest first
    List(List),
    /// Show everything about one work item or command: state, explanation, next step, lease, waits, last
    /// events
    Show(Show),
    /// Show events, in order
    Events(Events),
    /// Explain the state of a work item or command, and the next step
    Explain(Explain),
    /// Show state changes as they happen
    Watch(Watch),
    /// List everything that waits for a person: approvals, questions, logins, doubts, quarantined work items
    Needs(Needs),

    /// Show running work live in this terminal: lights, leases, and what waits for you
    #[command(
        after_help = "Example:\n  tenure top\n\nKeys: j k move, Enter shows an item, a approves, x rejects, e answers, c cancels (after a reason and a y), / filters, ? helps, q quits."
    )]
    Top,

    /// Claim work items
    Claim(Claim),
    /// Renew a lease
    Renew(Renew),
    /// Record that the agent has accepted a work item that you hold
    Accept(Accept),
    /// Record the progress of a work item that you hold
    Progress(Progress),
    /// Declare how a work item that is owned externally ended
    Complete(Complete),
    /// Wait for a work item to end, or, as its holder, pause it until a wait is answered
    Wait(Wait),
    /// Answer a wait
    Resolve(Resolve),
    /// Approve a command, or the question of a work item in waiting_approval
    Approve(Approve),
    /// Reject a command, or the question of a work item in waiting_approval
    Reject(Reject),
    /// Record that the account that a work item waits for is connected again
    Reconnect(Reconnect),
    #[command(flatten)]
    Hold(HoldVerb),

    /// End a retry's backoff now
    Retry(Retry),
    /// Request the cancellation of a work item
    Cancel(Cancel),
    /// Queue a quarantined work item again
    Requeue(Requeue),
    /// Decide on a quarantined work item
    Decide(Decide),
    /// Run an ended work item again, as a new work item linked to it
    Rerun(Rerun),
    /// Quarantine a work item for a person to decide
    Quarantine(Quarantine),
    /// Abandon a work item once its lease lapses
    Abandon(Abandon),
    /// Ask a worker to stop everything that it holds
    Drain(Drain),
    /// List the workers that hold leases or wait for work, and whether they are alive
    Workers(Workers),
    /// Recovery of work items that lost their holder: what is at risk, what would be done, and doing it
    #[command(subcommand)]
    Recover(RecoverVerb),
    /// The same as `tenure recover victims`
    #[command(hide = true)]
    Victims(Victims),
    /// List open work items that do not progress, by cause, with evidence and the next step
    Stuck(Stuck),
    /// Commands, which are recorded side effects: list, show, record, replay
    #[command(subcommand)]
    Commands(CommandsVerb),
    /// List active alerts; exit code 7 if there are any
    #[command(after_help = "Example:\n  tenure alerts || page-somebody")]
    Alerts,

    /// Waits of work items
    #[command(subcommand)]
    Waits(WaitsVerb),
    /// The intake of new work items
    #[command(subcommand)]
    Intake(IntakeVerb),
    /// Schedules (cron): work items created at due times
    #[command(subcommand)]
    Schedule(ScheduleVerb),

    /// Delete work items that ended long ago
    Prune(Prune),
    /// Erase the content of ended work items; their events stay
    Erase(Erase),
    /// Read the whole ledger and list its contradictions, also with a copy of its anchor
    Verify(Verify),
    /// Print a signed copy of the ledger's anchor, to be stored elsewhere
    Anchor(Anchor),
    /// Copy the ledger while it is in use
    Backup(Backup),
    /// Restore a backup into a new ledger file
    Restore(Restore),
    /// Check the daemon, its database and this machine, and show how to fix problems
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
    /// Log in to a daemon: store its URL and a token as a context
    Login(Login),
    /// Delete a context and its token
    Logout(Logout),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  tenure completions bash > /etc/bash_completion.d/tenure")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

impl Verb {
    /// Whether this is a dry run.
    pub fn dry_run(&self) -> bool {
        match self {
            Verb::Ingest(args) => args.dry_run,
            Verb::Renew(args) => args.dry_run,
            Verb::Accept(args) => args.dry_run,
            Verb::Progress(args) => args.dry_run,
            Verb::Complete(args) => args.dry_run,
            Verb::Wait(args) => args.dry_run,
            Verb::Hold(verb) => verb.dry_run(),
            Verb::Resolve(args) => args.dry_run,
            Verb::Approve(args) => args.decision.act.dry_run,
            Verb::Reject(args) => args.decision.act.dry_run,
            Verb::Reconnect(args) => args.act.dry_run,
            Verb::Retry(args) => args.act.dry_run,
            Verb::Cancel(args) => args.act.dry_run,
            Verb::Requeue(args) => args.act.dry_run,
            Verb::Decide(args) => args.act.dry_run,
            Verb::Rerun(args) => args.act.dry_run,
            Verb::Quarantine(args) => args.act.dry_run,
            Verb::Abandon(args) => args.act.dry_run,
            Verb::Drain(args) => args.act.dry_run,
            Verb::Recover(verb) => verb.dry_run(),
            Verb::Schedule(verb) => verb.dry_run(),
            Verb::Intake(verb) => verb.dry_run(),
            Verb::Waits(WaitsVerb::Revoke(args)) => args.act.dry_run,
            Verb::Commands(verb) => verb.dry_run(),
            Verb::Prune(args) => args.act.dry_run,
            Verb::Erase(args) => args.act.dry_run,
            Verb::Token(TokenVerb::Revoke(args)) => args.act.dry_run,
            // These change nothing, or have no dry run: a claim, a backup, a token.
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
            | Verb::Victims(_)
            | Verb::Stuck(_)
            | Verb::Alerts
            | Verb::Needs(_)
            | Verb::Verify(_)
            | Verb::Anchor(_)
            | Verb::Backup(_)
            | Verb::Restore(_)
            | Verb::Doctor
            | Verb::Token(_)
            | Verb::Config(_)
            | Verb::Tools(_)
            | Verb::Login(_)
            | Verb::Logout(_)
            | Verb::Completions { .. } => false,
        }
    }
}

/// Usage without the options that are set in the environment.
pub fn unasked(mut error: clap::Error) -> clap::Error {
    const FROM_OUTSIDE: [&str; 3] = [" --url <URL>", " --token <SECRET>", " --output <FORMAT>"];
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        let usage = FROM_OUTSIDE.iter().fold(usage.to_string(), |usage, option| usage.replace(option, ""));
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage.into()));
    }
    error
}

/// Parses the words of a closed list, with their aliases, and offers them to the shell's completion.
pub fn words<T>(all: &'static [T]) -> impl TypedValueParser<Value = T>
where
    T: Words + FromStr<Err = NotAWord> + Send + Sync + 'static,
{
    WordParser(all)
}

/// The states in which a work item can end.
pub const TERMINAL: &[State] = &[
    State::Succeeded,
    State::CompletedWithWarnings,
    State::Failed,
    State::TimedOut,
    State::Cancelled,
    State::Abandoned,
];

#[derive(Clone)]
struct WordParser<T: 'static>(&'static [T]);

impl<T> TypedValueParser for WordParser<T>
where
    T: Words + FromStr<Err = NotAWord> + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        StringValueParser::new().try_map(|text| text.parse::<T>()).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|word| PossibleValue::new(word.as_str()))))
    }
}

/// How many of a list to show.
pub fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("give at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("write a whole number, like 200".to_owned()),
    }
}

/// Whether a text is only the mark that stands for one's own text in examples.
pub fn is_placeholder(text: &str) -> bool {
    matches!(text.trim(), "…" | "...")
}

/// Text of the caller's own: the mark of an example is refused.
pub fn filled_in(text: &str) -> Result<String, String> {
    if is_placeholder(text) {
        return Err("this is only a placeholder: write your own text".to_owned());
    }
    Ok(text.to_owned())
}

/// JSON given on the command line, `@FILE` to read a file, or `-` to read stdin.
pub fn json(text: &str) -> Result<serde_json::Value, String> {
    filled_in(text.trim_matches('"'))?;
    let text = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(PathBuf::from(path)).map_err(|e| format!("{path}: {e}"))?,
        None if text == "-" => std::io::read_to_string(std::io::stdin()).map_err(|e| e.to_string())?,
        None => text.to_owned(),
    };
    tenure_api::strict::from_slice(text.as_bytes())
        .map_err(|e| format!("this is not JSON ({e}); quote text: '\"like this\"'"))
}

#[cfg(test)]
mod tests {
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
}
