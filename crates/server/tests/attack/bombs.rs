//! Schemas, patterns and cron expressions that would need too much work.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tenure_server::{Config, Overlay};

use crate::bed::{Bed, Client, held, id_of};

/// Refusals come before the work: this is plenty on a busy machine, and too short for any bomb.
const SOON: Duration = Duration::from_secs(20);

/// Each definition uses the next one twice.
fn doubling() -> Value {
    let mut defs = Map::new();
    for n in 0..40 {
        let next = json!({ "$ref": format!("#/$defs/{}", n + 1) });
        defs.insert(n.to_string(), json!({ "allOf": [next, next] }));
    }
    defs.insert("40".to_owned(), json!({ "type": "string" }));
    json!({ "$ref": "#/$defs/0", "$defs": defs })
}

/// Each definition refers to the next, and the last one back to all of them: every level of a value
/// multiplies the work.
fn cycles(holder: &str) -> Value {
    let to = |n: usize| json!({ "$ref": format!("#/{holder}/n{n}") });
    let mut defs: Map<_, _> = (0..9).map(|n| (format!("n{n}"), json!({ "allOf": [to(n + 1)] }))).collect();
    let back: Vec<Value> = (0..10).map(to).collect();
    defs.insert("n9".to_owned(), json!({ "items": { "allOf": back } }));
    json!({ "$ref": format!("#/{holder}/n0"), holder: defs })
}

async fn waits_with(client: &Client, grant: &Value, schema: Value) -> (u16, Value) {
    let body = held(grant, json!({ "waits": [{ "kind": "user", "ref": "q", "schema": schema }] }));
    let reply = client.post(&format!("/v1/work/{}/wait", id_of(grant)), body).await;
    (reply.status.as_u16(), reply.body)
}

async fn a_small_schema_cannot_stop_the_daemon(bed: Bed) {
    let client = bed.admin();
    client.ingest("one").await;
    let grant = client.claim("r1").await;
    let nested = (0..200).fold(json!({}), |inner, _| json!({ "not": inner }));
    let unevaluated =
        (0..40).fold(json!({}), |inner, _| json!({ "anyOf": [inner], "unevaluatedProperties": false }));
    let started = Instant::now();
    for (schema, told) in [
        (doubling(), "parts"),
        (cycles("default"), "does not contain schemas"),
        (cycles("$defs"), "doubles"),
        (unevaluated, "parts"),
        (nested, "recursion limit"),
        (json!({ "items": { "anyOf": [{ "$ref": "#" }, { "$ref": "#" }] } }), "doubles"),
        (json!({ "$ref": "#" }), "without going deeper"),
        (json!({ "pattern": "((a{100}){100}){100}" }), "schema"),
        (json!({ "pattern": "a".repeat(10_000) }), "pattern"),
        (json!({ "anyOf": vec![json!({ "pattern": "\\w{20}" }); 2_000] }), "patterns"),
        (json!({ "description": "x".repeat(100_000) }), "bytes"),
    ] {
        let (status, body) = waits_with(&client, &grant, schema).await;
        let detail = body["detail"].as_str().unwrap_or_default();
        assert!((400..500).contains(&status) && detail.contains(told), "{told}: {status} {body}");
        client.get("/v1/work").await.expect(200);
    }
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    // The work item is still held, and an ordinary schema is still accepted.
    let (status, body) =
        waits_with(&client, &grant, json!({ "type": "string", "pattern": "^[\\w-]+$" })).await;
    assert_eq!(status, 200, "{body}");
}

async fn a_large_answer_to_a_wide_schema_is_refused_before_it_is_checked(bed: Bed) {
    let client = bed.admin();
    client.ingest("one").await;
    let grant = client.claim("r1").await;
    let wide = json!({ "items": { "enum": (0..4_000).map(|n| format!("v{n}")).collect::<Vec<_>>() } });
    assert_eq!(waits_with(&client, &grant, wide).await.0, 200);
    let answer = json!({ "ref": "q", "payload": vec![0; 100_000] });
    let started = Instant::now();
    client.post("/v1/resolve", answer).await.problem(409, "limit_reached");
    assert!(started.elapsed() < SOON);
    client.post("/v1/resolve", json!({ "ref": "q", "payload": ["v1", "v2"] })).await.expect(200);
}

/// Only short input is accepted: answers are refused before they are checked, or without a list of errors.
async fn no_answer_makes_a_small_schema_expensive(bed: Bed) {
    let client = bed.admin();
    let names = |count: usize| (0..count).map(|n| format!("k{n:x}")).collect::<Vec<_>>();
    let dependent = json!({ "dependentRequired": { "a": names(900) } });
    let bombs = [
        ("wide", json!({ "items": { "required": names(4_900) } }), json!(vec![json!({}); 1_000]), "422"),
        ("wider", json!({ "items": { "required": names(4_900) } }), json!(vec![json!({}); 9_000]), "409"),
        ("pattern", json!({ "pattern": "a[ab]{400}c" }), json!("ab".repeat(500_000)), "409"),
        ("dependent", dependent, json!({ "a": 1 }), "422"),
    ];
    let started = Instant::now();
    for (name, schema, answer, status) in bombs {
        client.ingest(name).await;
        let grant = client.claim(name).await;
        let body = held(&grant, json!({ "waits": [{ "kind": "user", "ref": name, "schema": schema }] }));
        client.post(&format!("/v1/work/{}/wait", id_of(&grant)), body).await.expect(200);
        let refused = client.post("/v1/resolve", json!({ "ref": name, "payload": answer })).await;
        assert_eq!(refused.status.as_str(), status, "{name}: {}", refused.body);
    }
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

/// Accepted by every limit, and as much work as they allow.
async fn another_tenants_check_answers_while_two_bombs_run(bed: Bed) {
    let evil = bed.client("machine", &["submit", "work", "resolve", "view"], Some(&["evil"])).await;
    let good = bed.client("machine", &["submit", "work", "resolve", "view"], Some(&["good"])).await;
    let wide = json!({ "items": { "enum": (0..4_000).collect::<Vec<_>>() } });
    let mut bombs = tokio::task::JoinSet::new();
    for name in ["b1", "b2"] {
        evil.ingest(name).await;
        let grant = evil.claim(name).await;
        let body = held(&grant, json!({ "waits": [{ "kind": "user", "ref": name, "schema": wide }] }));
        evil.post(&format!("/v1/work/{}/wait", id_of(&grant)), body).await.expect(200);
        let (evil, answer) = (evil.clone(), json!({ "ref": name, "payload": vec![3_999; 4_900] }));
        bombs.spawn(async move { evil.post("/v1/resolve", answer).await.status });
    }
    for n in 0..5 {
        good.ingest(&format!("g{n}")).await;
        let grant = good.claim(&format!("g{n}")).await;
        let (status, body) = waits_with(&good, &grant, json!({ "type": "string" })).await;
        assert_eq!(status, 200, "{body}");
        good.post("/v1/resolve", json!({ "ref": "q", "payload": "yes" })).await.expect(200);
    }
    while let Some(status) = bombs.join_next().await {
        let status = status.unwrap().as_u16();
        assert!([200, 409].contains(&status), "done, or given up: {status}");
    }
}

async fn a_cron_expression_is_no_book(bed: Bed) {
    let client = bed.admin();
    let schedule = |cron: String| {
        json!({ "cron": cron, "reason": "a test",
            "template": { "kind": "job", "disposition": "rerunnable", "input": null } })
    };
    let long = format!("{} * * * *", vec!["1"; 100_000].join(","));
    let reply = client.put("/v1/schedules/nightly", schedule(long)).await;
    reply.problem(400, "invalid");
    assert!(reply.body["detail"].as_str().unwrap().contains("cron"), "{}", reply.body);
    client.put("/v1/schedules/nightly", schedule("0 7 * * mon-fri".to_owned())).await.expect(201);
}

/// Nested conditions take stack, and many policies take time: a reload refuses the whole set and keeps the
/// previous one.
async fn a_policy_bomb_changes_nothing(bed: Bed) {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("tenure.toml");
    std::fs::write(&name, "[policy]\nfiles = [\"bomb.cedar\"]").unwrap();
    let reload = async |policies: &str| {
        std::fs::write(folder.path().join("bomb.cedar"), policies).unwrap();
        let name = name.clone();
        let load = move || Config::load(Some(&name), Overlay::default());
        bed.server.reloader().load(load).await.map(drop).map_err(|error| error.to_string())
    };
    let started = Instant::now();
    let large = "permit (principal, action, resource);\n".repeat(150_000);
    assert!(reload(&large).await.unwrap_err().contains("longer than"));
    let half = "forbid (principal, action, resource) when { ".to_owned() + &"!(".repeat(500);
    assert!(reload(&half).await.is_err());
    bed.admin().ingest("one").await;
    bed.admin().get("/v1/work").await.expect(200);
    let terms = vec!["context.arguments.n == 1"; 1_000].join(" && ");
    reload(&format!("forbid (principal, action, resource) when {{ {terms} }};")).await.unwrap();
    bed.admin().get("/v1/work").await.expect(200);
    assert!(started.elapsed() < 3 * SOON, "{:?}", started.elapsed());
}

crate::bed::on_both_databases! {
    a_policy_bomb_changes_nothing,
    a_small_schema_cannot_stop_the_daemon,
    a_large_answer_to_a_wide_schema_is_refused_before_it_is_checked,
    no_answer_makes_a_small_schema_expensive,
    another_tenants_check_answers_while_two_bombs_run,
    a_cron_expression_is_no_book,
}
