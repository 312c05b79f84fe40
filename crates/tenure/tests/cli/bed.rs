//! Environments for the binary: a ledger file without a daemon, a daemon with SQLite, and one with
//! PostgreSQL.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// A command's output and exit code.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn json(self) -> Value {
        let said = self.ends(0);
        serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {}", said.out))
    }
}

/// A running `tenure serve`. Dropped, it is killed.
pub struct Daemon {
    pub child: Child,
    pub url: String,
    /// Its output after it has started to listen.
    stderr: Option<BufReader<std::process::ChildStderr>>,
}

impl Daemon {
    pub fn start(folder: &Path, db: &str, more: &[&str]) -> Self {
        let token: &[&str] = if more.contains(&"--token-file") { &[] } else { &["--token-file", "token"] };
        Self::plain(folder, &[&["--db", db], more, token].concat())
    }

    /// As people type it: the token stays where the daemon writes it.
    pub fn plain(folder: &Path, args: &[&str]) -> Self {
        let mut command = tenure(folder);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(args);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let mut url = None;
        while !said.ends_with("Ready.\n") {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended: {said}");
            url = url.or_else(|| line.strip_prefix("Listening on ").map(|url| url.trim().to_owned()));
            said.push_str(&line);
        }
        let url = url.expect("it said where it listens");
        Self { child, url, stderr: Some(stderr) }
    }

    /// Stops it, and waits for its end.
    pub fn terminate(&mut self) -> (i32, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut said = String::new();
        self.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code().unwrap_or(-1), said)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary, in a folder of its own and with an empty environment.
pub fn tenure(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.current_dir(folder).stdin(Stdio::null()).env_clear();
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

pub struct Bed {
    pub folder: TempDir,
    pub daemon: Option<Daemon>,
}

impl Bed {
    pub fn embedded() -> Self {
        Self { folder: TempDir::new().unwrap(), daemon: None }
    }

    /// An empty ledger without a daemon: one was started, created it, and has ended.
    pub fn empty() -> Self {
        let bed = Self::embedded();
        Daemon::start(bed.folder.path(), "ledger.db", &["--token-file", "ledger.db.token"]).terminate();
        bed
    }

    pub fn sqlite() -> Self {
        Self::configured("ledger.db", "")
    }

    pub fn postgres() -> Self {
        Self::configured(&tenure_testkit::shared().create_database(), "")
    }

    /// A daemon with additional settings.
    pub fn configured(db: &str, toml: &str) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("tenure.toml"), toml).unwrap();
        let daemon = Some(Daemon::start(folder.path(), db, &["--config", "tenure.toml"]));
        Self { folder, daemon }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = tenure(self.folder.path());
        match &self.daemon {
            Some(daemon) => command.env("TENURE_URL", &daemon.url).env("TENURE_TOKEN_FILE", "token"),
            None => command.args(["--db", "ledger.db"]),
        };
        command.args(args);
        command
    }

    pub fn run(&self, args: &[&str]) -> Said {
        Said::of(self.command(args).output().unwrap())
    }

    pub fn token(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("token")).unwrap().trim().to_owned()
    }
}
