//! One tenant tries to exhaust the daemon in every way at once; another's lease is renewed in time, and
//! memory stays bounded. The latency of other tenants' reads is measured on a release build: `tenure-bench
//! http`.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tenure_testkit::Neighbour;

use crate::bed::{Daemon, Home, claim, work};

const ATTACK: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(30);
const RESIDENT_KIB: u64 = 256 * 1024;

#[test]
fn on_sqlite() {
    hurt_nobody(&Home::sqlite().serve());
}

#[test]
fn on_postgres() {
    hurt_nobody(&Home::postgres().serve());
}

fn token(daemon: &Daemon, tenant: &str) -> String {
    let scopes = ["view", "payload", "submit", "work"];
    let made = json!({ "name": tenant, "kind": "machine", "scopes": scopes, "tenants": [tenant] });
    daemon.post("/v1/tokens", made).expect(201)["secret"].as_str().unwrap().to_owned()
}

fn hurt_nobody(daemon: &Daemon) {
    let (hostile, quiet) = (token(daemon, "hostile"), token(daemon, "quiet"));
    for n in 0..10 {
        let mut large = work(&n.to_string());
        large["input"] = json!("x".repeat(900_000));
        daemon.as_token(&hostile, "POST", "/v1/work", Some(&large)).expect(201);
    }
    let post = |path: &str, body: &Value| daemon.as_token(&quiet, "POST", path, Some(body));
    let mut held = work("held");
    held["policy"] =
        json!({ "lease": { "ttl_ms": TTL.as_millis() as u64, "renew_ms": 10_000, "grace_ms": 5_000 } });
    let id = post("/v1/work", &held).expect(201)["work"]["id"].clone();
    let grant = post("/v1/work/claim", &claim("w", "r")).expect(200)["leases"][0].take();
    assert_eq!(grant["work"]["id"], id);
    let lease = json!({ "leases": [{ "id": id, "fence": grant["fence"], "token": grant["token"] }] });

    let attack = Neighbour::attack(daemon.url.strip_prefix("http://").unwrap(), &hostile, 1);
    let (slowest, resident) = thread::scope(|scope| {
        let over = Instant::now() + ATTACK;
        let watching = scope.spawn(move || {
            let mut most = 0;
            while Instant::now() < over {
                most = daemon.resident().max(most);
                thread::park_timeout(Duration::from_millis(50));
            }
            most
        });
        let mut slowest = Duration::ZERO;
        while Instant::now() < over {
            let begun = Instant::now();
            let renewed = post("/v1/work/renew", &lease).expect(200);
            assert!(renewed["leases"][0].get("problem").is_none(), "{renewed}");
            slowest = slowest.max(begun.elapsed());
        }
        (slowest, watching.join().unwrap())
    });
    let (answered, refused) = attack.stop();
    assert!(answered > 0 && refused > 0, "{answered} of its calls were answered, {refused} were refused");
    assert!(slowest < TTL / 3, "a renewal took {slowest:?}");
    assert!(resident < RESIDENT_KIB, "{resident} KiB");
    let seen =
        daemon.as_token(&quiet, "GET", &format!("/v1/work/{}", id.as_str().unwrap()), None).expect(200);
    assert_eq!((&seen["attempt"], &seen["fence"]), (&json!(1), &grant["work"]["fence"]), "{seen}");
}
