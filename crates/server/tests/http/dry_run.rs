//! `?dry_run=true` on every route that changes something: the real response, and nothing written.

use axum::http::Method;
use serde_json::{Value, json};

use crate::bed::{Bed, held, id_of, on_every_store, work};

on_every_store!(verbs_show_their_effect);

async fn verbs_show_their_effect(bed: Bed) {
    let admin = bed.admin();
    let tried = admin.post("/v1/work?dry_run=true", work("one")).await;
    assert_eq!(tried.headers["tenure-dry-run"], "true");
    assert_eq!(tried.expect(201)["work"]["state"], "queued");
    assert_eq!(admin.get("/v1/work").await.expect(200)["items"], json!([]));
    let id = admin.ingest("one").await;
    assert_eq!(admin.post("/v1/work?dry_run=true", work("one")).await.expect(200)["work"]["id"], *id);
    let mut other = work("one");
    other["input"] = json!("other");
    admin.post("/v1/work?dry_run=true", other).await.problem(409, "idempotency_mismatch");

    let grant = admin.claim("r1").await;
    let at = |verb: &str| format!("/v1/work/{}/{verb}?dry_run=true", id_of(&grant));
    let seen = admin.get(&format!("/v1/work/{id}")).await.expect(200);
    let done = held(&grant, json!({ "state": "succeeded", "no_output": true }));
    assert_eq!(admin.post(&at("close-out"), done.clone()).await.expect(200)["state"], "succeeded");
    let cancel = json!({ "reason": "enough" });
    assert_eq!(admin.post(&at("cancel"), cancel).await.expect(200)["state"], "cancel_requested");
    admin.post(&at("cancel"), json!({ "reason": " " })).await.problem(422, "reason_missing");
    let step = held(&grant, json!({ "verb": "begin", "input": 1 }));
    admin.put(&at("steps/draft"), step).await.expect(200);
    let drain = json!({ "reason": "the host goes", "levers": ["request_cancel"] });
    let report = admin.post("/v1/workers/w1/drain?dry_run=true", drain).await.expect(200);
    assert_eq!(report["deferred"][0]["work"], *id, "{report}");
    let item = json!({ "path": at("close-out"), "body": done });
    let batch = admin.post("/v1/batch", json!({ "items": [item] })).await.expect(200);
    assert_eq!(batch["items"][0]["body"]["state"], "succeeded");
    assert_eq!(admin.get(&format!("/v1/work/{id}")).await.expect(200)["seq"], seen["seq"]);

    let set = json!({ "reason": "asked", "cron": "0 7 * * *",
        "template": { "kind": "digest", "disposition": "rerunnable", "input": null } });
    admin.put("/v1/schedules/digest?dry_run=true", set).await.expect(201);
    admin.get("/v1/schedules/digest").await.problem(404, "not_found");
    let gone = "/v1/schedules/digest?reason=old&dry_run=true";
    admin.send(Method::DELETE, gone, None).await.problem(404, "not_found");
    let plainly = admin.post("/v1/work?dry_run=false", work("two")).await;
    assert!(!plainly.headers.contains_key("tenure-dry-run"));
    plainly.expect(201);
    let prune = json!({ "before": "2020-01-01T00:00:00Z", "reason": "old" });
    admin.post("/v1/admin/prune?dry_run=true", prune).await.expect(200);
    assert_eq!(admin.get("/v1/work").await.expect(200)["items"].as_array().unwrap().len(), 2);
}

/// Calls that grant something, and backups, have no dry run, and refuse it without any effect.
#[tokio::test]
async fn calls_without_a_dry_run_refuse_it() {
    let bed = Bed::memory().await;
    let admin = bed.admin();
    let contract: Value = serde_json::from_str(&tenure_server::openapi()).unwrap();
    let mut refusing = Vec::new();
    for (path, item) in contract["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let named = |one: &Value| one["name"] == "dry_run" && one["in"] == "query";
            let offered =
                operation["parameters"].as_array().is_some_and(|parameters| parameters.iter().any(named));
            if method == "get" {
                assert!(!offered, "{path} changes nothing");
                continue;
            }
            let name = format!("{} {path}", method.to_uppercase());
            let path = path.replace("{id}", "cr_0").replace("{name}", "n").replace("{step}", "s");
            let method: Method = method.to_uppercase().parse().unwrap();
            let tried = admin.send(method.clone(), &format!("{path}?dry_run=true"), Some(json!({}))).await;
            if offered {
                assert_ne!(tried.body["code"], "unsupported", "{name}");
            } else {
                tried.problem(422, "unsupported");
                refusing.push(name);
            }
            for bad in ["dry_run=yes", "dry_run", "dry_run=true&dry_run=false"] {
                let reply = admin.send(method.clone(), &format!("{path}?{bad}"), Some(json!({}))).await;
                reply.problem(400, "invalid");
            }
        }
    }
    assert_eq!(
        refusing,
        [
            "POST /v1/admin/backup",
            "POST /v1/batch",
            "POST /v1/commands",
            "POST /v1/commands/claim",
            "POST /v1/commands/{id}/dispatch",
            "POST /v1/tokens",
            "DELETE /v1/tokens/{id}",
            "POST /v1/work/claim"
        ]
    );
    let mut claiming = work("one");
    claiming["claim"] = json!({ "worker": { "id": "w1", "incarnation": "i1" }, "request_id": "r1" });
    admin.post("/v1/work?dry_run=true", claiming).await.problem(422, "unsupported");
    assert_eq!(admin.get("/v1/work").await.expect(200)["items"], json!([]));
}
