//! A worker process that is suspended past its lease and continues later as if nothing had happened.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::bed::{ADMIN, Daemon, Home, claim, held, signal, until, work};

/// Sends the requests it reads, a path and a body for each line, and prints the responses: a worker in
/// another language.
const SCRIPT: &str = r#"while read -r path body; do
    curl -sS -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" -d "$body" "$URL$path"
    echo
done"#;

pub struct Process {
    pub child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub fn start(daemon: &Daemon) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).env("TOKEN", ADMIN).env("URL", &daemon.url);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, orders, answers }
    }

    /// The liveness that the ledger can check itself.
    pub fn liveness(&self) -> Value {
        let pid = self.child.id();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let start: u64 =
            stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
        let namespace = namespace.to_str().unwrap();
        let inode: u64 = namespace.trim_start_matches("pid:[").trim_end_matches(']').parse().unwrap();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        json!({ "type": "local_process", "boot_id": boot.trim(), "pid_namespace": inode, "pid": pid, "start_time": start })
    }

    pub fn order(&mut self, path: &str, body: &Value) {
        writeln!(self.orders, "{path} {body}").unwrap();
    }

    pub fn answer(&mut self) -> Value {
        serde_json::from_str(&self.answers.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn on_sqlite() {
    comes_back(&Home::sqlite().serve());
}

#[test]
fn on_postgres() {
    comes_back(&Home::postgres().serve());
}

fn comes_back(daemon: &Daemon) {
    for disposition in ["rerunnable", "owner_bound"] {
        let ended = stopped_past_its_lease(daemon, disposition, false);
        assert_eq!(ended["state"], "succeeded", "nobody took over, so its write counts: {ended}");
    }
    let refused = stopped_past_its_lease(daemon, "rerunnable", true);
    assert_eq!((&refused["code"], &refused["retryable"]), (&json!("lease_lost"), &json!(false)), "{refused}");
    let report = daemon.post("/v1/admin/verify", json!({})).expect(200);
    assert_eq!(report["faults"], json!([]));
}

/// The response to the close-out of a suspended process.
fn stopped_past_its_lease(daemon: &Daemon, disposition: &str, taken_over: bool) -> Value {
    let name = format!("{disposition}-{taken_over}");
    let mut body = work(&name);
    body["disposition"] = json!(disposition);
    body["policy"] = json!({
        "lease": { "ttl_ms": 600, "renew_ms": 200, "grace_ms": 200 },
        "retry": { "initial_ms": 1, "max_ms": 1 },
    });
    let id = daemon.post("/v1/work", body).expect(201)["work"]["id"].as_str().unwrap().to_owned();
    let mut worker = Process::start(daemon);
    let identity = json!({ "id": "w1", "incarnation": name, "liveness": worker.liveness() });
    worker.order("/v1/work/claim", &json!({ "worker": identity, "request_id": name, "ids": [id] }));
    let lease = worker.answer()["leases"][0].take();
    assert!(lease["token"].is_string(), "{lease}");

    signal(worker.child.id(), "STOP");
    let lapsed = until("the lease lapses", || {
        let seen = daemon.get(&format!("/v1/work/{id}")).expect(200);
        seen["lease"]["lapsed_at"].is_string().then_some(seen)
    });
    assert_eq!(lapsed["lease"]["liveness"], "suspended", "as the sweeper saw it: {lapsed}");
    if disposition == "owner_bound" {
        assert_eq!(lapsed["state"], "stalled", "a stopped owner is not a dead one: {lapsed}");
        let reason = lapsed["reason"].to_string();
        assert!(reason.contains("suspended"), "and it is known to be stopped: {lapsed}");
    }
    let mut second = Value::Null;
    if taken_over {
        let body = json!({ "worker": { "id": "w2", "incarnation": "1" }, "request_id": "take", "ids": [id] });
        second = until("it can be claimed", || {
            let reply = daemon.post("/v1/work/claim", body.clone());
            (reply.status == 200).then(|| reply.body["leases"][0].clone())
        });
        assert!(second["fence"].as_u64() > lease["fence"].as_u64());
    }
    let close = held(&lease, json!({ "state": "succeeded", "result": name }));
    worker.order(&format!("/v1/work/{id}/close-out"), &close);
    signal(worker.child.id(), "CONT");
    let answer = worker.answer();

    let events = daemon.get(&format!("/v1/work/{id}/events")).expect(200);
    let late = events["items"].as_array().unwrap().iter().filter(|event| event["type"] == "late").count();
    assert_eq!(late, usize::from(!taken_over), "a late write that counts is flagged: {events}");
    if taken_over {
        let close = held(&second, json!({ "state": "succeeded", "result": "second" }));
        daemon.post(&format!("/v1/work/{id}/close-out"), close).expect(200);
        assert_eq!(daemon.get(&format!("/v1/work/{id}")).expect(200)["result"], "second");
    }
    answer
}

#[test]
fn a_stopped_daemon_expires_no_living_holder_on_sqlite() {
    daemon_stands_still(&Home::sqlite().serve());
}

#[test]
fn a_stopped_daemon_expires_no_living_holder_on_postgres() {
    daemon_stands_still(&Home::postgres().serve());
}

/// Longer than a lease is valid: nobody could renew it meanwhile.
fn daemon_stands_still(daemon: &Daemon) {
    let (ttl, grace) = (3_000, 500);
    let mut body = work("held");
    body["policy"] = json!({ "lease": { "ttl_ms": ttl, "renew_ms": 1_000, "grace_ms": grace } });
    let id = daemon.post("/v1/work", body).expect(201)["work"]["id"].as_str().unwrap().to_owned();
    let mut ask = claim("w1", "r1");
    ask["ids"] = json!([id]);
    let lease = daemon.post("/v1/work/claim", ask).expect(200)["leases"][0].take();
    let renew = || {
        let one = held(&lease, json!({ "id": id }));
        let answer = daemon.post("/v1/work/renew", json!({ "leases": [one] })).expect(200);
        assert!(answer["leases"][0]["expires_at"].is_string(), "{answer}");
    };
    renew();
    let began = Instant::now();
    daemon.signal("STOP");
    until("the lease is over", || (began.elapsed() > Duration::from_millis(ttl + grace + 500)).then_some(()));
    let goes_on = Instant::now();
    daemon.signal("CONT");
    // Its sweeper has run since, and did not lapse the lease.
    until("a look of the sweeper", || {
        let ready = daemon.get("/readyz").body;
        let checks = ready["checks"].as_array()?.iter();
        let detail =
            checks.filter(|check| check["name"] == "sweeper").find_map(|check| check["detail"].as_str())?;
        let ago: u64 = detail.split(' ').nth(1)?.parse().ok()?;
        (Duration::from_millis(ago) < goes_on.elapsed()).then_some(())
    });
    renew();
    let seen = daemon.get(&format!("/v1/work/{id}")).expect(200);
    assert_eq!((&seen["state"], &seen["lease"]["lapsed_at"]), (&json!("running"), &Value::Null), "{seen}");
}
