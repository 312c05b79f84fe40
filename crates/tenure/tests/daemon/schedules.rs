//! Schedules under daemons: each run is fired once, however many daemons serve.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::bed::{Daemon, Home, until};

fn every(ms: i64, overlap: &str) -> Value {
    json!({
        "every_ms": ms,
        "overlap": overlap,
        "template": { "kind": "tick", "disposition": "rerunnable", "input": null },
        "reason": "a test",
    })
}

/// The run ids of a schedule's works.
fn runs(daemon: &Daemon, name: &str) -> Vec<String> {
    let page = daemon.get(&format!("/v1/work?system=scheduler&source_id={name}&limit=1000")).expect(200);
    let works = page["items"].as_array().unwrap();
    works.iter().map(|work| work["source"]["run_id"].as_str().unwrap().to_owned()).collect()
}

fn fired(daemon: &Daemon) -> u64 {
    let metrics = daemon.get("/metrics").text;
    let line = metrics.lines().find_map(|line| line.strip_prefix("tenure_schedule_runs_total ")).unwrap();
    line.parse().unwrap()
}

#[test]
fn two_daemons_on_one_database_fire_each_run_once() {
    let one = Home::postgres();
    let other = one.beside();
    let (first, second) = (one.serve(), other.serve());
    let names = ["a", "b", "c", "d"];
    for name in names {
        first.put(&format!("/v1/schedules/{name}"), every(1_000, "allow")).expect(201);
    }
    until("five runs each", || names.iter().all(|name| runs(&second, name).len() >= 5).then_some(()));
    let mut works = 0;
    for name in names {
        second.post(&format!("/v1/schedules/{name}/pause"), json!({ "reason": "enough" })).expect(200);
        let schedule = second.get(&format!("/v1/schedules/{name}")).expect(200);
        let runs = until("what was decided is done", || {
            let runs = runs(&first, name);
            let schedule = first.get(&format!("/v1/schedules/{name}")).expect(200);
            (schedule["fired"] == runs.len()).then_some(runs)
        });
        let distinct: BTreeSet<&String> = runs.iter().collect();
        assert_eq!(distinct.len(), runs.len());
        assert_eq!(schedule["skipped"], 0, "none was missed");
        works += runs.len() as u64;
    }
    until("both have counted", || (fired(&first) + fired(&second) == works).then_some(()));
}
