//! Schedules over HTTP: set, read, run, changed and refused, each with its scope.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::http::Method;
use serde_json::{Value, json};
use tenure_store::{Ledger, ManualClock, Options};

use crate::bed::Bed;

fn daily() -> Value {
    json!({
        "cron": "0 7 * * mon-fri",
        "zone": "Europe/Berlin",
        "template": { "kind": "digest", "disposition": "rerunnable", "input": { "do": "secret-plan" } },
        "reason": "asked by the team",
    })
}

fn with(mut body: Value, key: &str, value: Value) -> Value {
    body[key] = value;
    body
}

#[tokio::test]
async fn a_schedule_from_birth_to_end() {
    for bed in [Bed::memory().await, Bed::sqlite().await, Bed::postgres().await] {
        let admin = bed.admin();
        let made = admin.put("/v1/schedules/digest", daily()).await.expect(201);
        assert_eq!((&made["overlap"], &made["catch_up_ms"]), (&json!("skip"), &json!(3_600_000)));
        assert_eq!(made["upcoming"].as_array().unwrap().len(), 5);
        assert_eq!(made["upcoming"][0], made["next_at"]);
        assert_eq!(
            admin.put("/v1/schedules/digest", daily()).await.expect(200),
            made,
            "a repeat returns the same"
        );
        let policy = json!({ "retry": { "max_attempts": 7 }, "timeouts": { "overall_ms": 60_000 } });
        let mut other = with(daily(), "overlap", json!("allow"));
        other["template"]["policy"] = policy;
        let changed = admin.put("/v1/schedules/digest", other).await.expect(200);
        assert_eq!(changed["template"]["policy"]["retry"]["max_attempts"], 7);
        assert_eq!(changed["template"]["policy"]["timeouts"], json!({ "overall_ms": 60_000 }));

        let why = json!({ "reason": "too loud" });
        let paused = admin.post("/v1/schedules/digest/pause", why.clone()).await.expect(200);
        assert_eq!((&paused["paused"], paused.get("next_at")), (&json!(true), None));
        let run = json!({ "reason": "now", "request_id": "r1" });
        let ran = admin.post("/v1/schedules/digest/run-now", run.clone()).await.expect(200);
        assert_eq!(admin.post("/v1/schedules/digest/run-now", run).await.expect(200), ran);
        assert_eq!((&ran["fired"], &ran["last_run"]["outcome"]), (&json!(1), &json!("ingested")));
        let work = format!("/v1/work/{}", ran["last_run"]["work"].as_str().unwrap());
        let work = admin.get(&work).await.expect(200);
        let source = json!({ "system": "scheduler", "id": "digest", "run_id": "request:r1" });
        assert_eq!((&work["source"], &work["input"]["do"]), (&source, &json!("secret-plan")));
        admin.post("/v1/schedules/digest/resume", why).await.expect(200);

        let shown = admin.get("/v1/schedules/digest").await.expect(200);
        let acts: Vec<&str> =
            shown["changes"].as_array().unwrap().iter().map(|one| one["act"].as_str().unwrap()).collect();
        assert_eq!(acts, ["resume", "run", "pause", "set", "set"]);
        assert_eq!(shown["changes"][4]["reason"], "asked by the team");
        assert_eq!(shown["changes"][4]["actor"]["type"], "person");
        admin.send(Method::DELETE, "/v1/schedules/digest?reason=enough", None).await.expect(200);
        admin.get("/v1/schedules/digest").await.problem(404, "not_found");
        admin
            .send(Method::DELETE, "/v1/schedules/digest?reason=enough", None)
            .await
            .problem(404, "not_found");
        let metrics = admin.get("/metrics").await.expect(200);
        assert!(metrics.as_str().unwrap().contains("tenure_schedule_runs_total 1\n"), "{metrics}");
    }
}

#[tokio::test]
async fn invalid_schedules_are_refused_with_the_fix() {
    let bed = Bed::memory().await;
    let admin = bed.admin();
    for (body, code, told) in [
        (with(daily(), "cron", json!("0 25 * * *")), "invalid", "The hour field of `cron`, `25`"),
        (with(daily(), "cron", json!("0 7 * *")), "invalid", "five fields"),
        (with(daily(), "zone", json!("Europe/Bärlin")), "invalid", "`Europe/Berlin`"),
        (with(daily(), "every_ms", json!(1_000)), "invalid", "Give one of them"),
        (with(with(daily(), "cron", Value::Null), "every_ms", json!(5_000)), "invalid", "Leave out `zone`"),
        (with(daily(), "catch_up_ms", json!(u64::MAX)), "impossible_timings", "thirty days"),
        (with(daily(), "reason", json!(" ")), "reason_missing", "Give a reason"),
        (with(daily(), "template", json!({ "kind": "x" })), "invalid", "disposition"),
        (with(daily(), "source", json!({})), "unknown_field", "source"),
    ] {
        let reply = admin.put("/v1/schedules/digest", body).await;
        let status = if ["invalid", "unknown_field"].contains(&code) { 400 } else { 422 };
        reply.problem(status, code);
        assert!(reply.body["detail"].as_str().unwrap().contains(told), "{}", reply.body);
    }
    admin.put("/v1/schedules/a%2Fb", daily()).await.problem(400, "invalid");
    admin.send(Method::DELETE, "/v1/schedules/digest", None).await.problem(422, "reason_missing");
    admin.get("/v1/schedules?cursor=none").await.problem(400, "invalid");
    assert_eq!(admin.get("/v1/schedules").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn schedules_are_their_tenants_and_inputs_for_those_who_may_see_them() {
    let bed = Bed::memory().await;
    let ours = bed.client("person", &["view", "operate"], Some(&["ours"])).await;
    let theirs = bed.client("person", &["view", "operate"], Some(&["theirs"])).await;
    for name in ["b", "a", "ü c"] {
        let path = format!("/v1/schedules/{}", name.replace(' ', "%20").replace('ü', "%C3%BC"));
        assert_eq!(ours.put(&path, daily()).await.expect(201)["tenant"], "ours");
        assert_eq!(ours.get(&path).await.expect(200)["name"], name);
    }
    let page = ours.get("/v1/schedules?limit=2").await.expect(200);
    assert_eq!((&page["items"][0]["name"], &page["next"]), (&json!("a"), &json!("ours/b")));
    let rest = ours.get("/v1/schedules?limit=2&cursor=ours/b").await.expect(200);
    assert_eq!((rest["items"][0]["name"].as_str(), rest.get("next")), (Some("ü c"), None));
    assert!(!page.to_string().contains("secret-plan"), "no payload without its scope");
    let reader = bed.client("person", &["view", "payload"], None).await;
    let seen = reader.get("/v1/schedules/a?tenant=ours").await.expect(200);
    assert_eq!(seen["template"]["input"]["do"], "secret-plan");

    assert_eq!(theirs.get("/v1/schedules?tenant=ours").await.expect(200)["items"], json!([]));
    theirs.get("/v1/schedules/a").await.problem(404, "not_found");
    theirs.get("/v1/schedules/a?tenant=ours").await.problem(404, "not_found");
    theirs.put("/v1/schedules/a", with(daily(), "tenant", json!("ours"))).await.problem(404, "not_found");
    let why = json!({ "reason": "x", "tenant": "ours" });
    for verb in ["pause", "resume"] {
        theirs.post(&format!("/v1/schedules/a/{verb}"), why.clone()).await.problem(404, "not_found");
    }
    let run = with(why, "request_id", json!("r"));
    theirs.post("/v1/schedules/a/run-now", run).await.problem(404, "not_found");
    let gone = "/v1/schedules/a?tenant=ours&reason=x";
    theirs.send(Method::DELETE, gone, None).await.problem(404, "not_found");
}

#[tokio::test]
async fn a_daemon_on_sqlite_that_was_down_catches_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    caught_up(async |options| Ledger::open_sqlite(&file, options).await.unwrap()).await;
}

#[tokio::test]
async fn a_daemon_on_postgres_that_was_down_catches_up() {
    let url = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await.unwrap();
    caught_up(async |options| Ledger::open_postgres(&url, options).await.unwrap()).await;
}

/// Only half an hour of the two hours that it was down. The clock is the test's own, so that due times fall
/// exactly where the test puts them.
async fn caught_up(open: impl AsyncFn(Options) -> Ledger) {
    const MINUTE: i64 = 60_000;
    let clock = Arc::new(ManualClock::new(2_983_333 * 10 * MINUTE + 1_000));
    let serve =
        async || Bed::over(open(Options { clock: Some(clock.clone()), ..Options::default() }).await).await;
    let bed = serve().await;
    let every = json!({
        "every_ms": 10 * MINUTE,
        "overlap": "allow",
        "catch_up_ms": 30 * MINUTE,
        "template": { "kind": "tick", "disposition": "rerunnable", "input": null },
        "reason": "a test",
    });
    bed.admin().put("/v1/schedules/tick", every).await.expect(201);
    bed.server.close().await.unwrap();
    clock.advance(120 * MINUTE);
    let bed = serve().await;
    let admin = bed.admin();
    let caught_up = async {
        loop {
            let schedule = admin.get("/v1/schedules/tick").await.expect(200);
            if schedule["fired"] == 3 {
                return schedule;
            }
            tokio::task::yield_now().await;
        }
    };
    let schedule = tokio::time::timeout(Duration::from_secs(30), caught_up).await.expect("it catches up");
    assert_eq!((&schedule["skipped"], &schedule["last_skip"]["reason"]), (&json!(9), &json!("late")));
    let works = admin.get("/v1/work?system=scheduler&source_id=tick").await.expect(200);
    let runs: BTreeSet<&str> = works["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|work| work["source"]["run_id"].as_str().unwrap())
        .collect();
    assert_eq!(runs.len(), 3);
    assert_eq!(schedule["last_run"]["run_id"], *runs.last().unwrap());
    bed.server.close().await.unwrap();
}
