//! Every command line that Tenure prints is complete: run as printed, it shows something or asks, and changes
//! nothing by itself.

use std::{collections::BTreeSet, process::Command};

use serde_json::{Value, json};
use tenure_core::{CommandId, WaitId, WorkId, next::Next};

use crate::bed::{Bed, Said};

/// A ledger with a work item in each state that needs somebody, and the ids by their name.
struct Scene {
    bed: Bed,
}

impl Scene {
    fn new() -> Self {
        Self { bed: Bed::sqlite() }
    }

    fn ingest(&self, id: &str) -> String {
        let args = ["ingest", "manual", id, "--kind", "errand", "--disposition", "rerunnable"];
        self.bed.run(&args).ends(0).out.trim().to_owned()
    }

    /// The holder's options of a new claim.
    fn claim(&self, id: &str) -> [String; 4] {
        let lease = self.bed.run(&["claim", "--worker", "me", id, "-o", "json"]).json()[0].clone();
        let token = lease["token"].as_str().unwrap().to_owned();
        ["--fence".into(), lease["fence"].to_string(), "--lease".into(), token]
    }

    fn hold(&self, verb: &str, id: &str, more: &[&str]) {
        let lease = self.claim(id);
        let lease: Vec<&str> = lease.iter().map(String::as_str).collect();
        self.bed.run(&[&[verb, id], &lease[..], more].concat()).ends(0);
    }

    fn wait(&self, id: &str, kind: &str, reference: &str) {
        self.hold("wait", id, &["--kind", kind, "--ref", reference, "--prompt", "Which one?"]);
    }

    /// Runs a line as a shell would, without a terminal.
    fn paste(&self, line: &str) -> Said {
        let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
        let mut shell = Command::new("sh");
        shell
            .args(["-c", line])
            .current_dir(self.bed.folder.path())
            .env_clear()
            .stdin(std::process::Stdio::null());
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        shell.env("PATH", path).env("TENURE_URL", &self.bed.daemon.as_ref().unwrap().url);
        Said::of(shell.env("TENURE_TOKEN_FILE", "token").output().unwrap())
    }

    /// The log's length: nothing was written if it stays.
    fn log(&self) -> usize {
        self.bed.run(&["events", "--limit", "1000", "-o", "jsonl"]).ends(0).out.lines().count()
    }

    fn explained(&self, id: &str) -> Vec<String> {
        let found = self.bed.run(&["explain", id, "-o", "json"]).json();
        let line = |line: &Value| line.as_str().unwrap().to_owned();
        found["next"].as_array().unwrap().iter().map(line).collect()
    }
}

/// It parses, and shows or asks: no wrong usage but the missing confirmation.
#[track_caller]
fn harmless(scene: &Scene, line: &str) {
    assert!(!line.contains(['…', '`']) && !line.contains("..."), "{line}");
    let before = scene.log();
    let said = scene.paste(line);
    let asks = said.err.contains("There is no terminal to confirm this: give --reason and --yes.")
        || said.err.contains("Give the answer: --payload");
    match said.code {
        0 => {}
        2 => assert!(asks, "{line}: {}", said.err),
        // The form is complete, but does not fit this work item's state.
        3..=5 => {
            for wrong in ["error:", "Usage", "unexpected argument", "required"] {
                assert!(!said.err.contains(wrong), "{line}: {}", said.err);
            }
        }
        code => panic!("{line} ended with {code}: {}", said.err),
    }
    assert_eq!(scene.log(), before, "{line} changed something");
}

#[test]
fn each_form_runs_as_printed() {
    let scene = Scene::new();
    let id = scene.ingest("a");
    scene.wait(&id, "user", "it's; $(x)");
    let work: WorkId = id.parse().unwrap();
    let command: CommandId = "c_01980000000070008000000000000000".parse().unwrap();
    let open = scene.bed.run(&["show", &id, "-o", "json"]).json()["waits"][0].clone();
    let wait: WaitId = open["id"].as_str().unwrap().parse().unwrap();
    for form in Next::forms(work, command, wait, "it's; $(x)") {
        harmless(&scene, &form.to_string());
    }
}

#[test]
fn what_is_printed_in_each_state_runs_as_printed() {
    let scene = Scene::new();
    let ids: Vec<(&str, String)> = [
        "queued",
        "running",
        "user",
        "approval",
        "auth",
        "quarantined",
        "failed",
        "retries",
        "done",
        "external",
    ]
    .map(|name| (name, scene.ingest(name)))
    .into();
    for (name, id) in &ids {
        match *name {
            "running" => drop(scene.claim(id)),
            "user" | "approval" | "auth" | "external" => scene.wait(id, name, &format!("{name}: go?")),
            "quarantined" => {
                scene.bed.run(&["quarantine", id, "--reason", "odd", "--yes"]).ends(0);
            }
            "failed" => scene.hold("close-out", id, &["--state", "failed", "--class", "validation"]),
            "retries" => {
                scene.hold("fail", id, &["--class", "rate_limited", "--retry-after", "1h"]);
            }
            "done" => scene.hold("close-out", id, &["--no-output"]),
            _ => {}
        }
    }
    let mut printed = BTreeSet::new();
    for (name, id) in &ids {
        let lines = scene.explained(id);
        assert_eq!(lines.is_empty(), *name == "done", "{name}: {lines:?}");
        let shown = scene.bed.run(&["show", id]).ends(0).out;
        for line in &lines {
            assert!(shown.lines().any(|row| row.ends_with(line)), "{line} on a line of its own in {shown}");
        }
        printed.extend(lines);
    }
    // The tables' last column, the list of what people must do, and a refusal.
    for list in [&["list"][..], &["ps"], &["needs"]] {
        let out = scene.bed.run(list).ends(0).out;
        printed
            .extend(out.lines().filter_map(|row| Some(format!("tenure {}", row.split_once("tenure ")?.1))));
    }
    let refused = scene.bed.run(&["claim", "--worker", "you", &ids[5].1]).ends(4).err;
    let quoted = refused.split('`').skip(1).step_by(2).filter(|text| text.starts_with("tenure "));
    printed.extend(quoted.map(str::to_owned));
    assert!(printed.len() > 12, "{printed:?}");
    for line in &printed {
        harmless(&scene, line);
    }
}

#[test]
fn a_placeholder_is_no_reason_no_answer_and_no_reference() {
    let scene = Scene::new();
    let id = scene.ingest("a");
    for mark in ["…", "..."] {
        for args in [
            &["cancel", &id, "--yes", "--reason", mark][..],
            &["resolve", "r", "--payload", mark],
            &["resolve", mark, "--payload", "1"],
        ] {
            let said = scene.bed.run(args).ends(2);
            assert!(said.err.contains("only a placeholder"), "{}", said.err);
        }
    }
    let token = scene.bed.token();
    let url = &scene.bed.daemon.as_ref().unwrap().url;
    let post = |path: String, body: Value| {
        let sent = Command::new("curl")
            .args([
                "-sS",
                "-H",
                &format!("authorization: Bearer {token}"),
                "-H",
                "content-type: application/json",
            ])
            .args(["-d", &body.to_string(), &format!("{url}{path}")])
            .output()
            .unwrap();
        serde_json::from_slice::<Value>(&sent.stdout).unwrap()
    };
    for mark in ["…", " ... "] {
        let cancel = post(format!("/v1/work/{id}/cancel"), json!({ "reason": mark }));
        assert_eq!(cancel["code"], "reason_missing", "{cancel}");
        let answer = post("/v1/resolve".to_owned(), json!({ "ref": "r", "payload": mark }));
        assert_eq!(answer["code"], "invalid", "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains("placeholder"), "{answer}");
        let by = post("/v1/resolve".to_owned(), json!({ "ref": mark, "payload": 1 }));
        assert_eq!(by["code"], "invalid", "{by}");
    }
}

/// A block that is pasted at a terminal: the second line becomes the reason of the first, and then nobody
/// said yes.
#[test]
fn a_pasted_block_decides_nothing() {
    let scene = Scene::new();
    let id = scene.ingest("a");
    scene.wait(&id, "approval", "deploy");
    let before = scene.log();
    let lines: Vec<String> = scene.explained(&id);
    assert_eq!(lines, [format!("tenure approve {id}"), format!("tenure reject {id}")]);
    for (typed, code) in [(format!("{}\n", lines[1]), 4), ("it is right\ny\n".to_owned(), 0)] {
        let binary = env!("CARGO_BIN_EXE_tenure");
        let script = format!("script -qec '{binary} approve {id}' /dev/null");
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("printf '{typed}' | {script}")]).current_dir(scene.bed.folder.path());
        shell.env("TENURE_URL", &scene.bed.daemon.as_ref().unwrap().url).env("TENURE_TOKEN_FILE", "token");
        shell.env("HOME", scene.bed.folder.path());
        let said = Said::of(shell.output().unwrap()).ends(code);
        assert!(said.out.contains("Which one?") && said.out.contains("Reason:"), "{}", said.out);
        assert_eq!(scene.log() > before, code == 0, "{}", said.out);
    }
    let payload = scene.bed.run(&["events", &id, "-o", "json"]).json();
    let answered = payload.as_array().unwrap().iter().any(|event| event["type"] == "wait_resolved");
    assert!(answered, "{payload}");
}
