//! Housekeeping, tokens, configuration.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use tenure_api::wire::{Scope, TokenKind};

use super::{Act, period};

#[derive(Args)]
#[command(after_help = "Example:\n  tenure prune --older-than 90d --reason 'kept for a quarter' --yes\n\n\
Identities are kept, so that nothing that was pruned runs again.")]
pub struct Prune {
    /// Only works that ended longer ago
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub older_than: Duration,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure backup /var/backups/tenure-2026-01-31.db")]
pub struct Backup {
    /// A new file, on the daemon's machine
    pub path: PathBuf,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure restore /var/backups/tenure-2026-01-31.db --db tenure.db\n\n\
The copy is read back as `verify` does it, and is gone again if it is not sound. Tokens are those of the backup.")]
pub struct Restore {
    /// The file that `tenure backup` made
    pub backup: PathBuf,
}

#[derive(Subcommand)]
pub enum TokenVerb {
    /// Make a token; its secret is printed once
    Create(TokenCreate),
    /// Every token, without its secret
    #[command(after_help = "Example:\n  tenure token list")]
    List,
    /// Make a token useless from now on
    Revoke(TokenRevoke),
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure token revoke cr_0198… --reason 'the laptop was lost'")]
pub struct TokenRevoke {
    /// A token's id, as `tenure token list` shows it
    pub id: String,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  tenure token create agent-7 --scope submit,work,view --tenant acme --expires-in 30d"
)]
pub struct TokenCreate {
    /// What to call it
    pub name: String,
    /// view, payload, submit, work, resolve, approve, replay, operate or admin
    #[arg(long = "scope", value_delimiter = ',', required = true)]
    pub scopes: Vec<Scope>,
    /// Only these tenants; without it, every tenant
    #[arg(long = "tenant", value_delimiter = ',')]
    pub tenants: Vec<String>,
    /// Whose it is: person or machine. Only a person's token approves, replays and overrides
    #[arg(long, default_value = "machine")]
    pub kind: TokenKind,
    /// For how long it works; without it, until it is revoked
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub expires_in: Option<Duration>,
}

#[derive(Subcommand)]
pub enum ConfigVerb {
    /// Read a configuration file and say what is wrong with it
    #[command(after_help = "Example:\n  tenure config check /etc/tenure.toml")]
    Check {
        /// The file
        #[arg(default_value = "tenure.toml", env = "TENURE_CONFIG")]
        file: PathBuf,
    },
}
