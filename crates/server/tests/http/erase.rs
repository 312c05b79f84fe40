//! Erasure over HTTP.

use serde_json::json;

use crate::bed::{Bed, held, on_every_store, work};

on_every_store!(content_is_erased_through_the_public_door);

async fn content_is_erased_through_the_public_door(bed: Bed) {
    let admin = bed.admin();
    let mut ids = Vec::new();
    for (n, session) in [("a", "chat"), ("b", "chat"), ("c", "other")] {
        let mut new = work(n);
        new["session"] = json!(session);
        new["input"] = json!({ "canary": n });
        let id = admin.post("/v1/work", new).await.expect(201)["work"]["id"].as_str().unwrap().to_owned();
        let grant = admin.claim(n).await;
        let result = json!({ "state": "succeeded", "result": { "canary": n }, "warnings": [] });
        admin.post(&format!("/v1/work/{id}/close-out"), held(&grant, result)).await.expect(200);
        ids.push(id);
    }
    let path = format!("/v1/work/{}", ids[0]);
    let before = admin.get(&path).await.expect(200);
    assert!(before["input"]["canary"] == "a" && before.get("erased_at").is_none());

    let one = json!({ "work": ids[0], "reason": "their wish" });
    let tried = admin.post("/v1/admin/erase?dry_run=true", one.clone()).await.expect(200);
    assert_eq!(tried["works"], 1);
    assert_eq!(admin.get(&path).await.expect(200), before, "a dry run erases nothing");
    let report = admin.post("/v1/admin/erase", one.clone()).await.expect(200);
    assert_eq!((&report["works"], &report["kept"]), (&json!(1), &json!(0)));
    assert!(report["overwritten"].is_boolean() && report.get("next").is_none());
    admin.post("/v1/admin/erase", one).await.expect(200);
    let after = admin.get(&path).await.expect(200);
    assert!(after.get("input").is_none() && after.get("result").is_none(), "{after}");
    assert!(after["erased_at"].is_string());
    assert_eq!(after["input_hash"], before["input_hash"]);
    let events = admin.get(&format!("{path}/events")).await.expect(200);
    let events = events["items"].as_array().unwrap();
    assert_eq!(events.len(), 4, "a repeat adds nothing");
    assert_eq!((&events[0]["erased"], events[0].get("payload")), (&json!(true), None));
    let record = &events[3];
    assert_eq!((&record["type"], &record["message"]), (&json!("content_erased"), &json!("their wish")));
    assert_eq!((&record["actor"]["type"], record.get("erased")), (&json!("person"), None));

    let chat = json!({ "tenant": "default", "session": "chat", "reason": "their wish" });
    assert_eq!(admin.post("/v1/admin/erase", chat).await.expect(200)["works"], 1);
    admin.ingest("open").await;
    let all = json!({ "tenant": "default", "reason": "the end", "limit": 1 });
    let first = admin.post("/v1/admin/erase", all.clone()).await.expect(200);
    assert_eq!((&first["works"], &first["kept"]), (&json!(0), &json!(1)));
    let mut rest = all;
    (rest["cursor"], rest["limit"]) = (first["next"].clone(), json!(1_000));
    assert_eq!(admin.post("/v1/admin/erase", rest).await.expect(200)["works"], 1);
    let gone = admin.get("/v1/work").await.expect(200).to_string();
    assert!(!gone.contains("canary"), "{gone}");
    assert_eq!(admin.post("/v1/admin/verify", json!({})).await.expect(200)["faults"], json!([]));

    let erase = async |body| admin.post("/v1/admin/erase", body).await;
    erase(json!({ "reason": "what" })).await.problem(400, "invalid");
    erase(json!({ "work": ids[0], "tenant": "default", "reason": "both" })).await.problem(400, "invalid");
    erase(json!({ "session": "chat", "reason": "whose" })).await.problem(400, "invalid");
    erase(json!({ "work": ids[0] })).await.problem(422, "reason_missing");
    erase(json!({ "work": ids[0], "reason": "x", "all": true })).await.problem(400, "unknown_field");
    let open = admin.get("/v1/work?state=queued").await.expect(200)["items"][0]["id"].clone();
    erase(json!({ "work": open, "reason": "early" })).await.problem(409, "illegal_state");
    let machine = bed.client("machine", &["admin"], None).await;
    let by_machine = json!({ "work": ids[1], "reason": "cleaning" });
    machine.post("/v1/admin/erase", by_machine.clone()).await.problem(403, "person_required");
    let operator = bed.client("person", &["operate"], None).await;
    operator.post("/v1/admin/erase", by_machine.clone()).await.problem(403, "forbidden");
    let theirs = bed.client("person", &["admin"], Some(&["acme"])).await;
    theirs.post("/v1/admin/erase", by_machine).await.problem(404, "not_found");
    bed.server.close().await.unwrap();
}
