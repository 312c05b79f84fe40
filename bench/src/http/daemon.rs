//! The daemon under test: the built binary, started as a user would start it.

use std::{
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hyper::StatusCode;
use tempfile::NamedTempFile;

use super::connection::Connection;
use crate::{Result, site::Place};

/// The longest time for a daemon to start before the run fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// The token of a person with every scope. It is generated here and valid nowhere else.
const TOKEN: &str = "tn_0000000000000000000000000000000000000000000000000000000000000000";

/// One credential sends everything, since the daemon is measured rather than its rate limit.
pub const NO_LIMIT: &str = "[rate]\nper_second = 1000000\nburst = 1000000\n";

pub struct Daemon {
    pub address: String,
    pub token: String,
    child: Child,
    /// Deleted with the daemon.
    _config: NamedTempFile,
}

impl Daemon {
    /// Starts the daemon on a database with lines of `tenure.toml`, and returns how long it took to become
    /// ready.
    pub async fn start(binary: &Path, place: &Place, settings: &str) -> Result<(Daemon, Duration)> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let database = match place {
            Place::Sqlite(path) => path.display().to_string(),
            Place::Postgres(url) => url.clone(),
        };
        let mut config = NamedTempFile::with_suffix(".toml")?;
        config.write_all(settings.as_bytes())?;
        let began = Instant::now();
        let child = Command::new(binary)
            .args(["serve", "--db", &database, "--listen", &address])
            .arg("--config")
            .arg(config.path())
            .env("TENURE_TOKEN", TOKEN)
            .env("TENURE_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", binary.display()))?;
        let mut daemon = Daemon { address, token: TOKEN.to_owned(), child, _config: config };
        while !daemon.is_ready().await {
            if let Some(status) = daemon.child.try_wait()? {
                return Err(format!("the daemon ended while starting, with {status}").into());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("the daemon was not ready within {PATIENCE:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok((daemon, began.elapsed()))
    }

    async fn is_ready(&self) -> bool {
        let Ok(mut connection) = Connection::open(self).await else { return false };
        matches!(connection.get("/readyz").await, Ok((StatusCode::OK, _)))
    }

    /// The daemon's resident memory, in bytes.
    pub fn resident(&self) -> Result<f64> {
        resident(self.pid())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it as an operator would, and waits.
    pub async fn stop(mut self) -> Result<()> {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                return if status.success() {
                    Ok(())
                } else {
                    Err(format!("the daemon ended with {status}").into())
                };
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(format!("the daemon did not end within {PATIENCE:?} of SIGTERM").into())
    }
}

impl Drop for Daemon {
    /// A failed run leaves no daemon behind.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            let _ended = self.child.wait();
        }
    }
}

/// A process's resident memory, in bytes.
pub fn resident(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1_024.0).ok_or_else(|| "the system does not tell VmRSS".into())
}

/// The binary beside this program, unless another is given.
pub fn binary(named: Option<&Path>) -> Result<PathBuf> {
    let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("tenure"));
    let path = named.map_or_else(beside, |path| Ok(path.to_owned()))?;
    if path.is_file() {
        return Ok(path);
    }
    Err(format!(
        "{} is not there: run `cargo build --release --bin tenure` first, or give --tenure",
        path.display()
    )
    .into())
}
