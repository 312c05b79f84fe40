//! The options of a ledger before it is opened.

use std::path::PathBuf;

use tenure_api::Client;
use tenure_server::{
    Config, ConfigError, Overlay, Server,
    auth::{AdminToken, Secret},
    executor::Outbound,
    policy::PolicyFile,
};

use crate::{OpenError, Tenure};

/// The program's default name in events.
const NAME: &str = "embedded";

/// A ledger to be opened. Every option has a default: [`Tenure::open`] sets none.
#[derive(Clone)]
#[must_use = "nothing is opened before `open`"]
pub struct Builder {
    name: String,
    admin: AdminToken,
    config: Source,
    overlay: Overlay,
}

/// The source of the configuration.
#[derive(Clone)]
enum Source {
    Text(String),
    File(PathBuf),
}

impl Builder {
    pub(crate) fn new(db: &str) -> Self {
        Self {
            name: NAME.to_owned(),
            admin: AdminToken::Unmade,
            config: Source::Text(String::new()),
            overlay: Overlay { db: Some(db.to_owned()), ..Overlay::default() },
        }
    }

    /// The program's name in events and policies; default `embedded`. The same name is the same principal at
    /// every start and in every process.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// The configuration, as in `tenure.toml`: sources, tools, budgets, quotas. Its settings for sockets and
    /// for `db` have no effect.
    pub fn config(mut self, toml: &str) -> Self {
        self.config = Source::Text(toml.to_owned());
        self
    }

    /// The configuration from a file. It replaces that of [`Builder::config`], and paths in it are relative
    /// to the file.
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.config = Source::File(path.into());
        self
    }

    /// Cedar policies, in addition to those that the configuration names. `name` identifies them in error
    /// messages and reasons.
    pub fn policy(mut self, name: &str, cedar: &str) -> Self {
        self.overlay.policies.push(PolicyFile { name: name.to_owned(), text: cedar.to_owned() });
        self
    }

    /// Creates a first credential with this secret, a person's with every scope, unless a person has one
    /// already. At least 16 characters. Without it no credential is created until somebody opens the ledger
    /// with the `tenure` command.
    pub fn admin_token(mut self, secret: &str) -> Self {
        self.admin = AdminToken::Given(Secret::given(secret.to_owned()));
        self
    }

    /// Like [`Builder::admin_token`] with a random secret, which is written to this file, readable by its
    /// owner only.
    pub fn admin_token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.admin = AdminToken::File(path.into());
        self
    }

    /// Opens the ledger and starts its background tasks.
    pub async fn open(self) -> Result<Tenure, OpenError> {
        let Self { name, admin, config, overlay } = self;
        // A blocking task, because schemas and policies take time to compile.
        let settled = tokio::task::spawn_blocking(|| settle(config, overlay)).await;
        let config = settled
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
            .map_err(OpenError::Config)?;
        let mut server = Server::open(config, admin).await.map_err(OpenError::Start)?;
        let router = server.in_process(&name).map_err(|error| OpenError::Start(error.into()))?;
        server.relay(Outbound::of_this_machine());
        Ok(Tenure { client: Client::in_process(router, None), server })
    }
}

fn settle(config: Source, overlay: Overlay) -> Result<Config, ConfigError> {
    match config {
        Source::Text(toml) => Config::parse("the configuration of the embedding program", &toml, overlay),
        Source::File(path) => Config::load(Some(&path), overlay),
    }
}
