//! Rules between an intent and its effect: schemas, people, policies, budgets, rates, and visibility.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_server::{Config, Overlay};
use tenure_store::ManualClock;

use crate::{
    bed::{Bed, Client},
    commands::{Held, TOOLS, path},
};

async fn tools() -> Bed {
    Bed::configured(TOOLS).await
}

async fn shown(client: &Client, command: &Value) -> Value {
    client.get(&format!("/v1/commands/{}", command["id"].as_str().unwrap())).await.expect(200)
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused_before_anything_is_written() {
    let bed = tools().await;
    let job = Held::new(&bed.admin(), "a").await;
    let broken = job.try_reserve("note", json!({ "text": 7 })).await;
    broken.problem(400, "invalid");
    assert!(broken.body["detail"].as_str().unwrap().contains("/text"), "{}", broken.body);
    job.try_reserve("note", json!({})).await.problem(400, "invalid");
    let huge = job.try_reserve("rm", json!({ "n": 9_007_199_254_740_993_u64 })).await;
    huge.problem(422, "payload_refused");
    job.try_reserve("", json!({})).await.problem(400, "invalid");
    let odd =
        job.proof(json!({ "tool": "note", "target": "b", "arguments": { "text": "x" }, "force": true }));
    job.client.post(&job.work("commands"), odd).await.problem(400, "unknown_field");
    assert_eq!(bed.admin().get("/v1/commands").await.expect(200)["items"], json!([]));
    let events = bed.admin().get(&job.work("events")).await.expect(200);
    assert_eq!(events["items"].as_array().unwrap().len(), 2, "created and claimed, nothing else");
    let fine = job.reserve("note", json!({ "text": "x" })).await;
    assert_eq!((&fine["state"], &fine["risk"]), (&json!("pending"), &json!("low")));
}

#[tokio::test]
async fn only_a_person_approves_and_never_its_own() {
    let bed = tools().await;
    let boss = bed.client("person", &["view", "work", "submit", "approve"], None).await;
    let agent = bed.client("machine", &["view", "work", "submit", "operate", "resolve"], None).await;
    let job = Held::new(&boss, "a").await;
    let own = job.reserve("pay", json!({ "amount": 5, "card": "4111" })).await;
    let say = json!({ "reason": "mine", "seal": own["seal"] });
    boss.post(&path(&own, "approve"), say.clone()).await.problem(403, "four_eyes");
    let no = json!({ "reason": "mine" });
    agent.post(&path(&own, "approve"), say.clone()).await.problem(403, "forbidden");
    agent.post(&path(&own, "reject"), no.clone()).await.problem(403, "forbidden");
    bed.admin().post(&path(&own, "approve"), no.clone()).await.problem(400, "invalid");
    for (verb, body) in [
        ("replay", no.clone()),
        ("record", json!({ "reason": "r", "outcome": "happened", "external_id": "x" })),
    ] {
        agent.post(&path(&own, verb), body.clone()).await.problem(403, "forbidden");
        boss.post(&path(&own, verb), body).await.problem(403, "forbidden");
    }
    for scope in ["approve", "replay"] {
        let wish = json!({ "name": "m", "kind": "machine", "scopes": [scope] });
        bed.admin().post("/v1/tokens", wish).await.problem(403, "person_required");
    }
    let shown_seal = own["seal"].as_str().unwrap();
    let mut other: Vec<char> = shown_seal.chars().collect();
    other[0] = if other[0] == '0' { '1' } else { '0' };
    let changed = json!({ "reason": "r", "seal": other.into_iter().collect::<String>() });
    bed.admin().post(&path(&own, "approve"), changed).await.problem(409, "seal_broken");
    let short = json!({ "reason": "r", "seal": "12" });
    bed.admin().post(&path(&own, "approve"), short).await.problem(400, "invalid");
    let silent = json!({ "reason": "", "seal": shown_seal });
    bed.admin().post(&path(&own, "approve"), silent).await.problem(422, "reason_missing");
    let sealed = json!({ "reason": "r", "seal": shown_seal });
    bed.admin().post(&path(&own, "approve"), sealed).await.expect(200);
    // The first decision wins.
    bed.admin().post(&path(&own, "reject"), no).await.problem(409, "illegal_state");
}

#[tokio::test]
async fn one_changed_byte_needs_a_new_approval() {
    let bed = tools().await;
    let job = Held::new(&bed.client("machine", &["work", "submit", "view"], None).await, "a").await;
    let asked = job.reserve("pay", json!({ "amount": 5 })).await;
    bed.admin()
        .post(&path(&asked, "approve"), json!({ "reason": "5 is fine", "seal": asked["seal"] }))
        .await
        .expect(200);
    // In the same attempt, changed arguments are refused; in the next one they make another command with its
    // own approval.
    job.try_reserve("pay", json!({ "amount": 6 })).await.problem(409, "idempotency_mismatch");
    job.client.post(&job.work("release"), job.proof(json!({}))).await.expect(200);
    let next = Held { client: job.client.clone(), grant: job.client.claim("c2").await };
    let other = next.reserve("pay", json!({ "amount": 6 })).await;
    assert_ne!(other["seal"], asked["seal"]);
    let told = next.not_dispatched(&other, "approval_required").await;
    assert_eq!((&told["state"], &told["reason"]["code"]), (&json!("blocked"), &json!("approval_required")));
    bed.admin()
        .post(&path(&asked, "approve"), json!({ "reason": "r", "seal": asked["seal"] }))
        .await
        .problem(409, "illegal_state");
}

#[tokio::test]
async fn questions_are_shown_to_approvers_and_secrets_to_nobody() {
    let bed = tools().await;
    let agent = bed.client("machine", &["work", "submit", "view"], None).await;
    let job = Held::new(&agent, "a").await;
    let pay = job.reserve("pay", json!({ "amount": 5, "card": "4111-secret" })).await;
    assert_eq!(shown(&agent, &pay).await.get("arguments"), None);
    for scopes in [&["view", "approve"][..], &["view", "payload"][..]] {
        let reader = bed.client("person", scopes, None).await;
        let seen = shown(&reader, &pay).await;
        assert_eq!(seen["arguments"], json!({ "amount": 5, "card": "[redacted]" }));
    }
    let note = job.dispatched("note", json!({ "text": "x" })).await;
    let answer = json!({ "external_id": "n-1", "response": { "echo": "private" } });
    job.verb(&note, "receipt", answer).await.expect(200);
    let approver = bed.client("person", &["view", "approve"], None).await;
    assert_eq!(shown(&approver, &note).await["receipt"].get("response"), None);
    let reader = bed.client("person", &["view", "payload"], None).await;
    assert_eq!(shown(&reader, &note).await["receipt"]["response"]["echo"], "private");
    let everything = reader.get("/v1/events?limit=1000").await.expect(200).to_string();
    assert!(!everything.contains("4111-secret"), "redacted values were never written");
}

#[tokio::test]
async fn a_work_waits_for_its_approval_and_goes_on() {
    let bed = tools().await;
    let agent = bed.client("machine", &["work", "submit", "view"], None).await;
    let job = Held::new(&agent, "a").await;
    let pay = job.reserve("pay", json!({ "amount": 5 })).await;
    let reference = format!("command:{}", pay["id"].as_str().unwrap());
    let wait = json!({ "waits": [{ "kind": "approval", "ref": reference }], "reason": { "tool": "pay" } });
    let waiting = agent.post(&job.work("wait"), job.proof(wait)).await.expect(200);
    assert_eq!(waiting["work"]["state"], "waiting_approval");
    // The approval belongs to the command; its wait has no answer of its own.
    let resolve = json!({ "ref": reference, "payload": { "approved": true } });
    bed.admin().post("/v1/resolve", resolve).await.problem(422, "reference_reserved");
    let direct =
        bed.admin().post(&job.work("approve"), json!({ "approved": true, "seal": "0".repeat(64) })).await;
    direct.problem(422, "reference_reserved");
    let mine = bed.admin().get("/v1/commands?needs_approval=true").await.expect(200);
    assert_eq!(mine["items"][0]["id"], pay["id"]);
    bed.admin()
        .post(&path(&pay, "approve"), json!({ "reason": "ok", "seal": pay["seal"] }))
        .await
        .expect(200);
    let next = Held { client: agent.clone(), grant: agent.claim("c2").await };
    assert_eq!(next.grant["answers"][0]["answer"], json!({ "command": pay["id"], "state": "approved" }));
    let again = next.try_reserve("pay", json!({ "amount": 5 })).await.expect(200);
    assert_eq!((&again["id"], &again["state"]), (&pay["id"], &json!("approved")));
    assert_eq!(next.verb(&pay, "dispatch", json!({})).await.expect(200)["state"], "dispatched");

    // For a wait with a command, the answer is the receipt.
    let handed = json!({ "waits": [{ "kind": "tool", "ref": "callback-1", "command": pay["id"] }] });
    let plain = json!({ "waits": [{ "kind": "tool", "ref": "other" }] });
    agent.post(&next.work("wait"), next.proof(plain)).await.problem(409, "commands_open");
    let waiting = agent.post(&next.work("wait"), next.proof(handed)).await.expect(200);
    assert_eq!(waiting["work"]["state"], "waiting_tool");
    let listed = bed.admin().get("/v1/waits?ref=callback-1").await.expect(200);
    assert_eq!(listed["items"][0]["command"], pay["id"]);
    let answer = json!({ "ref": "callback-1", "payload": { "charge": "ch_1" } });
    bed.admin().post("/v1/resolve", answer).await.expect(200);
    let done = shown(&bed.admin(), &pay).await;
    assert_eq!(
        (&done["state"], &done["receipt"]["response"]),
        (&json!("succeeded"), &json!({ "charge": "ch_1" }))
    );
}

#[tokio::test]
async fn the_outbox_is_committed_with_the_end() {
    let bed = tools().await;
    let job = Held::new(&bed.admin(), "a").await;
    let close =
        |commands: Value| job.proof(json!({ "state": "succeeded", "no_output": true, "commands": commands }));
    let by_hand = close(json!([{ "tool": "note", "target": "b", "arguments": { "text": "x" } }]));
    job.client.post(&job.work("close-out"), by_hand).await.problem(400, "invalid");
    let hook = json!({ "tool": "hook", "target": "b", "arguments": { "n": 1 } });
    let end = close(json!([hook, { "tool": "hook", "target": "c", "arguments": { "n": 2 } }]));
    let ended = job.client.post(&job.work("close-out"), end.clone()).await.expect(200);
    assert_eq!(
        job.client.post(&job.work("close-out"), end).await.expect(200),
        ended,
        "a repeat returns the same"
    );
    let sent =
        bed.admin().get(&format!("/v1/commands?work={}", ended["id"].as_str().unwrap())).await.expect(200);
    let sent = sent["items"].as_array().unwrap().clone();
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|one| one["executor"] == "http"), "{sent:?}");
    let born = json!({ "source": { "system": "manual", "id": "b" }, "kind": "k", "disposition": "externally_owned",
        "input": 1, "born": { "state": "succeeded", "no_output": true, "commands": [hook] } });
    bed.admin().post("/v1/work", born).await.problem(400, "invalid");
}

#[tokio::test]
async fn a_budget_blocks_with_its_reason_and_a_receipt_settles_it() {
    let bed = tools().await;
    let job = Held::new(&bed.admin(), "a").await;
    let ask = |slot: &str, tokens: u64| {
        job.proof(json!({ "tool": "costly", "target": "m", "slot": slot, "arguments": {},
            "estimate": { "tokens": tokens, "micros": { "usd": 5 } } }))
    };
    let first = job.client.post(&job.work("commands"), ask("1", 80)).await.expect(201);
    assert_eq!(first["estimate"], json!({ "tokens": 80, "micros": { "usd": 5 } }));
    assert_eq!(job.verb(&first, "dispatch", json!({})).await.expect(200)["state"], "dispatched");
    let second = job.client.post(&job.work("commands"), ask("2", 30)).await.expect(201);
    let told = job.not_dispatched(&second, "budget").await;
    assert_eq!((&told["state"], &told["reason"]["code"]), (&json!("blocked"), &json!("budget")));
    assert!(told["reason"]["message"].as_str().unwrap().contains("100"), "{told}");
    bed.admin()
        .post(&path(&second, "approve"), json!({ "reason": "r", "seal": second["seal"] }))
        .await
        .problem(409, "illegal_state");
    let cheap = json!({ "external_id": "1", "cost": { "tokens": 10 } });
    job.verb(&first, "receipt", cheap).await.expect(200);
    assert_eq!(job.verb(&second, "dispatch", json!({})).await.expect(200)["state"], "dispatched");
    job.verb(&second, "receipt", json!({ "external_id": "2" })).await.expect(200);
}

#[tokio::test]
async fn the_spending_of_one_tool_does_not_affect_another() {
    let budget = |tool: &str, max: u32| {
        format!(
            "[[budgets]]\nper = \"tenant\"\nunit = \"calls\"\nperiod = \"day\"\nmax = {max}\ntool = \"{tool}\"\n"
        )
    };
    let tools = "[tools.x]\nrisk = \"low\"\n[tools.y]\nrisk = \"low\"\n";
    let bed = Bed::configured(&format!("{}{}{tools}", budget("x", 1), budget("y", 100))).await;
    let job = Held::new(&bed.admin(), "a").await;
    let send = async |tool: &str, slot: u32| {
        let ask = json!({ "tool": tool, "target": "m", "slot": slot.to_string(), "arguments": {} });
        let command = job.client.post(&job.work("commands"), job.proof(ask)).await.expect(201);
        (job.verb(&command, "dispatch", json!({})).await, command)
    };
    for slot in 0..3 {
        assert_eq!(send("y", slot).await.0.expect(200)["state"], "dispatched");
    }
    assert_eq!(send("x", 0).await.0.expect(200)["state"], "dispatched");
    let (refused, second) = send("x", 1).await;
    refused.problem(409, "budget");
    let told = job.not_dispatched(&second, "budget").await;
    assert_eq!((&told["state"], &told["reason"]["code"]), (&json!("blocked"), &json!("budget")));
    let why = told["reason"]["message"].as_str().unwrap();
    assert!(why.contains("the budget of 1 call of tenant default, tool x only, in 20"), "{why}");
    let verified = bed.admin().post("/v1/admin/verify", json!({})).await.expect(200);
    assert_eq!(verified["faults"], json!([]));
}

#[tokio::test]
async fn a_rate_is_held_before_anything_is_written() {
    let bed = tools().await;
    let job = Held::new(&bed.admin(), "a").await;
    let ask = |slot: &str| job.proof(json!({ "tool": "slow", "target": "m", "slot": slot, "arguments": {} }));
    let first = job.client.post(&job.work("commands"), ask("1")).await.expect(201);
    let second = job.client.post(&job.work("commands"), ask("2")).await.expect(201);
    let go = json!({ "request_id": "d" });
    job.verb(&first, "dispatch", go.clone()).await.expect(200);
    let early = job.verb(&second, "dispatch", go.clone()).await;
    early.problem(429, "rate_limited");
    assert_eq!(early.body["retryable"], true);
    assert!(early.headers.contains_key("retry-after"));
    assert_eq!(shown(&bed.admin(), &second).await["state"], "pending");
    job.verb(&first, "dispatch", go).await.expect(200);
}

#[tokio::test]
async fn refused_dispatches_do_not_count_against_the_rate() {
    let bed = tools().await;
    let job = Held::new(&bed.admin(), "a").await;
    let slow = job.reserve("slow", json!({})).await;
    let mut forged = job.proof(json!({ "request_id": "d" }));
    forged["token"] = json!("0".repeat(64));
    let mut other = job.proof(json!({ "request_id": "d" }));
    other["fence"] = json!(other["fence"].as_u64().unwrap() + 1);
    for bogus in [forged, other] {
        job.client.post(&path(&slow, "dispatch"), bogus).await.problem(409, "lease_lost");
    }
    job.client.post(&job.work("release"), job.proof(json!({}))).await.expect(200);
    let next = Held { client: bed.admin(), grant: bed.admin().claim("c2").await };
    let before = job.verb(&slow, "dispatch", json!({})).await;
    before.problem(409, "lease_lost");
    let told = next.verb(&slow, "dispatch", json!({})).await.expect(200);
    assert_eq!(told["state"], "dispatched", "the one call a second is still there");
}

#[tokio::test]
async fn reports_name_their_dispatch() {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let bed = Bed::at(clock.clone(), TOOLS).await;
    let job = Held::new(&bed.admin(), "a").await;
    let mail = job.dispatched("mail", json!({})).await;
    assert_eq!(mail["dispatch"]["number"], 1);
    let unsent = |number: u32, message: &str| {
        json!({ "error": { "class": "transport", "message": message },
        "unsent": true, "dispatch": number })
    };
    job.verb(&mail, "fail", unsent(1, "no route")).await.expect(200);
    clock.advance(10_000);
    let second = job.verb(&mail, "dispatch", json!({ "request_id": "d2" })).await.expect(200);
    assert_eq!((&second["state"], &second["dispatch"]["number"]), (&json!("dispatched"), &json!(2)));

    let late = job.verb(&mail, "fail", unsent(1, "no name")).await;
    late.problem(409, "dispatch_superseded");
    assert_eq!(late.body["retryable"], false);
    let doubt = json!({ "error": { "class": "timeout", "message": "no reply" }, "dispatch": 1 });
    job.verb(&mail, "uncertain", doubt.clone()).await.problem(409, "dispatch_superseded");
    let copy = job.verb(&mail, "fail", unsent(1, "no route")).await.expect(200);
    assert_eq!(copy["state"], "dispatched", "a copy of an earlier report changes nothing");
    let receipt = |number: u32| json!({ "external_id": "m-1", "dispatch": number });
    job.verb(&mail, "receipt", receipt(3)).await.problem(409, "lease_lost");
    let done = job.verb(&mail, "receipt", receipt(1)).await.expect(200);
    assert_eq!(done["state"], "succeeded", "evidence of the first call is evidence");
}

#[tokio::test]
async fn replays_are_bounded_as_configured() {
    let bed = Bed::configured(&format!("{TOOLS}\n[commands]\nreplays = {{ per_command = 1 }}\n")).await;
    let job = Held::new(&bed.admin(), "a").await;
    let note = job.dispatched("note", json!({ "text": "x" })).await;
    let no = json!({ "error": { "class": "validation", "message": "no" } });
    job.verb(&note, "fail", no.clone()).await.expect(200);
    let again = json!({ "reason": "mended" });
    bed.admin().post(&path(&note, "replay"), again.clone()).await.expect(200);
    job.verb(&note, "dispatch", json!({})).await.expect(200);
    job.verb(&note, "fail", no).await.expect(200);
    bed.admin().post(&path(&note, "replay"), again).await.problem(409, "limit_reached");
}

#[tokio::test]
async fn a_worker_waits_for_something_to_look_up() {
    let bed = Bed::configured("[tools.post]\nrisk = \"low\"\nlookup = { by = \"worker\" }\n").await;
    let job = Held::new(&bed.admin(), "a").await;
    let post = job.dispatched("post", json!({})).await;
    let claim = |wait: u64| {
        let client = bed.admin();
        async move { client.post("/v1/commands/claim", json!({ "wait_ms": wait })).await.expect(200) }
    };
    assert_eq!(claim(1).await["items"], json!([]), "its time was over");
    let waiting = tokio::spawn(claim(60_000));
    let lost = json!({ "error": { "class": "timeout", "message": "no reply" } });
    job.verb(&post, "uncertain", lost).await.expect(200);
    assert_eq!(waiting.await.unwrap()["items"][0]["id"], post["id"]);

    let parked = tokio::spawn(claim(300_000));
    bed.server.close().await.unwrap();
    assert_eq!(parked.await.unwrap()["items"], json!([]), "the daemon stops");
}

#[tokio::test]
async fn a_lookup_is_taken_by_one_worker_and_ends_the_doubt() {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let bed = Bed::at(clock.clone(), TOOLS).await;
    let job = Held::new(&bed.admin(), "a").await;
    let mail = job.dispatched("mail", json!({ "text": "x" })).await;
    let lost = json!({ "error": { "class": "timeout", "message": "no reply" } });
    let doubt = job.verb(&mail, "uncertain", lost).await.expect(200);
    assert_eq!((&doubt["reason"]["code"], &doubt["needs_person"]), (&json!("in_doubt"), &json!(false)));
    let finder = bed.client("machine", &["work"], None).await;
    let claim = async |body: Value| finder.post("/v1/commands/claim", body).await.expect(200)["items"].take();
    assert_eq!(claim(json!({})).await, json!([]), "it is too early to look");
    let absent = json!({ "outcome": "absent" });
    bed.admin().post(&path(&mail, "reconcile"), absent).await.problem(409, "not_due");
    clock.advance(3_600_000);
    assert_eq!(claim(json!({ "tools": ["note"] })).await, json!([]));
    let taken = claim(json!({ "tools": ["mail"], "max": 10, "for_ms": 5_000 })).await;
    assert_eq!((&taken[0]["id"], &taken[0]["arguments"]), (&mail["id"], &json!({ "text": "x" })));
    assert_eq!(claim(json!({})).await, json!([]), "one is at it");
    clock.advance(5_000);
    let again = claim(json!({})).await;
    assert_eq!(again[0]["id"], mail["id"], "it did not come back in time");
    for (token, code) in [(&taken[0]["lookup_token"], "token_refused"), (&json!("1.x"), "token_refused")] {
        let lost = json!({ "token": token, "outcome": "unknown" });
        finder.post(&path(&mail, "reconcile"), lost).await.problem(403, code);
    }
    let mine = json!({ "token": again[0]["lookup_token"], "outcome": "unknown" });
    assert_eq!(finder.post(&path(&mail, "reconcile"), mine).await.expect(200)["unknowns"], 1);
    let stranger = bed.client("machine", &["work"], Some(&["theirs"])).await;
    clock.advance(3_600_000);
    assert_eq!(stranger.post("/v1/commands/claim", json!({})).await.expect(200)["items"], json!([]));
    bed.admin()
        .post(&path(&mail, "reconcile"), json!({ "outcome": "found" }))
        .await
        .problem(422, "evidence_missing");
    let both = json!({ "outcome": "absent", "external_id": "x" });
    bed.admin().post(&path(&mail, "reconcile"), both).await.problem(400, "invalid");
    let unknown = json!({ "outcome": "unknown", "message": "the index is behind" });
    let still = bed.admin().post(&path(&mail, "reconcile"), unknown).await.expect(200);
    assert_eq!((&still["state"], &still["unknowns"]), (&json!("uncertain"), &json!(2)));
    let found = json!({ "outcome": "found", "external_id": "m-9" });
    let done = bed.admin().post(&path(&mail, "reconcile"), found).await.expect(200);
    assert_eq!(
        (&done["state"], &done["receipt"]["evidence"]["kind"]),
        (&json!("succeeded"), &json!("lookup"))
    );
    job.close().await.expect(200);
}

#[tokio::test]
async fn an_agent_says_nothing_of_lookups_that_are_not_left_to_workers() {
    let bed = tools().await;
    let job = Held::new(&bed.admin(), "a").await;
    let note = job.dispatched("note", json!({ "text": "x" })).await;
    let lost = json!({ "error": { "class": "timeout", "message": "no reply" } });
    job.verb(&note, "uncertain", lost).await.expect(200);
    let agent = bed.client("machine", &["work"], None).await;
    for said in [json!({ "outcome": "absent" }), json!({ "outcome": "found", "external_id": "made up" })] {
        let refused = agent.post(&path(&note, "reconcile"), said).await;
        refused.problem(403, "person_required");
        assert!(refused.body["detail"].as_str().unwrap().contains("commands record"), "{}", refused.body);
    }
    assert_eq!(shown(&bed.admin(), &note).await["state"], "uncertain");
}

#[tokio::test]
async fn a_rerun_is_planned_before_it_is_done() {
    let bed = tools().await;
    let job = Held::new(&bed.admin(), "a").await;
    let done = job.dispatched("note", json!({ "text": "x" })).await;
    job.verb(&done, "receipt", json!({ "external_id": "n-1", "response": [1] })).await.expect(200);
    let blocked = job.reserve("pay", json!({ "amount": 1 })).await;
    job.close().await.expect(200);
    let plan = async |query: &str| {
        let plan = bed.admin().get(&format!("{}{query}", job.work("replay-plan"))).await.expect(200);
        let line = |line: &Value| (line["command"]["tool"].clone(), line["planned"].clone());
        plan["items"].as_array().unwrap().iter().map(line).collect::<Vec<_>>()
    };
    let asks = (json!("pay"), json!("needs_approval"));
    assert_eq!(plan("").await, [(json!("note"), json!("reuse_receipt")), asks.clone()]);
    let key = done["command_key"].as_str().unwrap();
    assert_eq!(plan(&format!("?execute={key}")).await, [(json!("note"), json!("execute")), asks]);
    bed.admin().get(&format!("{}?execute=x", job.work("replay-plan"))).await.problem(400, "invalid");
    let rerun = json!({ "reason": "once more", "execute": ["nothing"] });
    bed.admin().post(&job.work("rerun"), rerun).await.problem(400, "invalid");
    bed.admin().post(&job.work("rerun"), json!({ "reason": "once more" })).await.expect(201);
    let next = Held { client: bed.admin(), grant: bed.admin().claim("c2").await };
    let reused = next.reserve("note", json!({ "text": "x" })).await;
    assert_eq!(
        (&reused["state"], &reused["receipt"]["reused_from"], &reused["receipt"]["response"]),
        (&json!("succeeded"), &done["id"], &json!([1]))
    );
    assert_eq!(blocked["state"], "blocked");
}

#[tokio::test]
async fn blocked_commands_are_rate_limited_too() {
    let folder = tempfile::tempdir().unwrap();
    let cedar = folder.path().join("p.cedar");
    let toml = format!("{TOOLS}\n[policy]\nfiles = [{:?}]\n", cedar.to_str().unwrap());
    std::fs::write(&cedar, "permit (principal, action == Action::\"note\", resource);").unwrap();
    let bed = Bed::configured(&toml).await;
    let job = Held::new(&bed.admin(), "a").await;
    let ask = |slot: &str| job.proof(json!({ "tool": "slow", "target": "m", "slot": slot, "arguments": {} }));
    let first = job.client.post(&job.work("commands"), ask("1")).await.expect(201);
    let second = job.client.post(&job.work("commands"), ask("2")).await.expect(201);
    assert_eq!((&first["state"], &second["state"]), (&json!("blocked"), &json!("blocked")));
    std::fs::write(&cedar, "permit (principal, action, resource);").unwrap();
    let overlay = Overlay { db: Some(":memory:".to_owned()), ..Overlay::default() };
    bed.server.reloader().reload(&Config::parse("tenure.toml", &toml, overlay).unwrap());
    assert_eq!(job.verb(&first, "dispatch", json!({})).await.expect(200)["state"], "dispatched");
    job.verb(&second, "dispatch", json!({})).await.problem(429, "rate_limited");
}

#[tokio::test]
async fn policies_are_asked_again_at_dispatch_and_a_reload_counts_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let cedar = folder.path().join("p.cedar");
    let toml = format!("{TOOLS}\n[policy]\nfiles = [{:?}]\n", cedar.to_str().unwrap());
    let read = |policy: &str| {
        std::fs::write(&cedar, policy).unwrap();
        let overlay = Overlay { db: Some(":memory:".to_owned()), ..Overlay::default() };
        Config::parse("tenure.toml", &toml, overlay).unwrap()
    };
    read("permit (principal, action, resource);");
    let bed = Bed::configured(&toml).await;
    let agent = bed.client("machine", &["work", "submit", "view"], None).await;
    let job = Held::new(&agent, "a").await;
    let note = job.reserve("note", json!({ "text": "x" })).await;
    let version = note["decision"]["policy_version"].clone();
    let strict = "permit (principal, action, resource);\n@reason(\"not that text\")\n\
        forbid (principal is Worker, action == Action::\"note\", resource) when { context.arguments.text == \"x\" };";
    bed.server.reloader().reload(&read(strict));
    let told = job.not_dispatched(&note, "policy_denied").await;
    assert_eq!((&told["state"], &told["reason"]["code"]), (&json!("blocked"), &json!("policy_denied")));
    assert!(told["reason"]["message"].as_str().unwrap().contains("not that text"), "{told}");
    assert_ne!(told["decision"]["policy_version"], version);
    bed.admin()
        .post(&path(&note, "approve"), json!({ "reason": "r", "seal": note["seal"] }))
        .await
        .problem(409, "policy_denied");
    let fresh = job.proof(json!({ "tool": "note", "target": "c", "arguments": { "text": "x" } }));
    assert_eq!(agent.post(&job.work("commands"), fresh).await.expect(201)["state"], "blocked");
    let asks = "permit (principal, action, resource);\n@unless(\"approved\") \
        forbid (principal, action == Action::\"note\", resource) when { context.work.kind == \"job\" };";
    bed.server.reloader().reload(&read(asks));
    let told = job.not_dispatched(&note, "approval_required").await;
    assert_eq!(told["reason"]["code"], "approval_required");
    bed.admin()
        .post(&path(&note, "approve"), json!({ "reason": "r", "seal": note["seal"] }))
        .await
        .expect(200);
    assert_eq!(job.verb(&note, "dispatch", json!({})).await.expect(200)["state"], "dispatched");
    job.verb(&note, "receipt", json!({ "external_id": "1" })).await.expect(200);
    bed.server.reloader().reload(&read("permit (principal, action, resource);"));
    let plan = agent.get(&job.work("replay-plan")).await.expect(200);
    assert_eq!(plan["items"][1]["planned"], "execute");
}

#[tokio::test]
async fn a_batch_carries_commands_but_no_claim_of_lookups() {
    let bed = tools().await;
    let job = Held::new(&bed.admin(), "a").await;
    let reserve = job.proof(json!({ "tool": "note", "target": "b", "arguments": { "text": "x" } }));
    let batch = json!({ "items": [
        { "path": job.work("commands"), "body": reserve },
        { "path": "/v1/commands/claim", "body": {} },
        { "method": "GET", "path": "/v1/commands?tool=note" },
    ] });
    let items = bed.admin().post("/v1/batch", batch).await.expect(200)["items"].take();
    assert_eq!(
        (&items[0]["status"], &items[1]["status"], &items[2]["status"]),
        (&json!(201), &json!(400), &json!(200))
    );
    bed.admin().post("/v1/commands/claim", json!({ "tools": ["mail"] })).await.expect(200);
}
