//! A short fuzz test: inputs derived from valid ones by small changes. Nothing panics, no request gets a 500,
//! every accepted value can be read again, and no number bypasses a policy. `TENURE_FUZZ_SECONDS` extends it.

#[allow(dead_code, unused_imports, unused_macros)] // shared with the tests of HTTP
#[path = "http/bed.rs"]
mod bed;

use std::time::{Duration, Instant};

use axum::{body::Body, http::Method};
use bed::{Bed, Client, held, id_of, work};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use tenure_core::{
    Actor, Payload,
    command::{Effect, Risk, budget::Cost},
};
use tenure_server::policy::{Ask, Policies, PolicyFile, WorkFacts};

/// Fragments that are inserted into an input.
const WORDS: [&str; 38] = [
    "null",
    "true",
    "0",
    "-0",
    "-0.0",
    "1e17",
    "1e19",
    "1e21",
    "1e308",
    "1e-400",
    "5e-324",
    "5000.00001",
    "0.1",
    "9007199254740992",
    "9007199254740993",
    "18446744073709551616",
    "{}",
    "[]",
    "[null]",
    "[1,\"x\"]",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\u202e\"",
    "\"x\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\u{feff}",
    "\"$ref\":\"#\"",
    "\"a\":1,\"a\":2",
    " has ",
    " && ",
];

/// Runs until the time is over; a failure prints its seed.
async fn fuzz(mut once: impl AsyncFnMut(&mut StdRng)) {
    let seconds = std::env::var("TENURE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let until = Instant::now() + Duration::from_secs(seconds);
    let first: u64 = rand::rng().random();
    let mut seed = first;
    while Instant::now() < until {
        println!("seed {seed}");
        once(&mut StdRng::seed_from_u64(seed)).await;
        seed = seed.wrapping_add(1);
    }
}

/// A valid text with a few changes.
fn changed(sound: &str, random: &mut StdRng) -> String {
    let mut text: Vec<char> = sound.chars().collect();
    for _ in 0..random.random_range(1..4) {
        let at = random.random_range(0..=text.len());
        let to = (at + random.random_range(0..6)).min(text.len());
        match random.random_range(0..4) {
            0 => drop(text.drain(at..to)),
            1 => {
                let again: Vec<char> = text[at..to].to_vec();
                text.splice(at..at, again);
            }
            _ => {
                let word: Vec<char> = WORDS.choose(random).unwrap().chars().collect();
                text.splice(at..to, word);
            }
        }
    }
    text.into_iter().collect()
}

#[tokio::test]
async fn every_accepted_payload_can_be_read_again() {
    let sound =
        r#"{"amount":12.5,"to":["ann","bob"],"deep":{"n":[1,2,{"x":null}],"s":"é\n\u0041"},"big":1e21}"#;
    fuzz(async |random| {
        let text = changed(sound, random);
        let Ok(value) = serde_json::from_str::<Value>(&text) else { return };
        let Ok(payload) = Payload::new(&value) else { return };
        assert_eq!(Payload::new(&payload.value()).as_ref(), Ok(&payload), "{text}");
        let kept = serde_json::to_string(&payload).unwrap();
        assert_eq!(serde_json::from_str::<Payload>(&kept).unwrap(), payload, "{text}");
    })
    .await;
}

fn effect(policies: &Policies, arguments: &Value) -> Effect {
    let ask = Ask {
        actor: &Actor::worker("a"),
        tool: "pay",
        risk: Risk::High,
        target: "bob",
        arguments,
        tenant: "acme",
        work: WorkFacts { id: "w_1", kind: "job", source: "manual", attempt: 1 },
        now: 1_794_823_200_000,
        estimate: &Cost::default(),
    };
    policies.ask(&ask).effect
}

#[tokio::test]
async fn no_policy_panics_and_no_number_slips_past_one() {
    let file = |text: String| PolicyFile { name: "p.cedar".to_owned(), text };
    let sound = r#"permit (principal, action, resource);
        forbid (principal, action == Action::"pay", resource)
        when { context.arguments has amount && context.arguments.amount > 5000 };
        forbid (principal, action, resource)
        when { context.arguments has to && context.arguments.to.contains("mallory") };"#;
    let strict = Policies::load(&[file(sound.to_owned())]).unwrap();
    fuzz(async |random| {
        let arguments = changed(r#"{"amount":5001,"to":["mallory","bob"]}"#, random);
        if let Ok(arguments) = serde_json::from_str::<Value>(&arguments) {
            let allowed = effect(&strict, &arguments) == Effect::Allow;
            let too_much = arguments["amount"].as_f64().is_some_and(|amount| amount > 5000.0);
            let to = arguments["to"].as_array();
            let mallory = to.is_some_and(|to| to.contains(&json!("mallory")));
            assert!(!allowed || !(too_much || mallory), "{arguments}");
        }
        if let Ok(policies) = Policies::load(&[file(changed(sound, random))]) {
            effect(&policies, &json!({ "amount": 5000.5, "to": [] }));
        }
    })
    .await;
}

async fn sent(client: &Client, method: Method, path: &str, text: String) {
    let mut request = client.request(method, path);
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    *request.body_mut() = Body::from(text.clone());
    let reply = client.raw(request).await;
    assert!(reply.status.as_u16() < 500, "{path} {text}: {} {}", reply.status, reply.body);
}

async fn no_body_is_answered_with_a_fault(bed: Bed) {
    let client = bed.admin();
    client.ingest("held").await;
    let grant = client.claim("r1").await;
    let of = |verb: &str| format!("/v1/work/{}/{verb}", id_of(&grant));
    let wait = json!({ "waits": [{ "kind": "user", "ref": "q", "default": 1, "schema": { "maximum": 7 } }] });
    let reserve = json!({ "tool": "pay", "target": "bob", "arguments": { "amount": 1.5 } });
    let bodies = [
        ("/v1/work".to_owned(), work("a")),
        (
            "/v1/work/claim".to_owned(),
            json!({ "worker": { "id": "w", "incarnation": "i" }, "request_id": "r" }),
        ),
        (of("progress"), held(&grant, json!({ "request_id": "p", "progress": { "percent": 50 } }))),
        (of("wait"), held(&grant, wait)),
        (of("commands"), held(&grant, reserve)),
        ("/v1/resolve".to_owned(), json!({ "ref": "q", "payload": { "yes": true } })),
        ("/v1/tokens".to_owned(), json!({ "name": "t", "kind": "machine", "scopes": ["view"] })),
    ];
    fuzz(async |random| {
        let (path, body) = bodies.choose(random).unwrap();
        sent(&client, Method::POST, path, changed(&body.to_string(), random)).await;
    })
    .await;
    for path in ["/v1/work", "/v1/waits", "/v1/commands", "/v1/events", "/v1/tokens"] {
        assert!(client.get(path).await.expect(200).get("unreadable").is_none(), "{path}");
    }
    // All accepted items match their logs.
    let verified = client.send(Method::POST, "/v1/admin/verify", None).await.expect(200);
    assert_eq!(verified["faults"], json!([]));
}

async fn no_batch_is_answered_with_a_fault(bed: Bed) {
    let client = bed.admin();
    let items = json!({ "items": [
        { "method": "POST", "path": "/v1/work", "body": work("a") },
        { "method": "GET", "path": "/v1/work?limit=2" },
        { "method": "POST", "path": "/v1/resolve", "body": { "ref": "q", "payload": 1 } },
    ] });
    fuzz(async |random| sent(&client, Method::POST, "/v1/batch", changed(&items.to_string(), random)).await)
        .await;
}

bed::on_every_store! {
    "";
    no_body_is_answered_with_a_fault,
    no_batch_is_answered_with_a_fault,
}
