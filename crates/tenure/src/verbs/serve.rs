//! The daemon, and `config`.

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
};

use tenure_server::{Config, Overlay, Server, auth::FirstStart};

use crate::{
    args::{ConfigVerb, Global, Serve},
    connect::admin_token,
    exit::{Exit, Failure},
    logs::Logs,
    render::say,
};

pub async fn serve(global: &Global, args: Serve) -> Result<Exit, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::Error, error.to_string());
    let load = {
        let (db, accept_loss) = (global.db.clone(), global.accept_loss);
        let file = args.config.clone();
        move || {
            let overlay = Overlay {
                db: db.clone(),
                listen: args.listen.clone(),
                tls_cert: args.tls_cert.clone(),
                tls_key: args.tls_key.clone(),
                token_file: args.token_file.clone(),
                backups: args.backups.clone(),
                otlp_endpoint: args.otlp_endpoint.clone(),
                hosts: args.hosts.clone(),
                policies: Vec::new(),
                allow_weak_settings: args.allow_weak_settings,
                accept_loss,
                allow_plain_http: args.allow_plain_http,
                allow_readable_secrets: args.allow_readable_secrets,
            };
            Config::load(file.as_deref(), overlay)
        }
    };
    let config = load()?;
    let logs = Logs::start(config.otlp_endpoint.as_deref())?;
    let listen = config.listen;
    let token_file = config.token_file.clone();
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    // The port is bound before the ledger is opened, so that a second daemon on the same port disturbs
    // nothing.
    let listener = bind(listen)?;
    let admin = admin_token(global.token.as_deref(), &config.token_file);
    let address = listener.local_addr()?;
    say(&format!("Opening the ledger; {address} is bound."));
    let opened = |server: &Server| {
        say(&format!("Listening on {scheme}://{address}"));
        match server.first_start() {
            FirstStart::Written(path) => say(&format!("The admin token is in {}.", path.display())),
            FirstStart::Given => say("The value of TENURE_TOKEN is now the admin token."),
            FirstStart::No => {}
        }
        say("Next, in another terminal:");
        say(&format!("  export TENURE_URL={scheme}://{address}{}", token(&token_file)));
        say("  tenure needs");
        say("  tenure --help");
        say("Ready.");
        reload_on_hangup(server, load);
    };
    let served = tenure_server::run(config, admin, listener, tenure_api::worker::termination(), opened).await;
    logs.flush().await;
    served.map_err(|error| failed(&error))?;
    Ok(Exit::Ok)
}

/// The setting that names the token's file; none if there is no such file, as after a first start with
/// `TENURE_TOKEN`.
fn token(file: &Path) -> String {
    let Some(file) = std::path::absolute(file).ok().filter(|file| file.exists()) else {
        return String::new();
    };
    format!(" TENURE_TOKEN_FILE='{}'", file.display().to_string().replace('\'', "'\\''"))
}

/// Binds a port, or returns a message that says what prevents it.
pub fn bind(listen: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(listen).map_err(|error| {
        let why = format!(
            "Cannot listen on {listen}: {error}. Is another daemon running? Try --listen 127.0.0.1:0"
        );
        Failure::new(Exit::Error, why)
    })
}

/// SIGHUP reloads the configuration; a file with errors changes nothing.
fn reload_on_hangup(
    server: &Server,
    load: impl Fn() -> Result<Config, tenure_server::ConfigError> + Send + Sync + 'static,
) {
    let reloader = server.reloader();
    let load = Arc::new(load);
    tokio::spawn(async move {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
        while hangup.recv().await.is_some() {
            let load = load.clone();
            match reloader.load(move || load()).await {
                Ok(waiting) => tracing::info!(needs_restart = ?waiting, "the configuration was reloaded"),
                Err(error) => tracing::error!(%error, "the configuration was not changed"),
            }
        }
    });
}

pub fn config(verb: ConfigVerb) -> Result<Exit, Failure> {
    let ConfigVerb::Check { file } = verb;
    Config::load(Some(&file), Overlay::default())?;
    say(&format!("{} is valid.", file.display()));
    Ok(Exit::Ok)
}
