//! One tenant floods the daemon; another's calls are answered in their turn. Counted in responses rather than
//! time: a slow machine is slow for both.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use axum::{
    body::Body,
    http::{Method, Response},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::bed::{Bed, Client, held, work};

const SCOPES: [&str; 4] = ["view", "payload", "submit", "work"];

/// The number of concurrent calls of the hostile tenant.
const FLOOD: usize = 150;

/// Sends the same read many times at once, and counts those that were made: one that waits too long is
/// refused.
fn flood(client: &Client, path: &str) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let answered = Arc::new(AtomicUsize::new(0));
    let mut calls = JoinSet::new();
    for _ in 0..FLOOD {
        let (client, answered, path) = (client.clone(), answered.clone(), path.to_owned());
        calls.spawn(async move {
            let status = client.get(&path).await.status.as_u16();
            assert!([200, 429, 503].contains(&status), "{status}");
            answered.fetch_add(usize::from(status == 200), Relaxed);
        });
    }
    (calls, answered)
}

/// Enough work items to make a list of them slow.
async fn fill(client: &Client) {
    let item = |n: usize| json!({ "path": "/v1/work", "body": work(&n.to_string()) });
    let items: Vec<_> = (0..300).map(item).collect();
    client.post("/v1/batch", json!({ "items": items })).await.expect(200);
}

/// How many calls of a flood are answered while one read of another tenant waits.
async fn waited_for(hostile: &Client, path: &str, quiet: &Client, own: &str) -> usize {
    let (mut calls, answered) = flood(hostile, path);
    // The flood has started once its first call is answered.
    while answered.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    // A task like the others: the test itself is resumed after many of them.
    let read = tokio::spawn({
        let (quiet, answered) = (quiet.clone(), answered.clone());
        async move {
            let before = answered.load(Relaxed);
            let list = quiet.get("/v1/work").await.expect(200);
            (list, answered.load(Relaxed) - before)
        }
    });
    let (list, meanwhile) = read.await.unwrap();
    assert_eq!(list["items"][0]["id"], json!(own));
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    meanwhile
}

async fn a_tenant_that_floods_with_reads_waits_for_itself(bed: Bed) {
    let hostile = bed.client("machine", &SCOPES, Some(&["hostile"])).await;
    let quiet = bed.client("machine", &SCOPES, Some(&["quiet"])).await;
    fill(&hostile).await;
    let poll = format!("/v1/work/{}?wait=terminal&timeout_ms=1", hostile.ingest("poll").await);
    let own = quiet.ingest("own").await;
    for path in ["/v1/work?limit=1000", "/v1/work?limit=1000&correlation_id=wait=", &poll] {
        // A busy machine may resume one read late, but not each of three: without turns, all wait for the whole flood.
        let mut least = FLOOD;
        for _ in 0..3 {
            least = least.min(waited_for(&hostile, path, &quiet, &own).await);
            if least < FLOOD / 2 {
                break;
            }
        }
        // It has a few steps, and in each waits for the four turns of the other tenant.
        assert!(least < FLOOD / 2, "{path}: one read waited for {least} of another tenant");
    }
    bed.server.close().await.unwrap();
}

/// The responses to a call that is sent until it is refused, none of them read.
async fn unread(client: &Client, path: &str) -> (Vec<Response<Body>>, Response<Body>) {
    let mut answers = Vec::new();
    loop {
        let answer = client.router.clone().oneshot(client.request(Method::GET, path)).await.unwrap();
        if answer.status() != 200 {
            return (answers, answer);
        }
        answers.push(answer);
        assert!(answers.len() < 50, "nothing bounds them");
    }
}

async fn answers_that_nobody_reads_take_up_the_room_of_their_tenant_alone(bed: Bed) {
    let hostile = bed.client("machine", &SCOPES, Some(&["hostile"])).await;
    let quiet = bed.client("machine", &SCOPES, Some(&["quiet"])).await;
    for client in [&hostile, &quiet] {
        for n in 0..5 {
            let mut large = work(&n.to_string());
            large["input"] = json!("x".repeat(900_000));
            client.post("/v1/work", large).await.expect(201);
        }
    }
    let (answers, refused) = unread(&hostile, "/v1/events").await;
    assert_eq!(refused.status(), 429);
    // Five events of 900 kB each; the tenant has 32 MiB.
    assert_eq!(answers.len(), 7);
    let events = |client: &Client| {
        let client = client.clone();
        async move { client.get("/v1/events").await }
    };
    events(&quiet).await.expect(200);
    hostile.get("/v1/work").await.expect(200);
    // A batch is one response: its calls share its memory.
    let reads =
        [json!({ "method": "GET", "path": "/v1/events" }), json!({ "method": "GET", "path": "/v1/work" })];
    let batch = json!({ "items": reads });
    let answered = hostile.post("/v1/batch", batch.clone()).await.expect(200);
    assert_eq!(answered["items"][0]["body"]["retryable"], true, "{}", answered["items"][0]);
    drop(answers);
    let answered = hostile.post("/v1/batch", batch.clone()).await.expect(200);
    assert_eq!(answered["items"][0]["body"]["items"].as_array().unwrap().len(), 5);
    let send = |body: Value| {
        let mut request = hostile.request(Method::POST, "/v1/batch");
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        *request.body_mut() = Body::from(body.to_string());
        hostile.router.clone().oneshot(request)
    };
    let mut batches = Vec::new();
    for _ in 0..7 {
        batches.push(send(batch.clone()).await.unwrap());
    }
    events(&hostile).await.problem(429, "rate_limited");
    drop(batches);
    events(&hostile).await.expect(200);
    bed.server.close().await.unwrap();
}

async fn a_flood_of_reads_does_not_hold_up_renewals(bed: Bed) {
    let hostile = bed.client("machine", &SCOPES, Some(&["hostile"])).await;
    let quiet = bed.client("machine", &SCOPES, Some(&["quiet"])).await;
    fill(&hostile).await;
    quiet.ingest("own").await;
    let grant = quiet.claim("c").await;
    let (mut calls, answered) = flood(&hostile, "/v1/work?limit=1000");
    while answered.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let lease = held(&grant, json!({ "id": grant["work"]["id"] }));
    let renewed = quiet.post("/v1/work/renew", json!({ "leases": [lease] })).await.expect(200);
    assert!(renewed["leases"][0].get("problem").is_none(), "{renewed}");
    assert!(answered.load(Relaxed) < FLOOD, "a renewal waited for every read of another tenant");
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    bed.server.close().await.unwrap();
}

crate::bed::on_both_databases! {
    a_tenant_that_floods_with_reads_waits_for_itself,
    a_flood_of_reads_does_not_hold_up_renewals,
    answers_that_nobody_reads_take_up_the_room_of_their_tenant_alone,
}
