//! The intake over HTTP: paused, shown, resumed, while recorded work goes on. And revoked waits.

use serde_json::{Value, json};

use crate::{
    bed::{Bed, Client, held, id_of, on_every_store, work},
    metrics::metric,
};

on_every_store!(a_pause_refuses_only_new_work_items, waits_of_a_session_are_called_off);

async fn set(client: &Client, paused: bool, tenant: Option<&str>) -> crate::bed::Reply {
    let mut body = json!({ "paused": paused, "reason": "the database moves" });
    if let Some(tenant) = tenant {
        body["tenant"] = json!(tenant);
    }
    client.post("/v1/intake", body).await
}

async fn a_pause_refuses_only_new_work_items(bed: Bed) {
    let admin = bed.admin();
    let id = admin.ingest("old").await;
    assert_eq!(admin.get("/v1/intake").await.expect(200)["pauses"], json!([]));
    let tried = admin.post("/v1/intake?dry_run=true", json!({ "paused": true, "reason": "a look" })).await;
    assert_eq!(tried.expect(200)["pauses"].as_array().unwrap().len(), 1);
    admin.post("/v1/intake", json!({ "paused": true, "reason": "" })).await.problem(422, "reason_missing");
    let standing = set(&admin, true, None).await.expect(200);
    assert_eq!(standing["pauses"][0]["actor"]["type"], "person");

    let refused = admin.post("/v1/work", work("new")).await;
    refused.problem(409, "intake_paused");
    assert_eq!(refused.body["retryable"], true);
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("the database moves") && detail.contains("`tenure intake resume"), "{detail}");
    let worker = json!({ "id": "w1", "incarnation": "i1" });
    let alone = json!({ "tool": "mail", "target": "x", "arguments": {}, "claim": { "worker": worker, "request_id": "r" } });
    admin.post("/v1/commands", alone).await.problem(409, "intake_paused");
    let items =
        json!([{ "path": "/v1/work", "body": work("old") }, { "path": "/v1/work", "body": work("new") }]);
    let batch = admin.post("/v1/batch", json!({ "items": items })).await.expect(200);
    assert_eq!(
        (&batch["items"][0]["status"], &batch["items"][1]["body"]["code"]),
        (&json!(200), &json!("intake_paused"))
    );
    assert_eq!(admin.post("/v1/work", work("old")).await.expect(200)["work"]["id"], *id);

    let grant = admin.claim("c1").await;
    let done = held(&grant, json!({ "state": "succeeded", "no_output": true }));
    admin.post(&format!("/v1/work/{}/close-out", id_of(&grant)), done).await.expect(200);
    let ready = admin.get("/readyz").await.expect(200);
    let check = ready["checks"].as_array().unwrap().iter().find(|check| check["name"] == "intake").unwrap();
    assert_eq!((&check["ok"], &check["detail"]), (&json!(true), &json!("paused for every tenant")));
    metric(&admin, r#"tenure_intake_paused{tenant=""} 1"#).await;

    let resumed = set(&admin, false, None).await.expect(200);
    assert_eq!(resumed["pauses"], json!([]));
    let acts: Vec<&Value> = resumed["changes"].as_array().unwrap().iter().map(|one| &one["paused"]).collect();
    assert_eq!(acts, [false, true]);
    admin.post("/v1/work", work("new")).await.expect(201);
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn a_tenants_own_intake_is_its_operators() {
    let bed = Bed::memory().await;
    let operator = bed.client("person", &["view", "operate", "submit"], Some(&["acme"])).await;
    set(&operator, true, None).await.problem(400, "invalid");
    set(&operator, true, Some("default")).await.problem(404, "not_found");
    set(&operator, true, Some("acme")).await.expect(200);
    let mut theirs = work("a");
    theirs["tenant"] = json!("acme");
    operator.post("/v1/work", theirs.clone()).await.problem(409, "intake_paused");
    bed.admin().post("/v1/work", work("a")).await.expect(201);
    let other = bed.client("person", &["view"], Some(&["default"])).await;
    assert_eq!(other.get("/v1/intake").await.expect(200), json!({ "pauses": [] }));
    set(&operator, false, Some("acme")).await.expect(200);
    operator.post("/v1/work", theirs).await.expect(201);
}

async fn waits_of_a_session_are_called_off(bed: Bed) {
    let admin = bed.admin();
    let mut ids = Vec::new();
    for (n, session) in ["chat", "other"].into_iter().enumerate() {
        let mut new = work(&n.to_string());
        new["session"] = json!(session);
        admin.post("/v1/work", new).await.expect(201);
        let grant = admin.claim(session).await;
        let wait = held(&grant, json!({ "waits": [{ "kind": "user", "ref": format!("ask-{n}") }] }));
        admin.post(&format!("/v1/work/{}/wait", id_of(&grant)), wait).await.expect(200);
        ids.push(id_of(&grant).to_owned());
    }
    let revoke = json!({ "session": "chat", "reason": "the user has left" });
    let tried = admin.post("/v1/waits/revoke?dry_run=true", revoke.clone()).await.expect(200);
    assert_eq!(tried["works"][0]["id"], *ids[0]);
    admin
        .post("/v1/waits/revoke", json!({ "session": "chat", "reason": " " }))
        .await
        .problem(422, "reason_missing");
    let machine = bed.client("machine", &["view", "work", "resolve"], None).await;
    machine.post("/v1/waits/revoke", revoke.clone()).await.problem(403, "forbidden");
    let revoked = admin.post("/v1/waits/revoke", revoke.clone()).await.expect(200);
    assert_eq!(revoked["works"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&revoked["works"][0]["id"], &revoked["works"][0]["state"]),
        (&json!(ids[0]), &json!("queued"))
    );
    let waits = admin.get("/v1/waits?session=chat").await.expect(200);
    assert_eq!(waits["items"][0]["state"], "cancelled");
    let left = admin.get(&format!("/v1/work/{}", ids[1])).await.expect(200);
    assert_eq!(left["state"], "waiting_user", "another session's stays");
    assert_eq!(admin.post("/v1/waits/revoke", revoke).await.expect(200)["works"], json!([]));
    let yes = json!({ "approved": true, "seal": "0".repeat(64) });
    let approve = admin.post(&format!("/v1/work/{}/approve", ids[1]), yes.clone()).await;
    approve.problem(409, "illegal_state");
    assert!(approve.body["detail"].as_str().unwrap().contains("tenure explain"), "{}", approve.body);
    admin.post(&format!("/v1/work/{}/cancel", ids[1]), json!({ "reason": "x" })).await.expect(200);
    let late = admin.post(&format!("/v1/work/{}/approve", ids[1]), yes).await;
    late.problem(409, "terminal");
    bed.server.close().await.unwrap();
}
