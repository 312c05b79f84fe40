//! The way to a ledger: a daemon, or a ledger that this process opens itself, behind the very same router.

use std::{
    fs, io,
    path::{self, Path},
};

use tenure_api::{Client, wire::Code};
use tenure_server::{
    Config, Overlay, Server,
    auth::{AdminToken, Secret},
};

use crate::{
    args::Global,
    exit::{Exit, Failure},
};

/// What is said of a token that was named.
const GIVEN: &str = "The token came from --token or TENURE_TOKEN. Correct or unset it.";

/// A client, and the ledger behind it where that is in this process.
pub struct Connection {
    pub client: Client,
    /// Where the token came from, or was looked for, and what to type: for whoever is refused.
    pub token_hint: String,
    embedded: Option<Server>,
}

impl Connection {
    /// `create`: whether a ledger may be made where there is none.
    pub async fn open(global: &Global, create: bool) -> Result<Self, Failure> {
        match &global.db {
            Some(db) if !create && is_missing(db) => {
                let detail = format!("there is no ledger at {db}. `ingest` and `serve` make one");
                Err(Failure::new(Exit::NotFound, detail))
            }
            Some(db) => Self::embed(db, global).await,
            None => Self::daemon(global),
        }
    }

    fn daemon(global: &Global) -> Result<Self, Failure> {
        let (token, token_hint) = match &global.token {
            Some(token) => (Some(token.clone()), GIVEN.to_owned()),
            None => token_of(&settings(None)?.token_file),
        };
        Ok(Self { client: Client::http(&global.url, token.as_deref())?, token_hint, embedded: None })
    }

    /// Opens the ledger here. What is due is done first, as a daemon would have done it.
    async fn embed(db: &str, global: &Global) -> Result<Self, Failure> {
        let config = settings(Some(db.to_owned()))?;
        let file = config.token_file.clone();
        let server = Server::open(config, admin_token(global.token.as_deref(), &file))
            .await
            .map_err(|error| Failure::new(Exit::Error, error.to_string()))?;
        server.sweep_once().await.map_err(|error| Failure::new(Exit::Error, error.to_string()))?;
        let (token, token_hint) = match &global.token {
            Some(token) => (Some(token.clone()), GIVEN.to_owned()),
            None => token_of(&file),
        };
        let client = Client::in_process(server.router(), token.as_deref());
        Ok(Self { client, token_hint, embedded: Some(server) })
    }

    /// Tells whoever was refused for its token where that was looked for.
    pub fn explain(&self, failure: Failure) -> Failure {
        match failure.code {
            Some(Code::Unauthorized) => {
                Failure { message: format!("{} {}", failure.message, self.token_hint), ..failure }
            }
            _ => failure,
        }
    }

    /// Finishes what the ledger has begun.
    pub async fn close(self) -> Result<(), Failure> {
        drop(self.client);
        if let Some(server) = self.embedded {
            server.close().await.map_err(|error| Failure::new(Exit::Error, error.to_string()))?;
        }
        Ok(())
    }
}

/// Where the first credential of a ledger comes from.
pub fn admin_token(given: Option<&str>, file: &Path) -> AdminToken {
    match given {
        Some(secret) => AdminToken::Given(Secret::given(secret.to_owned())),
        None => AdminToken::File(file.to_owned()),
    }
}

fn settings(db: Option<String>) -> Result<Config, Failure> {
    let token_file = std::env::var_os("TENURE_TOKEN_FILE").map(Into::into);
    let db = db.or_else(|| std::env::var("TENURE_DB").ok());
    let overlay = Overlay { db, token_file, ..Overlay::default() };
    Config::load(None, overlay).map_err(|error| Failure::usage(error.to_string()))
}

/// A mistyped path is told, and not made into an empty ledger.
fn is_missing(db: &str) -> bool {
    !db.contains("://") && db != ":memory:" && !Path::new(db).exists()
}

/// The token that the first start left in a file, and what to say should it not do.
fn token_of(file: &Path) -> (Option<String>, String) {
    let read = fs::read_to_string(file);
    let place = path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let place = place.display();
    let lacks = match &read {
        Ok(text) if !text.trim().is_empty() => {
            let hint = format!(
                "The token came from {place}, which may be beside another ledger. Set TENURE_TOKEN_FILE to the \
                 file beside this one's, or TENURE_TOKEN."
            );
            return (Some(text.trim().to_owned()), hint);
        }
        Ok(_) => format!("{place} is empty"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => format!("there is no {place}"),
        Err(error) => format!("{place} cannot be read ({error})"),
    };
    let hint = format!(
        "No token was sent: neither --token nor TENURE_TOKEN is set, and {lacks}. The first `tenure serve` leaves its \
         token beside its ledger: type `export TENURE_TOKEN_FILE=/path/to/tenure.db.token`, or ask for a token and \
         type `export TENURE_TOKEN=…`."
    );
    (None, hint)
}
