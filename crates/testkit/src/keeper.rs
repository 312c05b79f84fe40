//! The process that starts, stops and removes a cluster: `keeper.sh`, with a protocol of lines.
//!
//! It is a separate process because a static is never dropped and a killed test runs no code: when the kernel
//! closes its standard input, it removes the cluster.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::programs;

const NO_USER: &str = "root runs it as the user `postgres`, by `setpriv`, and one of the two is missing";
const NO_FOLDER: &str = "TMPDIR, else /tmp, must be open to the server's user";

pub struct Keeper {
    process: Child,
    /// `None` once closed, which is the signal to clean up.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Keeper {
    /// Starts a cluster whose postgresql.conf ends with the lines of `conf`: a new one, or a standby of the
    /// cluster at the port `primary`. The error is the server's log.
    pub fn start(port: u16, conf: &str, primary: Option<u16>) -> Result<Keeper, String> {
        let mut process = programs::unprivileged("/bin/sh")
            .args(["-c", include_str!("keeper.sh"), "tenure-pg-keeper"])
            .arg(programs::server())
            .arg(std::env::temp_dir())
            .arg(port.to_string())
            .arg(conf)
            .args(primary.map(|port| port.to_string()))
            .env_clear() // PGPORT, PGOPTIONS and the like belong to the user's own server
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .current_dir("/") // the caller's folder may be closed to the server's user
            .process_group(0) // Ctrl-C and a test runner's kill are for the group of the tests
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("the keeper did not start: {error}"))?;
        let orders = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut keeper = Keeper { process, orders, answers, folder: PathBuf::new() };

        let line = keeper.read_line();
        match line.strip_prefix("folder ") {
            Some(folder) => keeper.folder = PathBuf::from(folder),
            None if line.is_empty() => return Err(NO_USER.to_owned()),
            None => return Err(format!("{NO_FOLDER}: {line}")),
        }
        keeper.read_outcome()?;
        Ok(keeper)
    }

    /// `stop`, `restart` or `promote`.
    pub fn order(&mut self, verb: &str) -> Result<(), String> {
        let orders = self.orders.as_mut().expect("orders stay open until the drop");
        writeln!(orders, "{verb}").map_err(|error| format!("the keeper is gone: {error}"))?;
        self.read_outcome()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn read_outcome(&mut self) -> Result<(), String> {
        if self.read_line() == "ok" {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.folder.join("log"));
        Err(log.unwrap_or_else(|error| format!("no log: {error}")))
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the keeper writes lines of UTF-8");
        line.trim_end().to_owned()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders = None;
        // Its exit code is that of removing the folder; a drop cannot report it.
        let _ = self.process.wait();
    }
}
