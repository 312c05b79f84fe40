//! The demo's environment: a ledger in a temporary folder, a daemon, and a credential for everybody.

use std::time::Duration;

use tempfile::TempDir;
use tenure_api::{
    Client,
    wire::{NewToken, Scope, TokenKind},
};
use tenure_server::{Config, Overlay, Server, StartError, auth::AdminToken};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    exit::{Exit, Failure},
    verbs::bind,
};

pub struct Stage {
    pub folder: TempDir,
    pub url: String,
    /// The admin token, for the viewer.
    pub token: String,
    admin: Client,
    closing: CancellationToken,
    daemon: JoinHandle<Result<(), StartError>>,
}

impl Stage {
    pub async fn open(listen: &str, beat: Duration) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::Error, error.to_string());
        let folder = TempDir::with_prefix("tenure-demo-")?;
        let overlay = Overlay {
            db: Some(folder.path().join("ledger.db").to_string_lossy().into_owned()),
            listen: Some(listen.to_owned()),
            ..Overlay::default()
        };
        let config = Config::parse("the demo", &settings(beat), overlay)
            .map_err(|error| Failure::usage(error.to_string()))?;
        let listener = bind(config.listen)?;
        let url = format!("http://{}", listener.local_addr()?);
        let file = config.token_file.clone();
        let admin = AdminToken::File(file.clone());
        let server = Server::open(config, admin).await.map_err(|error| failed(&error))?;
        let token = std::fs::read_to_string(file)?.trim().to_owned();
        let closing = CancellationToken::new();
        let daemon = tokio::spawn(server.serve(listener, closing.clone().cancelled_owned()));
        let admin = Client::http(&url, Some(&token))?;
        Ok(Self { folder, url, token, admin, closing, daemon })
    }

    /// A machine that ingests and executes work.
    pub async fn machine(&self, name: &str) -> Result<Client, Failure> {
        let scopes = [Scope::View, Scope::Payload, Scope::Submit, Scope::Work];
        self.admit(name, TokenKind::Machine, &scopes).await
    }

    /// A person who answers.
    pub async fn person(&self, name: &str) -> Result<Client, Failure> {
        let scopes = [Scope::View, Scope::Payload, Scope::Resolve, Scope::Approve];
        self.admit(name, TokenKind::Person, &scopes).await
    }

    /// A credential with only the scopes of its role, and a client with it.
    async fn admit(&self, name: &str, kind: TokenKind, scopes: &[Scope]) -> Result<Client, Failure> {
        let new = NewToken {
            name: name.to_owned(),
            kind: Some(kind),
            principal: None,
            scopes: scopes.to_vec(),
            tenants: None,
            kinds: None,
            worker: None,
            expires_at: None,
        };
        let made = self.admin.make_token(&new).await?;
        Ok(Client::http(&self.url, Some(&made.secret))?)
    }

    /// Stops the daemon and the ledger; returns the folder.
    pub async fn close(self) -> Result<TempDir, Failure> {
        self.closing.cancel();
        let served = self.daemon.await.map_err(|error| Failure::new(Exit::Error, error.to_string()))?;
        served.map_err(|error| Failure::new(Exit::Error, error.to_string()))?;
        Ok(self.folder)
    }
}

/// Short leases and backoffs, so that things happen while one watches. Payments are not declared: they are
/// high risk and need a person's approval.
fn settings(beat: Duration) -> String {
    let beats = |n: u32| format!("\"{}ms\"", (beat * n).as_millis());
    let (one, two, six, eight) = (beats(1), beats(2), beats(6), beats(8));
    let retry = format!(
        "{{ max_attempts = 8, initial = {one}, multiplier = 2.0, max = {eight}, jitter = \"full\" }}"
    );
    let looked_up = format!(
        "risk = \"low\"\nconsistency_delay = {two}\nretry = {retry}\n\
         lookup = {{ by = \"worker\", interval = {two} }}\n"
    );
    format!(
        "drain = \"5s\"\n\
         [alerts]\nevery = \"1s\"\n\
         [defaults]\n\
         lease = {{ ttl = {six}, renew = {two}, grace = {two} }}\n\
         retry = {retry}\n\
         [tools.send_email]\nkind = \"message\"\n{looked_up}\
         [tools.create_ticket]\n{looked_up}"
    )
}
