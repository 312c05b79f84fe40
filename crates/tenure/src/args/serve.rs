//! `serve`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure serve\n  tenure serve --db postgres://tenure@db/tenure --listen 0.0.0.0:7171 --host ledger.example \\\n    --tls-cert cert.pem --tls-key key.pem\n\n\
The first start leaves an admin token in a file that only you can read, beside the ledger; TENURE_TOKEN, where set, \
becomes that token instead. SIGHUP reads the configuration again; SIGTERM drains."
)]
pub struct Serve {
    /// The ledger: an SQLite file, which is made where there is none, or postgres://…
    #[arg(id = "db", long = "db", env = "TENURE_DB", hide_env_values = true, value_name = "PATH")]
    _db: Option<String>,
    // Everywhere else these say whom to ask and how to print it. A daemon does neither.
    #[arg(id = "url", long = "url", hide = true)]
    _url: Option<String>,
    #[arg(id = "output", short = 'o', long = "output", hide = true)]
    _output: Option<super::Format>,
    /// Where to listen
    #[arg(long, env = "TENURE_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// The configuration file
    #[arg(long, env = "TENURE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the first start leaves the admin token
    #[arg(long, env = "TENURE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The folder that `tenure backup` writes into; without it, this daemon makes no backups
    #[arg(long, env = "TENURE_BACKUPS", value_name = "FOLDER")]
    pub backups: Option<PathBuf>,
    /// A certificate chain (PEM): serve TLS
    #[arg(long, env = "TENURE_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, env = "TENURE_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// A name that requests may use in `Host`, besides the loopback's; may be repeated
    #[arg(long = "host", env = "TENURE_HOSTS", value_delimiter = ',', value_name = "NAME")]
    pub hosts: Vec<String>,
    /// Send traces to this OTLP collector
    #[arg(long, env = "TENURE_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Open a database whose settings would let an acknowledged write be lost
    #[arg(long, env = "TENURE_ALLOW_WEAK_SETTINGS")]
    pub allow_weak_settings: bool,
    /// Listen beyond loopback without TLS: for a proxy before the daemon that has it
    #[arg(long, env = "TENURE_ALLOW_PLAIN_HTTP")]
    pub allow_plain_http: bool,
    /// Take secrets from files that every user of this machine can read
    #[arg(long, env = "TENURE_ALLOW_READABLE_SECRETS")]
    pub allow_readable_secrets: bool,
}
