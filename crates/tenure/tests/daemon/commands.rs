//! Commands under crashes: of the daemon between a dispatch and its receipt, and of the worker after a
//! dispatch.

use serde_json::{Value, json};

use crate::bed::{Daemon, Home, claim, held, until, work};

/// Leases so short that they lapse soon after a worker falls silent; mail can be looked up, payments are not
/// declared.
const SETTINGS: &str = r#"
[defaults]
lease = { ttl = "900ms", renew = "300ms", grace = "100ms" }

[tools.send_email]
risk = "low"
lookup = { by = "worker" }
"#;

/// The same with leases that are never lost by accident.
const PATIENT: &str = "[tools.send_email]\nrisk = \"low\"\nlookup = { by = \"worker\" }\n";

#[test]
fn a_daemon_killed_after_the_dispatch_on_sqlite() {
    killed(&Home::sqlite().configured(PATIENT));
}

#[test]
fn a_daemon_killed_after_the_dispatch_on_postgres() {
    killed(&Home::postgres().configured(PATIENT));
}

#[test]
fn a_worker_gone_after_the_dispatch_on_sqlite() {
    gone(&Home::sqlite().configured(SETTINGS).serve());
}

#[test]
fn a_worker_gone_after_the_dispatch_on_postgres() {
    gone(&Home::postgres().configured(SETTINGS).serve());
}

fn take(daemon: &Daemon, id: &str) -> Value {
    daemon.post("/v1/work", work(id));
    let mut body = claim("w1", &format!("{id}-{}", uuid::Uuid::now_v7()));
    let list = daemon.get(&format!("/v1/work?source_id={id}")).expect(200);
    body["ids"] = json!([list["items"][0]["id"]]);
    daemon.post("/v1/work/claim", body).expect(200)["leases"][0].take()
}

fn reserve(daemon: &Daemon, lease: &Value, tool: &str) -> Value {
    let new = json!({ "tool": tool, "target": "bob", "arguments": { "text": "hello" } });
    let path = format!("/v1/work/{}/commands", lease["work"]["id"].as_str().unwrap());
    let reply = daemon.post(&path, held(lease, new));
    assert!([200, 201].contains(&reply.status), "{}", reply.text);
    reply.body
}

fn verb(command: &Value, verb: &str) -> String {
    format!("/v1/commands/{}/{verb}", command["id"].as_str().unwrap())
}

fn close(daemon: &Daemon, lease: &Value) {
    let path = format!("/v1/work/{}/close-out", lease["work"]["id"].as_str().unwrap());
    daemon.post(&path, held(lease, json!({ "state": "succeeded", "no_output": true }))).expect(200);
}

fn sound(daemon: &Daemon) {
    assert_eq!(daemon.post("/v1/admin/verify", json!({})).expect(200)["faults"], json!([]));
}

/// The response to a dispatch is lost with the daemon: the same request gets it again, and no other does.
fn killed(home: &Home) {
    let daemon = home.serve();
    let lease = take(&daemon, "letter");
    let mail = reserve(&daemon, &lease, "send_email");
    let dispatch = held(&lease, json!({ "request_id": "first" }));
    daemon.post(&verb(&mail, "dispatch"), dispatch.clone()).expect(200);
    daemon.kill();

    let daemon = home.serve();
    let again = daemon.post(&verb(&mail, "dispatch"), dispatch).expect(200);
    assert_eq!((&again["state"], &again["dispatches"]), (&json!("dispatched"), &json!(1)));
    let other = held(&lease, json!({ "request_id": "second" }));
    daemon.post(&verb(&mail, "dispatch"), other).problem(409, "already_dispatched");
    let early = held(&lease, json!({ "state": "succeeded", "no_output": true }));
    let path = format!("/v1/work/{}/close-out", lease["work"]["id"].as_str().unwrap());
    daemon.post(&path, early).problem(409, "commands_open");
    let receipt = held(&lease, json!({ "external_id": "m-1" }));
    assert_eq!(daemon.post(&verb(&mail, "receipt"), receipt).expect(200)["state"], "succeeded");
    daemon.kill();

    let daemon = home.serve();
    let same = reserve(&daemon, &lease, "send_email");
    assert_eq!((&same["id"], &same["receipt"]["external_id"]), (&mail["id"], &json!("m-1")));
    close(&daemon, &lease);
    sound(&daemon);
}

fn gone(daemon: &Daemon) {
    looked_up(daemon, "found", json!({ "outcome": "found", "external_id": "m-7" }), "succeeded");
    looked_up(daemon, "absent", json!({ "outcome": "absent" }), "pending");
    left_to_a_person(daemon);
    sound(daemon);
}

/// A dispatched command of a worker that fell silent.
fn abandoned(daemon: &Daemon, id: &str, tool: &str) -> Value {
    let mut lease = take(daemon, id);
    let mut command = reserve(daemon, &lease, tool);
    if command["state"] == "blocked" {
        let seen = json!({ "reason": "looks right", "seal": command["seal"] });
        daemon.post(&verb(&command, "approve"), seen).expect(200);
    }
    // On a busy machine the lease may be lost before the dispatch: it is claimed again then.
    until("it is dispatched", || {
        let told = daemon.post(&verb(&command, "dispatch"), held(&lease, json!({})));
        if told.status != 200 {
            lease = take(daemon, id);
            command = reserve(daemon, &lease, tool);
        }
        (told.status == 200).then_some(())
    });
    until("it is unknown whether it happened", || {
        let seen = daemon.get(&format!("/v1/commands/{}", command["id"].as_str().unwrap())).expect(200);
        (seen["state"] == "uncertain").then_some(seen)
    })
}

fn looked_up(daemon: &Daemon, id: &str, finding: Value, then: &str) {
    let mail = abandoned(daemon, id, "send_email");
    let path = format!("/v1/work/{}", mail["work"].as_str().unwrap());
    until("its work does not go on meanwhile", || {
        (daemon.get(&path).expect(200)["state"] == "stalled").then_some(())
    });
    let due = until("the lookup is due", || {
        let mut due = daemon.post("/v1/commands/claim", json!({ "tools": ["send_email"] })).expect(200);
        Some(due["items"][0].take()).filter(Value::is_object)
    });
    assert_eq!((&due["id"], &due["arguments"]["text"]), (&mail["id"], &json!("hello")));
    let mut finding = finding;
    finding["token"] = due["lookup_token"].clone();
    let told = daemon.post(&verb(&mail, "reconcile"), finding).expect(200);
    assert_eq!(told["state"], then);
    until("its work goes on", || (daemon.get(&path).expect(200)["state"] == "queued").then_some(()));
    let lease = take(daemon, id);
    let same = reserve(daemon, &lease, "send_email");
    assert_eq!((&same["id"], &same["state"]), (&mail["id"], &json!(then)), "it is the same command");
}

/// A payment cannot be looked up: its work item is quarantined, and a person records the outcome.
fn left_to_a_person(daemon: &Daemon) {
    let pay = abandoned(daemon, "invoice", "pay");
    assert_eq!(pay["needs_person"], true);
    let id = pay["work"].as_str().unwrap();
    until("it is quarantined", || {
        (daemon.get(&format!("/v1/work/{id}")).expect(200)["state"] == "quarantined").then_some(())
    });
    let requeue = json!({ "reason": "again", "decision": "requeue" });
    daemon.post(&format!("/v1/work/{id}/decide"), requeue.clone()).problem(409, "commands_open");
    let record = json!({ "reason": "the bank shows it", "outcome": "happened", "ref": "statement 7" });
    assert_eq!(daemon.post(&verb(&pay, "record"), record).expect(200)["state"], "succeeded");
    daemon.post(&format!("/v1/work/{id}/decide"), requeue).expect(200);
}
