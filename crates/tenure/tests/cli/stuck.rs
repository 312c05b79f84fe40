//! Idle workers and work items that do not progress, on the command line.

use std::process::{Child, Stdio};

use crate::bed::{Bed, Said};

/// A claim that waits. Dropped, it is killed.
struct Parked(Child);

impl Drop for Parked {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Repeats a read until it says so.
fn until(what: &str, read: impl Fn() -> Said, wanted: impl Fn(&str) -> bool) -> String {
    let began = std::time::Instant::now();
    loop {
        let said = read();
        if wanted(&said.out) {
            return said.out;
        }
        assert!(began.elapsed().as_secs() < 60, "{what}: {}{}", said.out, said.err);
    }
}

#[test]
fn idle_workers_are_listed_on_sqlite() {
    idle(&Bed::sqlite());
}

#[test]
fn idle_workers_are_listed_on_postgres() {
    idle(&Bed::postgres());
}

fn idle(bed: &Bed) {
    let nobody = bed.run(&["workers"]).ends(0);
    assert!(nobody.err.contains("none waits for work at this daemon"), "{}", nobody.err);
    let args = ["claim", "--worker", "rita", "--kind", "reply", "--source", "manual", "--wait", "60s"];
    let parked = Parked(bed.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let table = until("it waits", || bed.run(&["workers"]), |out| out.contains("rita"));
    assert!(table.contains("idle") && table.contains("reply from manual"), "{table}");
    let workers = bed.run(&["workers", "-o", "json"]).json();
    assert_eq!((&workers[0]["leases"], &workers[0]["idle"][0]["kinds"][0]), (&0.into(), &"reply".into()));

    let lonely = bed
        .run(&["ingest", "manual", "1", "--kind", "lonely", "--disposition", "rerunnable"])
        .ends(0)
        .out
        .trim()
        .to_owned();
    let why = bed.run(&["explain", &lonely]).ends(0).out;
    for words in ["1 idle worker claims `reply` from `manual`", "none claims `lonely`", "start one"] {
        assert!(why.contains(words), "{words}: {why}");
    }
    let metrics = std::process::Command::new("curl")
        .args(["-sS", "-H", &format!("Authorization: Bearer {}", bed.token())])
        .arg(format!("{}/metrics", bed.daemon.as_ref().unwrap().url))
        .output()
        .unwrap();
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    assert!(metrics.contains("tenure_idle_workers{kind=\"reply\"} 1"), "{metrics}");

    // Its client is gone: it waits no more.
    drop(parked);
    until("it is gone", || bed.run(&["workers", "-o", "json"]), |out| out.trim() == "[]");
}

/// Each cause is really produced, and named with its evidence and a command that can be typed.
#[test]
fn each_cause_is_named_on_sqlite() {
    each_cause(&Bed::configured("ledger.db", SETTINGS));
}

#[test]
fn each_cause_is_named_on_postgres() {
    each_cause(&Bed::configured(&tenure_testkit::shared().create_database(), SETTINGS));
}

/// Short times, so that the causes arise within the test.
const SETTINGS: &str = r#"
[alerts]
every = "100ms"
pending_age = "200ms"

[defaults]
lease = { ttl = "1500ms", renew = "500ms", grace = "100ms" }
retry = { max_attempts = 9, initial = "1ms", max = "1ms" }
stalled = "prompt"

[sources.manual.kinds.lazy]
spinning = { after = "1500ms", then = "alert" }

[sources.manual.kinds.strict]
spinning = { after = "1500ms", then = "stop_renewing" }
stalled = "page"

[tools.mail]
risk = "low"
"#;

/// A work item that a worker holds.
struct Held {
    id: String,
    fence: String,
    lease: String,
}

impl Held {
    fn by(bed: &Bed, id: &str, kind: &str, disposition: &str) -> Self {
        let made = ["ingest", "manual", id, "--kind", kind, "--disposition", disposition];
        let id = bed.run(&made).ends(0).out.trim().to_owned();
        Self::again(bed, &id)
    }

    fn again(bed: &Bed, id: &str) -> Self {
        let lease = &bed.run(&["claim", "--worker", "cleo", id, "-o", "json"]).json()[0];
        let text = |field: &str| lease[field].as_str().unwrap().to_owned();
        Self { id: id.to_owned(), fence: lease["fence"].to_string(), lease: text("token") }
    }

    fn run(&self, bed: &Bed, verb: &str, args: &[&str]) -> Said {
        let of = [verb, self.id.as_str(), "--fence", &self.fence, "--lease", &self.lease];
        bed.run(&[&of[..], args].concat())
    }
}

fn post(bed: &Bed, path: &str, body: &serde_json::Value) -> serde_json::Value {
    let output = std::process::Command::new("curl")
        .args(["-sS", "--fail-with-body", "-H", "Content-Type: application/json"])
        .args(["-H", &format!("Authorization: Bearer {}", bed.token()), "-d", &body.to_string()])
        .arg(format!("{}{path}", bed.daemon.as_ref().unwrap().url))
        .output()
        .unwrap();
    Said::of(output).json()
}

/// The cause of one work item, by a read of `tenure stuck`.
fn cause_of(found: &serde_json::Value, id: &str) -> Option<String> {
    let groups = found["groups"].as_array().unwrap();
    let of = |group: &&serde_json::Value| {
        group["items"].as_array().unwrap().iter().any(|item| item["work"].as_str() == Some(id))
    };
    groups.iter().find(of).map(|group| group["cause"].as_str().unwrap().to_owned())
}

fn each_cause(bed: &Bed) {
    let nothing = bed.run(&["stuck"]).ends(0);
    assert!(nothing.out.is_empty(), "{}", nothing.out);
    assert!(nothing.err.contains("Nothing stuck: 0 open works checked"), "{}", nothing.err);
    assert!(nothing.err.contains("sweeper ticked"), "{}", nothing.err);
    let named = |id: &str, cause: &str| {
        let read = || bed.run(&["stuck", "-o", "json", "--limit", "1000"]);
        let wanted = |out: &str| {
            let found: serde_json::Value = serde_json::from_str(out).unwrap_or_default();
            found.is_object() && cause_of(&found, id).as_deref() == Some(cause)
        };
        until(cause, read, wanted);
    };

    // Poison: three equal failures of an unknown class.
    let poison = bed.run(&["ingest", "manual", "p", "--kind", "job", "--disposition", "rerunnable"]);
    let poison = poison.ends(0).out.trim().to_owned();
    for _ in 0..3 {
        let queued = || bed.run(&["show", &poison, "-o", "json"]);
        until("it is queued", queued, |out| out.contains("\"state\": \"queued\""));
        let held = Held::again(bed, &poison);
        held.run(bed, "fail", &["--class", "unknown", "--message", "boom"]).ends(0);
    }
    named(&poison, "poison");

    // A lease that nobody renews, of owner-bound work that has started.
    let lost = Held::by(bed, "l", "job", "owner_bound");
    named(&lost.id, "lease_lost");

    // A command that was dispatched, and whose worker is lost: nobody knows whether it happened.
    let doubt = Held::by(bed, "d", "job", "rerunnable");
    let mail = serde_json::json!({
        "fence": doubt.fence.parse::<u64>().unwrap(), "token": doubt.lease, "tool": "mail", "target": "bob",
        "arguments": { "text": "hi" },
    });
    let command = post(bed, &format!("/v1/work/{}/commands", doubt.id), &mail);
    let holder = serde_json::json!({ "fence": mail["fence"], "token": mail["token"] });
    post(bed, &format!("/v1/commands/{}/dispatch", command["id"].as_str().unwrap()), &holder);
    named(&doubt.id, "in_doubt");

    // A circle of waits, and a wait that nobody is asked to answer.
    let [a, b] = ["a", "b"]
        .map(|id| bed.run(&["ingest", "manual", id, "--kind", "job", "--disposition", "rerunnable"]));
    let [a, b] = [a, b].map(|said| said.ends(0).out.trim().to_owned());
    for (one, other) in [(&a, &b), (&b, &a)] {
        let held = Held::again(bed, one);
        let reference = format!("work:{other}");
        held.run(bed, "wait", &["--kind", "external", "--ref", &reference]).ends(0);
    }
    named(&a, "circular_wait");
    named(&b, "circular_wait");
    let asked = Held::by(bed, "q", "job", "rerunnable");
    asked.run(bed, "wait", &["--kind", "user", "--ref", "q", "--endless"]).ends(0);
    named(&asked.id, "unanswered_wait");

    // Nobody claims this kind.
    let lonely = bed.run(&["ingest", "manual", "n", "--kind", "lonely", "--disposition", "rerunnable"]);
    let lonely = lonely.ends(0).out.trim().to_owned();
    named(&lonely, "no_worker");

    // Holders that renew and show nothing else: one is an alert, the other loses its lease.
    let lazy = Held::by(bed, "z", "lazy", "rerunnable");
    let strict = Held::by(bed, "s", "strict", "owner_bound");
    let stopped = std::cell::Cell::new(false);
    let spin = || {
        lazy.run(bed, "renew", &[]).ends(0);
        stopped.set(stopped.get() || strict.run(bed, "renew", &[]).err.contains("Nothing but renewals"));
        bed.run(&["stuck", "-o", "json"])
    };
    until("it spins", &spin, |out| {
        let found: serde_json::Value = serde_json::from_str(out).unwrap_or_default();
        stopped.get() && found.is_object() && cause_of(&found, &lazy.id).as_deref() == Some("spinning")
    });
    let renewing = || {
        spin();
        bed.run(&["ps"])
    };
    until("`ps` shows it", renewing, |out| out.contains("spinning"));
    until(
        "it is an alert",
        || {
            spin();
            bed.run(&["alerts", "-o", "json"])
        },
        |out| out.contains("\"spinning\""),
    );
    let why = bed.run(&["explain", &lazy.id]).ends(0).out;
    assert!(why.contains("has shown no progress, step, command or receipt"), "{why}");
    named(&strict.id, "lease_lost");
    until("its kind pages", || bed.run(&["alerts", "-o", "json"]), |out| out.contains("stalled_page"));

    // The people's view, and what it tells to type.
    let needs = bed.run(&["needs", "-o", "json"]).ends(0).out;
    assert!(needs.contains(&lost.id) && !needs.contains(&strict.id), "{needs}");
    let text = bed.run(&["stuck"]).ends(0).out;
    for words in [
        "poison: 1 work item",
        "circular wait: 2 work items",
        "open works checked",
        "lease lost: ",
        "in doubt: 1 work item",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let commands: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with("tenure "))
        .collect();
    assert!(commands.len() >= 7, "{text}");
    for line in commands {
        let words: Vec<&str> = line.split('\'').collect();
        let mut args: Vec<String> = words[0].split_whitespace().skip(1).map(str::to_owned).collect();
        args.extend(words.get(1).map(|reason| (*reason).to_owned()));
        if words.len() > 1 {
            args.push("--dry-run".to_owned());
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        bed.run(&args).ends(0);
    }
}
