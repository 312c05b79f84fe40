//! Connects to a ledger: through a daemon, or by opening it in this process behind the same router.

use std::{
    fs, io,
    path::{self, Path, PathBuf},
};

use tenure_api::{Client, wire::Code};
use tenure_server::{
    Config, Overlay, Server,
    auth::{AdminToken, Secret},
};

use crate::{
    args::Global,
    contexts::{self, Contexts, Environment},
    exit::{Exit, Failure},
};

/// Explains where an explicitly given token came from.
const GIVEN: &str = "The token came from --token or TENURE_TOKEN. Correct or unset it.";

/// Allows a token file that every user can read.
const ALLOW_READABLE: &str = "TENURE_ALLOW_READABLE_SECRETS";

/// A client, with the ledger if it is open in this process.
pub struct Connection {
    pub client: Client,
    /// Where the token came from or was looked for, and what to do: shown when the caller is refused.
    pub token_hint: String,
    /// The daemon's URL; None if the ledger is open here.
    pub url: Option<String>,
    embedded: Option<Server>,
}

impl Connection {
    /// `create`: whether a missing ledger may be created. `backups`: the folder that a ledger opened here may
    /// be copied into.
    pub async fn open(global: &Global, create: bool, backups: Option<PathBuf>) -> Result<Self, Failure> {
        match &global.db {
            Some(db) if !create && is_missing(db) => {
                let detail = format!("there is no ledger at {db}. `ingest` and `serve` create one");
                Err(Failure::new(Exit::NotFound, detail))
            }
            Some(db) => Self::embed(db, global, backups).await,
            None => Self::daemon(global),
        }
    }

    fn daemon(global: &Global) -> Result<Self, Failure> {
        let target = contexts::target(global, &Environment::read(), &Contexts::load()?)?;
        let (token, token_hint) = match target.token {
            Some(token) => (Some(token), target.origin),
            None if target.token_file => token_of(&beside_daemon(settings(None)?.token_file)),
            None => {
                let url = &target.url;
                let hint = format!(
                    "No token was sent: a token file of this machine is not sent to {url}. Log in: `tenure login \
                     {url}`, or give --token."
                );
                (None, hint)
            }
        };
        let client = client(&target.url, token.as_deref())?;
        Ok(Self { client, token_hint, url: Some(target.url), embedded: None })
    }

    /// Opens the ledger here. Everything due is done first, as a daemon would have done it.
    async fn embed(db: &str, global: &Global, backups: Option<PathBuf>) -> Result<Self, Failure> {
        let config = Config { accept_loss: global.accept_loss, backups, ..settings(Some(db.to_owned()))? };
        let file = config.token_file.clone();
        let server = Server::open(config, admin_token(global.token.as_deref(), &file))
            .await
            .map_err(|error| Failure::new(Exit::Error, error.to_string()))?;
        server.sweep_once().await.map_err(|error| Failure::new(Exit::Error, error.to_string()))?;
        let (token, token_hint) = match &global.token {
            Some(token) => (Some(token.clone()), GIVEN.to_owned()),
            None => token_of(&[file]),
        };
        let client = Client::in_process(server.router(), token.as_deref());
        Ok(Self { client, token_hint, url: None, embedded: Some(server) })
    }

    /// Adds the token hint to a refusal for the token.
    pub fn explain(&self, failure: Failure) -> Failure {
        match failure.code {
            Some(Code::Unauthorized) => {
                Failure { message: format!("{} {}", failure.message, self.token_hint), ..failure }
            }
            _ => failure,
        }
    }

    /// Finishes the ledger's pending work.
    pub async fn close(self) -> Result<(), Failure> {
        drop(self.client);
        if let Some(server) = self.embedded {
            server.close().await.map_err(|error| Failure::new(Exit::Error, error.to_string()))?;
        }
        Ok(())
    }
}

/// A client of a daemon.
pub fn client(url: &str, token: Option<&str>) -> Result<Client, Failure> {
    Ok(match is_allowed("TENURE_ALLOW_PLAIN_HTTP") {
        true => Client::plain_http(url, token)?,
        false => Client::http(url, token)?,
    })
}

/// The faults of a ledger file, read directly: a person who restores one may have no token of it.
pub async fn faults(db: &str) -> Result<Vec<String>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::Error, error.to_string());
    let config = settings(Some(db.to_owned()))?;
    let file = config.token_file.clone();
    let server = Server::open(config, AdminToken::File(file)).await.map_err(|error| failed(&error))?;
    let report = server.ledger().verify().await.map_err(|error| failed(&error));
    server.close().await.map_err(|error| failed(&error))?;
    Ok(report?.faults.into_iter().map(|fault| fault.what).collect())
}

/// The source of the first credential of a ledger.
pub fn admin_token(given: Option<&str>, file: &Path) -> AdminToken {
    match given {
        Some(secret) => AdminToken::Given(Secret::given(secret.to_owned())),
        None => AdminToken::File(file.to_owned()),
    }
}

fn settings(db: Option<String>) -> Result<Config, Failure> {
    let token_file = std::env::var_os("TENURE_TOKEN_FILE").map(Into::into);
    let db = db.or_else(|| std::env::var("TENURE_DB").ok());
    let allow_readable_secrets = is_allowed(ALLOW_READABLE);
    let overlay = Overlay { db, token_file, allow_readable_secrets, ..Overlay::default() };
    Ok(Config::load(None, overlay)?)
}

/// Whether an environment variable allows it.
fn is_allowed(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|set| set == "true")
}

/// Whether the file is missing: a mistyped path is reported rather than becoming an empty ledger.
fn is_missing(db: &str) -> bool {
    !db.contains("://") && db != ":memory:" && !Path::new(db).exists()
}

/// The files in which a daemon started here may have left its token: beside its ledger file, or in the folder
/// if there is none. An explicitly named file is the only one.
fn beside_daemon(expected: PathBuf) -> Vec<PathBuf> {
    let named = ["TENURE_TOKEN_FILE", "TENURE_DB"].iter().any(|name| std::env::var_os(name).is_some());
    if named { vec![expected] } else { vec![expected, PathBuf::from(Config::TOKEN_FILE)] }
}

/// The token in the first of these files that exists, and a hint for the case that it is refused.
fn token_of(files: &[PathBuf]) -> (Option<String>, String) {
    let file = files.iter().find(|file| file.exists()).unwrap_or(&files[0]);
    let read = fs::read_to_string(file);
    let place = path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let place = place.display();
    let lacks = match &read {
        Ok(text) if !text.trim().is_empty() => {
            let hint = format!(
                "The token came from {place}, which may belong to another ledger. Set TENURE_TOKEN_FILE to the \
                 token file of this one, or set TENURE_TOKEN."
            );
            return (Some(text.trim().to_owned()), hint);
        }
        Ok(_) => format!("{place} is empty"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let others: String =
                files[1..].iter().map(|other| format!(" and no {}", other.display())).collect();
            format!("there is no {place}{others}")
        }
        Err(error) => format!("{place} cannot be read ({error})"),
    };
    let hint = format!(
        "No token was sent: neither --token nor TENURE_TOKEN is set, and {lacks}. The first `tenure serve` prints where \
         it writes its token: `tenure.db.token` beside a ledger file, `tenure.token` in its folder with PostgreSQL. \
         Run `export TENURE_TOKEN_FILE=/path/to/it`, or get a token and run `export TENURE_TOKEN=…`."
    );
    (None, hint)
}
