//! The life of work items over HTTP, the same on every store.

use serde_json::{Value, json};

use crate::bed::{Bed, held, id_of, on_every_store, work};

on_every_store!(
    a_work_from_ingest_to_its_end,
    a_wait_and_its_answer,
    an_operator_sets_things_right,
    work_that_somebody_outside_owns,
    failures_are_tried_again,
    a_long_poll_hears_of_the_end,
    pages_follow_one_another,
    events_tell_times_as_everything_does,
    only_old_work_items_are_pruned,
);

async fn a_work_from_ingest_to_its_end(bed: Bed) {
    let client = bed.admin();
    let made = client.post("/v1/work", work("a")).await.expect(201);
    assert_eq!((&made["created"], &made["work"]["state"]), (&json!(true), &json!("queued")));
    let again = client.post("/v1/work", work("a")).await.expect(200);
    assert_eq!((&again["created"], &again["work"]["id"]), (&json!(false), &made["work"]["id"]));
    let mut other = work("a");
    other["input"] = json!("something else");
    client.post("/v1/work", other).await.problem(409, "idempotency_mismatch");

    let grant = client.claim("c1").await;
    let id = id_of(&grant).to_owned();
    let since = |work: &Value| work["state_since"].as_str().map(str::to_owned).expect("it says since when");
    assert!(since(&grant["work"]) >= since(&made["work"]));
    assert_eq!(grant["input"], json!({ "do": "a" }));
    assert_eq!(client.claim("c1").await["token"], grant["token"], "the same claim again");
    let path = |verb: &str| format!("/v1/work/{id}/{verb}");
    client.post(&path("accept"), held(&grant, json!({ "strength": "strong" }))).await.expect(200);
    client.post(&path("progress"), held(&grant, json!({ "progress": { "at": 1 } }))).await.expect(200);

    let begin = held(&grant, json!({ "verb": "begin", "input": { "n": 1 } }));
    let begun = client.put(&path("steps/fetch"), begin.clone()).await.expect(200);
    assert_eq!(begun["reused"], false);
    let complete = held(&grant, json!({ "verb": "complete", "input": { "n": 1 }, "result": [7] }));
    client.put(&path("steps/fetch"), complete).await.expect(200);
    let reused = client.put(&path("steps/fetch"), begin).await.expect(200);
    assert_eq!((&reused["reused"], &reused["step"]["result"]), (&json!(true), &json!([7])));
    let other = held(&grant, json!({ "verb": "begin", "input": { "n": 2 } }));
    client.put(&path("steps/fetch"), other).await.problem(409, "step_mismatch");

    let lease = json!({ "id": id, "fence": grant["fence"], "token": grant["token"] });
    let stale = json!({ "id": id, "fence": 1, "token": grant["token"] });
    let renewed = client.post("/v1/work/renew", json!({ "leases": [lease] })).await.expect(200);
    assert_eq!((&renewed["leases"][0]["cancel_requested"], &renewed["lost"]), (&json!(false), &json!([])));
    let renewed = client.post("/v1/work/renew", json!({ "leases": [stale] })).await.expect(200);
    assert_eq!(renewed["leases"][0]["problem"]["code"], "lease_lost");
    assert_eq!(renewed["lost"], json!([id]), "a refusal inside a 200 is named at the top");

    let success = held(&grant, json!({ "state": "succeeded", "result": { "answer": 42 } }));
    let ack = client.post(&path("close-out"), success.clone()).await.expect(200);
    assert_eq!(ack["state"], "succeeded");
    assert_eq!(
        client.post(&path("close-out"), success).await.expect(200),
        ack,
        "a repeat gets the same response"
    );
    let late = held(&grant, json!({ "state": "failed", "error": { "class": "unknown" } }));
    client.post(&path("close-out"), late).await.problem(409, "lease_lost");

    let seen = client.get(&format!("/v1/work/{}", &id[..14])).await.expect(200);
    assert_eq!((&seen["id"], &seen["phase"]), (&json!(id), &json!("terminal")), "by the beginning of its id");
    assert_eq!((&seen["result"], &seen["input"]), (&json!({ "answer": 42 }), &json!({ "do": "a" })));
    let explained = client.get(&path("explain")).await.expect(200);
    assert!(explained["sentence"].as_str().unwrap().starts_with("Succeeded"), "{explained}");
    let events = client.get(&path("events")).await.expect(200);
    let told: Vec<&str> =
        events["items"].as_array().unwrap().iter().map(|e| e["type"].as_str().unwrap()).collect();
    let story =
        ["work_created", "claimed", "accepted", "progressed", "step_begun", "step_completed", "close_out"];
    assert_eq!(told, story);
    let rerun = client.post(&path("rerun"), json!({ "reason": "once more" })).await.expect(201);
    assert_eq!((&rerun["rerun_of"], &rerun["generation"]), (&json!(id), &json!(2)));
    let again = client.post(&path("rerun"), json!({ "reason": "once more" })).await.expect(200);
    assert_eq!(again["id"], rerun["id"], "a repeat returns the same");
    let report = client.post("/v1/admin/verify", json!({})).await.expect(200);
    assert_eq!(report["faults"], json!([]));
    bed.server.close().await.unwrap();
}

async fn events_tell_times_as_everything_does(bed: Bed) {
    let client = bed.admin();
    let id = client.ingest("a").await;
    let grant = client.claim("c1").await;
    let events = client.get(&format!("/v1/work/{id}/events")).await.expect(200);
    let (created, claimed) = (&events["items"][0]["data"], &events["items"][1]["data"]);
    assert_eq!(created["spec"]["created_at"], grant["work"]["timestamps"]["acknowledged"]);
    assert_eq!(created["spec"]["policy"]["retry"]["multiplier"], 2.0);
    assert_eq!(claimed["expires_at"], grant["expires_at"]);
    assert_eq!(claimed["request"], Value::Null, "an internal key");
    let report = client.post("/v1/admin/verify", json!({})).await.expect(200);
    assert_eq!(report["faults"], json!([]), "the chain covers the stored form, not the public one");
}

async fn a_wait_and_its_answer(bed: Bed) {
    let client = bed.admin();
    client.ingest("a").await;
    let grant = client.claim("c1").await;
    let path = |verb: &str| format!("/v1/work/{}/{verb}", id_of(&grant));
    let ask = json!([
        { "kind": "user", "ref": "colour", "prompt": "Which colour?" },
        { "kind": "approval", "ref": "spend" },
    ]);
    let waiting = client.post(&path("wait"), held(&grant, json!({ "waits": ask }))).await.expect(200);
    assert_eq!(waiting["work"]["state"], "waiting_approval");
    let listed = client.get("/v1/work").await.expect(200)["items"][0]["waits"].take();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    let open = client.get("/v1/waits?state=open&kind=user").await.expect(200);
    assert_eq!(open["items"][0]["prompt"], "Which colour?");

    // Its token alone answers a wait; the approval needs the scope to approve.
    let token = waiting["waits"][0]["token"].clone();
    let bot = bed.client("machine", &["resolve", "work", "view"], None).await;
    let blue = json!({ "token": token, "payload": "blue" });
    let resolved = bot.post("/v1/resolve", blue).await.expect(200);
    assert_eq!(resolved["answers"][0]["first"], true);
    assert_eq!(resolved["answers"][0].get("payload"), None, "not without the scope");
    let spend = json!({ "ref": "spend", "payload": true });
    bot.post("/v1/resolve", spend).await.problem(409, "seal_broken");
    let seal = client.get("/v1/waits?kind=approval").await.expect(200)["items"][0]["seal"].take();
    let say = |approved: bool| json!({ "approved": approved, "seal": seal });
    bot.post(&path("approve"), say(true)).await.problem(403, "forbidden");
    client.post(&path("approve"), say(true)).await.expect(200);
    let second = client.post(&path("approve"), say(false)).await.expect(200);
    assert_eq!(second["answers"][0]["first"], false);
    assert_eq!(second["answers"][0]["payload"]["approved"], true, "the first answer counts");

    let grant = client.claim("c2").await;
    let answers: Vec<&Value> =
        grant["answers"].as_array().unwrap().iter().map(|wait| &wait["answer"]).collect();
    assert!(answers.contains(&&json!("blue")), "{answers:?}");
    let early = client.post("/v1/resolve", json!({ "ref": "later", "payload": 1 })).await.expect(200);
    assert_eq!(early["kept"], true);
    let later = json!({ "waits": [{ "kind": "external", "ref": "later" }] });
    let there = client.post(&path("wait"), held(&grant, later)).await.expect(200);
    assert_eq!((&there["answers"][0]["answer"], &there["work"]["state"]), (&json!(1), &json!("running")));
    bed.server.close().await.unwrap();
}

async fn an_operator_sets_things_right(bed: Bed) {
    let client = bed.admin();
    let id = client.ingest("a").await;
    let path = |verb: &str| format!("/v1/work/{id}/{verb}");
    client.post(&path("quarantine"), json!({ "reason": " " })).await.problem(422, "reason_missing");
    let stale = json!({ "reason": "odd", "if_seq": 7 });
    client.post(&path("quarantine"), stale).await.problem(409, "state_changed");
    client.post(&path("quarantine"), json!({ "reason": "odd", "if_seq": 1 })).await.expect(200);
    let machine = bed.client("machine", &["operate"], None).await;
    let requeue = json!({ "reason": "fixed", "decision": "requeue" });
    machine.post(&path("decide"), requeue.clone()).await.problem(403, "person_required");
    assert_eq!(client.post(&path("decide"), requeue).await.expect(200)["state"], "queued");

    let grant = client.claim("c1").await;
    let workers = client.get("/v1/workers").await.expect(200);
    assert_eq!(
        (&workers["items"][0]["id"], &workers["items"][0]["liveness"]),
        (&json!("w1"), &json!("alive"))
    );
    let drain = json!({ "reason": "old host", "levers": ["request_cancel", "stop_claiming"] });
    let report = client.post("/v1/workers/w1/drain", drain).await.expect(200);
    assert_eq!(report["deferred"].as_array().unwrap().len(), 2, "{report}");
    let lease = json!({ "id": id, "fence": grant["fence"], "token": grant["token"] });
    let renewed = client.post("/v1/work/renew", json!({ "leases": [lease] })).await.expect(200);
    assert_eq!(
        (&renewed["leases"][0]["release_requested"], &renewed["leases"][0]["cancel_requested"]),
        (&json!(true), &json!(false))
    );
    let back = client.post(&path("release"), held(&grant, json!({}))).await.expect(200);
    assert_eq!(back["state"], "queued", "a drain ends no rerunnable work");
    bed.server.close().await.unwrap();
}

async fn work_that_somebody_outside_owns(bed: Bed) {
    let client = bed.admin();
    let mut new = work("batch-7");
    new["disposition"] = json!("externally_owned");
    let made = client.post("/v1/work", new).await.expect(201);
    let id = made["work"]["id"].as_str().unwrap();
    let token = made["completion_token"].as_str().unwrap();
    assert_eq!(made["work"]["state"], "waiting_external");
    let path = format!("/v1/work/{id}/complete");
    let end = |token: &str| json!({ "token": token, "state": "succeeded", "no_output": true });
    client.post(&path, end("guess")).await.problem(403, "token_refused");
    assert_eq!(client.post(&path, end(token)).await.expect(200)["state"], "succeeded");
    client.post(&path, end(token)).await.expect(200);
    bed.server.close().await.unwrap();
}

async fn failures_are_tried_again(bed: Bed) {
    let client = bed.admin();
    client.ingest("a").await;
    let grant = client.claim("c1").await;
    let path = |verb: &str| format!("/v1/work/{}/{verb}", id_of(&grant));
    let failure = json!({ "error": { "class": "transport", "message": "reset", "retry_after_ms": 60_000 } });
    let ack = client.post(&path("fail"), held(&grant, failure)).await.expect(200);
    assert_eq!(ack["state"], "retry_scheduled");
    assert!(ack["next_retry_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        client.post(&path("retry-now"), json!({ "reason": "it is up" })).await.expect(200)["state"],
        "queued"
    );
    let grant = client.claim("c2").await;
    let auth = json!({
        "error": { "class": "auth", "message": "token expired" },
        "wait": { "kind": "auth", "ref": "drive" },
    });
    assert_eq!(client.post(&path("fail"), held(&grant, auth)).await.expect(200)["state"], "waiting_auth");
    client.post(&path("reconnect"), json!({})).await.expect(200);
    let grant = client.claim("c3").await;
    let warned = json!({ "state": "completed_with_warnings", "warnings": ["slow"], "no_output": true });
    client.post(&path("close-out"), held(&grant, warned)).await.expect(200);
    bed.server.close().await.unwrap();
}

async fn a_long_poll_hears_of_the_end(bed: Bed) {
    let client = bed.admin();
    // A waiting claim gets the work item as soon as it arrives.
    let waiting = tokio::spawn({
        let client = client.clone();
        let claim =
            json!({ "worker": { "id": "w1", "incarnation": "i1" }, "request_id": "r", "wait_ms": 60_000 });
        async move { client.post("/v1/work/claim", claim).await.expect(200) }
    });
    let id = client.ingest("a").await;
    let grant = waiting.await.unwrap()["leases"][0].take();
    assert_eq!(id_of(&grant), id);

    let polled = tokio::spawn({
        let (client, path) = (client.clone(), format!("/v1/work/{id}?wait=terminal&timeout_ms=60000"));
        async move { client.get(&path).await.expect(200) }
    });
    let now = client.get(&format!("/v1/work/{id}?wait=terminal&timeout_ms=1")).await.expect(200);
    assert_eq!(now["state"], "running", "its time was over");
    let close = held(&grant, json!({ "state": "succeeded", "no_output": true }));
    client.post(&format!("/v1/work/{id}/close-out"), close).await.expect(200);
    assert_eq!(polled.await.unwrap()["state"], "succeeded");
    bed.server.close().await.unwrap();
}

async fn only_old_work_items_are_pruned(bed: Bed) {
    let client = bed.admin();
    client.ingest("a").await;
    let close = json!({ "state": "succeeded", "no_output": true });
    let grant = client.claim("c1").await;
    client.post(&format!("/v1/work/{}/close-out", id_of(&grant)), held(&grant, close)).await.expect(200);
    let long_ago = json!({ "before": "2020-01-01T00:00:00Z", "reason": "old" });
    let dry = json!({ "before": "2020-01-01T00:00:00Z", "dry_run": true, "reason": "old" });
    for body in [dry, long_ago] {
        let report = client.post("/v1/admin/prune", body).await.expect(200);
        assert_eq!(report, json!({ "works": 0, "events": 0, "more": false }));
    }
    let now = json!({ "before": "2999-01-01T00:00:00Z", "reason": "old" });
    client.post("/v1/admin/prune", now).await.problem(400, "invalid");
    bed.server.close().await.unwrap();
}

async fn pages_follow_one_another(bed: Bed) {
    let client = bed.admin();
    for n in 0..7 {
        client.ingest(&format!("job-{n}")).await;
    }
    let ids = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap();
        items.iter().map(|work| work["source"]["id"].as_str().unwrap().to_owned()).collect()
    };
    let first = client.get("/v1/work?limit=5&state=queued,running&system=manual").await.expect(200);
    let next = format!("/v1/work?limit=5&cursor={}", first["next"].as_str().unwrap());
    let second = client.get(&next).await.expect(200);
    assert_eq!(ids(&first), ["job-6", "job-5", "job-4", "job-3", "job-2"]);
    assert_eq!((ids(&second), second.get("next")), (vec!["job-1".into(), "job-0".into()], None));

    let mut after = String::new();
    let mut positions = Vec::new();
    while positions.len() < 7 {
        let page = client.get(&format!("/v1/events?limit=3{after}")).await.expect(200);
        let items = page["items"].as_array().unwrap();
        positions.extend(items.iter().map(|event| event["position"].as_str().unwrap().to_owned()));
        after = format!("&after={}", page["next"].as_str().unwrap());
    }
    positions.sort();
    positions.dedup();
    assert_eq!(positions.len(), 7, "each event once");
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn a_ledger_in_use_is_copied_into_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let bed = Bed::sqlite_with(&format!("backups = {:?}", folder.path())).await;
    let client = bed.admin();
    client.ingest("a").await;
    let copy = folder.path().join("copy.db");
    let body = json!({ "name": "copy.db" });
    let report = client.post("/v1/admin/backup", body.clone()).await.expect(200);
    assert_eq!(report["bytes"].as_u64().unwrap(), std::fs::metadata(&copy).unwrap().len());
    assert!(client.post("/v1/admin/backup", body).await.status.is_client_error(), "nothing is overwritten");
    bed.server.close().await.unwrap();
}
