//! Redacted arguments stay unknown to credentials that may only read or that work elsewhere: guesses are not
//! confirmed.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::bed::{Bed, held, id_of, on_every_store};

const TOML: &str = "[tools.unlock]\nrisk = \"low\"\nredact = [\"/pin\"]";

on_every_store!(
    TOML;
    a_pin_is_not_found_from_the_hash_of_redacted_arguments,
    a_pin_is_not_found_by_dry_runs_in_ones_own_work,
);

fn hex(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn reserve(grant: &Value, pin: &str) -> Value {
    let arguments = json!({ "door": "front", "pin": pin });
    held(grant, json!({ "tool": "unlock", "target": "door-1", "slot": "a", "arguments": arguments }))
}

async fn a_pin_is_not_found_from_the_hash_of_redacted_arguments(bed: Bed) {
    let worker = bed.client("machine", &["submit", "work"], None).await;
    worker.ingest("a").await;
    let grant = worker.claim("c1").await;
    let path = format!("/v1/work/{}/commands", id_of(&grant));
    let made = worker.post(&path, reserve(&grant, "4711")).await.expect(201);
    let id = made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();

    let viewer = bed.client("machine", &["view"], None).await;
    let seen = viewer.get(&format!("/v1/commands/{id}")).await.expect(200);
    let events = viewer.get(&format!("/v1/work/{}/events", id_of(&grant))).await.expect(200);
    let everything = format!("{seen}{events}");
    for pin in 0..10_000 {
        let arguments = hex(format!("{{\"door\":\"front\",\"pin\":\"{pin:04}\"}}"));
        assert!(!everything.contains(&arguments), "the pin is {pin:04}");
        let seal = hex(json!([id_of(&grant), "unlock", "door-1", arguments]).to_string());
        assert!(!everything.contains(&seal), "by the seal, the pin is {pin:04}");
    }
    // The hash still distinguishes different arguments.
    let again = worker.post(&path, reserve(&grant, "4711")).await.expect(200);
    assert_eq!(again["input_hash"], made["input_hash"]);
    worker.post(&path, reserve(&grant, "4712")).await.problem(409, "idempotency_mismatch");
    bed.server.close().await.unwrap();
}

/// Guesses leave no trace and cost nothing, so their results must not be comparable with the command of
/// another work item.
async fn a_pin_is_not_found_by_dry_runs_in_ones_own_work(bed: Bed) {
    let worker = bed.client("machine", &["submit", "work"], None).await;
    worker.ingest("theirs").await;
    let theirs = worker.claim("c1").await;
    let path = format!("/v1/work/{}/commands", id_of(&theirs));
    let id = worker.post(&path, reserve(&theirs, "4711")).await.expect(201)["id"].clone();

    let agent = bed.client("machine", &["submit", "work", "view"], None).await;
    agent.ingest("own").await;
    let own = agent.claim("c2").await;
    let secret = agent.get(&format!("/v1/commands/{}", id.as_str().unwrap())).await.expect(200);
    let hash = secret["input_hash"].as_str().unwrap();
    let path = format!("/v1/work/{}/commands", id_of(&own));
    for pin in ["4710", "4711", "4712"] {
        let tried = agent.post(&format!("{path}?dry_run=true"), reserve(&own, pin)).await.expect(201);
        assert_eq!(tried["input_hash"], json!("0".repeat(64)), "{pin}");
        // The work item's own seal and key over their hash, as they would be for the same arguments.
        let seal = hex(json!([id_of(&own), "unlock", "door-1", hash]).to_string());
        let key = hex(json!([id_of(&own), tried["command_key"], hash]).to_string());
        let told = tried.to_string();
        assert!(![hash, &seal, &key[..40]].iter().any(|known| told.contains(known)), "{pin}: {told}");
    }
    let reserved = agent.post(&path, reserve(&own, "4711")).await.expect(201);
    assert_ne!(reserved["input_hash"], secret["input_hash"], "also where it is recorded");
    bed.server.close().await.unwrap();
}
