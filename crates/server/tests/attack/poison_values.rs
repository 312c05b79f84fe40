//! Values that could be written but not read again, and rows that cannot be read.

use serde_json::{Value, json};

use crate::bed::{Bed, held, id_of, on_every_store, work};

/// Every list, and verify, still works.
async fn all_is_well(bed: &Bed) {
    let client = bed.admin();
    for path in ["/v1/work", "/v1/waits", "/v1/commands", "/v1/events", "/v1/tokens", "/v1/schedules"] {
        let page = client.get(path).await.expect(200);
        assert!(page.get("unreadable").is_none(), "{path}: {page}");
    }
    let report = client.post("/v1/admin/verify", json!({})).await.expect(200);
    assert_eq!(report["faults"], json!([]), "{report}");
}

async fn no_accepted_number_makes_a_work_unreadable(bed: Bed) {
    let client = bed.admin();
    client.ingest("one").await;
    let grant = client.claim("r1").await;
    let wait = |more: Value| {
        let mut wait = json!({ "kind": "user", "ref": "q", "on_timeout": "default", "default": 1 });
        wait.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        held(&grant, json!({ "waits": [wait] }))
    };
    let path = format!("/v1/work/{}/wait", id_of(&grant));
    for number in [1e17, -1e20, 9_007_199_254_740_994.0, 18_446_744_073_709_551_615.0] {
        client.post(&path, wait(json!({ "default": number }))).await.problem(422, "payload_refused");
        let schema = json!({ "schema": { "enum": [1, number] } });
        client.post(&path, wait(schema)).await.problem(422, "payload_refused");
        let mut input = work("two");
        input["input"] = json!([number]);
        client.post("/v1/work", input).await.problem(422, "payload_refused");
    }
    all_is_well(&bed).await;
    let fine =
        json!({ "default": [1e21, 1.5, -0.0, 9_007_199_254_740_992.0], "schema": { "type": "array" } });
    client.post(&path, wait(fine)).await.expect(200);
    all_is_well(&bed).await;
    let waits = client.get("/v1/waits").await.expect(200);
    assert_eq!(waits["items"][0]["default"], json!([1e21, 1.5, 0, 9_007_199_254_740_992_u64]), "{waits}");
}

on_every_store!(no_accepted_number_makes_a_work_unreadable);

#[tokio::test]
async fn one_unreadable_row_hides_no_other_from_anybody() {
    let bed = Bed::sqlite().await;
    let client = bed.admin();
    for id in ["first", "damaged", "last"] {
        client.ingest(id).await;
    }
    let works = client.get("/v1/work").await.expect(200);
    let damaged = works["items"][1]["id"].clone();
    let file = bed.folder.as_ref().unwrap().path().join("ledger.db");
    let conn = rusqlite::Connection::open(file).unwrap();
    let sql = "DROP TRIGGER event_stays; UPDATE work SET body = '{' WHERE source_id = 'damaged'; \
         UPDATE event SET evidence = '{' WHERE work = (SELECT id FROM work WHERE source_id = 'damaged')";
    conn.execute_batch(sql).unwrap();

    let works = client.get("/v1/work").await.expect(200);
    assert_eq!(works["items"].as_array().unwrap().len(), 2, "{works}");
    assert_eq!(works["unreadable"][0]["id"], damaged);
    assert!(works["unreadable"][0]["why"].as_str().is_some_and(|why| !why.is_empty()), "{works}");
    let first = client.get("/v1/work?limit=2").await.expect(200);
    let rest =
        client.get(&format!("/v1/work?limit=2&cursor={}", first["next"].as_str().unwrap())).await.expect(200);
    assert_eq!(rest["items"][0]["source"]["id"], "first", "the list goes on behind it: {rest}");
    let events = client.get("/v1/events").await.expect(200);
    assert_eq!(events["items"].as_array().unwrap().len(), 2, "{events}");
    assert_eq!(events["unreadable"][0]["id"], format!("{} event 1", damaged.as_str().unwrap()));
    client.get(&format!("/v1/work/{}", damaged.as_str().unwrap())).await.problem(500, "corrupt");
    assert_eq!(client.claim("r1").await["work"]["source"]["id"], "first");
    let tenant = bed.client("machine", &["view"], Some(&["other"])).await;
    let works = tenant.get("/v1/work").await.expect(200);
    assert!(works.get("unreadable").is_none(), "another tenant's damage is invisible: {works}");
}
