//! `tenure demo` on the built binary: its play, its answers, its end.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tenure_api::{
    Client,
    client::{EventStream, Streamed},
    wire::{Event, EventQuery, State},
};

use crate::bed::{Said, tenure};

struct Demo {
    child: Child,
    url: String,
    token: String,
    folder: PathBuf,
    home: TempDir,
    stderr: Option<ChildStderr>,
}

impl Demo {
    fn start(args: &[&str]) -> Self {
        let home = TempDir::new().unwrap();
        let mut command = tenure(home.path());
        command.env("TMPDIR", home.path()).args(["demo", "-o", "json"]).args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let place: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let text = |key: &str| place[key].as_str().unwrap().to_owned();
        let stderr = child.stderr.take();
        Self { child, url: text("url"), token: text("token"), folder: text("folder").into(), home, stderr }
    }

    fn run(&self, args: &[&str]) -> Said {
        let mut command = tenure(self.home.path());
        command.env("TENURE_URL", &self.url).env("TENURE_TOKEN", &self.token).args(args);
        Said::of(command.output().unwrap())
    }

    fn events(&self) -> EventStream {
        let after = Some("0-0-0".to_owned());
        Client::http(&self.url, Some(&self.token))
            .unwrap()
            .stream(EventQuery { after, ..EventQuery::default() })
    }

    /// The question that is left to the viewer, once it is asked.
    fn yours(&self) -> Value {
        let mut yours = None;
        watch(self.events(), |event| {
            if event.kind == "waiting_set" {
                let needs = self.run(&["needs", "-o", "json"]).json();
                yours = needs.as_array().unwrap().iter().find(|need| need["assignee"] == "you").cloned();
            }
            yours.is_some()
        });
        yours.unwrap()
    }

    /// Stops it, and returns its story.
    fn stop(&mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.ended()
    }

    fn ended(&mut self) -> String {
        let mut story = String::new();
        self.stderr.take().unwrap().read_to_string(&mut story).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{story}");
        story
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for conditions on the events of the stream.
fn watch(mut stream: EventStream, mut enough: impl FnMut(&Event) -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let watching = async {
        loop {
            if let Streamed::Event(event) = stream.next().await.unwrap()
                && enough(&event)
            {
                return;
            }
        }
    };
    runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(90), watching).await })
        .expect("it happens in time");
}

#[test]
fn the_announced_story_happens() {
    let mut demo = Demo::start(&["--beat", "100ms", "--seed", "7"]);
    let mut missing = BTreeSet::from([
        "approval is waited for",
        "approval was given by ana",
        "a login expired",
        "a login was renewed",
        "too many requests",
        "a retry succeeded",
        "a holder was lost and its work resumed",
        "a stalled holder came back",
        "a reply was lost",
        "a lookup was unknown",
        "a lookup found it",
        "the work went on with the receipt",
        "a payment was approved by ana",
        "a payment was done",
    ]);
    let (mut retried, mut found) = (BTreeSet::new(), BTreeSet::new());
    watch(demo.events(), |event| {
        let from = event.from.as_ref().and_then(|state| state.known());
        let seen = match (event.kind.as_str(), from, event.to.known().unwrap()) {
            ("waiting_set", _, State::WaitingApproval) => "approval is waited for",
            ("wait_resolved", Some(State::WaitingApproval), _) if event.actor.label() == "ana" => {
                "approval was given by ana"
            }
            ("waiting_set", _, State::WaitingAuth) => "a login expired",
            ("wait_resolved", Some(State::WaitingAuth), _) => "a login was renewed",
            ("attempt_failed", _, State::RetryScheduled) => {
                retried.insert(event.work.clone());
                "too many requests"
            }
            ("close_out", _, State::Succeeded) if retried.contains(&event.work) => "a retry succeeded",
            ("close_out", _, State::Succeeded) if found.contains(&event.work) => {
                "the work went on with the receipt"
            }
            ("command_uncertain", ..) => "a reply was lost",
            ("command_looked_up", ..) => "a lookup was unknown",
            ("command_succeeded", ..) if event.data["receipt"]["evidence"] == "lookup" => {
                found.insert(event.work.clone());
                "a lookup found it"
            }
            ("command_succeeded", ..) => "a payment was done",
            ("command_approved", ..) if event.actor.label() == "ana" => "a payment was approved by ana",
            ("recovered", _, State::Queued) => "a holder was lost and its work resumed",
            ("late", Some(State::Stalled), _) => "a stalled holder came back",
            _ => return false,
        };
        missing.remove(seen);
        missing.is_empty()
    });
    demo.run(&["verify"]).ends(0);
    demo.run(&["demo", "--db", "mine.db"]).ends(2);
    let story = demo.stop();
    for told in [
        "tenure approve w_",
        "loses power",
        "Dora opens her laptop",
        "ana answers",
        "tenure approve c_",
        "ana approves exactly this",
        "the mail server never responded. Nobody knows",
        "does not know yet",
        "finds it: ENG-",
    ] {
        assert!(story.contains(told), "{told} in {story}");
    }
    assert!(!demo.folder.exists(), "nothing is left behind");
}

#[test]
fn a_newcomer_answers_before_the_play_does() {
    let mut demo = Demo::start(&["--beat", "500ms"]);
    let mut asking = None;
    watch(demo.events(), |event| {
        asking = Some(event.work.clone()).filter(|_| event.to == State::WaitingApproval);
        asking.is_some()
    });
    let id = asking.unwrap();
    demo.run(&["approve", id.as_str(), "--reason", "go", "--yes"]).ends(0);
    demo.run(&["resolve", "calendar-login-1", "--payload", "{}"]).ends(0);
    demo.run(&["wait", id.as_str(), "--for=terminal", "--timeout", "60s"]).ends(0);
    let left = demo.yours();
    let (command, work) = (left["command"].as_str().unwrap(), left["work"].as_str().unwrap());
    demo.run(&["approve", command, "--reason", "it is right", "--yes"]).ends(0);
    demo.run(&["wait", work, "--for=terminal", "--timeout", "60s"]).ends(0);
    let mine = ["ingest", "manual", "mine", "--kind", "research", "--disposition", "rerunnable"];
    let mine = demo.run(&mine).ends(0).out;
    demo.run(&["wait", mine.trim(), "--for=terminal", "--timeout", "60s"]).ends(0);
    let story = demo.stop();
    assert!(story.contains("admin answers") && story.contains("admin approves exactly this"), "{story}");
}

#[test]
fn it_ends_by_itself_and_keeps_its_ledger_if_asked_to() {
    let mut demo = Demo::start(&["--beat", "50ms", "--for", "500ms", "--keep"]);
    let story = demo.ended();
    let db = demo.folder.join("ledger.db");
    assert!(story.contains(db.to_str().unwrap()), "{story}");
    let mut list = tenure(demo.home.path());
    let listed = Said::of(list.args(["list", "-o", "json", "--db"]).arg(&db).output().unwrap()).json();
    assert!(!listed.as_array().unwrap().is_empty());
}

#[test]
fn a_used_port_is_reported_in_one_line() {
    let demo = Demo::start(&[]);
    let address = demo.url.strip_prefix("http://").unwrap();
    let args = ["demo", "--listen", address];
    let taken = Said::of(tenure(demo.home.path()).args(args).output().unwrap()).ends(1);
    assert!(taken.err.contains(address) && taken.err.contains("--listen"), "{}", taken.err);
    assert!(taken.out.is_empty() && taken.err.lines().count() == 1, "{}", taken.err);
}
