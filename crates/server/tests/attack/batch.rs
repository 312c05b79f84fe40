//! Batches run in the given order, and refuse calls that they cannot contain.

use serde_json::{Value, json};

use crate::bed::{Bed, on_every_store, work};

on_every_store!(
    reports_come_before_the_close_out_that_follows_them,
    a_read_sees_the_writes_before_it_and_none_after,
    the_same_source_twice_is_recorded_by_the_first,
);

fn statuses(reply: &Value) -> Vec<u64> {
    let items = reply["items"].as_array().unwrap();
    items.iter().map(|item| item["status"].as_u64().unwrap()).collect()
}

async fn reports_come_before_the_close_out_that_follows_them(bed: Bed) {
    let admin = bed.admin();
    let mut leases = Vec::new();
    for n in 0..30 {
        admin.ingest(&format!("w{n}")).await;
        leases.push(admin.claim(&format!("r{n}")).await);
    }
    let call = |lease: &Value, verb: &str, more: Value| {
        let mut body = json!({ "fence": lease["fence"], "token": lease["token"] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "path": format!("/v1/work/{}/{verb}", lease["work"]["id"].as_str().unwrap()), "body": body })
    };
    let mut items = Vec::new();
    for n in 0..30 {
        items.extend(leases.iter().map(|lease| call(lease, "progress", json!({ "progress": { "n": n } }))));
    }
    items.extend(
        leases
            .iter()
            .map(|lease| call(lease, "close-out", json!({ "state": "succeeded", "no_output": true }))),
    );
    let reply = admin.post("/v1/batch", json!({ "items": items })).await.expect(200);
    assert_eq!(statuses(&reply), vec![200; 930], "no report is refused because its close-out ran first");
    for lease in &leases {
        let id = lease["work"]["id"].as_str().unwrap();
        let events = admin.get(&format!("/v1/work/{id}/events?limit=100")).await.expect(200);
        let told: Vec<&Value> = events["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["type"] == "progressed")
            .map(|event| &event["payload"]["n"])
            .collect();
        assert_eq!(told, (0..30).map(|n| json!(n)).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    }
    bed.server.close().await.unwrap();
}

async fn a_read_sees_the_writes_before_it_and_none_after(bed: Bed) {
    let admin = bed.admin();
    let id = admin.ingest("a").await;
    let read = json!({ "method": "GET", "path": format!("/v1/work/{id}") });
    let list = json!({ "method": "GET", "path": "/v1/work?kind=job" });
    let items = json!([
        read,
        { "path": format!("/v1/work/{id}/cancel"), "body": { "reason": "no longer" } },
        read,
        list,
        { "path": "/v1/work", "body": work("b") },
        list,
        { "path": "/v1/work", "body": work("c") },
    ]);
    let reply = admin.post("/v1/batch", json!({ "items": items })).await.expect(200);
    let body = |n: usize| &reply["items"][n]["body"];
    assert_eq!((&body(0)["state"], &body(2)["state"]), (&json!("queued"), &json!("cancelled")), "{reply}");
    let count = |n: usize| body(n)["items"].as_array().unwrap().len();
    assert_eq!((count(3), count(5)), (1, 2), "{reply}");
    bed.server.close().await.unwrap();
}

async fn the_same_source_twice_is_recorded_by_the_first(bed: Bed) {
    let items: Vec<Value> =
        (0..100).map(|n| json!({ "path": "/v1/work", "body": work(&format!("s{}", n % 50)) })).collect();
    let reply = bed.admin().post("/v1/batch", json!({ "items": items })).await.expect(200);
    let expected: Vec<u64> = (0..100).map(|n| if n < 50 { 201 } else { 200 }).collect();
    assert_eq!(statuses(&reply), expected);
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn claims_long_polls_and_streams_cannot_hide_in_a_batch() {
    let bed = Bed::memory().await;
    let admin = bed.admin();
    let id = admin.ingest("a").await;
    let claim = json!({ "worker": { "id": "w", "incarnation": "i" }, "request_id": "r" });
    for path in [
        "/v1/work/claim",
        "/v1/work/claim#",
        "/v1/work/claim#x",
        "/v1/work/claim?#",
        "http://localhost/v1/work/claim",
        "//localhost/v1/work/claim",
        "/v1/commands/claim#",
        "/v1/batch#",
        "*",
        "",
    ] {
        let items = json!([{ "path": path, "body": claim }]);
        let reply = admin.post("/v1/batch", json!({ "items": items })).await.expect(200);
        assert_eq!(reply["items"][0]["body"]["code"], "invalid", "{path}: {reply}");
    }
    for path in [
        "/v1/events/stream#".to_owned(),
        "/v1/events/stream?after=x#y".to_owned(),
        format!("/v1/work/{id}?wait=terminal#"),
        format!("/v1/work/{id}?w%61it=terminal"),
        "/metrics".to_owned(),
    ] {
        let items = json!([{ "method": "GET", "path": path }]);
        let reply = admin.post("/v1/batch", json!({ "items": items })).await.expect(200);
        assert_eq!(reply["items"][0]["status"], 400, "{path}: {reply}");
    }
    let held = admin.get(&format!("/v1/work/{id}")).await.expect(200);
    assert_eq!(held["state"], "queued", "nobody got it");
}
