//! Work items as of a past moment, over HTTP.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_store::ManualClock;

use crate::bed::{Bed, held, id_of, on_every_store, work};

on_every_store!(a_past_moment_is_told_as_such);

/// The server's time in its own events: the databases' clocks are not the test's.
async fn moment(client: &crate::bed::Client, id: &str, seq: usize) -> String {
    let events = client.get(&format!("/v1/work/{id}/events")).await.expect(200);
    events["items"][seq - 1]["at"].as_str().unwrap().to_owned()
}

async fn a_past_moment_is_told_as_such(bed: Bed) {
    let client = bed.admin();
    let id = client.ingest("a").await;
    let grant = client.claim("c1").await;
    let path = format!("/v1/work/{id}");
    let done = json!({ "state": "succeeded", "result": { "secret": 7 } });
    client.post(&format!("{path}/close-out"), held(&grant, done)).await.expect(200);
    let claimed_at = moment(&client, &id, 2).await;
    let ended_at = moment(&client, &id, 3).await;

    let past = client.get(&format!("{path}?at={ended_at}")).await.expect(200);
    assert_eq!((&past["state"], &past["result"]), (&json!("succeeded"), &json!({ "secret": 7 })));
    assert_eq!(past["as_of"]["at"], json!(ended_at));
    let not_recorded = past["as_of"]["not_recorded"].as_array().unwrap();
    assert!(not_recorded.contains(&json!("lease.expires_at")) && not_recorded.contains(&json!("due_at")));
    assert!(client.get(&path).await.expect(200).get("as_of").is_none(), "the present is no past moment");
    // Events of one millisecond have one moment.
    if claimed_at < ended_at {
        let past = client.get(&format!("{path}?at={claimed_at}")).await.expect(200);
        assert_eq!((&past["state"], &past["lease"]["worker"]), (&json!("running"), &json!("w1")));
        assert_eq!(past["lease"]["liveness"], "alive");
        let page = client.get(&format!("/v1/work?state=running&at={claimed_at}")).await.expect(200);
        assert_eq!((&page["items"][0]["id"], &page["as_of"]["at"]), (&json!(id), &json!(claimed_at)));
    }
    let page = client.get(&format!("/v1/work?state=succeeded&at={ended_at}")).await.expect(200);
    assert_eq!(page["items"][0]["id"], json!(id));
    assert!(page["items"][0].get("result").is_none(), "a list has no results, then as now");

    let (early, late) = ("2001-01-01T00:00:00.000Z", "2999-01-01T00:00:00.000Z");
    for (at, code) in [(early, "before_log"), (late, "in_future")] {
        client.get(&format!("{path}?at={at}")).await.problem(422, code);
        client.get(&format!("/v1/work?at={at}")).await.problem(422, code);
    }
    client.get(&format!("{path}?at=yesterday")).await.problem(400, "invalid");
    client.get(&format!("{path}?at={ended_at}&wait=terminal")).await.problem(400, "invalid");
    let due = format!("/v1/work?at={ended_at}&due_before={late}");
    client.get(&due).await.problem(422, "unsupported");

    let viewer = bed.client("person", &["view"], None).await;
    let seen = viewer.get(&format!("{path}?at={ended_at}")).await.expect(200);
    assert!(seen.get("result").is_none() && seen.get("input").is_none(), "payloads need their scope: {seen}");
    let theirs = bed.client("person", &["view"], Some(&["acme"])).await;
    theirs.get(&format!("{path}?at={ended_at}")).await.problem(404, "not_found");
    let empty = theirs.get(&format!("/v1/work?at={ended_at}")).await.expect(200);
    assert_eq!(empty["items"], json!([]));
    bed.server.close().await.unwrap();
}

/// A fleet as it was at a moment, page by page; work items that were pruned since are told.
#[tokio::test]
async fn a_fleet_is_listed_as_of_a_moment() {
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let bed = Bed::at(clock.clone(), "").await;
    let client = bed.admin();
    for n in 0..5 {
        client.post("/v1/work", work(&format!("job-{n}"))).await.expect(201);
        clock.advance(1_000);
    }
    let then = "2026-09-21T14:13:24.500Z";
    let grant = client.claim("c1").await;
    assert_eq!(id_of(&grant).len(), 34);
    let done = json!({ "state": "succeeded", "no_output": true });
    let path = format!("/v1/work/{}/close-out", id_of(&grant));
    client.post(&path, held(&grant, done)).await.expect(200);
    clock.advance(3 * 3_600_000);

    let now: Value = client.get("/v1/work?state=queued").await.expect(200);
    assert_eq!(now["items"].as_array().unwrap().len(), 4);
    let mut found = Vec::new();
    let mut next = String::new();
    loop {
        let page = client.get(&format!("/v1/work?state=queued&limit=2&at={then}{next}")).await.expect(200);
        assert!(page["as_of"].get("pruned_since").is_none());
        found.extend(page["items"].as_array().unwrap().iter().map(|item| item["source"]["id"].clone()));
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(found, ["job-4", "job-3", "job-2", "job-1", "job-0"], "all five were queued then");
    let prune = json!({ "before": "2026-09-21T15:00:00.000Z", "reason": "old" });
    assert_eq!(client.post("/v1/admin/prune", prune).await.expect(200)["works"], 1);
    let page = client.get(&format!("/v1/work?at={then}")).await.expect(200);
    assert_eq!((page["items"].as_array().unwrap().len(), &page["as_of"]["pruned_since"]), (4, &json!(true)));
    client.get(&format!("/v1/work/{}?at={then}", id_of(&grant))).await.problem(410, "no_longer_retained");
    bed.server.close().await.unwrap();
}
