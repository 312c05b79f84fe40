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
#[command(after_help = "Examples:\n  tenure backup ledger-2026-01-31.db\n  \
tenure backup --db ledger.db /var/backups/ledger-2026-01-31.db\n\n\
A daemon writes only into the folder it was given with `tenure serve --backups`, and only for a person's token.")]
pub struct Backup {
    /// The name of a new file in the daemon's folder of backups; with --db, the path of a new file
    pub path: PathBuf,
}

impl Backup {
    /// The folder of a new file that this process writes itself.
    pub fn folder(&self) -> std::io::Result<Option<PathBuf>> {
        Ok(std::path::absolute(&self.path)?.parent().map(Into::into))
    }
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure restore /var/backups/tenure-2026-01-31.db --db tenure.db\n\n\
The copy is read back as `verify` does it, and is gone again if it is not sound. Tokens are those of the backup.")]
pub struct Restore {
    /// The file that `tenure backup` made
    pub backup: PathBuf,
    /// Keep the copy although verification finds faults, which are printed
    #[arg(long)]
    pub accept_faults: bool,
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
    after_help = "Examples:\n  tenure token create agent-7 --scope submit,work,view --tenant acme --expires-in 30d\n  \
tenure token create laptop --principal p_0198… --scope view,resolve,approve\n\n\
It gives at most what your own token has: its scopes, tenants, kinds and expiry."
)]
pub struct TokenCreate {
    /// What to call it, and its new principal
    pub name: String,
    /// view, payload, submit, work, resolve, approve, replay, operate or admin
    #[arg(long = "scope", value_delimiter = ',', required = true)]
    pub scopes: Vec<Scope>,
    /// Only these tenants; without it, every tenant
    #[arg(long = "tenant", value_delimiter = ',')]
    pub tenants: Vec<String>,
    /// Only these kinds of work; without it, every kind
    #[arg(long = "work-kind", value_delimiter = ',', value_name = "KIND")]
    pub kinds: Vec<String>,
    /// Claim for this worker only; without it, for any
    #[arg(long, value_name = "ID")]
    pub worker: Option<String>,
    /// Whose it is, where the token makes a new principal: person, or machine unless told otherwise. Only a person's
    /// token approves, replays and overrides
    #[arg(long, conflicts_with = "principal")]
    pub kind: Option<TokenKind>,
    /// A principal that has tokens already, as `tenure token list` shows it
    #[arg(long, value_name = "ID")]
    pub principal: Option<String>,
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
