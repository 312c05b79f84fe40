//! Evidence of events: links that callers give, and the trace of a request.

use axum::http::Method;
use serde_json::{Value, json};

use crate::bed::{Bed, Client, Reply, held, on_every_store, work};

fn trace(n: u8) -> String {
    format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033{n:02x}-01")
}

fn link(n: u8) -> Value {
    json!({ "kind": "traceparent", "ref": trace(n) })
}

/// A call with a trace of its own.
async fn traced(client: &Client, trace: &str, method: Method, path: &str, body: Value) -> Reply {
    let mut request = client.request(method, path);
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    request.headers_mut().insert("traceparent", trace.parse().unwrap());
    *request.body_mut() = body.to_string().into();
    client.raw(request).await
}

on_every_store!(every_verb_leaves_its_trace, one_work_shows_the_last_of_its_evidence);

async fn every_verb_leaves_its_trace(bed: Bed) {
    let client = bed.admin();
    let post = async |n: u8, path: &str, body: Value| {
        traced(&client, &trace(n), Method::POST, path, body).await.expect(200)
    };
    let id = client.ingest("a").await;
    let path = |verb: &str| format!("/v1/work/{id}/{verb}");
    let claim = json!({ "worker": { "id": "w1", "incarnation": "i1" }, "request_id": "c1" });
    let grant = post(1, "/v1/work/claim", claim.clone()).await["leases"][0].take();
    post(2, &path("accept"), held(&grant, json!({ "strength": "strong" }))).await;
    post(3, &path("progress"), held(&grant, json!({ "progress": 1 }))).await;
    let step = held(&grant, json!({ "verb": "begin", "input": 1 }));
    traced(&client, &trace(4), Method::PUT, &path("steps/s"), step).await.expect(200);
    let wait = held(&grant, json!({ "waits": [{ "kind": "user", "ref": "q" }] }));
    let waiting = post(5, &path("wait"), wait.clone()).await;
    assert_eq!(post(6, &path("wait"), wait).await, waiting, "another trace is the same call");
    post(7, "/v1/resolve", json!({ "ref": "q", "payload": 1 })).await;
    post(8, &path("cancel"), json!({ "reason": "no" })).await;

    let events = client.get(&path("events")).await.expect(200);
    let told: Vec<(&str, &Value)> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["type"].as_str().unwrap(), &event["evidence"]))
        .collect();
    let one = |n: u8| json!([link(n)]);
    assert_eq!(
        told,
        [
            ("work_created", &Value::Null),
            ("claimed", &one(1)),
            ("accepted", &one(2)),
            ("progressed", &one(3)),
            ("step_begun", &one(4)),
            ("waiting_set", &one(5)),
            ("wait_resolved", &one(7)),
            ("cancelled", &one(8)),
        ]
    );
    let report = client.post("/v1/admin/verify", json!({})).await.expect(200);
    assert_eq!(report["faults"], json!([]));
    bed.server.close().await.unwrap();
}

async fn one_work_shows_the_last_of_its_evidence(bed: Bed) {
    let client = bed.admin();
    let mut new = work("a");
    new["evidence"] = json!([{ "kind": "ticket", "ref": "T-1" }]);
    let made = traced(&client, &trace(0), Method::POST, "/v1/work", new).await.expect(201);
    let path = format!("/v1/work/{}", made["work"]["id"].as_str().unwrap());
    assert_eq!(
        client.get(&path).await.expect(200)["evidence"],
        json!([{ "kind": "ticket", "ref": "T-1" }, link(0)])
    );
    assert_eq!(client.get("/v1/work").await.expect(200)["items"][0].get("evidence"), None, "not in lists");

    let grant = client.claim("c1").await;
    for n in 0..60_u8 {
        let progress = held(&grant, json!({ "progress": n }));
        // The first trace again: a link is shown once, at its last position.
        let of = if n == 30 { trace(0) } else { trace(n) };
        traced(&client, &of, Method::POST, &format!("{path}/progress"), progress).await.expect(200);
    }
    let shown = client.get(&path).await.expect(200)["evidence"].take();
    let expected: Vec<Value> = (10..60).map(|n| if n == 30 { link(0) } else { link(n) }).collect();
    assert_eq!(shown, json!(expected), "the last fifty, oldest first");
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn invalid_traces_are_ignored() {
    let bed = Bed::memory().await;
    let client = bed.admin();
    let made = traced(&client, "nonsense", Method::POST, "/v1/work", work("a")).await.expect(201);
    let id = made["work"]["id"].as_str().unwrap();
    assert_eq!(client.get(&format!("/v1/work/{id}")).await.expect(200).get("evidence"), None);
}
