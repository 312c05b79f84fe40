//! Batches: many calls, each answered on its own, few commits.

use serde_json::{Value, json};

use crate::bed::{Bed, work};

#[tokio::test]
async fn a_thousand_ingests_share_their_commits() {
    for bed in [Bed::sqlite().await, Bed::postgres().await] {
        let before = bed.server.ledger().stats().groups;
        let item = |n: usize| json!({ "path": "/v1/work", "body": work(&format!("job-{n}")) });
        let items: Vec<Value> = (0..1_000).map(item).collect();
        let reply = bed.admin().post("/v1/batch", json!({ "items": items })).await.expect(200);
        let answers = reply["items"].as_array().unwrap();
        assert_eq!(answers.len(), 1_000);
        for (n, answer) in answers.iter().enumerate() {
            assert_eq!(answer["status"], 201, "{answer}");
            assert_eq!(answer["body"]["work"]["source"]["id"], format!("job-{n}"), "in the order given");
        }
        let groups = bed.server.ledger().stats().groups - before;
        assert!(groups < 100, "{groups} commits for 1,000 works");
        bed.server.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_refusal_costs_the_others_nothing() {
    let bed = Bed::memory().await;
    let id = bed.admin().ingest("a").await;
    let claim = json!({ "worker": { "id": "w", "incarnation": "i" }, "request_id": "r" });
    let items = json!([
        { "path": "/v1/work", "body": work("b") },
        { "path": "/v1/work", "body": { "colour": 1 } },
        { "method": "GET", "path": format!("/v1/work/{id}") },
        { "path": "/v1/work/claim", "body": claim },
        { "method": "GET", "path": format!("/v1/work/{id}?wait=terminal") },
        { "path": "/v1/batch", "body": { "items": [] } },
        { "method": "GET", "path": "/metrics" },
        { "path": format!("/v1/work/{id}/cancel"), "body": { "reason": "no longer" } },
        { "path": "not a path" },
    ]);
    let reply = bed.admin().post("/v1/batch", json!({ "items": items })).await.expect(200);
    let status = |n: usize| reply["items"][n]["status"].as_u64().unwrap();
    let statuses: Vec<u64> = (0..9).map(status).collect();
    assert_eq!(statuses, [201, 400, 200, 400, 400, 400, 400, 200, 400], "{reply}");
    assert_eq!(reply["items"][1]["body"]["code"], "unknown_field");
}

#[tokio::test]
async fn each_call_needs_its_own_scope_and_there_are_not_too_many() {
    let bed = Bed::memory().await;
    let submitter = bed.client("machine", &["submit"], None).await;
    let items = json!([
        { "path": "/v1/work", "body": work("a") },
        { "method": "GET", "path": "/v1/work" },
    ]);
    let reply = submitter.post("/v1/batch", json!({ "items": items })).await.expect(200);
    assert_eq!((&reply["items"][0]["status"], &reply["items"][1]["status"]), (&json!(201), &json!(403)));
    let many: Vec<Value> = (0..1_001).map(|_| json!({ "method": "GET", "path": "/v1/work" })).collect();
    bed.admin().post("/v1/batch", json!({ "items": many })).await.problem(400, "invalid");
}
