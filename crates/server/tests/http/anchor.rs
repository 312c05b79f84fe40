//! The anchor over HTTP: a signed copy, and what the ledger is compared with.

use serde_json::json;

use crate::bed::{Bed, on_every_store};

on_every_store!(a_copy_of_the_anchor_is_made_and_verified);

async fn a_copy_of_the_anchor_is_made_and_verified(bed: Bed) {
    let admin = bed.admin();
    let empty = admin.get("/v1/admin/anchor").await.expect(200);
    admin.ingest("a").await;
    // On PostgreSQL an event is anchored once no earlier transaction can still commit.
    let mut anchor = empty.clone();
    while anchor["events"] == empty["events"] {
        anchor = admin.get("/v1/admin/anchor").await.expect(200);
    }
    assert_eq!((&anchor["format"], &anchor["events"]), (&json!(1), &json!(1)));
    let verified = admin.post("/v1/admin/verify", json!({ "anchor": anchor })).await.expect(200);
    assert_eq!((&verified["anchored"], &verified["faults"]), (&json!(1), &json!([])));
    let verified = admin.post("/v1/admin/verify", json!({ "anchor": empty })).await.expect(200);
    assert_eq!((&verified["anchored"], &verified["faults"]), (&json!(0), &json!([])), "a ledger goes on");
    let without = admin.post("/v1/admin/verify", json!({})).await.expect(200);
    assert!(without.get("anchored").is_none(), "{without}");

    let changed = |field: &str, value: serde_json::Value| {
        let mut anchor = anchor.clone();
        anchor[field] = value;
        json!({ "anchor": anchor })
    };
    let verify = async |body| admin.post("/v1/admin/verify", body).await;
    verify(changed("ledger", json!("l_0"))).await.problem(422, "other_ledger");
    verify(changed("events", json!(0))).await.problem(422, "anchor_forged");
    verify(changed("at", empty["at"].clone())).await.problem(422, "anchor_forged");
    verify(changed("digest", json!("0".repeat(64)))).await.problem(422, "anchor_forged");
    verify(changed("mac", anchor["digest"].clone())).await.problem(422, "anchor_forged");
    verify(changed("format", json!(2))).await.problem(422, "unsupported");
    verify(changed("position", json!("nowhere"))).await.problem(400, "invalid");
    verify(changed("mac", json!("cut"))).await.problem(400, "invalid");
    verify(changed("note", json!("x"))).await.problem(400, "unknown_field");
    verify(json!({ "ancor": anchor })).await.problem(400, "unknown_field");

    // A machine that stores copies elsewhere needs no more than this, and a tenant gets none.
    let collector = bed.client("machine", &["operate"], None).await;
    collector.get("/v1/admin/anchor").await.expect(200);
    collector.post("/v1/admin/verify", json!({ "anchor": anchor })).await.problem(403, "forbidden");
    let theirs = bed.client("person", &["operate"], Some(&["acme"])).await;
    theirs.get("/v1/admin/anchor").await.problem(403, "forbidden");
    bed.server.close().await.unwrap();
}
