//! Rights that must not be lost, and rights that must not be gained indirectly.

use axum::http::Method;
use serde_json::json;

use crate::bed::{Bed, held, id_of, on_every_store};

on_every_store!(
    the_last_admin_cannot_be_locked_out,
    the_scope_to_resolve_does_not_approve,
    an_early_answer_that_does_not_match_is_reported,
);

async fn the_last_admin_cannot_be_locked_out(bed: Bed) {
    let admin = bed.admin();
    let own = admin.get("/v1/tokens").await.expect(200)["items"][0]["id"].as_str().unwrap().to_owned();
    // No substitutes: a machine, a person with fewer scopes, one with tenants, and one whose credential
    // expires.
    let every = ["view", "payload", "submit", "work", "resolve", "approve", "replay", "operate", "admin"];
    bed.client("machine", &["admin"], None).await;
    bed.client("person", &["admin"], None).await;
    bed.client("person", &["admin"], Some(&["acme"])).await;
    let over = json!({ "name": "o", "kind": "person", "scopes": ["admin"], "expires_at": "2001-01-01T00:00:00.000Z" });
    admin.post("/v1/tokens", over).await;
    let revoke =
        async |id: &str| admin.send(Method::DELETE, &format!("/v1/tokens/{id}?reason=lost"), None).await;
    let refused = revoke(&own).await;
    refused.problem(409, "illegal_state");
    assert!(refused.body["detail"].as_str().unwrap().contains("tenure token create"), "{}", refused.body);
    let other = json!({ "name": "second", "kind": "person", "scopes": every });
    let made = admin.post("/v1/tokens", other).await.expect(201);
    revoke(made["token"]["id"].as_str().unwrap()).await.expect(200);
    revoke(&own).await.problem(409, "illegal_state");
    let third = bed.client("person", &every, None).await;
    revoke(&own).await.expect(200);
    assert_eq!(admin.get("/v1/tokens").await.status, 401);
    third.get("/v1/tokens").await.expect(200);
    bed.server.close().await.unwrap();
}

async fn the_scope_to_resolve_does_not_approve(bed: Bed) {
    let client = bed.admin();
    let clerk = bed.client("person", &["resolve", "view"], None).await;
    let bot = bed.client("machine", &["resolve", "view"], None).await;
    client.ingest("a").await;
    let grant = client.claim("c1").await;
    let path = |verb: &str| format!("/v1/work/{}/{verb}", id_of(&grant));
    for (who, reference) in [(&clerk, "by-clerk"), (&bot, "by-bot"), (&client, "by-boss")] {
        let early = json!({ "ref": reference, "payload": { "approved": true } });
        assert_eq!(who.post("/v1/resolve", early).await.expect(200)["kept"], true);
    }
    let asks = json!([
        { "kind": "approval", "ref": "by-clerk" },
        { "kind": "approval", "ref": "by-bot" },
        { "kind": "approval", "ref": "by-boss" },
    ]);
    let waiting = client.post(&path("wait"), held(&grant, json!({ "waits": asks }))).await.expect(200);
    assert_eq!(waiting["answers"].as_array(), None, "an early answer does not approve: {waiting}");
    let events = client.get(&path("events")).await.expect(200);
    let refusals: Vec<_> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["type"] == "early_answer_refused")
        .map(|event| (event["data"]["ref"].clone(), event["data"]["why"].clone()))
        .collect();
    let names = ["by-clerk", "by-bot", "by-boss"];
    assert_eq!(refusals, names.map(|name| (json!(name), json!("not_approved"))));

    let wait = waiting["waits"][0]["id"].as_str().unwrap();
    let token = waiting["waits"][0]["token"].clone();
    for who in [&clerk, &bot] {
        let answer = json!({ "ref": "by-clerk", "payload": true });
        who.post("/v1/resolve", answer).await.problem(409, "seal_broken");
        who.post("/v1/resolve", json!({ "token": token, "payload": true })).await.problem(403, "forbidden");
        let by_id = format!("/v1/waits/{wait}/resolve");
        who.post(&by_id, json!({ "payload": true })).await.problem(403, "forbidden");
        let yes = json!({ "approved": true, "seal": "0".repeat(64) });
        who.post(&path("approve"), yes).await.problem(403, "forbidden");
    }
    assert_eq!(
        client.get(&format!("/v1/work/{}", id_of(&grant))).await.expect(200)["state"],
        "waiting_approval"
    );
    assert_eq!(client.post("/v1/admin/verify", json!({})).await.expect(200)["faults"], json!([]));
    bed.server.close().await.unwrap();
}

async fn an_early_answer_that_does_not_match_is_reported(bed: Bed) {
    let client = bed.admin();
    client.ingest("a").await;
    let grant = client.claim("c1").await;
    let path = |verb: &str| format!("/v1/work/{}/{verb}", id_of(&grant));
    client.post("/v1/resolve", json!({ "ref": "q", "payload": 7 })).await.expect(200);
    client.post("/v1/resolve", json!({ "ref": "r", "payload": "seven" })).await.expect(200);
    let schema = json!({ "type": "string" });
    let asks = json!([
        { "kind": "user", "ref": "q", "schema": schema },
        { "kind": "user", "ref": "r", "schema": schema },
    ]);
    let ask = held(&grant, json!({ "waits": asks }));
    let waiting = client.post(&path("wait"), ask.clone()).await.expect(200);
    assert_eq!(
        (&waiting["work"]["state"], &waiting["answers"][0]["ref"]),
        (&json!("waiting_user"), &json!("r"))
    );
    assert_eq!(client.post(&path("wait"), ask).await.expect(200), waiting, "a repeat returns the same");
    let events = client.get(&path("events")).await.expect(200);
    let told =
        events["items"].as_array().unwrap().iter().find(|e| e["type"] == "early_answer_refused").unwrap();
    assert_eq!((&told["data"]["why"], &told["payload"]), (&json!("schema"), &json!(7)));
    assert!(told["message"].as_str().unwrap().contains("does not match"), "{told}");
    bed.server.close().await.unwrap();
}
