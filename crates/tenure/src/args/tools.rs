//! Arguments of `tools`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::json;

#[derive(Subcommand)]
pub enum ToolsVerb {
    /// Check the tools and policies of a configuration; with --tool, evaluate one command
    Check(ToolsCheck),
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure tools check /etc/tenure.toml\n  tenure tools check --tool send_email --target bob@example.com \
--arguments '{\"to\": \"bob@example.com\"}' --actor worker:agent-7\n\n\
Nothing is recorded. With --tool the exit code is 0 if the command is allowed, 4 if it is denied or its arguments are \
refused, 7 if it needs an approval."
)]
pub struct ToolsCheck {
    /// The configuration file
    #[arg(default_value = "tenure.toml", env = "TENURE_CONFIG")]
    pub file: PathBuf,
    /// The tool of the command to evaluate
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// The command's target
    #[arg(long, value_name = "TARGET", requires = "tool", default_value = "anything")]
    pub target: String,
    /// The command's arguments: JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json, value_name = "JSON", requires = "tool", default_value = "{}")]
    pub arguments: Value,
    /// The actor who would reserve it: person:NAME, machine:NAME or worker:NAME
    #[arg(long, value_name = "WHO", requires = "tool", default_value = "worker:anybody")]
    pub actor: String,
    /// The tenant of the command's work item
    #[arg(long, requires = "tool", default_value = "default")]
    pub tenant: String,
    /// The kind of the command's work item
    #[arg(long, requires = "tool", default_value = "command")]
    pub kind: String,
    /// The source system of the command's work item
    #[arg(long, requires = "tool", default_value = "manual")]
    pub source: String,
}
