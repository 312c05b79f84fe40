//! Malicious and careless clients.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::bed::{ADMIN, Daemon, Home, claim, held, work};

#[test]
fn on_sqlite() {
    let home = Home::sqlite().configured("backups = \".\"");
    let daemon = home.serve();
    let canaries = secrets_stay_secret(&daemon);
    approvals_are_for_people(&daemon);
    batches_hold_nothing_up(&daemon);
    requests_are_taken_literally(&daemon);
    copies_go_where_they_can(&daemon, home.folder.path());
    daemon.get("/readyz").expect(200);
    daemon.signal("TERM");
    let (code, said) = daemon.ended();
    assert_eq!(code, Some(0), "{said}");
    for entry in std::fs::read_dir(home.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        for canary in &canaries {
            assert!(!said.contains(canary), "a secret is in the log");
            let found = bytes.windows(canary.len()).any(|window| window == canary.as_bytes());
            assert!(!found, "a secret is in {}", path.display());
        }
    }
}

#[test]
fn on_postgres() {
    let daemon = Home::postgres().serve();
    secrets_stay_secret(&daemon);
    approvals_are_for_people(&daemon);
    batches_hold_nothing_up(&daemon);
    requests_are_taken_literally(&daemon);
    daemon.get("/readyz").expect(200);
}

#[test]
fn oversized_batch_responses_are_reported() {
    let daemon = Home::sqlite().serve();
    for n in 0..9 {
        let mut body = work(&n.to_string());
        body["input"] = json!("x".repeat(1_000_000));
        daemon.post("/v1/work", body).expect(201);
    }
    let page = json!({ "method": "GET", "path": "/v1/events?limit=100" });
    let other = json!({ "method": "GET", "path": "/v1/workers" });
    // Nine megabytes each: three pages fit, and all small responses.
    let items = [vec![page; 5], vec![other]].concat();
    let reply = daemon.post("/v1/batch", json!({ "items": items })).expect(200);
    let answers = reply["items"].as_array().unwrap();
    assert_eq!(answers[5]["status"], 200);
    let refused: Vec<&Value> = answers.iter().filter(|answer| answer["status"] == 413).collect();
    assert_eq!(refused.len(), 2);
    assert!(refused.iter().all(|answer| answer["body"]["code"] == "too_large"));
}

/// Creates one secret of each kind, and searches for them in every readable place.
fn secrets_stay_secret(daemon: &Daemon) -> Vec<String> {
    let id = daemon.post("/v1/work", work("held")).expect(201)["work"]["id"].as_str().unwrap().to_owned();
    let mut by_id = claim("w", "held");
    by_id["ids"] = json!([id]);
    let lease = daemon.post("/v1/work/claim", by_id.clone()).expect(200)["leases"][0].take();
    let again = daemon.post("/v1/work/claim", by_id).expect(200)["leases"][0].take();
    assert_eq!(again["token"], lease["token"], "its repeat shows it again");
    let asked = daemon.post("/v1/work", work("asked")).expect(201)["work"]["id"].as_str().unwrap().to_owned();
    let mut by_id = claim("w", "asked");
    by_id["ids"] = json!([asked]);
    let other = daemon.post("/v1/work/claim", by_id).expect(200)["leases"][0].take();
    let ask = held(&other, json!({ "waits": [{ "kind": "external", "ref": "hook" }] }));
    let waiting = daemon.post(&format!("/v1/work/{asked}/wait"), ask).expect(200);
    let mut external = work("external");
    external["disposition"] = json!("externally_owned");
    let external = daemon.post("/v1/work", external).expect(201);
    let made = json!({ "name": "canary", "kind": "machine", "scopes": ["view"] });
    let made = daemon.post("/v1/tokens", made).expect(201);
    let shown = [
        &lease["token"],
        &other["token"],
        &waiting["waits"][0]["token"],
        &external["completion_token"],
        &made["secret"],
    ];
    let mut canaries: Vec<String> = shown.map(|one| one.as_str().unwrap().to_owned()).into();
    canaries.push(ADMIN.to_owned());
    // Refusals quote their input, except secrets.
    let guess = json!({ "fence": 1, "token": canaries[0], "state": "succeeded", "no_output": true });
    let refused = daemon.post(&format!("/v1/work/{asked}/close-out"), guess).problem(409, "lease_lost");
    let mut seen = refused.to_string();
    for path in [
        "/v1/work".to_owned(),
        format!("/v1/work/{id}"),
        format!("/v1/work/{id}/events"),
        format!("/v1/work/{id}/explain"),
        format!("/v1/work/{asked}/events"),
        "/v1/events?limit=1000".to_owned(),
        "/v1/waits".to_owned(),
        "/v1/workers".to_owned(),
        "/v1/tokens".to_owned(),
        "/v1/alerts".to_owned(),
        "/metrics".to_owned(),
    ] {
        let reply = daemon.get(&path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        seen += &reply.text;
    }
    for canary in &canaries {
        assert!(!seen.contains(canary.as_str()), "a secret is shown");
    }
    // Reading does not answer a wait.
    let token = &canaries[2];
    assert_eq!(daemon.get(&format!("/v1/resolve?token={token}")).status, 405);
    canaries
}

/// Neither an early answer nor one by token or reference gives a machine the rights of a person.
fn approvals_are_for_people(daemon: &Daemon) {
    let machine =
        json!({ "name": "agent", "kind": "machine", "scopes": ["view", "submit", "work", "resolve"] });
    let machine = daemon.post("/v1/tokens", machine).expect(201)["secret"].as_str().unwrap().to_owned();
    let send = |path: &str, body: Value| daemon.as_token(&machine, "POST", path, Some(&body));
    let yes = json!({ "ref": "deploy", "payload": { "approved": true } });
    assert_eq!(send("/v1/resolve", yes.clone()).expect(200)["kept"], true);
    let id = send("/v1/work", work("deploy")).expect(201)["work"]["id"].as_str().unwrap().to_owned();
    let mut by_id = claim("agent", "deploy");
    by_id["ids"] = json!([id]);
    let lease = send("/v1/work/claim", by_id).expect(200)["leases"][0].take();
    let ask = held(&lease, json!({ "waits": [{ "kind": "approval", "ref": "deploy" }] }));
    let waiting = send(&format!("/v1/work/{id}/wait"), ask).expect(200);
    assert_eq!(
        waiting["work"]["state"], "waiting_approval",
        "a machine's early yes does not count: {waiting}"
    );
    send("/v1/resolve", yes).problem(409, "seal_broken");
    let token = &waiting["waits"][0]["token"];
    send("/v1/resolve", json!({ "token": token, "payload": { "approved": true } })).problem(403, "forbidden");
    let wait = waiting["waits"][0]["id"].as_str().unwrap();
    let by_id = json!({ "token": token, "payload": { "approved": true } });
    send(&format!("/v1/waits/{wait}/resolve"), by_id).problem(403, "forbidden");
    let shown = daemon.get(&format!("/v1/waits?work={id}")).expect(200)["items"][0]["seal"].clone();
    let yes = json!({ "approved": true, "seal": shown });
    send(&format!("/v1/work/{id}/approve"), yes.clone()).problem(403, "forbidden");
    let more = json!({ "name": "me", "kind": "person", "scopes": ["approve"] });
    send("/v1/tokens", more).problem(403, "forbidden");
    let seen = daemon.get(&format!("/v1/work/{id}")).expect(200);
    assert_eq!(seen["state"], "waiting_approval");
    daemon.post(&format!("/v1/work/{id}/approve"), yes).expect(200);
}

fn batches_hold_nothing_up(daemon: &Daemon) {
    let id = daemon.post("/v1/work", work("poll")).expect(201)["work"]["id"].as_str().unwrap().to_owned();
    let items: Vec<Value> = [
        format!("/v1/work/{id}?wait=terminal&timeout_ms=60000"),
        format!("/v1/work/{id}?%77ait=terminal&timeout_ms=60000"),
        format!("/v1/work/{id}?timeout_ms=60000&w%61it=terminal"),
        "/v1/events/stream".to_owned(),
        "/metrics".to_owned(),
        "//evil.example/v1/work".to_owned(),
        "http://evil.example/v1/work".to_owned(),
        "/v1/../healthz".to_owned(),
    ]
    .map(|path| json!({ "method": "GET", "path": path }))
    .into();
    let count = items.len();
    let reply = daemon.post("/v1/batch", json!({ "items": items })).expect(200);
    let answers = reply["items"].as_array().unwrap();
    assert_eq!(answers.len(), count);
    for (answer, item) in answers.iter().zip(&items) {
        let status = answer["status"].as_u64().unwrap();
        assert!((400..500).contains(&status), "{item}: {answer}");
        assert!(answer["body"]["code"].is_string(), "{item}: {answer}");
    }
    let nested = json!({ "items": [{ "path": "/v1/batch", "body": { "items": [] } }, { "path": "/v1/work/claim", "body": claim("w", "b") }] });
    let reply = daemon.post("/v1/batch", nested).expect(200);
    for answer in reply["items"].as_array().unwrap() {
        assert!((400..500).contains(&answer["status"].as_u64().unwrap()), "{answer}");
    }
    let many: Vec<Value> = (0..1_001).map(|_| json!({ "method": "GET", "path": "/v1/work" })).collect();
    daemon.post("/v1/batch", json!({ "items": many })).problem(400, "invalid");
}

fn requests_are_taken_literally(daemon: &Daemon) {
    // Compressed bodies are not read at all, so none can expand.
    let authorization = format!("Authorization: Bearer {ADMIN}");
    let args = ["-H", &authorization, "-H", "Content-Type: application/json", "-H", "Content-Encoding: gzip"];
    let refused =
        daemon.curl(&args, "/v1/work", Some(b"\x1f\x8b\x08")).problem(415, "unsupported_media_type");
    assert!(refused["detail"].as_str().unwrap().contains("Compressed"), "{refused}");

    let id = daemon.post("/v1/work", work("literal")).expect(201)["work"]["id"].as_str().unwrap().to_owned();
    let cancel = format!("/v1/work/{id}/cancel");
    daemon.post(&cancel, json!({ "reason": "x".repeat(100_000) })).problem(400, "invalid");
    daemon.post(&cancel, json!({ "reason": "a\u{0}b" })).problem(400, "invalid");
    daemon.post(&cancel, json!({ "reason": " \t\n" })).problem(422, "reason_missing");
    let names = ["..%2F..%2Fx", "%2e%2e", "a%00b", "a%0Ab", "'; drop table work; --"];
    let mut by_id = claim("w", "literal");
    by_id["ids"] = json!([id]);
    let lease = daemon.post("/v1/work/claim", by_id).expect(200)["leases"][0].take();
    for name in names {
        let path = format!("/v1/work/{id}/steps/{}", name.replace(' ', "%20"));
        let reply = daemon.put(&path, held(&lease, json!({ "verb": "begin", "input": 1 })));
        assert!([200, 400].contains(&reply.status), "{name}: {}", reply.text);
    }
    let text = "\u{1b}[31mred\u{202e}evil";
    let close =
        held(&lease, json!({ "state": "completed_with_warnings", "result": text, "warnings": [text] }));
    daemon.post(&format!("/v1/work/{id}/close-out"), close).expect(200);

    // The daemon itself reports oversized requests, far beyond its limits.
    daemon.get(&format!("/v1/work?kind={}", "x".repeat(60_000))).problem(414, "uri_too_long");
    let cookie = format!("Cookie: {}", "x".repeat(100_000));
    daemon.curl(&["-H", &authorization, "-H", &cookie], "/v1/work", None).problem(431, "headers_too_large");
    let many: Vec<String> = (0..150).map(|n| format!("X-{n}: 1")).collect();
    let many: Vec<&str> = many.iter().flat_map(|header| ["-H", header.as_str()]).collect();
    daemon.curl(&many, "/v1/work", None).problem(431, "headers_too_large");

    // Unusual requests by hand: each gets a response or a closed connection, and the daemon survives.
    let address = daemon.url.strip_prefix("http://").unwrap();
    for head in [
        format!("GET http://evil.example/v1/work HTTP/1.1\r\nHost: {address}\r\n"),
        format!("GET /v1/work HTTP/1.1\r\nHost: {address}\r\nHost: evil.example\r\n"),
        format!(
            "POST /v1/work HTTP/1.1\r\nHost: {address}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
        ),
        format!("POST /v1/work HTTP/1.1\r\nHost: {address}\r\nContent-Length: 99999999999999999999\r\n"),
        "GET /v1/work HTTP/1.1\r\nHost: evil.example\r\n".to_owned(),
        format!("GET /v1/work HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n", "y".repeat(1 << 20)),
        "\u{16}\u{3}\u{1}".to_owned(),
    ] {
        let mut socket = TcpStream::connect(address).unwrap();
        let sent = socket.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes());
        let mut answer = Vec::new();
        let read = sent.and_then(|()| socket.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer);
        let shown: String = head.chars().take(80).collect();
        assert!(read.is_err() || answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{shown}: {answer}");
    }
    daemon.get("/healthz").expect(200);
}

/// An unusable backup path is the caller's mistake rather than an outage.
fn copies_go_where_they_can(daemon: &Daemon, folder: &std::path::Path) {
    for name in ["", "no/such/folder/copy.db", "ledger.db", ".", "a\u{0}b"] {
        daemon.post("/v1/admin/backup", json!({ "name": name })).problem(400, "invalid");
    }
    daemon.post("/v1/admin/backup", json!({ "name": "copy.db" })).expect(200);
    assert!(folder.join("copy.db").exists());
}
