//! Arguments of housekeeping, `token` and `config`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use tenure_api::wire::{Scope, TokenKind};

use super::{Act, period, words};

#[derive(Args)]
#[command(after_help = "Example:\n  tenure prune --older-than 90d --reason 'kept for a quarter' --yes\n\n\
Identities are kept, so nothing that was pruned runs again.")]
pub struct Prune {
    /// Only work items that ended longer ago than this
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub older_than: Duration,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure erase deposit-1 --reason 'their wish' --yes\n  \
tenure erase --tenant acme --session chat-7 --reason 'their wish' --dry-run\n\n\
Only ended work items: their events and hashes stay, and one that says who erased and why is added. What is left, and where \
else copies may be, is in docs/privacy.md.")]
#[command(group = clap::ArgGroup::new("what").args(["id", "tenant"]).required(true))]
pub struct Erase {
    /// One work item: its id, the beginning or ending of it, or its source's id
    pub id: Option<String>,
    /// All ended work items of this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only those of this session of the tenant
    #[arg(long, requires = "tenant")]
    pub session: Option<String>,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure verify && echo sound\n  tenure verify --anchor anchor.json")]
pub struct Verify {
    /// A copy of the anchor that `tenure anchor` wrote: the ledger must still contain the events that it covers
    #[arg(long, value_name = "FILE")]
    pub anchor: Option<PathBuf>,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure anchor --out /mnt/elsewhere/anchor.json\n  tenure anchor | ssh elsewhere 'cat >> anchors.jsonl'\n\n\
Store it where nobody who can write to the ledger can change it. `tenure verify --anchor FILE` compares the ledger with it."
)]
pub struct Anchor {
    /// Replace this file as a whole, instead of printing
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tenure backup ledger-2026-01-31.db\n  \
tenure backup --db ledger.db /var/backups/ledger-2026-01-31.db\n\n\
A daemon writes only into the folder given with `tenure serve --backups`, and only for a person's access token.")]
pub struct Backup {
    /// The name of a new file in the daemon's backup folder; with --db, the path of a new file
    pub path: PathBuf,
}

impl Backup {
    /// The folder of a new file that this process itself writes.
    pub fn folder(&self) -> std::io::Result<Option<PathBuf>> {
        Ok(std::path::absolute(&self.path)?.parent().map(Into::into))
    }
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure restore /var/backups/tenure-2026-01-31.db --db tenure.db\n\n\
The copy is verified as by `verify`, and deleted if it has faults. Access tokens are those of the backup.")]
pub struct Restore {
    /// The file that `tenure backup` wrote
    pub backup: PathBuf,
    /// Keep the copy even if verification finds faults, which are printed
    #[arg(long)]
    pub accept_faults: bool,
}

#[derive(Subcommand)]
pub enum TokenVerb {
    /// Create an access token; its secret is printed once
    Create(TokenCreate),
    /// List the access tokens, without their secrets
    #[command(after_help = "Example:\n  tenure token list")]
    List,
    /// Revoke an access token
    Revoke(TokenRevoke),
}

#[derive(Args)]
#[command(after_help = "Example:\n  tenure token revoke cr_0198… --reason 'the laptop was lost'")]
pub struct TokenRevoke {
    /// An access token's id, as `tenure token list` shows it
    pub id: String,
    #[command(flatten)]
    pub act: Act,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure token create agent-7 --scope submit,work,view --tenant acme --expires-in 30d\n  \
tenure token create laptop --principal p_0198… --scope view,resolve,approve\n\n\
It can have at most the rights of your own access token: its scopes, tenants, kinds and expiry."
)]
pub struct TokenCreate {
    /// The name of the access token, and of its new principal
    pub name: String,
    /// What it may do
    #[arg(long = "scope", value_delimiter = ',', required = true, value_parser = words(Scope::ALL))]
    pub scopes: Vec<Scope>,
    /// Only these tenants; by default, all
    #[arg(long = "tenant", value_delimiter = ',')]
    pub tenants: Vec<String>,
    /// Only these kinds of work; by default, all
    #[arg(long = "work-kind", value_delimiter = ',', value_name = "KIND")]
    pub kinds: Vec<String>,
    /// Only claims of this worker; by default, of any
    #[arg(long, value_name = "ID")]
    pub worker: Option<String>,
    /// The kind of the new principal, machine by default. Only a person's access token can approve,
    /// replay and override
    #[arg(long, conflicts_with = "principal", value_parser = words(TokenKind::ALL))]
    pub kind: Option<TokenKind>,
    /// An existing principal, as `tenure token list` shows it
    #[arg(long, value_name = "ID")]
    pub principal: Option<String>,
    /// How long it is valid; by default, until it is revoked
    #[arg(long, value_parser = period, value_name = "PERIOD")]
    pub expires_in: Option<Duration>,
}

#[derive(Subcommand)]
pub enum ConfigVerb {
    /// Check a configuration file
    #[command(after_help = "Example:\n  tenure config check /etc/tenure.toml")]
    Check {
        /// The configuration file
        #[arg(default_value = "tenure.toml", env = "TENURE_CONFIG")]
        file: PathBuf,
    },
}
