//! A thousand readers who connect to the stream and never read do not slow down renewals.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tenure_api::wire::{
    Claim, Disposition, Ingest, LeaseTimings, Liveness, Renew, RenewLease, Renewal, Source, WorkPolicy,
    Worker,
};

use crate::bed::{ADMIN, Daemon, Home};

const READERS: usize = 1_000;
const RENEWALS: usize = 200;
const TTL: Duration = Duration::from_secs(6);
/// More than the target for a daemon at full load would be a leak.
const RESIDENT_KIB: u64 = 256 * 1024;

#[test]
fn on_sqlite() {
    hold_nobody_up(&Home::sqlite().serve());
}

#[test]
fn on_postgres() {
    hold_nobody_up(&Home::postgres().serve());
}

fn connect(daemon: &Daemon) -> TcpStream {
    let address = daemon.url.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    let head =
        format!("GET /v1/events/stream HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {ADMIN}\r\n\r\n");
    socket.write_all(head.as_bytes()).unwrap();
    // Only its head is read, so that the stream is known to be open.
    let mut begun = [0; 15];
    socket.read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    socket
}

fn hold_nobody_up(daemon: &Daemon) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let readers: Vec<TcpStream> = (0..READERS).map(|_| connect(daemon)).collect();
    let (positions, mut spent) = runtime.block_on(load(daemon));
    spent.sort();
    let p99 = spent[RENEWALS * 99 / 100];
    assert!(p99 < TTL / 3, "99 of 100 renewals are answered within {p99:?}");
    assert!(daemon.resident() < RESIDENT_KIB, "{} KiB", daemon.resident());
    for mut reader in readers.into_iter().step_by(READERS / 3) {
        caught_up(daemon, &mut reader, &positions);
    }
}

/// A lease is renewed again and again while work items arrive; returns the feed's positions and the
/// durations.
async fn load(daemon: &Daemon) -> (Vec<String>, Vec<Duration>) {
    let client = daemon.client();
    let new = |id: String| {
        let source = Source { system: "manual".into(), id, run_id: String::new() };
        let lease = LeaseTimings { ttl_ms: 6_000, renew_ms: 2_000, grace_ms: 1_000 };
        let policy = WorkPolicy { lease: Some(lease), ..WorkPolicy::default() };
        Ingest { policy: Some(policy), ..Ingest::new(source, "job", Disposition::Rerunnable, json!(1)) }
    };
    let held = client.ingest(&new("held".into())).await.unwrap().work.id;
    let worker = Worker { id: "w".into(), incarnation: "1".into(), liveness: Liveness::Opaque };
    let claim = Claim { ids: vec![held.clone()], ..Claim::new(worker, "r") };
    let grant = client.claim(&claim).await.unwrap().leases.remove(0);
    let lease = RenewLease { id: held, fence: grant.fence, token: grant.token, progress: None };
    let mut spent = Vec::new();
    for n in 0..RENEWALS {
        client.ingest(&new(n.to_string())).await.unwrap();
        let begun = Instant::now();
        let renewed = client.renew(&Renew { leases: vec![lease.clone()] }).await.unwrap();
        spent.push(begun.elapsed());
        assert!(matches!(renewed.leases[0], Renewal::Renewed { .. }), "{renewed:?}");
    }
    let page =
        client.events(&tenure_api::wire::EventQuery { limit: Some(1_000), ..Default::default() }).await;
    (page.unwrap().items.into_iter().map(|event| event.position).collect(), spent)
}

/// A slow reader finally finds every event, or a gap with the position to continue from.
fn caught_up(daemon: &Daemon, reader: &mut TcpStream, positions: &[String]) {
    reader.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut seen = Vec::new();
    let mut text = String::new();
    let mut bytes = [0; 65_536];
    // The page after a gap may already hold later events: the lease lapses once nobody renews it.
    while !positions.last().is_some_and(|last| seen.contains(last)) {
        let len = reader.read(&mut bytes).unwrap();
        assert!(len > 0, "it ends only after a gap");
        text += std::str::from_utf8(&bytes[..len]).unwrap();
        let whole = text.rfind("\n\n").map_or(0, |at| at + 2);
        for message in text[..whole].split("\n\n") {
            let field = |name: &str| message.lines().find_map(|line| line.strip_prefix(name));
            match field("event: ") {
                Some("event") => seen.push(field("id: ").unwrap().to_owned()),
                Some("gap") => {
                    let gap: Value = serde_json::from_str(field("data: ").unwrap()).unwrap();
                    let after = gap["after"].as_str().unwrap();
                    let rest = daemon.get(&format!("/v1/events?limit=1000&after={after}")).expect(200);
                    let rest = rest["items"].as_array().unwrap().iter();
                    seen.extend(rest.map(|event| event["position"].as_str().unwrap().to_owned()));
                }
                _ => {}
            }
        }
        text.drain(..whole);
    }
    assert_eq!(seen[..positions.len()], positions[..], "nothing is missed, and nothing comes twice");
}
