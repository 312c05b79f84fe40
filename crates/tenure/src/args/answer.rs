//! Answers to what works wait for.

use clap::Args;
use serde_json::Value;

use super::json;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure resolve deploy-7 --payload '{\"go\": true}'\n  tenure resolve wt_0198… --payload '\"blue\"'\n\n\
The first answer counts; a second one gets the first one back. An answer that comes before its wait is kept."
)]
pub struct Resolve {
    /// What the wait refers to, or a wait's id
    pub reference: String,
    /// JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json)]
    pub payload: Value,
    /// The wait's token, where you have one
    #[arg(long, value_name = "TOKEN")]
    pub wait_token: Option<String>,
    #[arg(long)]
    pub tenant: Option<String>,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure approve w_0198 --note 'looks right'")]
pub struct Approve {
    /// A work's id, or a beginning of it that no other has
    pub id: String,
    #[arg(long)]
    pub note: Option<String>,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure reject w_0198 --note 'not on a Friday'")]
pub struct Reject {
    /// A work's id, or a beginning of it that no other has
    pub id: String,
    #[arg(long)]
    pub note: Option<String>,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}
