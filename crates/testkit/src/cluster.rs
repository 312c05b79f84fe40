//! A PostgreSQL server that provides empty databases: one of its own, or an external one.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::keeper::Keeper;
use crate::programs;

/// Below the kernel's range of client ports: while a stopped server's port is free, no client can take it,
/// nor connect to itself by retrying.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

const PORT_TRIES: usize = 5;

const NOT_OURS: &str = "this server is external: a test of faults starts its own, with Cluster::start";

/// A running server. If it was started here, dropping it stops it and removes its folder; so does any end of
/// this process.
pub struct Cluster {
    base: String,
    /// `None` for an external server.
    keeper: Option<Mutex<Keeper>>,
}

impl Cluster {
    /// Starts a server of its own: durable settings, loopback only, superuser `tenure` without a password.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start, saying why: a test that needs it never skips.
    pub fn start() -> Cluster {
        Cluster::start_with(&[])
    }

    /// Like [`Cluster::start`], with more lines of configuration, like `&["shared_buffers=256MB"]`.
    pub fn start_with(settings: &[&str]) -> Cluster {
        Cluster::run(settings, None)
    }

    /// Starts a streaming standby of this server, which keeps it up to date asynchronously unless
    /// `synchronous_standby_names` says otherwise.
    pub fn standby(&self) -> Cluster {
        Cluster::run(&[], Some(self.port()))
    }

    fn run(settings: &[&str], primary: Option<u16>) -> Cluster {
        let mut log = String::new();
        for _ in 0..PORT_TRIES {
            let port = free_port();
            match Keeper::start(port, &conf(settings), primary) {
                Ok(keeper) => {
                    let base = format!("postgres://tenure@127.0.0.1:{port}");
                    return Cluster { base, keeper: Some(Mutex::new(keeper)) };
                }
                Err(failure) => log = failure,
            }
            // Another process may have taken the port since; any other failure would only repeat.
            if !log.contains("Address already in use") {
                break;
            }
        }
        panic!("PostgreSQL did not start:\n{log}");
    }

    /// An external server, by its URL without a database.
    pub fn at(base: &str) -> Cluster {
        Cluster { base: base.trim_end_matches('/').to_owned(), keeper: None }
    }

    /// The server's URL without a database, as [`Cluster::at`] takes it.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The URL of one database.
    pub fn url(&self, database: &str) -> String {
        format!("{}/{database}", self.base)
    }

    /// Creates an empty database with a unique name, and returns its URL.
    pub fn create_database(&self) -> String {
        let name = format!("test_{:016x}", random());
        // A copy fails while a client is connected to its source; nobody can connect to template0.
        self.psql("postgres", &format!("create database {name} template template0"));
        self.url(&name)
    }

    /// Runs SQL through `psql` and returns its unaligned output: for tests without a driver.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let output = Command::new(programs::psql())
            .args(["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .arg(self.url(database))
            .output()
            .expect("psql runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "psql on {}: {error}", self.url(database));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Stops the server at once, as a crash would; [`Cluster::restart`] brings it back.
    pub fn stop(&self) {
        self.order("stop");
    }

    /// Crashes the server, if it runs, and starts it on the same port; returns when it has recovered.
    pub fn restart(&self) {
        self.order("restart");
    }

    /// Promotes a standby; returns when it accepts writes.
    pub fn promote(&self) {
        self.order("promote");
    }

    /// Disconnects a standby from its primary: it receives no later writes.
    pub fn cut_off(&self) {
        self.psql("postgres", "alter system set primary_conninfo = ''");
        self.psql("postgres", "select pg_reload_conf()");
        while self.psql("postgres", "select count(*) from pg_stat_wal_receiver") != "0" {}
    }

    /// The server's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.base
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok())
            .expect("a cluster's URL ends with its port")
    }

    /// The folder of a cluster started here: the server's `data`, `log` and socket.
    pub fn folder(&self) -> PathBuf {
        self.keeper().folder().to_owned()
    }

    /// The server's process, for faults caused by signals.
    pub fn pid(&self) -> u32 {
        postmaster(&self.folder().join("data"))
    }

    /// Stops every process of the server until the guard is dropped: connections stay open without responses,
    /// like a network that drops packets.
    pub fn freeze(&self) -> Frozen {
        let server = self.pid();
        signal("STOP", &[server]);
        let frozen = Frozen { pids: std::iter::once(server).chain(children(server)).collect() };
        signal("STOP", &frozen.pids);
        frozen
    }

    fn order(&self, verb: &str) {
        if let Err(log) = self.keeper().order(verb) {
            panic!("PostgreSQL did not {verb}:\n{log}");
        }
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        let keeper = self.keeper.as_ref().expect(NOT_OURS);
        keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server that is stopped while this is kept.
pub struct Frozen {
    pids: Vec<u32>,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("CONT", &self.pids);
    }
}

/// A process may have exited meanwhile.
fn signal(name: &str, pids: &[u32]) {
    let sent = Command::new("kill").arg(format!("-{name}")).args(pids.iter().map(u32::to_string)).output();
    sent.expect("kill runs");
}

fn children(of: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).expect("a running process");
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Reads the server's process id from the lock file in its data folder.
fn postmaster(data: &Path) -> u32 {
    let lock =
        std::fs::read_to_string(data.join("postmaster.pid")).expect("a running server has a lock file");
    lock.lines().next().and_then(|pid| pid.parse().ok()).expect("its first line is the process id")
}

/// Later lines win, so the caller's settings may also weaken these.
fn conf(settings: &[&str]) -> String {
    let own = ["listen_addresses=127.0.0.1", "fsync=on", "synchronous_commit=on", "max_connections=200"];
    let mut lines = String::new();
    for setting in own.iter().chain(settings) {
        let (name, value) =
            setting.split_once('=').unwrap_or_else(|| panic!("`{setting}` is not name=value"));
        lines += &format!("{} = '{}'\n", name.trim(), value.trim().replace('\'', "''"));
    }
    lines
}

/// A free loopback port, outside of the kernel's range of client ports.
pub fn free_port() -> u16 {
    let span = u64::from(PORTS.end - PORTS.start);
    let candidates = std::iter::repeat_with(|| PORTS.start + (random() % span) as u16).take(1_000);
    let mut free = candidates.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().expect("a loopback port is free")
}

/// The standard library's only source of randomness: the keys of its hash maps.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
