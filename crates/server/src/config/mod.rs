//! The configuration: `tenure.toml`, overridden by the flags and environment of the binary. A mistake is an
//! error with file, line and fix; unknown keys are errors too.

mod anchor;
mod budget;
mod calls;
mod config_source;
mod error;
mod file;
mod period;
mod progress;
mod tools;

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tenure_core::{
    command::ReplayLimits,
    model::WaitKind,
    policy::{KindPolicy, Settings, WorkPolicy},
    quota::Quota,
};

pub use anchor::AnchorExport;
pub use budget::{Budget, BudgetPeriod, limits_of};
use config_source::ConfigSource;
pub(crate) use config_source::is_readable_by_all;
pub use error::ConfigError;
use file::File;
pub use period::period;

pub use crate::connections::Bounds;
use crate::{
    policy::{Policies, PolicyFile},
    tools::{RateLimit, Tools},
};

/// The resolved configuration. [`Live`] can be changed while the daemon runs; the rest needs a restart.
#[derive(Clone, Debug)]
pub struct Config {
    pub db: Database,
    pub listen: SocketAddr,
    pub tls: Option<Tls>,
    /// The file that the first start writes the admin token to.
    pub token_file: PathBuf,
    /// The folder for backups over HTTP; None disables them.
    pub backups: Option<PathBuf>,
    /// Opens databases whose settings could lose commits.
    pub allow_weak_settings: bool,
    /// Opens an SQLite ledger that has lost commits together with its write-ahead log. Only a flag: it is
    /// meant for one start.
    pub accept_loss: bool,
    /// Opens a ledger file that every user of the machine can read.
    pub allow_readable_secrets: bool,
    /// The longest time a shutdown may take.
    pub drain: Duration,
    pub otlp_endpoint: Option<String>,
    pub live: Live,
}

/// The database of the ledger.
#[derive(Clone, PartialEq, Eq)]
pub enum Database {
    Sqlite(PathBuf),
    Postgres(String),
    /// In memory: for tests and demonstrations.
    Memory,
}

/// A certificate chain and its key, both PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// The settings that a reload can change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    /// Names that requests may use in `Host`, besides loopback and the listener's address.
    pub hosts: Vec<String>,
    /// Origins that browsers may call from, besides the daemon's own.
    pub origins: Vec<String>,
    pub rate: Rate,
    pub quotas: Quotas,
    pub alerts: Thresholds,
    /// None: the anchor is not exported.
    pub anchor: Option<AnchorExport>,
    pub sources: BTreeMap<String, Source>,
    pub tools: Tools,
    pub policy: Arc<Policies>,
    /// The dispatch rate of this process, over all tools.
    pub command_rate: Option<RateLimit>,
    pub replays: ReplayLimits,
    pub budgets: Vec<Budget>,
}

/// The request rate of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

impl Default for Rate {
    fn default() -> Self {
        Self { per_second: 20_000, burst: 20_000 }
    }
}

/// Quotas of one tenant, for credentials that are bound to tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Quotas that the ledger itself enforces.
    pub ledger: Quota,
    pub schedules: u64,
    /// Credentials that are not revoked.
    pub credentials: u64,
    /// Calls in progress in this process, long polls included.
    pub calls: u64,
    /// Open event streams of this process.
    pub streams: u64,
    /// Connections of this process, authenticated or not.
    pub connections: Bounds,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            ledger: Quota { open_works: 1_000_000, input_bytes: 1 << 30, priority: i16::MIN },
            schedules: 1_000,
            credentials: 1_000,
            calls: 2_000,
            streams: 500,
            connections: Bounds::default(),
        }
    }
}

/// Thresholds of alerts. None switches one off.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    pub every: Duration,
    /// A work item has been open for longer.
    pub open_age: Option<Duration>,
    /// The oldest queued work item of a source is older.
    pub pending_age: Option<Duration>,
    /// More leases than this are past their expiry.
    pub expired_leases: Option<u64>,
    /// More work items than this are stalled.
    pub stalled: Option<u64>,
    /// The deadline of an open wait is nearer than this.
    pub wait_deadline: Option<Duration>,
    /// A command has been in doubt for longer.
    pub uncertain_age: Option<Duration>,
    /// More commands than this can only be ended by a person.
    pub needs_person: Option<u64>,
    /// An approval has been pending for longer.
    pub approval_age: Option<Duration>,
    /// A command has been due for longer and the relay has not sent it.
    pub outbox_lag: Option<Duration>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(10),
            open_age: None,
            pending_age: Some(Duration::from_secs(300)),
            expired_leases: Some(0),
            stalled: Some(0),
            wait_deadline: Some(Duration::from_secs(600)),
            uncertain_age: Some(Duration::from_secs(900)),
            needs_person: Some(0),
            approval_age: Some(Duration::from_secs(3_600)),
            outbox_lag: Some(Duration::from_secs(60)),
        }
    }
}

/// The default settings of work items of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    pub policy: WorkPolicy,
    /// The deadline of waits without one, by kind.
    pub waits: BTreeMap<WaitKind, Duration>,
    /// By kind of work.
    pub kinds: BTreeMap<String, KindPolicy>,
}

/// Flags and environment, which override the file.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    pub db: Option<String>,
    pub listen: Option<String>,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub token_file: Option<PathBuf>,
    pub backups: Option<PathBuf>,
    pub otlp_endpoint: Option<String>,
    pub hosts: Vec<String>,
    /// Policies of an embedding program, in addition to those of the file.
    pub policies: Vec<PolicyFile>,
    pub allow_weak_settings: bool,
    pub accept_loss: bool,
    pub allow_plain_http: bool,
    pub allow_readable_secrets: bool,
}

impl Config {
    /// The file that the first start writes its token to if the ledger is not a file.
    pub const TOKEN_FILE: &'static str = "tenure.token";

    /// Reads and checks the configuration. Without a file the defaults apply.
    pub fn load(path: Option<&Path>, overlay: Overlay) -> Result<Self, ConfigError> {
        let text = path.map(File::read).transpose()?.unwrap_or_default();
        let name = path.map(|path| path.display().to_string()).unwrap_or_default();
        Self::parse(&name, &text, overlay)
    }

    /// The same, from text: `name` is used in errors, and relative paths start from its folder.
    pub fn parse(name: &str, text: &str, overlay: Overlay) -> Result<Self, ConfigError> {
        Self::parse_in(name, text, overlay, &|name| std::env::var(name).ok())
    }

    /// The same with a given environment.
    fn parse_in(
        name: &str,
        text: &str,
        overlay: Overlay,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let at =
            ConfigSource { name, text, folder, env, allow_readable_secrets: false, allow_plain_http: false };
        let file = File::parse(&at)?;
        let allow_readable_secrets = overlay.allow_readable_secrets || file.allow_readable_secrets;
        let allow_plain_http = overlay.allow_plain_http || file.allow_plain_http;
        file.settle(overlay, &ConfigSource { allow_readable_secrets, allow_plain_http, ..at })
    }

    /// The changed keys that need a restart.
    pub fn needs_restart(&self, new: &Config) -> Vec<&'static str> {
        let differs = [
            ("db", self.db != new.db),
            ("listen", self.listen != new.listen),
            ("tls", self.tls != new.tls),
            ("token_file", self.token_file != new.token_file),
            ("backups", self.backups != new.backups),
            ("allow_weak_settings", self.allow_weak_settings != new.allow_weak_settings),
            ("drain", self.drain != new.drain),
            ("quotas.connections", self.live.quotas.connections != new.live.quotas.connections),
            ("otlp.endpoint", self.otlp_endpoint != new.otlp_endpoint),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

impl Live {
    /// The settings of the sources in the ledger's form.
    pub fn settings(&self) -> Settings {
        let settings = Settings::default().with_quota(self.quotas.ledger);
        self.sources.iter().fold(settings, |settings, (name, source)| {
            let settings = settings.with_source(name, source.policy).expect("checked when the file was read");
            source.kinds.iter().fold(settings, |settings, (kind, policy)| {
                settings.with_kind(name, kind, *policy).expect("checked when the file was read")
            })
        })
    }
}

impl Database {
    fn parse(text: &str) -> Self {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            Database::Postgres(text.to_owned())
        } else if text == ":memory:" {
            Database::Memory
        } else {
            Database::Sqlite(PathBuf::from(text))
        }
    }

    /// Beside the ledger file, or in the working directory if there is none.
    fn token_file(&self) -> PathBuf {
        match self {
            Database::Sqlite(path) => {
                let mut name = path.clone().into_os_string();
                name.push(".token");
                name.into()
            }
            Database::Postgres(_) | Database::Memory => PathBuf::from(Config::TOKEN_FILE),
        }
    }
}

/// A URL may contain a password, so only its kind is shown.
impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Database::Sqlite(path) => write!(f, "sqlite {}", path.display()),
            Database::Postgres(_) => write!(f, "postgres"),
            Database::Memory => write!(f, "memory"),
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tool_tests;
