//! PostgreSQL becomes unavailable, before the start or later: the daemon reports it, refuses, and recovers by
//! itself.

use std::process::Stdio;

use serde_json::{Value, json};
use tenure_testkit::Cluster;

use crate::bed::{ADMIN, Daemon, Home, tenure, until, work};

#[test]
fn it_heals_by_itself() {
    let cluster = Cluster::start();
    let home = Home::at(&cluster.create_database());
    cluster.stop();
    let daemon = home.serve_at_last();
    away(&daemon);
    cluster.restart();
    back(&daemon, "first");
    for round in ["second", "third"] {
        cluster.stop();
        away(&daemon);
        cluster.restart();
        back(&daemon, round);
    }
    let items = daemon.get("/v1/work").expect(200)["items"].as_array().unwrap().len();
    assert_eq!(items, 3, "what was acknowledged before each crash is there");
    daemon.signal("TERM");
    assert_eq!(daemon.ended().0, Some(0));
}

#[test]
fn it_can_be_stopped_while_it_waits() {
    let cluster = Cluster::start();
    let home = Home::at(&cluster.create_database());
    cluster.stop();
    let daemon = home.serve_at_last();
    away(&daemon);
    doctor_blames_the_database_alone(&home, &daemon);
    daemon.signal("TERM");
    let (code, said) = daemon.ended();
    assert_eq!(code, Some(0));
    assert!(!said.contains("Listening"), "there was no ledger to serve: {said}");
    assert!(said.contains("Opening the ledger"), "{said}");
}

fn doctor_blames_the_database_alone(home: &Home, daemon: &Daemon) {
    let mut doctor = tenure(home.folder.path());
    doctor.args(["--url", &daemon.url, "--token", ADMIN, "doctor", "-o", "json"]).stdout(Stdio::piped());
    let said = doctor.output().unwrap();
    assert_eq!(said.status.code(), Some(7));
    let findings: Value = serde_json::from_slice(&said.stdout).unwrap();
    let verdict = |check: &str| {
        let findings = findings.as_array().unwrap();
        findings.iter().find(|finding| finding["check"] == check).map(|finding| finding["verdict"].clone())
    };
    assert_eq!(
        (verdict("ready"), verdict("token")),
        (Some(json!("fail")), Some(json!("info"))),
        "{findings}"
    );
}

fn away(daemon: &Daemon) {
    let said = until("it says that it is not ready", || {
        let reply = daemon.get("/readyz");
        (reply.status == 503).then_some(reply.body)
    });
    assert_eq!(said["ready"], false);
    let why = said["checks"].as_array().unwrap().iter().find(|check| check["ok"] == false).unwrap();
    assert!(why["detail"].as_str().unwrap().len() > 20, "{said}");
    daemon.get("/healthz").expect(200);
    for reply in [daemon.post("/v1/work", work("away")), daemon.get("/v1/work")] {
        let problem = reply.problem(503, "unavailable");
        assert_eq!(problem["retryable"], true);
        assert!(problem["detail"].as_str().unwrap().contains("check that the database runs"), "{problem}");
    }
}

fn back(daemon: &Daemon, name: &str) {
    until("it is ready again", || (daemon.get("/readyz").status == 200).then_some(()));
    // A pooled connection may still be broken: the error says so, and a retry is safe.
    until("it takes work again", || {
        let reply = daemon.post("/v1/work", work(name));
        assert!([200, 201, 503].contains(&reply.status), "{}", reply.text);
        (reply.status != 503).then_some(())
    });
    assert_eq!(daemon.post("/v1/work", work(name)).expect(200)["created"], json!(false));
}
