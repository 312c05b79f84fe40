//! Housekeeping, tokens, configuration.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use tenure_api::wire::{Scope, TokenKind};

use super::period;

#[derive(Args)]
#[command(after_help = "Example:\n  tenure prune --older-than 90d --yes\n\n\
Identities are kept, so that nothing that was pruned runs again.")]
pub struct Prune {
    /// Only works that ended longer ago
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub older_than: Duration,
    /// Do not ask; needed where there is no terminal
    #[arg(long, short)]
    pub yes: bool,
    /// Count, and forget nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure backup /var/backups/tenure-2026-01-31.db")]
pub struct Backup {
    /// A new file, on the daemon's machine
    pub path: PathBuf,
}

#[derive(Subcommand)]
pub enum TokenVerb {
    /// Make a token; its secret is printed once
    Create(TokenCreate),
    /// Every token, without its secret
    #[command(after_help = "Example:\n  tenure token list")]
    List,
    /// Make a token useless from now on
    #[command(after_help = "Example:\n  tenure token revoke cr_0198…")]
    Revoke { id: String },
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
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub expires_in: Option<Duration>,
}

#[derive(Subcommand)]
pub enum ConfigVerb {
    /// Read a configuration file and say what is wrong with it
    #[command(after_help = "Example:\n  tenure config check /etc/tenure.toml")]
    Check {
        #[arg(default_value = "tenure.toml", env = "TENURE_CONFIG")]
        file: PathBuf,
    },
}
