//! Arguments of `login` and `logout`.

use clap::Args;

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure login https://ledger.example\n  \
tenure login https://ledger.example --name prod < token-file\n\n\
The token is asked for at a terminal, and read from stdin otherwise. It is stored in ~/.config/tenure, readable by you \
only, and sent only to this URL. Later commands use this context; --context chooses another.")]
pub struct Login {
    /// The daemon's URL
    #[arg(value_name = "URL")]
    pub address: String,
    /// The context's name; by default, the host
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure logout\n  tenure logout prod")]
pub struct Logout {
    /// The context to delete; by default, the current one
    pub name: Option<String>,
}
