//! Mistakes of callers: each has its problem, with a code and a fix.

use axum::{body::Body, http::Method};
use serde_json::{Value, json};

use crate::bed::{Bed, held, id_of, work};

fn with(key: &str, value: Value) -> String {
    let mut body = work("a");
    body[key] = value;
    body.to_string()
}

#[tokio::test]
async fn every_mistake_in_a_body_has_its_code() {
    let bed = Bed::memory().await;
    let client = bed.admin();
    let deep = "[".repeat(100) + &"]".repeat(100);
    let table = [
        ("".to_owned(), 400, "malformed"),
        ("{".to_owned(), 400, "malformed"),
        ("{'a': 1}".to_owned(), 400, "malformed"),
        (format!("{}x", work("a")), 400, "malformed"),
        ("[]".to_owned(), 400, "invalid"),
        (json!([{ "system": "manual", "id": "1" }, "k", "rerunnable", {}]).to_string(), 400, "invalid"),
        ("{}".to_owned(), 400, "invalid"),
        (with("source", json!(["manual", "x"])), 400, "invalid"),
        (with("workflow", json!(["triage", "1"])), 400, "invalid"),
        (with("policy", json!({ "lease": [45_000, 15_000, 30_000] })), 400, "invalid"),
        (with("claim", json!({ "worker": ["w", "i"], "request_id": "r" })), 400, "invalid"),
        (with("evidence", json!([["ticket", "T-1"]])), 400, "invalid"),
        (work("a").to_string().replace(r#"{"do":"a"}"#, r#"{"x":[{"do":1,"do":2}]}"#), 400, "malformed"),
        (work("a").to_string().replace(r#""kind""#, r#""kind":"other","kind""#), 400, "malformed"),
        (with("colour", json!(1)), 400, "unknown_field"),
        (with("genuine", json!(true)), 400, "unknown_field"),
        (with("id", json!("w_1")), 400, "unknown_field"),
        (with("kind", json!(7)), 400, "invalid"),
        (with("kind", json!("")), 400, "invalid"),
        (with("kind", json!("a\u{0}b")), 400, "invalid"),
        (with("kind", json!("x".repeat(300))), 400, "invalid"),
        (with("disposition", json!("maybe")), 400, "invalid"),
        (with("priority", json!(1_000_000)), 400, "invalid"),
        (with("parent", json!("w_1")), 400, "invalid"),
        (with("input", json!(9_007_199_254_740_993_u64)), 422, "payload_refused"),
        (with("input", json!("a\u{0}b")), 422, "payload_refused"),
        (work("a").to_string().replace(r#"{"do":"a"}"#, &deep), 422, "payload_refused"),
        (with("source", json!({ "system": "fax", "id": "1" })), 422, "unknown_source"),
        (
            with("policy", json!({ "lease": { "ttl_ms": 10, "renew_ms": 9, "grace_ms": 0 } })),
            422,
            "impossible_timings",
        ),
        (with("policy", json!({ "retry": { "multiplier": 0.5 } })), 422, "impossible_timings"),
        (with("input", json!("x".repeat(1 << 20))), 413, "too_large"),
    ];
    for (body, status, code) in table {
        let mut request = client.request(Method::POST, "/v1/work");
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        let shown: String = body.chars().take(80).collect();
        *request.body_mut() = Body::from(body);
        let reply = client.raw(request).await;
        assert_eq!(
            (reply.status.as_u16(), reply.body["code"].as_str()),
            (status, Some(code)),
            "{shown}: {}",
            reply.body
        );
        let detail = reply.body["detail"].as_str().unwrap();
        for inner in ["struct ", "sequence", " map", " enum", "i16", "variant"] {
            assert!(!detail.contains(inner), "{shown}: {detail}");
        }
        reply.problem(status, code);
    }
    let mut request = client.request(Method::POST, "/v1/work");
    *request.body_mut() = Body::from(work("a").to_string());
    client.raw(request).await.problem(415, "unsupported_media_type");
    assert_eq!(client.get("/v1/work").await.expect(200)["items"], json!([]), "nothing was written");
}

#[tokio::test]
async fn every_mistake_in_a_path_or_query_has_its_code() {
    let bed = Bed::memory().await;
    let client = bed.admin();
    let id = client.ingest("a").await;
    let other = client.ingest("b").await;
    let common: String = id.chars().zip(other.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    let table = [
        ("/v1/work/w_ffffffffffffffffffffffffffffffff".to_owned(), 404, "not_found"),
        ("/v1/work/banana".to_owned(), 400, "invalid"),
        (format!("/v1/work/{common}"), 409, "ambiguous"),
        ("/v1/work/%ff".to_owned(), 400, "invalid"),
        ("/v1/work?colour=red".to_owned(), 400, "unknown_field"),
        ("/v1/workers?colour=red".to_owned(), 400, "unknown_field"),
        (format!("/v1/work/{id}/explain?colour=red"), 400, "unknown_field"),
        ("/v1/work?limit=many".to_owned(), 400, "invalid"),
        ("/v1/work?limit=0".to_owned(), 400, "invalid"),
        ("/v1/commands?limit=1001".to_owned(), 400, "invalid"),
        ("/v1/events?limit=5000".to_owned(), 400, "invalid"),
        ("/v1/work?state=sleeping".to_owned(), 400, "invalid"),
        ("/v1/work?cursor=x".to_owned(), 400, "invalid"),
        ("/v1/work?created_after=yesterday".to_owned(), 400, "invalid"),
        ("/v1/work?kind=a%00b".to_owned(), 400, "invalid"),
        (format!("/v1/work/{id}?wait=forever"), 400, "invalid"),
        (format!("/v1/work/{id}/events?after=-1"), 400, "invalid"),
        ("/v1/waits?kind=bus".to_owned(), 400, "invalid"),
        ("/v1/waits?cursor=1".to_owned(), 400, "invalid"),
        ("/v1/events?after=x".to_owned(), 400, "invalid"),
        ("/v1/events/stream?after=x".to_owned(), 400, "invalid"),
        ("/v1/tokens?cursor=x".to_owned(), 400, "invalid"),
    ];
    for (path, status, code) in table {
        let reply = client.get(&path).await;
        assert_eq!(
            (reply.status.as_u16(), reply.body["code"].as_str()),
            (status, Some(code)),
            "{path}: {}",
            reply.body
        );
    }
    let cancel = format!("/v1/work/{id}/cancel");
    for silent in [json!({}), json!({ "reason": "" })] {
        client.post(&cancel, silent).await.problem(422, "reason_missing");
    }
    client.send(Method::DELETE, "/v1/schedules/nightly", None).await.problem(422, "reason_missing");
    let both = json!({ "worker": { "id": "w", "incarnation": "i" }, "request_id": "r", "ids": [id], "kinds": ["job"] });
    client.post("/v1/work/claim", both).await.problem(400, "invalid");
    client.post("/v1/resolve", json!({ "payload": 1 })).await.problem(400, "invalid");
    client.post("/v1/resolve", json!({ "token": "x", "payload": 1 })).await.problem(403, "token_refused");
    client
        .post("/v1/resolve", json!({ "ref": "work:w_1", "payload": 1 }))
        .await
        .problem(422, "reference_reserved");
}

/// Known routes, unknown ones and other methods alike; over a socket too, where the listener parses first.
#[tokio::test]
async fn oversized_requests_get_a_problem_too() {
    let bed = Bed::memory().await;
    let client = bed.admin();
    let long = "x".repeat(9_000);
    for path in [format!("/v1/work?kind={long}"), format!("/v1/work/{long}"), format!("/{long}")] {
        client.get(&path).await.problem(414, "uri_too_long");
        client.send(Method::DELETE, &path, None).await.problem(414, "uri_too_long");
    }
    let mut many = client.request(Method::GET, "/v1/work");
    for n in 0..101 {
        let name: axum::http::HeaderName = format!("x-{n}").parse().unwrap();
        many.headers_mut().insert(name, "1".parse().unwrap());
    }
    client.raw(many).await.problem(431, "headers_too_large");
    for path in ["/v1/work", "/healthz", "/nowhere"] {
        let mut request = client.request(Method::GET, path);
        request.headers_mut().insert("cookie", "x".repeat(33_000).parse().unwrap());
        client.raw(request).await.problem(431, "headers_too_large");
    }
    client.get(&format!("/v1/work?kind={}", "x".repeat(200))).await.expect(200);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_its_wait_is_refused() {
    let bed = Bed::memory().await;
    let client = bed.admin();
    client.ingest("a").await;
    let grant = client.claim("c1").await;
    let schema = json!({ "type": "object", "required": ["colour"] });
    let ask = json!({ "waits": [{ "kind": "user", "ref": "q", "schema": schema }] });
    client.post(&format!("/v1/work/{}/wait", id_of(&grant)), held(&grant, ask)).await.expect(200);
    let wrong = json!({ "ref": "q", "payload": "blue" });
    client.post("/v1/resolve", wrong).await.problem(422, "answer_mismatch");
    client.post("/v1/resolve", json!({ "ref": "q", "payload": { "colour": "blue" } })).await.expect(200);
}
