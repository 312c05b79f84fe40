//! Requests without rights, of other tenants, or malformed: each gets a problem with its code and a fix.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tenure_api::wire::Timestamp;

use crate::bed::{ADMIN, Daemon, Home, claim, held, until, work};

#[test]
fn on_sqlite() {
    refuses(&Home::sqlite().serve());
}

#[test]
fn on_postgres() {
    refuses(&Home::postgres().serve());
}

fn refuses(daemon: &Daemon) {
    hosts_and_origins(daemon);
    tokens(daemon);
    bodies(daemon);
    paths(daemon);
    tenants(daemon);
}

fn hosts_and_origins(daemon: &Daemon) {
    let authorization = format!("Authorization: Bearer {ADMIN}");
    let with = |header: &str| daemon.curl(&["-H", &authorization, "-H", header], "/v1/work", None);
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "x"] {
        with(&format!("Host: {host}")).problem(421, "host_refused");
    }
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"] {
        with(&format!("Origin: {origin}")).problem(403, "origin_refused");
    }
    with(&format!("Origin: {}", daemon.url)).expect(200);
    // A page's form cannot send JSON, and the preflight of a foreign page is refused.
    let form = daemon.curl(
        &["-H", &authorization, "-H", "Content-Type: text/plain"],
        "/v1/work",
        Some(work("form").to_string().as_bytes()),
    );
    form.problem(415, "unsupported_media_type");
    let preflight = ["-i", "-X", "OPTIONS", "-H", "Origin: http://evil.example"];
    let asked = daemon.curl(&preflight, "/v1/work", None);
    assert!(!asked.text.to_ascii_lowercase().contains("access-control-allow"), "{}", asked.text);
}

fn tokens(daemon: &Daemon) {
    let bare = daemon.curl(&[], "/v1/work", None).problem(401, "unauthorized");
    assert!(bare["detail"].as_str().unwrap().contains("Authorization"), "{bare}");
    for header in
        ["Basic Zm9vOmJhcg==", "Bearer", "Bearer ", &format!("Token {ADMIN}"), &format!("Bearer {ADMIN}x")]
    {
        let header = format!("Authorization: {header}");
        daemon.curl(&["-H", &header], "/v1/work", None).problem(401, "unauthorized");
    }
    daemon.curl(&[], &format!("/v1/work?token={ADMIN}"), None).problem(401, "unauthorized");

    let mut new = json!({ "name": "temp", "kind": "machine", "scopes": ["view"] });
    let made = daemon.post("/v1/tokens", new.clone()).expect(201);
    let secret = made["secret"].as_str().unwrap();
    daemon.as_token(secret, "GET", "/v1/work", None).expect(200);
    let denied = daemon.as_token(secret, "POST", "/v1/work", Some(&work("x"))).problem(403, "forbidden");
    assert_eq!(denied["scope"], "submit");
    let id = made["token"]["id"].as_str().unwrap();
    daemon.send("DELETE", &format!("/v1/tokens/{id}?reason=lost"), None).expect(200);
    let revoked = daemon.as_token(secret, "GET", "/v1/work", None).problem(401, "unauthorized");
    assert!(revoked["detail"].as_str().unwrap().contains("revoked"), "{revoked}");
    new["expires_at"] = json!("2001-01-01T00:00:00.000Z");
    daemon.post("/v1/tokens", new.clone()).problem(400, "invalid");
    let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(1);
    new["expires_at"] = json!(Timestamp(soon.as_millis() as i64).to_string());
    let made = daemon.post("/v1/tokens", new).expect(201);
    let expired = until("it expires", || {
        let reply = daemon.as_token(made["secret"].as_str().unwrap(), "GET", "/v1/work", None);
        (reply.status != 200).then_some(reply)
    });
    assert!(expired.problem(401, "unauthorized")["detail"].as_str().unwrap().contains("expired"));
    let listed = daemon.get("/v1/tokens").expect(200).to_string();
    assert!(!listed.contains(secret) && !listed.contains("hash"), "{listed}");
}

fn bodies(daemon: &Daemon) {
    let with = |key: &str, value: Value| {
        let mut body = work("bad");
        body[key] = value;
        body.to_string()
    };
    let deep = "[".repeat(200_000);
    let table: [(String, u16, &str); 14] = [
        (String::new(), 400, "malformed"),
        ("{".into(), 400, "malformed"),
        ("\u{feff}{}".into(), 400, "malformed"),
        (format!("{}{}", work("bad"), work("bad")), 400, "malformed"),
        (with("input", json!(0)).replace(":0", &format!(":{deep}")), 400, "malformed"),
        (
            with("input", json!(0)).replace(":0", &format!(":{}{}", &deep[..100], "]".repeat(100))),
            422,
            "payload_refused",
        ),
        (with("colour", json!(1)), 400, "unknown_field"),
        (with("kind", json!(["job"])), 400, "invalid"),
        (with("kind", json!("")), 400, "invalid"),
        (with("kind", json!("a\u{0}b")), 400, "invalid"),
        (with("input", json!("a\u{0}b")), 422, "payload_refused"),
        (with("kind", json!("k".repeat(5_000))), 400, "invalid"),
        (with("source", json!({ "system": "fax", "id": "1" })), 422, "unknown_source"),
        (with("input", json!("x".repeat(2 << 20))), 413, "too_large"),
    ];
    for (body, status, code) in table {
        let problem = daemon.send("POST", "/v1/work", Some(&body)).problem(status, code);
        assert!(problem["detail"].as_str().unwrap().len() < 1_000, "short enough to read");
    }
    let twice = work("bad").to_string().replacen("\"kind\"", "\"kind\":\"other\",\"kind\"", 1);
    daemon.send("POST", "/v1/work", Some(&twice)).problem(400, "malformed");
    assert_eq!(daemon.get("/v1/work").expect(200)["items"], json!([]), "nothing was written");
}

fn paths(daemon: &Daemon) {
    let table = [
        ("/v1/work/w_ffffffffffffffffffffffffffffffff", 404, "not_found"),
        ("/v1/work/banana", 400, "invalid"),
        ("/v1/work/..%2f..%2fetc%2fpasswd", 400, "invalid"),
        ("/v1/work/../admin/verify", 404, "no_such_route"),
        ("/v1/work/%00", 400, "invalid"),
        ("/v1/work/%ff", 400, "invalid"),
        ("/v1/work?limit=-1", 400, "invalid"),
        ("/v1/work?colour=red", 400, "unknown_field"),
        ("/v1/events?after=%27%20or%201=1", 400, "invalid"),
        ("/v2/work", 404, "no_such_route"),
    ];
    for (path, status, code) in table {
        daemon.get(path).problem(status, code);
    }
    let long = |n| format!("/v1/work?kind={}", "a".repeat(n));
    daemon.get(&long(5_000)).problem(400, "invalid");
    daemon.get(&long(50_000)).problem(414, "uri_too_long");
    daemon.send("DELETE", "/v1/work", None).problem(405, "method_not_allowed");
}

/// Another tenant's ids are treated as nonexistent on every route, alone and in a batch.
fn tenants(daemon: &Daemon) {
    let scopes =
        json!(["view", "payload", "submit", "work", "resolve", "approve", "replay", "operate", "admin"]);
    let token = |tenant: &str| {
        let new = json!({ "name": tenant, "kind": "person", "scopes": scopes, "tenants": [tenant] });
        daemon.post("/v1/tokens", new).expect(201)["secret"].as_str().unwrap().to_owned()
    };
    let (ours, theirs) = (token("ours"), token("theirs"));
    let send =
        |who: &str, method: &str, path: &str, body: Value| daemon.as_token(who, method, path, Some(&body));
    let id =
        send(&ours, "POST", "/v1/work", work("1")).expect(201)["work"]["id"].as_str().unwrap().to_owned();
    let lease = send(&ours, "POST", "/v1/work/claim", claim("w", "r")).expect(200)["leases"][0].take();
    let mut items = Vec::new();
    for (verb, body) in [
        ("accept", held(&lease, json!({ "strength": "weak" }))),
        ("progress", held(&lease, json!({ "progress": 1 }))),
        ("release", held(&lease, json!({}))),
        ("fail", held(&lease, json!({ "error": { "class": "unknown" } }))),
        ("wait", held(&lease, json!({ "waits": [{ "kind": "user", "ref": "q" }] }))),
        ("close-out", held(&lease, json!({ "state": "succeeded", "no_output": true }))),
        ("complete", json!({ "token": lease["token"], "state": "succeeded", "no_output": true })),
        ("cancel", json!({ "reason": "x" })),
        ("abandon", json!({ "reason": "x" })),
        ("retry-now", json!({ "reason": "x" })),
        ("rerun", json!({ "reason": "x" })),
        ("quarantine", json!({ "reason": "x" })),
        ("decide", json!({ "reason": "x", "decision": "requeue" })),
        ("approve", json!({ "approved": true, "seal": "0".repeat(64) })),
        ("reconnect", json!({})),
    ] {
        items.push(json!({ "path": format!("/v1/work/{id}/{verb}"), "body": body }));
    }
    let step = held(&lease, json!({ "verb": "begin", "input": 1 }));
    items.push(json!({ "method": "PUT", "path": format!("/v1/work/{id}/steps/s"), "body": step }));
    for read in ["", "/events", "/explain"] {
        items.push(json!({ "method": "GET", "path": format!("/v1/work/{id}{read}") }));
    }
    let mut child = work("child");
    child["parent"] = json!(id);
    items.push(json!({ "path": "/v1/work", "body": child }));
    let mut foreign = work("2");
    foreign["tenant"] = json!("ours");
    items.push(json!({ "path": "/v1/work", "body": foreign }));
    let count = items.len();
    let reply = send(&theirs, "POST", "/v1/batch", json!({ "items": items })).expect(200);
    let answers = reply["items"].as_array().unwrap();
    assert_eq!(answers.len(), count);
    for (answer, item) in answers.iter().zip(&items) {
        assert_eq!(
            (&answer["status"], &answer["body"]["code"]),
            (&json!(404), &json!("not_found")),
            "{item}: {answer}"
        );
    }
    let renew = json!({ "leases": [{ "id": id, "fence": lease["fence"], "token": lease["token"] }] });
    let renewed = send(&theirs, "POST", "/v1/work/renew", renew).expect(200);
    assert_eq!(renewed["leases"][0]["problem"]["code"], "not_found");
    let seen = daemon.as_token(&ours, "GET", &format!("/v1/work/{id}"), None).expect(200);
    assert_eq!((&seen["seq"], &seen["state"]), (&json!(2), &json!("running")), "nothing was touched: {seen}");
    daemon.as_token(&theirs, "GET", "/metrics", None).problem(403, "forbidden");
}
