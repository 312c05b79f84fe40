//! Draining a worker from outside: each lever reports what is confirmed, and what is deferred and why.

use serde_json::{Value, json};

use crate::bed::{Bed, Client, held, id_of, on_every_store, work};

on_every_store!(every_lever_reports_each_work_item, waits_of_rerunnable_work_are_kept);

async fn claimed(client: &Client, id: &str, disposition: &str) -> Value {
    let mut new = work(id);
    new["disposition"] = json!(disposition);
    client.post("/v1/work", new).await.expect(201);
    client.claim(id).await
}

async fn drain(client: &Client, levers: &[&str]) -> Value {
    let drain = json!({ "reason": "the host goes", "levers": levers });
    client.post("/v1/workers/w1/drain", drain).await.expect(200)
}

fn because<'a>(report: &'a Value, lever: &str, work: Option<&str>) -> &'a str {
    let deferred = report["deferred"].as_array().expect("something is deferred");
    let found = deferred.iter().find(|not| not["lever"] == lever && not["work"].as_str() == work);
    found.unwrap_or_else(|| panic!("{lever} of {work:?}: {report}"))["because"].as_str().unwrap()
}

async fn every_lever_reports_each_work_item(bed: Bed) {
    let client = bed.admin();
    let free = claimed(&client, "free", "rerunnable").await;
    let bound = claimed(&client, "bound", "owner_bound").await;
    let (free, bound) = (id_of(&free), id_of(&bound));
    let state = async |id: &str| client.get(&format!("/v1/work/{id}")).await.expect(200)["state"].clone();

    let report = drain(&client, &["stop_claiming", "flush", "release"]).await;
    assert!(report.get("confirmed").is_none(), "{report}");
    for lever in ["stop_claiming", "flush"] {
        assert!(because(&report, lever, None).contains("SIGTERM"), "{report}");
    }
    assert!(because(&report, "release", Some(free)).contains("until its holder stops"), "{report}");
    assert!(because(&report, "release", Some(bound)).contains("nobody else may continue it"), "{report}");
    let report = drain(&client, &["abandon"]).await;
    assert!(because(&report, "abandon", Some(free)).contains("goes back to the queue"), "{report}");
    assert!(because(&report, "abandon", Some(bound)).contains("its lease lapses"), "{report}");
    assert_eq!((state(free).await, state(bound).await), (json!("running"), json!("running")));
    let report = drain(&client, &["request_cancel"]).await;
    assert!(because(&report, "request_cancel", Some(bound)).contains("cancel_requested"), "{report}");
    assert_eq!((state(free).await, state(bound).await), (json!("running"), json!("cancel_requested")));
    let none = json!({ "reason": "x", "levers": ["request_cancel"], "incarnation": "another" });
    let report = client.post("/v1/workers/w1/drain", none).await.expect(200);
    assert_eq!(report, json!({}), "another incarnation holds nothing");
}

async fn waits_of_rerunnable_work_are_kept(bed: Bed) {
    let client = bed.admin();
    let mut ids = Vec::new();
    for disposition in ["rerunnable", "owner_bound"] {
        let grant = claimed(&client, disposition, disposition).await;
        let id = id_of(&grant).to_owned();
        let wait = held(&grant, json!({ "waits": [{ "kind": "user", "ref": disposition }] }));
        client.post(&format!("/v1/work/{id}/wait"), wait).await.expect(200);
        ids.push(id);
    }
    let report = drain(&client, &["revoke_waits"]).await;
    assert_eq!(report, json!({ "confirmed": [{ "lever": "revoke_waits", "work": ids[1] }] }));
    let state = async |id: &str| client.get(&format!("/v1/work/{id}")).await.expect(200)["state"].clone();
    assert_eq!(state(&ids[0]).await, "waiting_user", "any worker goes on once it is answered");
    assert_eq!(state(&ids[1]).await, "queued", "for its owner alone");
}
