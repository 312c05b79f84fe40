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
    /// The seal of an approval, as `tenure show` prints it; needed with the id of a wait that asks for one
    #[arg(long)]
    pub seal: Option<String>,
    /// Whose wait it is; needed where the token has several tenants
    #[arg(long)]
    pub tenant: Option<String>,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure approve w_0198 --reason 'looks right' --yes\n  \
tenure approve c_0198 --reason 'the invoice is right' --yes\n\n\
What is asked is shown before it is approved, and approved as it was shown: with other arguments, or another prompt, it is \
another one. `tenure show` prints its seal. \
Only a person's token approves.")]
pub struct Approve {
    /// The id of a command, or of a work that waits for an approval; or a beginning of it that no other has
    pub id: String,
    #[command(flatten)]
    pub decision: Decision,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure reject w_0198 --reason 'not on a Friday' --yes\n  \
tenure reject c_0198 --reason 'paid already' --yes")]
pub struct Reject {
    /// The id of a command, or of a work that waits for an approval; or a beginning of it that no other has
    pub id: String,
    #[command(flatten)]
    pub decision: Decision,
}

/// What goes with a yes or a no.
#[derive(Args)]
pub struct Decision {
    /// Why; it is kept. A command is not decided over without it
    #[arg(long, visible_alias = "note")]
    pub reason: Option<String>,
    /// The seal of what you were shown before: if it is another one by now, nothing is approved
    #[arg(long)]
    pub seal: Option<String>,
    /// Do not ask; needed where there is no terminal
    #[arg(long, short)]
    pub yes: bool,
    /// Say what would happen, or why not, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}
