//! Large responses end early, and say how to continue.

use serde_json::{Value, json};

use crate::bed::{Bed, Client, held, id_of, on_every_store, work};

/// The maximum size of a page: eight mebibytes and its last item, with some space for the names.
const PAGE: usize = 10 << 20;
const LARGE: usize = 900_000;
/// Work items that together exceed a page.
const MANY: usize = 12;

on_every_store!(a_claim_of_large_works_grants_fewer, pages_of_large_events_end_early);

async fn ingest(client: &Client, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..count {
        let mut new = work(&n.to_string());
        new["input"] = json!("x".repeat(LARGE));
        let made = client.post("/v1/work", new).await.expect(201);
        ids.push(made["work"]["id"].as_str().unwrap().to_owned());
    }
    ids
}

fn length(items: &Value) -> usize {
    assert!(items.to_string().len() < PAGE, "a page has {} bytes", items.to_string().len());
    items.as_array().unwrap().len()
}

async fn a_claim_of_large_works_grants_fewer(bed: Bed) {
    let client = bed.admin();
    let ids = ingest(&client, MANY).await;
    let by_id = json!({ "worker": { "id": "w1", "incarnation": "i1" }, "request_id": "all", "ids": ids });
    client.post("/v1/work/claim", by_id).await.problem(400, "invalid");
    let mut held = 0;
    for request in ["r1", "r2", "r3"] {
        let claim =
            json!({ "worker": { "id": "w1", "incarnation": "i1" }, "request_id": request, "max": 100 });
        let granted = client.post("/v1/work/claim", claim).await.expect(200)["leases"].take();
        let count = length(&granted);
        assert!((count > 0) == (held < MANY), "{count} after {held}");
        held += count;
    }
    assert_eq!(held, MANY);
    bed.server.close().await.unwrap();
}

async fn pages_of_large_events_end_early(bed: Bed) {
    let client = bed.admin();
    ingest(&client, MANY).await;
    let mut after = String::new();
    let mut seen = 0;
    loop {
        let page = client.get(&format!("/v1/events?limit=1000{after}")).await.expect(200);
        match length(&page["items"]) {
            0 => break,
            more => seen += more,
        }
        after = format!("&after={}", page["next"].as_str().unwrap());
    }
    assert_eq!(seen, MANY, "none is skipped");

    let grant = client.claim("c1").await;
    let path = |verb: &str| format!("/v1/work/{}/{verb}", id_of(&grant));
    for n in 0..MANY {
        let text = "x".repeat(LARGE);
        let mail = json!({ "tool": "mail", "target": n.to_string(), "arguments": { "text": text } });
        client.post(&path("commands"), held(&grant, mail)).await.expect(201);
    }
    let mut numbers = Vec::new();
    let mut after = 0.to_string();
    loop {
        let page = client.get(&path(&format!("events?limit=1000&after={after}"))).await.expect(200);
        length(&page["items"]);
        numbers.extend(page["items"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        after = next.to_owned();
    }
    assert_eq!(numbers, (1..=2 + MANY as u64).collect::<Vec<_>>());
    assert_eq!(client.post("/v1/admin/verify", json!({})).await.expect(200)["faults"], json!([]));
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn the_answers_of_a_batch_share_a_budget() {
    let bed = Bed::memory().await;
    let client = bed.admin();
    let id = &ingest(&client, 1).await[0];
    let items = vec![json!({ "method": "GET", "path": format!("/v1/work/{id}") }); 50];
    let reply = client.post("/v1/batch", json!({ "items": items })).await.expect(200);
    let (fit, rest): (Vec<&Value>, Vec<&Value>) =
        reply["items"].as_array().unwrap().iter().partition(|answer| answer["status"] == 200);
    assert!((30..40).contains(&fit.len()), "{}", fit.len());
    assert!(rest.iter().all(|answer| answer["body"]["code"] == "too_large"));
    let heavy = json!({ "method": "POST", "path": "/v1/resolve",
        "body": { "ref": "r", "payload": "x".repeat(9 << 20) } });
    client.post("/v1/batch", json!({ "items": [heavy] })).await.problem(413, "too_large");
}
