//! Quotas: one tenant's share of common resources. Each tenant has its own, and the operator has none.

use axum::http::Method;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::bed::{Bed, Client, work};

const ALL: [&str; 5] = ["view", "submit", "work", "operate", "admin"];

async fn tenant(bed: &Bed, name: &str) -> Client {
    bed.client("person", &ALL, Some(&[name])).await
}

async fn one_tenant_cannot_fill_the_ledger_with_open_works(bed: Bed) {
    let (hostile, quiet) = (tenant(&bed, "hostile").await, tenant(&bed, "quiet").await);
    for id in ["a", "b"] {
        hostile.ingest(id).await;
    }
    let refused = hostile.post("/v1/work", work("c")).await;
    refused.problem(409, "limit_reached");
    assert_eq!(refused.body["retryable"], true);
    quiet.ingest("a").await;
    for id in ["d", "e", "f"] {
        bed.admin().ingest(id).await;
    }
    let urgent = |mut new: Value, priority: i16| {
        new["priority"] = json!(priority);
        new
    };
    quiet.post("/v1/work", urgent(work("u"), 1)).await.problem(403, "forbidden");
    quiet.post("/v1/work", urgent(work("u"), 2)).await.expect(201);
    bed.server.close().await.unwrap();
}

fn every_hour(priority: i16) -> Value {
    json!({ "reason": "test", "every_ms": 3_600_000,
        "template": { "kind": "job", "disposition": "rerunnable", "input": {}, "priority": priority } })
}

async fn no_other_door_passes_the_quota(bed: Bed) {
    let (hostile, quiet) = (tenant(&bed, "hostile").await, tenant(&bed, "quiet").await);
    hostile.put("/v1/schedules/hourly", every_hour(1)).await.problem(403, "forbidden");
    hostile.put("/v1/schedules/hourly", every_hour(2)).await.expect(201);
    hostile.ingest("a").await;
    hostile.ingest("b").await;
    let alone = |request: &str| {
        let claim = json!({ "worker": { "id": "w", "incarnation": "i" }, "request_id": request });
        json!({ "tool": "t", "target": "x", "arguments": {}, "claim": claim })
    };
    hostile.post("/v1/commands", alone("r1")).await.problem(409, "limit_reached");
    let now = json!({ "request_id": "r", "reason": "test" });
    let refused = hostile.post("/v1/schedules/hourly/run-now", now.clone()).await;
    refused.problem(409, "limit_reached");
    assert_eq!(
        (refused.body["retryable"].clone(), &refused.headers["retry-after"]),
        (json!(true), &"5".parse().unwrap())
    );
    assert_eq!(hostile.post("/v1/work", work("a")).await.expect(200)["created"], false);
    let tried = hostile.post("/v1/work?dry_run=true", work("c")).await;
    tried.problem(409, "limit_reached");
    quiet.post("/v1/commands", alone("r1")).await.expect(201);
    quiet.put("/v1/schedules/hourly", every_hour(2)).await.expect(201);
    quiet.post("/v1/schedules/hourly/run-now", now).await.expect(200);
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn one_tenant_cannot_hold_every_stream_or_call() {
    let bed = Bed::configured("[quotas]\nstreams = 1\ncalls = 2").await;
    let (hostile, quiet) = (tenant(&bed, "hostile").await, tenant(&bed, "quiet").await);
    let open = |client: &Client| {
        let request = client.request(Method::GET, "/v1/events/stream");
        client.router.clone().oneshot(request)
    };
    let stream = open(&hostile).await.unwrap();
    assert_eq!(stream.status(), 200);
    assert_eq!(open(&hostile).await.unwrap().status(), 429);
    assert_eq!(open(&quiet).await.unwrap().status(), 200);
    drop(stream);
    assert_eq!(open(&hostile).await.unwrap().status(), 200, "a closed stream frees its slot");

    let parked = |n: usize| {
        let client = hostile.clone();
        let worker = json!({ "id": "w", "incarnation": "i" });
        let claim = json!({ "worker": worker, "request_id": n.to_string(), "wait_ms": 300_000 });
        tokio::spawn(async move { client.post("/v1/work/claim", claim).await })
    };
    let parked = [parked(1), parked(2)];
    let refused = loop {
        let reply = hostile.get("/v1/work").await;
        if reply.status == 429 {
            break reply;
        }
        tokio::task::yield_now().await;
    };
    refused.problem(429, "rate_limited");
    quiet.get("/v1/work").await.expect(200);
    parked.iter().for_each(|claim| claim.abort());
    while hostile.get("/v1/work").await.status != 200 {
        tokio::task::yield_now().await;
    }
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn a_tenant_named_twice_is_still_one_tenant() {
    let bed = Bed::configured("[quotas]\nstreams = 1").await;
    let both = bed.client("person", &ALL, Some(&["hostile", "second"])).await;
    let token = |tenants: &[&str]| {
        let name = tenants.join("-");
        json!({ "name": name, "kind": "machine", "scopes": ["view"], "tenants": tenants })
    };
    for twice in [&["hostile", "hostile"][..], &["second", "hostile", "second"]] {
        both.post("/v1/tokens", token(twice)).await.problem(400, "invalid");
    }
    let open = |client: &Client| {
        let request = client.request(Method::GET, "/v1/events/stream");
        client.router.clone().oneshot(request)
    };
    let one = tenant(&bed, "hostile").await;
    let turned = bed.client("person", &ALL, Some(&["second", "hostile"])).await;
    let stream = open(&both).await.unwrap();
    assert_eq!(stream.status(), 200);
    for same in [&one, &turned] {
        assert_eq!(open(same).await.unwrap().status(), 429, "another list is no other tenant");
    }
    bed.server.close().await.unwrap();
}

async fn one_tenant_cannot_use_up_schedules_and_credentials(bed: Bed) {
    let (hostile, quiet) = (tenant(&bed, "hostile").await, tenant(&bed, "quiet").await);
    let schedule = json!({ "reason": "test", "every_ms": 3_600_000,
        "template": { "kind": "job", "disposition": "rerunnable", "input": {} } });
    hostile.put("/v1/schedules/one", schedule.clone()).await.expect(201);
    hostile.put("/v1/schedules/one", schedule.clone()).await.expect(200);
    hostile.put("/v1/schedules/two", schedule.clone()).await.problem(409, "limit_reached");
    quiet.put("/v1/schedules/one", schedule).await.expect(201);
    let token =
        |name: &str| json!({ "name": name, "kind": "machine", "scopes": ["view"], "tenants": ["hostile"] });
    hostile.post("/v1/tokens", token("second")).await.expect(201);
    hostile.post("/v1/tokens", token("third")).await.problem(409, "limit_reached");
    bed.admin().post("/v1/tokens", token("third")).await.expect(201);
    bed.server.close().await.unwrap();
}

async fn credentials_count_for_the_tenant_whoever_made_them(bed: Bed) {
    let new = |name: &str, kind: &str| json!({ "name": name, "kind": "person", "scopes": ["view", "admin"], "tenants": ["hostile"], "kinds": [kind] });
    let mut minters = Vec::new();
    for kind in ["a", "b"] {
        let made = bed.admin().post("/v1/tokens", new(kind, kind)).await.expect(201);
        let token = made["secret"].as_str().unwrap().to_owned();
        minters.push(Client { router: bed.router.clone(), token });
    }
    // Neither may revoke the other's.
    for (minter, kind) in minters.iter().zip(["a", "b"]) {
        minter.post("/v1/tokens", new("more", kind)).await.problem(409, "limit_reached");
    }
    tenant(&bed, "quiet")
        .await
        .post(
            "/v1/tokens",
            json!({ "name": "x", "kind": "machine", "scopes": ["view"],
        "tenants": ["quiet"] }),
        )
        .await
        .expect(201);
    bed.server.close().await.unwrap();
}

async fn schedules_made_at_once_do_not_pass_the_quota(bed: Bed) {
    let hostile = tenant(&bed, "hostile").await;
    let mut puts = tokio::task::JoinSet::new();
    for n in 0..10 {
        let hostile = hostile.clone();
        puts.spawn(async move {
            hostile.put(&format!("/v1/schedules/s{n}"), every_hour(2)).await.status.as_u16()
        });
    }
    let made = puts.join_all().await.into_iter().filter(|status| *status == 201).count();
    assert_eq!(made, 1);
    bed.server.close().await.unwrap();
}

const WORKS: &str = "[quotas]\nopen_works = 2\npriority = 2";
const OTHERS: &str = "[quotas]\nschedules = 1\ncredentials = 2";

crate::bed::on_both_databases! {
    one_tenant_cannot_fill_the_ledger_with_open_works: WORKS,
    no_other_door_passes_the_quota: WORKS,
    one_tenant_cannot_use_up_schedules_and_credentials: OTHERS,
    credentials_count_for_the_tenant_whoever_made_them: OTHERS,
    schedules_made_at_once_do_not_pass_the_quota: OTHERS,
}
