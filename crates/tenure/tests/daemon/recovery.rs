//! A worker process is killed with `kill -9`: the plan has the proof, and applying it gives the work back at once.

use serde_json::{Value, json};

use crate::{
    bed::{ADMIN, Daemon, Home, tenure, work},
    suspended::Process,
};

#[test]
fn on_sqlite() {
    killed(&Home::sqlite());
}

#[test]
fn on_postgres() {
    killed(&Home::postgres());
}

/// A verb of the binary, against the daemon: its exit code, stdout and stderr.
fn typed(home: &Home, daemon: &Daemon, args: &[&str]) -> (i32, String, String) {
    let mut command = tenure(home.folder.path());
    command.env("TENURE_URL", &daemon.url).env("TENURE_TOKEN", ADMIN).args(args);
    let output = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).output();
    let output = output.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn killed(home: &Home) {
    let daemon = home.serve();
    let mut ids = Vec::new();
    let mut worker = Process::start(&daemon);
    for disposition in ["rerunnable", "owner_bound"] {
        let mut body = work(disposition);
        body["disposition"] = json!(disposition);
        // The sweeper looks at the process as often as it is to renew: not within this test.
        body["policy"] = json!({ "lease": { "ttl_ms": 1_200_000, "renew_ms": 400_000, "grace_ms": 1_000 } });
        let id = daemon.post("/v1/work", body).expect(201)["work"]["id"].as_str().unwrap().to_owned();
        let identity = json!({ "id": "w1", "incarnation": "i1", "liveness": worker.liveness() });
        let claim = json!({ "worker": identity, "request_id": disposition, "ids": [id] });
        worker.order("/v1/work/claim", &claim);
        assert!(worker.answer()["leases"][0]["token"].is_string());
        ids.push(id);
    }
    let plan = |args: &[&str]| -> Value {
        let (code, out, err) = typed(home, &daemon, &[&["recover", "plan", "-o", "json"], args].concat());
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    };
    let alive = plan(&[]);
    assert_eq!(alive["rows"], json!([]), "its process runs");

    worker.child.kill().unwrap();
    worker.child.wait().unwrap();
    let dead = plan(&["--worker", "w1"]);
    let rows = dead["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{dead}");
    let pid = worker.child.id().to_string();
    for row in rows {
        assert!(row["proof_of_death"].as_str().is_some_and(|proof| proof.contains(&pid)), "{row}");
        assert_eq!(row["safe"], true, "{row}");
    }
    let stale = ["recover", "apply", alive["id"].as_str().unwrap(), "--reason", "it was killed", "--yes"];
    let (code, out, err) = typed(home, &daemon, &stale);
    assert_eq!((code, out.as_str()), (5, ""), "{err}");
    assert!(err.contains("Nothing was done") && err.contains(dead["id"].as_str().unwrap()), "{err}");

    let id = dead["id"].as_str().unwrap();
    let apply = ["recover", "apply", id, "--worker", "w1", "--reason", "it was killed", "--yes"];
    let (code, out, err) = typed(home, &daemon, &apply);
    assert_eq!(code, 0, "{err}");
    assert_eq!(out.matches("applied ").count(), 2, "{out}");
    let state = |id: &str| daemon.get(&format!("/v1/work/{id}")).expect(200)["state"].clone();
    assert_eq!((state(&ids[0]), state(&ids[1])), (json!("queued"), json!("abandoned")));
    assert_eq!(typed(home, &daemon, &apply).0, 5, "applied twice");
    let report = daemon.post("/v1/admin/verify", json!({})).expect(200);
    assert_eq!(report["faults"], json!([]));
}
