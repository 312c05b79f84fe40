//! Arguments of `serve`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  tenure serve\n  tenure serve --db postgres://tenure@db/tenure --listen 0.0.0.0:7171 --host ledger.example \\\n    --tls-cert cert.pem --tls-key key.pem\n\n\
The first start writes an admin token to a file that only you can read, beside the ledger. If TENURE_TOKEN is set, \
its value becomes the admin token instead. SIGHUP reloads the configuration; SIGTERM drains."
)]
pub struct Serve {
    /// The ledger: an SQLite file, which is created if it does not exist, or postgres://…
    #[arg(id = "db", long = "db", env = "TENURE_DB", hide_env_values = true, value_name = "PATH")]
    _db: Option<String>,
    // For other verbs these give the daemon and the output format. The daemon needs neither.
    #[arg(id = "url", long = "url", hide = true)]
    _url: Option<String>,
    #[arg(id = "context", long = "context", hide = true)]
    _context: Option<String>,
    #[arg(id = "output", short = 'o', long = "output", hide = true)]
    _output: Option<super::Format>,
    /// The address to listen on
    #[arg(long, env = "TENURE_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// The configuration file
    #[arg(long, env = "TENURE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The file that the first start writes the admin token to
    #[arg(long, env = "TENURE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The folder that `tenure backup` writes into; without it, this daemon makes no backups
    #[arg(long, env = "TENURE_BACKUPS", value_name = "FOLDER")]
    pub backups: Option<PathBuf>,
    /// A certificate chain (PEM), to serve TLS
    #[arg(long, env = "TENURE_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, env = "TENURE_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// A host name that requests may use, besides loopback names; may be repeated
    #[arg(long = "host", env = "TENURE_HOSTS", value_delimiter = ',', value_name = "NAME")]
    pub hosts: Vec<String>,
    /// Send traces to this OTLP collector
    #[arg(long, env = "TENURE_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Open a database whose settings could lose committed writes
    #[arg(long, env = "TENURE_ALLOW_WEAK_SETTINGS")]
    pub allow_weak_settings: bool,
    /// Listen beyond loopback without TLS, for use behind a proxy with TLS
    #[arg(long, env = "TENURE_ALLOW_PLAIN_HTTP")]
    pub allow_plain_http: bool,
    /// Accept secrets in files that every user of this machine can read
    #[arg(long, env = "TENURE_ALLOW_READABLE_SECRETS")]
    pub allow_readable_secrets: bool,
}
