//! One tenant floods the daemon; another's calls are answered in their turn. Counted in answers, not in time: a machine
//! that is slow is slow for both.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use serde_json::json;
use tokio::task::JoinSet;

use crate::bed::{Bed, Client, held, work};

const SCOPES: [&str; 4] = ["view", "payload", "submit", "work"];

/// So many calls of the hostile tenant wait at once.
const FLOOD: usize = 150;

/// Sends the same read many times at once, and counts those that were made: one that waits for too long is refused.
fn flood(client: &Client, path: &'static str) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let answered = Arc::new(AtomicUsize::new(0));
    let mut calls = JoinSet::new();
    for _ in 0..FLOOD {
        let (client, answered) = (client.clone(), answered.clone());
        calls.spawn(async move {
            let status = client.get(path).await.status.as_u16();
            assert!([200, 429, 503].contains(&status), "{status}");
            answered.fetch_add(usize::from(status == 200), Relaxed);
        });
    }
    (calls, answered)
}

/// Works enough to make a list of them slow.
async fn fill(client: &Client) {
    let item = |n: usize| json!({ "path": "/v1/work", "body": work(&n.to_string()) });
    let items: Vec<_> = (0..300).map(item).collect();
    client.post("/v1/batch", json!({ "items": items })).await.expect(200);
}

async fn a_tenant_that_floods_with_reads_waits_for_itself(bed: Bed) {
    let hostile = bed.client("machine", &SCOPES, Some(&["hostile"])).await;
    let quiet = bed.client("machine", &SCOPES, Some(&["quiet"])).await;
    fill(&hostile).await;
    let own = quiet.ingest("own").await;
    let (mut calls, answered) = flood(&hostile, "/v1/work?limit=1000");
    // The flood is under way once its first call is answered.
    while answered.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let before = answered.load(Relaxed);
    let list = quiet.get("/v1/work").await.expect(200);
    assert_eq!(list["items"][0]["id"], json!(own));
    let meanwhile = answered.load(Relaxed) - before;
    // It has a few steps, and waits in each for the four of the other tenant that have their turn.
    assert!(meanwhile < FLOOD / 2, "one read waited for {meanwhile} of another tenant");
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
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
}
