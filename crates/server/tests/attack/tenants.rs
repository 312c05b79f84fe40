//! Tenants: the items of another tenant are invisible on every route.

use serde_json::{Value, json};

use crate::bed::{Bed, held, id_of, work};

const ALL: [&str; 9] =
    ["view", "payload", "submit", "work", "resolve", "approve", "replay", "operate", "admin"];

#[tokio::test]
async fn anothers_ids_are_as_if_they_did_not_exist() {
    for bed in [Bed::memory().await, Bed::sqlite().await, Bed::postgres().await] {
        let ours = bed.client("person", &ALL, Some(&["ours"])).await;
        let theirs = bed.client("person", &ALL, Some(&["theirs"])).await;
        ours.ingest("a").await;
        let grant = ours.claim("c1").await;
        let id = id_of(&grant).to_owned();
        let proof = |more: Value| held(&grant, more);
        let free = ours.ingest("free").await;
        let lease = json!({ "id": id, "fence": grant["fence"], "token": grant["token"] });
        let renewed = theirs.post("/v1/work/renew", json!({ "leases": [lease] })).await.expect(200);
        assert_eq!(renewed["leases"][0]["problem"]["code"], "not_found");

        let worker = json!({ "id": "w2", "incarnation": "i2" });
        let step = proof(json!({ "verb": "begin", "input": 1 }));
        let reads = ["", "/events", "/explain", "?wait=terminal&timeout_ms=1"];
        for read in reads {
            theirs.get(&format!("/v1/work/{id}{read}")).await.problem(404, "not_found");
        }
        theirs.get(&format!("/v1/work/{}", &id[..16])).await.problem(404, "not_found");
        let verbs = [
            ("accept", proof(json!({ "strength": "weak" }))),
            ("progress", proof(json!({ "progress": 1 }))),
            ("release", proof(json!({}))),
            ("fail", proof(json!({ "error": { "class": "unknown" } }))),
            ("wait", proof(json!({ "waits": [{ "kind": "user", "ref": "q" }] }))),
            ("close-out", proof(json!({ "state": "succeeded", "no_output": true }))),
            ("complete", json!({ "token": "t", "state": "succeeded", "no_output": true })),
            ("cancel", json!({ "reason": "x" })),
            ("abandon", json!({ "reason": "x" })),
            ("retry-now", json!({ "reason": "x" })),
            ("rerun", json!({ "reason": "x" })),
            ("quarantine", json!({ "reason": "x" })),
            ("decide", json!({ "reason": "x", "decision": "requeue" })),
            ("approve", json!({ "approved": true, "seal": "0".repeat(64) })),
            ("reconnect", json!({})),
        ];
        for (verb, body) in verbs {
            let reply = theirs.post(&format!("/v1/work/{id}/{verb}"), body).await;
            reply.problem(404, "not_found");
            assert!(!reply.body.to_string().contains("ours"), "nothing is revealed: {}", reply.body);
        }
        theirs.put(&format!("/v1/work/{id}/steps/s"), step).await.problem(404, "not_found");
        let by_id = json!({ "worker": worker, "request_id": "r", "ids": [free] });
        theirs.post("/v1/work/claim", by_id).await.problem(404, "not_found");
        let any = json!({ "worker": worker, "request_id": "r2", "max": 10 });
        assert_eq!(theirs.post("/v1/work/claim", any).await.expect(200)["leases"], json!([]));

        let asked = json!({ "waits": [{ "kind": "user", "ref": "q" }] });
        let waiting = ours.post(&format!("/v1/work/{id}/wait"), proof(asked)).await.expect(200);
        let wait = waiting["waits"][0]["id"].as_str().unwrap();
        let answer = json!({ "payload": 1 });
        theirs.post(&format!("/v1/waits/{wait}/resolve"), answer).await.problem(404, "not_found");
        let by_token = json!({ "token": waiting["waits"][0]["token"], "payload": 1 });
        theirs.post("/v1/resolve", by_token).await.problem(404, "not_found");
        let by_ref = theirs.post("/v1/resolve", json!({ "ref": "q", "payload": 1 })).await.expect(200);
        assert_eq!(by_ref["kept"], true, "another tenant's reference is another reference");

        for list in ["/v1/work", "/v1/waits", "/v1/events?limit=1000", "/v1/workers"] {
            assert_eq!(theirs.get(list).await.expect(200)["items"], json!([]), "{list}");
        }
        for path in ["/v1/work?tenant=ours", "/v1/waits?tenant=ours"] {
            assert_eq!(theirs.get(path).await.expect(200)["items"], json!([]), "{path}");
        }
        for path in ["/v1/stuck", "/v1/stuck?tenant=ours"] {
            let stuck = theirs.get(path).await.expect(200);
            assert_eq!((&stuck["open"], &stuck["groups"]), (&json!(0), &json!([])), "{path}");
        }
        theirs.get("/v1/events?tenant=ours").await.problem(404, "not_found");
        let mut foreign = work("b");
        foreign["tenant"] = json!("ours");
        theirs.post("/v1/work", foreign).await.problem(404, "not_found");
        for everywhere in ["/metrics", "/v1/alerts"] {
            theirs.get(everywhere).await.problem(403, "forbidden");
        }
        theirs.post("/v1/admin/verify", json!({})).await.problem(403, "forbidden");
        let seen = ours.get(&format!("/v1/work/{id}")).await.expect(200);
        assert_eq!(
            (&seen["seq"], &seen["state"]),
            (&json!(3), &json!("waiting_user")),
            "nothing was touched"
        );
        bed.server.close().await.unwrap();
    }
}
