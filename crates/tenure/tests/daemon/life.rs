//! The full life of a work item with `curl`, on both databases.

use serde_json::{Value, json};

use crate::bed::{Daemon, Home, claim, held, until, work};

#[test]
fn on_sqlite() {
    live(&Home::sqlite().serve());
}

#[test]
fn on_postgres() {
    live(&Home::postgres().serve());
}

fn live(daemon: &Daemon) {
    done(daemon);
    tried_again(daemon);
    stopped_and_run_again(daemon);
    set_aside(daemon);
    owned_elsewhere(daemon);
    let report = daemon.post("/v1/admin/verify", json!({})).expect(200);
    assert_eq!(report["faults"], json!([]));
    assert!(report["works"].as_u64().unwrap() >= 5, "{report}");
}

fn ingest(daemon: &Daemon, body: Value) -> String {
    daemon.post("/v1/work", body).expect(201)["work"]["id"].as_str().unwrap().to_owned()
}

fn take(daemon: &Daemon, id: &str, request: &str) -> Value {
    let mut body = claim("w1", request);
    body["ids"] = json!([id]);
    daemon.post("/v1/work/claim", body).expect(200)["leases"][0].take()
}

fn verb(daemon: &Daemon, id: &str, verb: &str, body: Value) -> Value {
    daemon.post(&format!("/v1/work/{id}/{verb}"), body).expect(200)
}

fn kinds(daemon: &Daemon, id: &str) -> Vec<String> {
    let events = daemon.get(&format!("/v1/work/{id}/events")).expect(200);
    let items = events["items"].as_array().unwrap().iter();
    items.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

fn explained(daemon: &Daemon, id: &str) -> String {
    daemon.get(&format!("/v1/work/{id}/explain")).expect(200)["sentence"].as_str().unwrap().to_owned()
}

/// Ingest, claim, progress, step, wait, answer, close-out; then its log and its explanation.
fn done(daemon: &Daemon) {
    let id = ingest(daemon, work("done"));
    let again = daemon.post("/v1/work", work("done")).expect(200);
    assert_eq!((again["created"].as_bool(), again["work"]["id"].as_str()), (Some(false), Some(&*id)));
    let mut other = work("done");
    other["input"] = json!("other");
    daemon.post("/v1/work", other).problem(409, "idempotency_mismatch");

    let lease = take(daemon, &id, "done-1");
    assert_eq!(lease["input"], json!({ "do": "done" }));
    verb(daemon, &id, "accept", held(&lease, json!({ "strength": "strong" })));
    let progress = held(&lease, json!({ "progress": { "percent": 10 }, "request_id": "p1" }));
    let first = verb(daemon, &id, "progress", progress.clone());
    assert_eq!(verb(daemon, &id, "progress", progress)["seq"], first["seq"], "said twice, kept once");
    let step = format!("/v1/work/{id}/steps/draft");
    daemon.put(&step, held(&lease, json!({ "verb": "begin", "input": 1 }))).expect(200);
    let result = json!({ "verb": "complete", "input": 1, "result": "a draft" });
    daemon.put(&step, held(&lease, result)).expect(200);
    let other = held(&lease, json!({ "verb": "begin", "input": 2 }));
    daemon.put(&step, other).problem(409, "step_mismatch");

    let ask = json!({ "waits": [{ "kind": "user", "ref": "colour", "prompt": "Which colour?" }] });
    let waiting = verb(daemon, &id, "wait", held(&lease, ask));
    assert_eq!(waiting["work"]["state"], "waiting_user");
    assert!(explained(daemon, &id).contains("Which colour?"), "{}", explained(daemon, &id));
    let token = waiting["waits"][0]["token"].clone();
    let answered = daemon.post("/v1/resolve", json!({ "token": token, "payload": "blue" })).expect(200);
    assert_eq!(answered["answers"][0]["payload"], "blue", "{answered}");
    let second = daemon.post("/v1/resolve", json!({ "ref": "colour", "payload": "red" })).expect(200);
    assert_eq!(second["answers"][0]["payload"], "blue", "the first answer counts: {second}");

    let lease = take(daemon, &id, "done-2");
    assert_eq!(lease["steps"][0]["result"], "a draft");
    assert_eq!(lease["answers"][0]["answer"], "blue", "{lease}");
    let close = held(&lease, json!({ "state": "done", "result": { "ok": true } }));
    let closed = verb(daemon, &id, "close-out", close.clone());
    assert_eq!(closed["state"], "succeeded");
    assert_eq!(verb(daemon, &id, "close-out", close)["seq"], closed["seq"], "repeated, the same reply");
    let seen = daemon.get(&format!("/v1/work/{id}?wait=terminal")).expect(200);
    assert_eq!((&seen["phase"], &seen["result"]), (&json!("terminal"), &json!({ "ok": true })));
    let log = kinds(daemon, &id);
    let whole = [
        "work_created",
        "claimed",
        "accepted",
        "progressed",
        "step_begun",
        "step_completed",
        "waiting_set",
        "wait_resolved",
        "claimed",
        "close_out",
    ];
    assert_eq!(log, whole);
    assert!(explained(daemon, &id).contains("Succeeded"), "{}", explained(daemon, &id));
    let cursor = daemon.get("/v1/events?limit=2").expect(200)["next"].as_str().unwrap().to_owned();
    // On PostgreSQL the feed trails while another test's transaction is open in the same server.
    let rest = until("the feed goes on after its cursor", || {
        let rest = daemon.get(&format!("/v1/events?after={cursor}&limit=1000")).expect(200);
        let items = rest["items"].as_array().unwrap().len();
        (items >= log.len() - 2).then_some(items)
    });
    assert_eq!(rest, log.len() - 2, "no event comes twice");
}

/// A retryable failure waits for its backoff, or for `retry-now`.
fn tried_again(daemon: &Daemon) {
    let mut body = work("again");
    body["policy"] = json!({ "retry": { "initial_ms": 3_600_000, "max_ms": 3_600_000, "jitter": "none" } });
    let id = ingest(daemon, body);
    let lease = take(daemon, &id, "again-1");
    let error = json!({ "error": { "class": "transport", "message": "reset" } });
    let failed = verb(daemon, &id, "fail", held(&lease, error));
    assert_eq!(failed["state"], "retry_scheduled");
    assert!(failed["next_retry_at"].is_string());
    assert!(explained(daemon, &id).contains("reset"), "{}", explained(daemon, &id));
    daemon.post(&format!("/v1/work/{id}/retry-now"), json!({ "reason": "" })).problem(422, "reason_missing");
    verb(daemon, &id, "retry-now", json!({ "reason": "the line is back" }));
    let lease = take(daemon, &id, "again-2");
    assert_eq!(lease["work"]["attempt"], 2);
    let error = json!({ "error": { "class": "validation", "message": "no such file" } });
    assert_eq!(verb(daemon, &id, "fail", held(&lease, error))["state"], "failed");
}

fn stopped_and_run_again(daemon: &Daemon) {
    let id = ingest(daemon, work("stop"));
    let lease = take(daemon, &id, "stop-1");
    let asked = verb(daemon, &id, "cancel", json!({ "reason": "not needed any more" }));
    assert_eq!(asked["state"], "cancel_requested");
    let leases = json!({ "leases": [{ "id": id, "fence": lease["fence"], "token": lease["token"] }] });
    let renewed = daemon.post("/v1/work/renew", leases).expect(200);
    assert_eq!(renewed["leases"][0]["cancel_requested"], true);
    let end = held(&lease, json!({ "state": "cancelled" }));
    assert_eq!(verb(daemon, &id, "close-out", end)["state"], "cancelled");
    daemon.post(&format!("/v1/work/{id}/quarantine"), json!({ "reason": "x" })).problem(409, "terminal");

    let rerun = daemon.post(&format!("/v1/work/{id}/rerun"), json!({ "reason": "needed after all" }));
    assert!([200, 201].contains(&rerun.status), "{}", rerun.text);
    let list = daemon.get("/v1/work?source_id=stop").expect(200);
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{list}");
    let new = items.iter().find(|work| work["generation"] == 2).unwrap();
    assert_eq!((&new["rerun_of"], &new["state"]), (&json!(id), &json!("queued")));
}

fn set_aside(daemon: &Daemon) {
    let id = ingest(daemon, work("odd"));
    verb(daemon, &id, "quarantine", json!({ "reason": "looks odd" }));
    let mut body = claim("w1", "odd-1");
    body["ids"] = json!([id]);
    daemon.post("/v1/work/claim", body).problem(409, "not_claimable");
    verb(daemon, &id, "decide", json!({ "reason": "it is fine", "decision": "requeue" }));
    take(daemon, &id, "odd-2");
    verb(daemon, &id, "quarantine", json!({ "reason": "no, it is not" }));
    let decided = verb(daemon, &id, "decide", json!({ "reason": "enough", "decision": "failed" }));
    assert_eq!(decided["state"], "failed");
}

fn owned_elsewhere(daemon: &Daemon) {
    let mut body = work("theirs");
    body["disposition"] = json!("externally_owned");
    let ingested = daemon.post("/v1/work", body).expect(201);
    let id = ingested["work"]["id"].as_str().unwrap();
    assert_eq!(ingested["work"]["state"], "waiting_external");
    let end = |token: &Value| json!({ "token": token, "state": "succeeded", "result_ref": "s3://there" });
    daemon.post(&format!("/v1/work/{id}/complete"), end(&json!("guess"))).problem(403, "token_refused");
    let completed = verb(daemon, id, "complete", end(&ingested["completion_token"]));
    assert_eq!(completed["state"], "succeeded");

    // A wait is ended by the sweeper at its deadline, without other help.
    let id = ingest(daemon, work("late"));
    let lease = take(daemon, &id, "late-1");
    let ask = json!({ "waits": [{ "kind": "tool", "ref": "slow", "timeout_ms": 50, "on_timeout": "warn" }] });
    verb(daemon, &id, "wait", held(&lease, ask));
    until("the deadline ends it", || {
        let seen = daemon.get(&format!("/v1/work/{id}?wait=terminal&timeout_ms=5000")).expect(200);
        (seen["state"] == "completed_with_warnings").then_some(())
    });
}
