//! A 2xx of a dispatch means: make the call now. Every other response is a problem that shows the command.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_server::{Config, Overlay};
use tenure_store::ManualClock;
use tokio::task::JoinSet;

use crate::{
    bed::{Bed, on_every_store},
    commands::{Held, path},
};

/// One tool for each reason to refuse a dispatch.
const TOOLS: &str = r#"
[tools.note]
risk = "low"

[tools.pay]
risk = "high"

[tools.slow]
risk = "low"
rate_limit = { per_s = 1, burst = 1 }

[tools.costly]
risk = "low"

[[budgets]]
per = "tenant"
unit = "calls"
period = "total"
max = 1
tool = "costly"
"#;

on_every_store!(
    TOOLS;
    without_an_approval,
    over_budget,
    too_fast,
    while_the_work_is_asked_to_cancel,
    after_another_took_its_place,
    after_it_happened,
    while_it_is_dispatched,
    after_the_lease_is_lost,
    by_a_forged_lease,
    in_a_batch,
    against_the_policy,
);

async fn shown(bed: &Bed, command: &Value) -> Value {
    bed.admin().get(&format!("/v1/commands/{}", command["id"].as_str().unwrap())).await.expect(200)
}

/// The number of events of each type in the log of its work item.
async fn told(bed: &Bed, job: &Held, kind: &str) -> usize {
    let events = bed.admin().get(&job.work("events")).await.expect(200)["items"].take();
    events.as_array().unwrap().iter().filter(|event| event["type"] == kind).count()
}

async fn verified(bed: Bed) {
    assert_eq!(bed.admin().post("/v1/admin/verify", json!({})).await.expect(200)["faults"], json!([]));
    bed.server.close().await.unwrap();
}

async fn without_an_approval(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let pay = job.reserve("pay", json!({ "amount": 5 })).await;
    assert_eq!(pay["state"], "blocked", "a reserve is a 2xx, and no permission");
    for _ in 0..2 {
        let stopped = job.not_dispatched(&pay, "approval_required").await;
        assert_eq!(
            (&stopped["state"], &stopped["reason"]["code"], &stopped["seal"]),
            (&json!("blocked"), &json!("approval_required"), &pay["seal"])
        );
    }
    assert_eq!(told(&bed, &job, "command_dispatched").await, 0);
    let approve = json!({ "reason": "ok", "seal": pay["seal"] });
    bed.admin().post(&path(&pay, "approve"), approve).await.expect(200);
    let go = job.verb(&pay, "dispatch", json!({ "request_id": "d" })).await.expect(200);
    assert_eq!(go["state"], "dispatched");
    verified(bed).await;
}

async fn over_budget(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let ask =
        |slot: &str| job.proof(json!({ "tool": "costly", "target": "m", "slot": slot, "arguments": {} }));
    let first = job.client.post(&job.work("commands"), ask("1")).await.expect(201);
    let second = job.client.post(&job.work("commands"), ask("2")).await.expect(201);
    job.verb(&first, "dispatch", json!({})).await.expect(200);
    let stopped = job.not_dispatched(&second, "budget").await;
    assert_eq!((&stopped["state"], &stopped["reason"]["code"]), (&json!("blocked"), &json!("budget")));
    assert_eq!(shown(&bed, &second).await["state"], "blocked", "that it was stopped is committed");
    job.not_dispatched(&second, "budget").await;
    assert_eq!(told(&bed, &job, "command_blocked").await, 1, "and recorded once");
    verified(bed).await;
}

async fn too_fast(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let mut crowd = JoinSet::new();
    for slot in 0..6 {
        let ask = json!({ "tool": "slow", "target": "m", "slot": slot.to_string(), "arguments": {} });
        let command = job.client.post(&job.work("commands"), job.proof(ask)).await.expect(201);
        let (client, path, body) = (job.client.clone(), path(&command, "dispatch"), job.proof(json!({})));
        crowd.spawn(async move { client.post(&path, body).await });
    }
    let answers = crowd.join_all().await;
    let (went, early): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status.is_success());
    assert!(!early.is_empty(), "one a second");
    for answer in early {
        answer.problem(429, "rate_limited");
        let body = &answer.body;
        assert_eq!((&body["command"]["state"], &body["retryable"]), (&json!("pending"), &json!(true)));
        assert_eq!(shown(&bed, &body["command"]).await["state"], "pending", "nothing was written");
        let wait = body["retry_after_ms"].as_u64().unwrap();
        assert!((1..=1_000).contains(&wait), "{wait}");
        assert_eq!(answer.headers["retry-after"], "1");
    }
    assert_eq!(told(&bed, &job, "command_dispatched").await, went.len());
    verified(bed).await;
}

async fn while_the_work_is_asked_to_cancel(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let note = job.reserve("note", json!({})).await;
    bed.admin().post(&job.work("cancel"), json!({ "reason": "not any more" })).await.expect(200);
    let stopped = job.not_dispatched(&note, "cancel_requested").await;
    assert_eq!(stopped["state"], "pending");
    job.client.post(&job.work("release"), job.proof(json!({}))).await.expect(200);
    let gone = shown(&bed, &note).await;
    assert_eq!((&gone["state"], &gone["reason"]["code"]), (&json!("cancelled"), &json!("work_ended")));
    verified(bed).await;
}

async fn after_another_took_its_place(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let old = job.reserve("note", json!({ "text": "hi" })).await;
    job.client.post(&job.work("release"), job.proof(json!({}))).await.expect(200);
    let next = Held { client: bed.admin(), grant: bed.admin().claim("c2").await };
    let new = next.reserve("note", json!({ "text": "hello" })).await;
    let stopped = next.not_dispatched(&old, "superseded").await;
    assert_eq!(
        (&stopped["state"], &stopped["reason"]["code"], &stopped["superseded_by"]),
        (&json!("cancelled"), &json!("superseded"), &new["id"])
    );
    let go = next.verb(&new, "dispatch", json!({})).await.expect(200);
    assert_eq!(go["state"], "dispatched");
    verified(bed).await;
}

async fn after_it_happened(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let note = job.dispatched("note", json!({})).await;
    job.verb(&note, "receipt", json!({ "external_id": "n-1", "response": [7] })).await.expect(200);
    // Also the request that was dispatched: its command has succeeded.
    for request in ["d", "other"] {
        let again = job.verb(&note, "dispatch", json!({ "request_id": request })).await;
        again.problem(409, "already_succeeded");
        let receipt = &again.body["command"]["receipt"];
        assert_eq!((&receipt["external_id"], &receipt["response"]), (&json!("n-1"), &json!([7])));
    }
    verified(bed).await;
}

async fn while_it_is_dispatched(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let note = job.dispatched("note", json!({})).await;
    let again = job.verb(&note, "dispatch", json!({ "request_id": "d" })).await.expect(200);
    assert_eq!(again, note, "its reply was lost");
    assert_eq!(job.not_dispatched(&note, "already_dispatched").await["state"], "dispatched");
    let lost = json!({ "error": { "class": "timeout", "message": "no reply" } });
    job.verb(&note, "uncertain", lost).await.expect(200);
    assert_eq!(job.not_dispatched(&note, "in_doubt").await["needs_person"], true);
    assert_eq!(told(&bed, &job, "command_dispatched").await, 1);
    verified(bed).await;
}

async fn after_the_lease_is_lost(bed: Bed) {
    let old = Held::new(&bed.admin(), "a").await;
    let note = old.reserve("note", json!({})).await;
    old.client.post(&old.work("release"), old.proof(json!({}))).await.expect(200);
    let new = Held { client: bed.admin(), grant: bed.admin().claim("c2").await };
    assert_eq!(old.not_dispatched(&note, "lease_lost").await["state"], "pending");
    let lease = |of: &Held| json!({ "id": of.grant["work"]["id"], "fence": of.grant["fence"], "token": of.grant["token"] });
    let own = bed.admin().post("/v1/work/renew", json!({ "leases": [lease(&new)] })).await.expect(200);
    assert_eq!(own["lost"], json!([]));
    let other = Held::new(&bed.admin(), "b").await;
    let both = json!({ "leases": [lease(&old), lease(&other)] });
    let renewed = bed.admin().post("/v1/work/renew", both).await.expect(200);
    assert_eq!(renewed["leases"][0]["problem"]["code"], "lease_lost");
    assert!(renewed["leases"][1]["expires_at"].is_string(), "{renewed}");
    assert_eq!(renewed["lost"], json!([old.grant["work"]["id"]]));
    verified(bed).await;
}

async fn by_a_forged_lease(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let note = job.reserve("note", json!({})).await;
    let stranger = bed.client("machine", &["work"], None).await;
    let forged = json!({ "fence": job.grant["fence"], "token": "0".repeat(64) });
    let refused = stranger.post(&path(&note, "dispatch"), forged).await;
    refused.problem(409, "lease_lost");
    assert_eq!(refused.body.get("command"), None, "it is shown to its holder only");
    verified(bed).await;
}

async fn in_a_batch(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let (pay, note) = (job.reserve("pay", json!({})).await, job.reserve("note", json!({})).await);
    let call = |command: &Value| json!({ "path": path(command, "dispatch"), "body": job.proof(json!({})) });
    let batch = json!({ "items": [call(&pay), call(&note)] });
    let answers = bed.admin().post("/v1/batch", batch).await.expect(200)["items"].take();
    assert_eq!(
        (&answers[0]["status"], &answers[0]["body"]["code"], &answers[0]["body"]["command"]["state"]),
        (&json!(409), &json!("approval_required"), &json!("blocked"))
    );
    assert_eq!((&answers[1]["status"], &answers[1]["body"]["state"]), (&json!(200), &json!("dispatched")));
    verified(bed).await;
}

async fn against_the_policy(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let note = job.reserve("note", json!({ "text": "x" })).await;
    assert_eq!(note["state"], "pending", "the policy allowed it when it was reserved");
    let folder = tempfile::tempdir().unwrap();
    let cedar = folder.path().join("p.cedar");
    let strict = "permit (principal, action, resource);\n@reason(\"no notes today\")\n\
        forbid (principal, action == Action::\"note\", resource);";
    std::fs::write(&cedar, strict).unwrap();
    let toml = format!("{TOOLS}\n[policy]\nfiles = [{:?}]\n", cedar.to_str().unwrap());
    bed.server.reloader().reload(&Config::parse("tenure.toml", &toml, Overlay::default()).unwrap());
    let stopped = job.not_dispatched(&note, "policy_denied").await;
    assert_eq!((&stopped["state"], &stopped["reason"]["code"]), (&json!("blocked"), &json!("policy_denied")));
    assert!(stopped["reason"]["message"].as_str().unwrap().contains("no notes today"), "{stopped}");
    assert_eq!(shown(&bed, &note).await["state"], "blocked", "that it was stopped is committed");
    assert_eq!(told(&bed, &job, "command_blocked").await, 1);
    // Commands of a new attempt are evaluated the same way.
    let fresh = job.proof(json!({ "tool": "note", "target": "c", "arguments": {} }));
    let fresh = job.client.post(&job.work("commands"), fresh).await.expect(201);
    assert_eq!(job.not_dispatched(&fresh, "policy_denied").await["state"], "blocked");
    verified(bed).await;
}

#[tokio::test]
async fn before_its_next_try_is_due() {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let bed = Bed::at(clock.clone(), TOOLS).await;
    let job = Held::new(&bed.admin(), "a").await;
    let note = job.dispatched("note", json!({})).await;
    let unsent = json!({ "error": { "class": "transport", "message": "no route" }, "unsent": true });
    job.verb(&note, "fail", unsent).await.expect(200);
    assert_eq!(job.not_dispatched(&note, "not_due").await["state"], "pending");
    clock.advance(10_000);
    assert_eq!(job.verb(&note, "dispatch", json!({})).await.expect(200)["state"], "dispatched");
    verified(bed).await;
}
