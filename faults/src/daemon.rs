//! The daemon under test: the built binary, started as a user would start it, and killed abruptly.

use std::{
    env, fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tenure_api::Client;
use tenure_testkit::free_port;

/// The longest time for a daemon to start before the run fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// The token of a person with every scope. It is generated here and valid nowhere else.
const TOKEN: &str = "the-admin-token-of-the-fault-suite";

const CONFIG: &str = r#"
[rate]
per_second = 1000000
burst = 1000000

[tools.pay]
kind = "http_api"
risk = "low"
idempotency = "none"

[tools.mail]
kind = "message"
risk = "low"
idempotency = "native"
"#;

/// The ledger's database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sqlite => "sqlite",
            Kind::Postgres => "postgres",
        }
    }

    /// The time within which a release build must serve again. A debug build may take five times as long, and
    /// on a busy machine five times its first start.
    pub fn serves_again_within(self, first_start: Duration) -> Duration {
        let bar = match self {
            Kind::Sqlite => Duration::from_secs(2),
            Kind::Postgres => Duration::from_secs(5),
        };
        if cfg!(debug_assertions) { 5 * bar.max(first_start) } else { bar }
    }
}

/// A ledger's folder and its daemons' settings; it outlives the daemons.
pub struct Home {
    pub folder: PathBuf,
    pub db: String,
    pub kind: Kind,
    address: String,
    binary: PathBuf,
    /// A program that wraps the daemon, with its arguments.
    pub wrapper: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl Home {
    /// A new ledger in a folder of its own.
    pub fn sqlite(folder: &Path) -> Result<Self, String> {
        fs::create_dir_all(folder.join("data")).map_err(|error| error.to_string())?;
        let db = folder.join("data/ledger.db").display().to_string();
        Self::new(folder, db, Kind::Sqlite)
    }

    pub fn postgres(folder: &Path, url: &str) -> Result<Self, String> {
        Self::new(folder, url.to_owned(), Kind::Postgres)
    }

    fn new(folder: &Path, db: String, kind: Kind) -> Result<Self, String> {
        fs::create_dir_all(folder.join("backups")).map_err(|error| error.to_string())?;
        fs::write(folder.join("tenure.toml"), CONFIG).map_err(|error| error.to_string())?;
        let folder = fs::canonicalize(folder).map_err(|error| error.to_string())?;
        let address = format!("127.0.0.1:{}", free_port());
        Ok(Self { folder, db, kind, address, binary: binary()?, wrapper: Vec::new(), env: Vec::new() })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn client(&self) -> Client {
        let client = Client::http(&self.url(), Some(TOKEN)).expect("a loopback URL");
        client.without_retries()
    }

    /// The binary, with an empty environment.
    fn tenure(&self, wrapper: &[String]) -> Command {
        let mut words = wrapper.iter().map(String::as_str).chain([self.binary.to_str().unwrap_or("tenure")]);
        let mut command = Command::new(words.next().unwrap_or("tenure"));
        command.args(words).current_dir(&self.folder).stdin(Stdio::null()).stdout(Stdio::null());
        command.env_clear().envs(env::var_os("PATH").map(|path| ("PATH", path)));
        command
    }

    /// Starts a daemon, and returns when it is ready.
    pub async fn start(&self) -> Result<Daemon, String> {
        let mut daemon = self.spawn()?;
        daemon.ready().await?;
        Ok(daemon)
    }

    /// Starts a daemon without waiting for it.
    pub fn spawn(&self) -> Result<Daemon, String> {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.folder.join("daemon.log"));
        let mut command = self.tenure(&self.wrapper);
        command
            .args(["serve", "--db", &self.db, "--listen", &self.address])
            .arg("--config")
            .arg(self.folder.join("tenure.toml"))
            .arg("--backups")
            .arg(self.folder.join("backups"))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("TENURE_TOKEN", TOKEN)
            .stderr(log.map_err(|error| error.to_string())?);
        let child = command.spawn().map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        Ok(Daemon {
            child,
            client: self.client(),
            log: self.folder.join("daemon.log"),
            began: Instant::now(),
        })
    }

    /// Runs a verb on the ledger itself, without a daemon, and returns its output.
    pub fn embedded(&self, args: &[&str]) -> Result<String, String> {
        let mut command = self.tenure(&[]);
        command.args(["--db", &self.db, "--token", TOKEN]).args(args).stdout(Stdio::piped());
        let output = command.output().map_err(|error| error.to_string())?;
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() { Ok(said) } else { Err(format!("tenure {}: {said}", args.join(" "))) }
    }
}

/// A running daemon. Dropped, it is killed.
pub struct Daemon {
    child: Child,
    client: Client,
    log: PathBuf,
    began: Instant,
}

impl Daemon {
    /// Waits until it is ready, and returns the time since its start.
    pub async fn ready(&mut self) -> Result<Duration, String> {
        loop {
            if self.client.readiness().await.is_ok_and(|readiness| readiness.ready) {
                return Ok(self.began.elapsed());
            }
            if let Some(status) = self.ended()? {
                return Err(format!("the daemon ended while starting, with {status}: {}", self.said()));
            }
            if self.began.elapsed() > PATIENCE {
                return Err(format!("the daemon was not ready within {PATIENCE:?}: {}", self.said()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn said(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has exited.
    pub fn ended(&mut self) -> Result<Option<std::process::ExitStatus>, String> {
        self.child.try_wait().map_err(|error| error.to_string())
    }

    /// Waits until something else has killed it.
    pub async fn dies(&mut self) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.ended()? {
                return match status.signal() {
                    Some(9) => Ok(()),
                    _ => Err(format!("the daemon ended with {status}: {}", self.said())),
                };
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(format!("the daemon still ran after {PATIENCE:?}"))
    }

    /// Kills it, like a crash.
    pub fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            let _ended = self.child.wait();
        }
    }
}

/// The binary beside this program, unless `TENURE_BIN` names another.
pub fn binary() -> Result<PathBuf, String> {
    if let Some(named) = env::var_os("TENURE_BIN").map(PathBuf::from) {
        return found(named, "TENURE_BIN names it");
    }
    let me = env::current_exe().map_err(|error| error.to_string())?;
    // A test is one folder deeper than a program.
    let mut folders = me.ancestors().skip(1).filter(|folder| !folder.ends_with("deps"));
    let beside = folders.next().map_or_else(PathBuf::new, |folder| folder.join("tenure"));
    let how = if cfg!(debug_assertions) {
        "cargo build --bin tenure"
    } else {
        "cargo build --release --bin tenure"
    };
    found(beside, &format!("run `{how}` first, or name one in TENURE_BIN"))
}

fn found(path: PathBuf, how: &str) -> Result<PathBuf, String> {
    if path.is_file() {
        return fs::canonicalize(&path).map_err(|error| error.to_string());
    }
    Err(format!("{} is not there: {how}", path.display()))
}
