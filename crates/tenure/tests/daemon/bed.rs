//! Daemons of the built binary, and `curl` to talk to them.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStderr, Command, Output, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_api::Client;

/// The first credential of every ledger here.
pub const ADMIN: &str = "the-admin-token-of-these-tests";

/// A ledger and its daemons' settings; it outlives the daemons.
pub struct Home {
    pub folder: TempDir,
    db: String,
    /// Kept over restarts, so that clients find the next daemon at the same address.
    address: String,
}

impl Home {
    pub fn sqlite() -> Self {
        Self::at("ledger.db")
    }

    pub fn postgres() -> Self {
        Self::at(&tenure_testkit::shared().create_database())
    }

    pub fn at(db: &str) -> Self {
        Self { folder: TempDir::new().unwrap(), db: db.to_owned(), address: free_address() }
    }

    /// Another daemon's home over the same database.
    pub fn beside(&self) -> Self {
        Self::at(&self.db)
    }

    /// More settings for daemons that start from now on.
    pub fn configured(self, toml: &str) -> Self {
        fs::write(self.folder.path().join("tenure.toml"), toml).unwrap();
        self
    }

    /// Starts a daemon and waits until it serves its ledger.
    pub fn serve(&self) -> Daemon {
        self.started("Listening on ")
    }

    /// Starts a daemon and waits until it responds, with or without a ledger.
    pub fn serve_at_last(&self) -> Daemon {
        self.started("Opening the ledger")
    }

    fn started(&self, says: &str) -> Daemon {
        let mut child = self.serving().stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains(says) {
            assert!(stderr.read_line(&mut said).unwrap() > 0, "it ended: {said}");
        }
        let log = Some(collect(stderr, said));
        let daemon = Daemon { child, url: format!("http://{}", self.address), log };
        // The socket accepts connections before they are served.
        daemon.get("/healthz").expect(200);
        daemon
    }

    /// The command that starts a daemon here.
    pub fn serving(&self) -> Command {
        let mut command = tenure(self.folder.path());
        command.args(["serve", "--listen", &self.address, "--db", &self.db]).env("TENURE_TOKEN", ADMIN);
        if self.folder.path().join("tenure.toml").exists() {
            command.args(["--config", "tenure.toml"]);
        }
        command
    }

    /// Runs a verb on the ledger itself, without a daemon.
    pub fn embedded(&self, args: &[&str]) -> Output {
        tenure(self.folder.path()).args(["--db", &self.db, "--token", ADMIN]).args(args).output().unwrap()
    }
}

fn collect(mut stderr: BufReader<ChildStderr>, mut said: String) -> JoinHandle<String> {
    thread::spawn(move || {
        stderr.read_to_string(&mut said).unwrap();
        said
    })
}

/// A port below the kernel's range of client ports: nobody takes it while no daemon listens there.
fn free_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 200) as u16 * 100;
    loop {
        let port = 10_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 22_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return format!("127.0.0.1:{port}");
        }
    }
}

/// The binary, with an empty environment.
pub fn tenure(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).env_clear();
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

/// A running daemon. Dropped, it is killed.
pub struct Daemon {
    child: Child,
    pub url: String,
    log: Option<JoinHandle<String>>,
}

impl Daemon {
    pub fn client(&self) -> Client {
        Client::http(&self.url, Some(ADMIN)).unwrap()
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for its end; returns its exit code and its output.
    pub fn ended(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        (code, self.log.take().unwrap().join().unwrap())
    }

    /// Kills it, like a crash.
    pub fn kill(self) -> String {
        self.signal("KILL");
        self.ended().1
    }

    /// Its resident memory, in KiB.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, None)
    }

    pub fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, Some(&body.to_string()))
    }

    pub fn put(&self, path: &str, body: Value) -> Reply {
        self.send("PUT", path, Some(&body.to_string()))
    }

    /// As the admin, JSON in and out.
    pub fn send(&self, method: &str, path: &str, body: Option<&str>) -> Reply {
        let authorization = format!("Authorization: Bearer {ADMIN}");
        let kind = "Content-Type: application/json";
        self.curl(&["-X", method, "-H", &authorization, "-H", kind], path, body.map(str::as_bytes))
    }

    /// With another credential.
    pub fn as_token(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let authorization = format!("Authorization: Bearer {token}");
        let kind = "Content-Type: application/json";
        let body = body.map(Value::to_string);
        let body = body.as_deref().map(str::as_bytes);
        self.curl(&["-X", method, "-H", &authorization, "-H", kind], path, body)
    }

    /// Any request that `curl` can send.
    pub fn curl(&self, args: &[&str], path: &str, body: Option<&[u8]>) -> Reply {
        let mut command = Command::new("curl");
        command.args(["-sS", "--path-as-is", "--globoff", "-w", "\n%{http_code} %{content_type}"]);
        command.args(args);
        if body.is_some() {
            command.args(["--data-binary", "@-"]);
        }
        command.arg(format!("{}{path}", self.url));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut curl = command.spawn().expect("curl runs: apt-get install curl");
        let mut stdin = curl.stdin.take().unwrap();
        // A body that is refused early is not read to its end.
        let _ = stdin.write_all(body.unwrap_or_default());
        drop(stdin);
        Reply::of(&curl.wait_with_output().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "SIG{name} to {pid}");
}

/// The response that `curl` got; status 0 without one.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub kind: String,
    pub text: String,
    pub body: Value,
}

impl Reply {
    fn of(output: &Output) -> Self {
        let all = String::from_utf8_lossy(&output.stdout);
        let (text, last) = all.rsplit_once('\n').unwrap_or(("", &all));
        let (status, kind) = last.split_once(' ').unwrap_or((last, ""));
        let body = serde_json::from_str(text).unwrap_or(Value::Null);
        let status = status.parse().unwrap_or(0);
        Self { status, kind: kind.to_owned(), text: text.to_owned(), body }
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// A problem as in the contract: a code, whether to retry, and a sentence that says what to do.
    #[track_caller]
    pub fn problem(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status, self.body["code"].as_str()), (status, Some(code)), "{}", self.text);
        assert_eq!(self.kind, "application/problem+json");
        let detail = self.body["detail"].as_str().unwrap();
        assert!(detail.split_whitespace().count() > 4, "`{detail}` does not say what to do");
        assert!(self.body.as_object().unwrap().contains_key("retryable"), "{}", self.text);
        assert_eq!(self.body["status"], status);
        self.body
    }
}

/// Asks until there is an answer; otherwise `what` is reported as missing.
#[track_caller]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        thread::park_timeout(Duration::from_millis(20));
    }
}

/// An ingest's body.
pub fn work(id: &str) -> Value {
    json!({ "source": { "system": "manual", "id": id }, "kind": "job", "disposition": "rerunnable", "input": { "do": id } })
}

/// A claim's body.
pub fn claim(worker: &str, request: &str) -> Value {
    json!({ "worker": { "id": worker, "incarnation": "1" }, "request_id": request })
}

/// A holder's verb: fence and token of the lease, with the other fields.
pub fn held(grant: &Value, mut body: Value) -> Value {
    body["fence"] = grant["fence"].clone();
    body["token"] = grant["token"].clone();
    body
}
