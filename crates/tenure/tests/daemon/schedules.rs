//! Schedules under daemons: each run once however many serve, what was missed caught up so far and no further.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_testkit::shared;

use crate::bed::{Daemon, Home, until};

const MINUTE: i64 = 60_000;

fn every(ms: i64, overlap: &str) -> Value {
    json!({
        "every_ms": ms,
        "overlap": overlap,
        "catch_up_ms": 30 * MINUTE,
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

#[test]
fn a_daemon_on_sqlite_that_was_down_catches_up() {
    let home = Home::sqlite();
    caught_up(&home, |ms| {
        let ledger = rusqlite::Connection::open(home.folder.path().join("ledger.db")).unwrap();
        let set = "UPDATE schedule SET due_at = due_at - ?1, \
                   body = json_set(body, '$.next_at', json_extract(body, '$.next_at') - ?1)";
        assert_eq!(ledger.execute(set, [ms]).unwrap(), 1);
    });
}

#[test]
fn a_daemon_on_postgres_that_was_down_catches_up() {
    let url = shared().create_database();
    caught_up(&Home::at(&url), |ms| {
        let set = format!(
            "UPDATE schedule SET due_at = due_at - {ms}, body = jsonb_set(body::jsonb, '{{next_at}}', \
             to_jsonb((body::jsonb->>'next_at')::bigint - {ms}))::text"
        );
        shared().psql(url.rsplit('/').next().unwrap(), &set);
    });
}

/// `set_back` makes a ledger as it would be had its daemon been down for so long.
fn caught_up(home: &Home, set_back: impl Fn(i64)) {
    let daemon = home.serve();
    daemon.put("/v1/schedules/tick", every(10 * MINUTE, "allow")).expect(201);
    daemon.kill();
    set_back(120 * MINUTE);
    let daemon = home.serve();
    let schedule = until("it catches up", || {
        let schedule = daemon.get("/v1/schedules/tick").expect(200);
        (schedule["fired"].as_u64() >= Some(3)).then_some(schedule)
    });
    let due = runs(&daemon, "tick");
    assert_eq!(schedule["fired"], due.len());
    assert!((3..=4).contains(&due.len()), "half an hour, and no more: {due:?}");
    let total = due.len() as u64 + schedule["skipped"].as_u64().unwrap();
    assert!((12..=13).contains(&total), "two hours: {schedule}");
    assert_eq!(schedule["last_skip"]["reason"], "late");
    assert_eq!(schedule["last_run"]["run_id"], due.iter().max().unwrap().as_str());
}
