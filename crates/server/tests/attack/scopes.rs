//! Every route with every scope: calls without the scope are denied, and nothing is allowed by accident.

use axum::http::Method;
use serde_json::{Value, json};

use crate::bed::{Bed, Client, Reply};

const SCOPES: [&str; 9] =
    ["view", "payload", "submit", "work", "resolve", "approve", "replay", "operate", "admin"];

/// Method, path with an invented id, and the required access: none, any token, or a scope.
fn routes() -> Vec<(Method, String, Option<Vec<String>>)> {
    let contract: Value = serde_json::from_str(&tenure_server::openapi()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in contract["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let security = operation["security"][0].as_object().expect("every route says whom it is for");
            let needed = security.get("token").map(|scopes| {
                scopes.as_array().unwrap().iter().map(|scope| scope.as_str().unwrap().to_owned()).collect()
            });
            let id = if path.starts_with("/v1/waits") {
                "wt_"
            } else if path.starts_with("/v1/commands") {
                "c_"
            } else if path.starts_with("/v1/tokens") {
                "cr_"
            } else {
                "w_"
            };
            let path = path
                .replace("{id}", &format!("{id}{}", "0".repeat(32)))
                .replace("{step}", "s")
                .replace("{name}", "n");
            routes.push((method.to_uppercase().parse().unwrap(), path, needed));
        }
    }
    assert!(routes.len() > 50, "the contract lists every route");
    routes
}

async fn knock(client: &Client, method: &Method, path: &str) -> Reply {
    // A stream would not end by itself; an invalid cursor is refused at once, after admission.
    let path = if path == "/v1/events/stream" { "/v1/events/stream?after=none" } else { path };
    let body = (method != Method::GET).then(|| json!({}));
    client.send(method.clone(), path, body).await
}

#[tokio::test]
async fn each_route_opens_to_its_scope_and_to_no_other() {
    let bed = Bed::memory().await;
    let nobody = Client { router: bed.router.clone(), token: "tn_nobody".into() };
    let mut holders = Vec::new();
    for scope in SCOPES {
        holders.push((scope, bed.client("person", &[scope], None).await));
    }
    for (method, path, needed) in routes() {
        let reply = knock(&nobody, &method, &path).await;
        match needed {
            None => assert_ne!(reply.status.as_u16(), 401, "{method} {path} is public"),
            Some(_) => reply.problem(401, "unauthorized"),
        }
        let mut bare = nobody.request(method.clone(), &path);
        bare.headers_mut().remove("authorization");
        if needed.is_some() {
            nobody.raw(bare).await.problem(401, "unauthorized");
        }
        for (scope, client) in &holders {
            let reply = knock(client, &method, &path).await;
            match &needed {
                Some(scopes) if !scopes.is_empty() && !scopes.iter().any(|s| s == scope) => {
                    reply.problem(403, "forbidden");
                    assert_eq!(reply.body["scope"], scopes[0].as_str());
                }
                _ => assert!(
                    ![401, 403].contains(&reply.status.as_u16()),
                    "{method} {path} {scope}: {}",
                    reply.body
                ),
            }
            assert!(reply.status.as_u16() < 500, "{method} {path} {scope}: {}", reply.body);
        }
    }
}

#[tokio::test]
async fn what_is_no_route_is_nobodys() {
    let bed = Bed::memory().await;
    bed.admin().get("/v1/nothing").await.problem(404, "no_such_route");
    bed.admin().send(Method::DELETE, "/v1/work", None).await.problem(405, "method_not_allowed");
}

#[tokio::test]
async fn a_token_ends_when_it_is_revoked_or_its_time_is_over() {
    let bed = Bed::memory().await;
    let made = bed
        .admin()
        .post("/v1/tokens", json!({ "name": "x", "kind": "machine", "scopes": ["view"] }))
        .await
        .expect(201);
    let client = Client { router: bed.router.clone(), token: made["secret"].as_str().unwrap().into() };
    client.get("/v1/work").await.expect(200);
    let credential = format!("/v1/tokens/{}", made["token"]["id"].as_str().unwrap());
    let revoked =
        bed.admin().send(Method::DELETE, &format!("{credential}?reason=lost"), None).await.expect(200);
    assert!(revoked["revoked"]["at"].is_string());
    client.get("/v1/work").await.problem(401, "unauthorized");
    let listed = bed.admin().get("/v1/tokens").await.expect(200).to_string();
    assert!(!listed.contains(&client.token), "no list shows a secret");
    let past =
        json!({ "name": "x", "kind": "machine", "scopes": ["view"], "expires_at": "2020-01-01T00:00:00Z" });
    bed.admin().post("/v1/tokens", past).await.problem(400, "invalid");
    let approver = json!({ "name": "x", "kind": "machine", "scopes": ["approve"] });
    bed.admin().post("/v1/tokens", approver).await.problem(403, "person_required");
}

#[tokio::test]
async fn payloads_are_for_those_who_may_see_them() {
    let bed = Bed::memory().await;
    let id = bed.admin().ingest("secret-plan").await;
    let viewer = bed.client("person", &["view"], None).await;
    for path in
        [format!("/v1/work/{id}"), format!("/v1/work/{id}/events"), "/v1/events".into(), "/v1/work".into()]
    {
        let seen = viewer.get(&path).await.expect(200).to_string();
        assert!(!seen.contains(r#""do""#), "{path}: {seen}");
    }
    let reader = bed.client("person", &["view", "payload"], None).await;
    assert_eq!(reader.get(&format!("/v1/work/{id}")).await.expect(200)["input"]["do"], "secret-plan");
}

#[tokio::test]
async fn whoever_asks_too_often_is_told_when_to_come_back() {
    let bed = Bed::configured("[rate]\nper_second = 1\nburst = 3").await;
    let mut last = bed.admin().get("/v1/work").await;
    for _ in 0..4 {
        last = bed.admin().get("/v1/work").await;
    }
    last.problem(429, "rate_limited");
    assert_eq!(last.body["retryable"], true);
    assert!(last.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    bed.admin().get("/healthz").await.expect(200);
}

#[tokio::test]
async fn foreign_hosts_and_pages_are_turned_away() {
    let bed = Bed::configured("hosts = [\"tenure.example.com\"]").await;
    let client = bed.admin();
    for (header, value, status, code) in [
        ("host", "evil.example", 421, "host_refused"),
        ("origin", "https://evil.example", 403, "origin_refused"),
    ] {
        for path in ["/v1/work", "/healthz"] {
            let mut request = client.request(Method::GET, path);
            request.headers_mut().insert(header, value.parse().unwrap());
            client.raw(request).await.problem(status, code);
        }
    }
    let mut request = client.request(Method::GET, "/v1/work");
    request.headers_mut().insert("host", "tenure.example.com".parse().unwrap());
    request.headers_mut().insert("origin", "https://tenure.example.com".parse().unwrap());
    client.raw(request).await.expect(200);
}
