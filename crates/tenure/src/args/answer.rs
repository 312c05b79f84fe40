//! Arguments of the verbs that answer waits.

use clap::Args;
use serde_json::Value;

use super::json;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure resolve deploy-7 --payload '{\"go\": true}'\n  tenure resolve wt_0198… --payload '\"blue\"'\n\n\
The first answer counts; a second one returns the first. An answer that arrives before its wait is kept."
)]
pub struct Resolve {
    /// The wait's reference, or its id
    pub reference: String,
    /// The answer: JSON, @FILE, or - for stdin
    #[arg(long, value_parser = json)]
    pub payload: Value,
    /// The wait's token
    #[arg(long, value_name = "TOKEN")]
    pub wait_token: Option<String>,
    /// The seal of an approval, as `tenure show` prints it; required with the id of a wait of kind approval
    #[arg(long)]
    pub seal: Option<String>,
    /// The wait's tenant; required if the access token covers several
    #[arg(long)]
    pub tenant: Option<String>,
    /// Show what would happen, or why not, without writing anything
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure approve w_0198 --reason 'looks right' --yes\n  \
tenure approve c_0198 --reason 'the invoice is right' --yes\n\n\
The question is shown first, and exactly that is approved: other arguments or another prompt have a different seal. \
`tenure show` prints the seal. \
Only a person's access token can approve.")]
pub struct Approve {
    /// The id of a command, or of a work item that waits for an approval; or a unique prefix of it
    pub id: String,
    #[command(flatten)]
    pub decision: Decision,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure reject w_0198 --reason 'not on a Friday' --yes\n  \
tenure reject c_0198 --reason 'paid already' --yes")]
pub struct Reject {
    /// The id of a command, or of a work item that waits for an approval; or a unique prefix of it
    pub id: String,
    #[command(flatten)]
    pub decision: Decision,
}

/// Arguments common to approve and reject.
#[derive(Args)]
pub struct Decision {
    /// The reason, which is recorded; required for a command
    #[arg(long, visible_alias = "note")]
    pub reason: Option<String>,
    /// The seal that you were shown before: if it has changed, nothing is approved
    #[arg(long)]
    pub seal: Option<String>,
    /// Do not ask for confirmation; required without a terminal
    #[arg(long, short)]
    pub yes: bool,
    /// Show what would happen, or why not, without writing anything
    #[arg(long)]
    pub dry_run: bool,
}
