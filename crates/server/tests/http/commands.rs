//! Commands by their routes: intent before effect, evidence after it, and the end of doubt.

use serde_json::{Value, json};

use crate::bed::{Bed, Client, held, id_of, on_every_store};

on_every_store!(
    intent_effect_evidence,
    the_same_intent_is_the_same_command,
    a_failure_and_a_doubt_are_distinguished,
    a_command_without_a_work_brings_its_own,
    commands_of_others_are_invisible,
);

/// Tools for tests.
pub const TOOLS: &str = r#"
[tools.note]
risk = "low"
schema = { type = "object", required = ["text"], properties = { text = { type = "string" }, n = { type = "integer" } } }

[tools.mail]
risk = "low"
executor = "worker"
consistency_delay = "30s"
lookup = { by = "worker" }

[tools.hook]
risk = "low"
executor = "http"

[tools.hook.http]
url = "https://hooks.example.com/x"

[tools.pay]
risk = "high"
four_eyes = true
redact = ["/card"]

[tools.slow]
risk = "low"
rate_limit = { per_s = 1, burst = 1 }

[tools.costly]
risk = "low"

[[budgets]]
per = "tenant"
unit = "tokens"
period = "total"
max = 100
tool = "costly"
"#;

/// A held work item, with helpers for its commands.
pub struct Held {
    pub client: Client,
    pub grant: Value,
}

impl Held {
    pub async fn new(client: &Client, id: &str) -> Self {
        client.ingest(id).await;
        let grant = client.claim(id).await;
        Self { client: client.clone(), grant }
    }

    pub fn work(&self, verb: &str) -> String {
        format!("/v1/work/{}/{verb}", id_of(&self.grant))
    }

    pub fn proof(&self, more: Value) -> Value {
        held(&self.grant, more)
    }

    pub async fn try_reserve(&self, tool: &str, arguments: Value) -> crate::bed::Reply {
        let body = self.proof(json!({ "tool": tool, "target": "bob", "arguments": arguments }));
        self.client.post(&self.work("commands"), body).await
    }

    pub async fn reserve(&self, tool: &str, arguments: Value) -> Value {
        self.try_reserve(tool, arguments).await.expect(201)
    }

    pub async fn verb(&self, command: &Value, verb: &str, more: Value) -> crate::bed::Reply {
        self.client.post(&path(command, verb), self.proof(more)).await
    }

    /// Expects a refusal with this code, and returns the command shown in it.
    pub async fn not_dispatched(&self, command: &Value, code: &str) -> Value {
        let refused = self.verb(command, "dispatch", json!({ "request_id": "not now" })).await;
        refused.problem(409, code);
        assert_eq!(refused.body["command"]["id"], command["id"], "{}", refused.body);
        refused.body["command"].clone()
    }

    pub async fn dispatched(&self, tool: &str, arguments: Value) -> Value {
        let command = self.reserve(tool, arguments).await;
        let told = self.verb(&command, "dispatch", json!({ "request_id": "d" })).await.expect(200);
        assert_eq!(told["state"], "dispatched", "{told}");
        told
    }

    pub async fn close(&self) -> crate::bed::Reply {
        let end = self.proof(json!({ "state": "succeeded", "no_output": true }));
        self.client.post(&self.work("close-out"), end).await
    }
}

pub fn path(command: &Value, verb: &str) -> String {
    format!("/v1/commands/{}/{verb}", command["id"].as_str().unwrap())
}

async fn verified(bed: &Bed) {
    assert_eq!(bed.admin().post("/v1/admin/verify", json!({})).await.expect(200)["faults"], json!([]));
}

async fn intent_effect_evidence(bed: Bed) {
    // Undeclared tools are high risk; the configured tools of these tests are for other cases.
    let job = Held::new(&bed.admin(), "a").await;
    let blocked = job.reserve("rm", json!({ "path": "/" })).await;
    assert_eq!(
        (&blocked["state"], &blocked["reason"]["code"], &blocked["risk"], &blocked["idempotency"]),
        (&json!("blocked"), &json!("approval_required"), &json!("high"), &json!("none")),
    );
    assert_eq!(blocked["decision"]["effect"], "needs_approval");
    let still = job.not_dispatched(&blocked, "approval_required").await;
    assert_eq!(still["state"], "blocked", "nobody approved it");

    let approve = json!({ "reason": "checked", "seal": blocked["seal"] });
    let approved = bed.admin().post(&path(&blocked, "approve"), approve).await.expect(200);
    assert_eq!(
        (&approved["state"], &approved["approval"]["by"]["type"]),
        (&json!("approved"), &json!("person"))
    );
    let ask = json!({ "request_id": "d2" });
    let told = job.verb(&blocked, "dispatch", ask.clone()).await.expect(200);
    assert_eq!((&told["state"], &told["dispatches"]), (&json!("dispatched"), &json!(1)));
    assert_eq!(job.verb(&blocked, "dispatch", ask).await.expect(200), told, "its reply was lost");
    let other = job.verb(&blocked, "dispatch", json!({ "request_id": "d3" })).await;
    other.problem(409, "already_dispatched");
    job.verb(&blocked, "dispatch", json!({})).await.problem(409, "already_dispatched");

    job.close().await.problem(409, "commands_open");
    job.verb(&blocked, "receipt", json!({})).await.problem(422, "evidence_missing");
    let word = json!({ "external_id": "x", "evidence": { "kind": "person" } });
    job.verb(&blocked, "receipt", word).await.problem(403, "person_required");
    let receipt = json!({ "external_id": "m-1", "response": { "ok": true } });
    let done = job.verb(&blocked, "receipt", receipt.clone()).await.expect(200);
    assert_eq!(
        (&done["state"], &done["receipt"]["external_id"], &done["receipt"]["evidence"]["kind"]),
        (&json!("succeeded"), &json!("m-1"), &json!("provider")),
    );
    assert_eq!(job.verb(&blocked, "receipt", receipt).await.expect(200), done, "a repeat returns the same");
    let again = job.try_reserve("rm", json!({ "path": "/" })).await.expect(200);
    assert_eq!((&again["id"], &again["receipt"]["response"]), (&blocked["id"], &json!({ "ok": true })));
    let cancel = json!({ "reason": "too late" });
    bed.admin().post(&path(&blocked, "cancel"), cancel).await.problem(409, "illegal_state");
    job.close().await.expect(200);

    let explained = bed.admin().get(&path(&blocked, "explain")).await.expect(200);
    assert!(explained["sentence"].as_str().unwrap().contains("m-1"), "{explained}");
    let listed = bed.admin().get("/v1/commands?state=succeeded,failed&tool=rm&target=bob").await.expect(200);
    assert_eq!(listed["items"][0]["id"], blocked["id"]);
    assert_eq!(listed["items"][0].get("arguments"), None, "lists show no payloads");
    assert_eq!(bed.admin().get("/v1/commands?state=blocked").await.expect(200)["items"], json!([]));
    verified(&bed).await;
    bed.server.close().await.unwrap();
}

async fn the_same_intent_is_the_same_command(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let first = job.reserve("rm", json!({ "b": 1.0, "a": "x" })).await;
    let again = job.try_reserve("rm", json!({ "a": "x", "b": 1 })).await.expect(200);
    assert_eq!(again, first, "however it is written");
    let other = job.try_reserve("rm", json!({ "a": "y" })).await;
    other.problem(409, "idempotency_mismatch");
    assert!(other.body["detail"].as_str().unwrap().contains("slot"), "{}", other.body);
    let body = json!({ "tool": "rm", "target": "bob", "slot": "2", "arguments": { "a": "y" } });
    let second = job.client.post(&job.work("commands"), job.proof(body)).await.expect(201);
    assert_ne!((&second["id"], &second["command_key"]), (&first["id"], &first["command_key"]));
    // A later attempt may change its arguments, as long as it was not dispatched.
    job.client.post(&job.work("release"), job.proof(json!({}))).await.expect(200);
    let next = Held { client: bed.admin(), grant: bed.admin().claim("c2").await };
    let reworded = next.reserve("rm", json!({ "a": "z" })).await;
    let old = bed.admin().get(&format!("/v1/commands/{}", first["id"].as_str().unwrap())).await.expect(200);
    assert_eq!(
        (&old["state"], &old["superseded_by"], &old["reason"]["code"]),
        (&json!("cancelled"), &reworded["id"], &json!("superseded"))
    );
    // The old lease is superseded.
    job.try_reserve("rm", json!({ "a": "x" })).await.problem(409, "lease_lost");
    job.verb(&reworded, "cancel", json!({ "reason": "not mine" })).await.problem(409, "lease_lost");
    let gone = next.verb(&reworded, "cancel", json!({ "reason": "changed its mind" })).await.expect(200);
    assert_eq!((&gone["state"], &gone["reason"]["code"]), (&json!("cancelled"), &json!("requested")));
    verified(&bed).await;
    bed.server.close().await.unwrap();
}

async fn approved(bed: &Bed, job: &Held, target: &str) -> Value {
    let body = job.proof(json!({ "tool": "rm", "target": target, "arguments": {} }));
    let command = job.client.post(&job.work("commands"), body).await.expect(201);
    let approve = json!({ "reason": "ok", "seal": command["seal"] });
    bed.admin().post(&path(&command, "approve"), approve).await.expect(200);
    job.verb(&command, "dispatch", json!({ "request_id": target })).await.expect(200)
}

async fn a_failure_and_a_doubt_are_distinguished(bed: Bed) {
    let job = Held::new(&bed.admin(), "a").await;
    let refused = approved(&bed, &job, "refused").await;
    let lost = json!({ "error": { "class": "timeout", "message": "no reply" } });
    job.verb(&refused, "fail", lost.clone()).await.problem(400, "invalid");
    let no = json!({ "error": { "class": "validation", "message": "no such file" } });
    let failed = job.verb(&refused, "fail", no).await.expect(200);
    assert_eq!((&failed["state"], &failed["error"]["class"]), (&json!("failed"), &json!("validation")));
    let unsent = approved(&bed, &job, "unsent").await;
    let error = json!({ "class": "transport", "message": "no route", "retry_after_ms": 60_000 });
    let never = json!({ "error": error, "unsent": true });
    let later = job.verb(&unsent, "fail", never.clone()).await.expect(200);
    assert_eq!(
        (&later["state"], &later["reason"]["code"], later["next_at"].is_string()),
        (&json!("blocked"), &json!("approval_required"), true),
        "the word of a worker gives no approval back"
    );
    assert_eq!(job.verb(&unsent, "fail", never).await.expect(200), later, "repeats change nothing");
    job.verb(&unsent, "dispatch", json!({})).await.problem(409, "not_due");

    let doubtful = approved(&bed, &job, "doubtful").await;
    let doubt = job.verb(&doubtful, "uncertain", lost.clone()).await.expect(200);
    assert_eq!(
        (&doubt["state"], &doubt["needs_person"], &doubt["reason"]["code"]),
        (&json!("uncertain"), &json!(true), &json!("needs_person"))
    );
    assert_eq!(job.verb(&doubtful, "uncertain", lost).await.expect(200), doubt);
    job.verb(&doubtful, "dispatch", json!({})).await.problem(409, "in_doubt");
    job.close().await.problem(409, "commands_open");
    let mine = bed.admin().get("/v1/commands?needs_person=true").await.expect(200);
    assert_eq!(mine["items"].as_array().unwrap().len(), 1);
    assert_eq!(mine["items"][0]["id"], doubtful["id"]);

    let both = json!({ "reason": "r", "outcome": "did_not_happen", "external_id": "x" });
    bed.admin().post(&path(&doubtful, "record"), both).await.problem(400, "invalid");
    let nothing = json!({ "reason": "r", "outcome": "happened" });
    bed.admin().post(&path(&doubtful, "record"), nothing).await.problem(422, "evidence_missing");
    let seen = json!({ "reason": "in the bank's list", "outcome": "happened", "ref": "line 7" });
    let done = bed.admin().post(&path(&doubtful, "record"), seen).await.expect(200);
    assert_eq!(
        (&done["state"], &done["receipt"]["evidence"]),
        (&json!("succeeded"), &json!({ "kind": "person", "ref": "line 7" }))
    );

    // A dry run of the replay first, then the replay; at high risk only with a fresh approval.
    let dry = format!("{}?dry_run=true", path(&refused, "replay"));
    let would = bed.admin().post(&dry, json!({ "reason": "fixed" })).await.expect(200);
    assert_eq!(would["state"], "blocked");
    let now = bed.admin().get(&format!("/v1/commands/{}", refused["id"].as_str().unwrap())).await.expect(200);
    assert_eq!((&now["state"], &now["replays"]), (&json!("failed"), &json!(0)), "nothing was written");
    let replayed =
        bed.admin().post(&path(&refused, "replay"), json!({ "reason": "fixed" })).await.expect(200);
    assert_eq!((&replayed["state"], &replayed["replays"]), (&json!("blocked"), &json!(1)));
    bed.admin()
        .post(&path(&refused, "replay"), json!({ "reason": "again" }))
        .await
        .problem(409, "illegal_state");
    bed.admin().post(&path(&refused, "replay"), json!({ "reason": "" })).await.problem(422, "reason_missing");
    verified(&bed).await;
    bed.server.close().await.unwrap();
}

async fn a_command_without_a_work_brings_its_own(bed: Bed) {
    let agent = bed.client("machine", &["work", "submit"], None).await;
    let claim = json!({ "worker": { "id": "script", "incarnation": "1" }, "request_id": "order-7" });
    let alone = json!({ "claim": claim, "tool": "rm", "target": "bob", "arguments": { "a": 1 } });
    let made = agent.post("/v1/commands", alone.clone()).await.expect(201);
    assert_eq!(made["lease"]["work"]["source"], json!({ "system": "manual", "id": "order-7" }));
    assert_eq!(made["command"]["state"], "blocked");
    let again = agent.post("/v1/commands", alone.clone()).await.expect(200);
    assert_eq!(again["command"]["id"], made["command"]["id"]);
    assert_eq!(again["lease"]["token"], made["lease"]["token"], "the lease of the first call");
    let mut later = alone.clone();
    later["source"] = made["lease"]["work"]["source"].clone();
    later["claim"] = json!({ "worker": { "id": "script", "incarnation": "2" }, "request_id": "second run" });
    let busy = agent.post("/v1/commands", later.clone()).await;
    busy.problem(409, "busy");
    assert!(busy.body["detail"].as_str().unwrap().contains("script"), "{}", busy.body);
    let mut reworded = alone;
    reworded["arguments"] = json!({ "a": 2 });
    agent.post("/v1/commands", reworded).await.problem(409, "idempotency_mismatch");
    // No worker holds it while a person decides; the next run continues where this one waits.
    let job = Held { client: agent.clone(), grant: made["lease"].clone() };
    let reference = format!("command:{}", made["command"]["id"].as_str().unwrap());
    let wait = job.proof(json!({ "waits": [{ "kind": "approval", "ref": reference }] }));
    agent.post(&job.work("wait"), wait).await.expect(200);
    agent.post("/v1/commands", later.clone()).await.problem(409, "not_claimable");
    let approve = json!({ "reason": "ok", "seal": made["command"]["seal"] });
    bed.admin().post(&path(&made["command"], "approve"), approve).await.expect(200);
    let taken = agent.post("/v1/commands", later.clone()).await.expect(200);
    assert_eq!(
        (&taken["command"]["id"], &taken["command"]["state"]),
        (&made["command"]["id"], &json!("approved"))
    );
    let job = Held { client: agent.clone(), grant: taken["lease"].clone() };
    job.verb(&made["command"], "dispatch", json!({ "request_id": "d" })).await.expect(200);
    job.verb(&made["command"], "receipt", json!({ "external_id": "1", "response": 7 })).await.expect(200);
    job.close().await.expect(200);
    let ended = agent.post("/v1/commands", later.clone()).await.expect(200);
    assert_eq!((&ended["command"]["receipt"]["response"], ended.get("lease")), (&json!(7), None));
    later["arguments"] = json!({ "a": 2 });
    agent.post("/v1/commands", later).await.problem(409, "terminal");
    let worker = bed.client("machine", &["work"], None).await;
    let new = json!({ "claim": { "worker": { "id": "s", "incarnation": "1" }, "request_id": "x" },
        "tool": "rm", "target": "bob", "arguments": {} });
    worker.post("/v1/commands", new).await.problem(403, "forbidden");
    verified(&bed).await;
    bed.server.close().await.unwrap();
}

async fn commands_of_others_are_invisible(bed: Bed) {
    const ALL: [&str; 8] = ["view", "payload", "submit", "work", "resolve", "approve", "replay", "operate"];
    let ours = bed.client("person", &ALL, Some(&["ours"])).await;
    let theirs = bed.client("person", &ALL, Some(&["theirs"])).await;
    let job = Held::new(&ours, "a").await;
    let command = job.reserve("rm", json!({ "secret": 1 })).await;
    let foreign = Held { client: theirs.clone(), grant: job.grant.clone() };
    foreign.try_reserve("rm", json!({})).await.problem(404, "not_found");
    theirs.get(path(&command, "").trim_end_matches('/')).await.problem(404, "not_found");
    theirs.get(&path(&command, "explain")).await.problem(404, "not_found");
    theirs.get(&job.work("replay-plan")).await.problem(404, "not_found");
    let error = json!({ "class": "validation" });
    for (verb, body) in [
        ("approve", json!({ "reason": "r", "seal": command["seal"] })),
        ("reject", json!({ "reason": "r" })),
        ("dispatch", job.proof(json!({}))),
        ("receipt", job.proof(json!({ "external_id": "x" }))),
        ("fail", job.proof(json!({ "error": error }))),
        ("uncertain", job.proof(json!({ "error": error }))),
        ("reconcile", json!({ "outcome": "absent" })),
        ("replay", json!({ "reason": "r" })),
        ("record", json!({ "reason": "r", "outcome": "did_not_happen" })),
        ("cancel", json!({ "reason": "r" })),
        ("cancel", job.proof(json!({ "reason": "r" }))),
    ] {
        let reply = theirs.post(&path(&command, verb), body).await;
        reply.problem(404, "not_found");
        assert!(!reply.body.to_string().contains("ours"), "nothing is revealed: {}", reply.body);
    }
    for list in ["/v1/commands", "/v1/commands?tenant=ours"] {
        assert_eq!(theirs.get(list).await.expect(200)["items"], json!([]));
    }
    // Within one tenant, the holder of one work item cannot act on another's commands.
    let other = Held::new(&ours, "b").await;
    other.verb(&command, "dispatch", json!({})).await.problem(409, "lease_lost");
    let seen = ours.get(path(&command, "").trim_end_matches('/')).await.expect(200);
    assert_eq!((&seen["state"], &seen["arguments"]), (&json!("blocked"), &json!({ "secret": 1 })));
    bed.server.close().await.unwrap();
}
