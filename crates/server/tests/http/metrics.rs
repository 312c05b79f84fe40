//! Metrics, alerts, and what a reload changes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use tenure_server::{Config, Overlay};
use tenure_store::{Ledger, ManualClock, Options, Sweeper};

use crate::bed::{Bed, Client, held, id_of, work};

/// Asks until the response is right; it will be soon.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::task::yield_now().await;
    }
}

pub async fn metric(client: &Client, line: &str) {
    until(line, async || {
        let text = client.get("/metrics").await.expect(200);
        text.as_str().unwrap().lines().any(|shown| shown == line).then_some(())
    })
    .await;
}

#[tokio::test]
async fn metrics_show_changes_and_open_items() {
    for bed in [Bed::memory().await, Bed::sqlite().await, Bed::postgres().await] {
        let client = bed.admin();
        let mut flow = work("a");
        flow["workflow"] = json!({ "id": "triage", "version": "1" });
        client.post("/v1/work", flow.clone()).await.expect(201);
        client.post("/v1/work", flow.clone()).await.expect(200);
        flow["input"] = json!("other");
        client.post("/v1/work", flow).await.problem(409, "idempotency_mismatch");
        let grant = client.claim("c1").await;
        let path = |verb: &str| format!("/v1/work/{}/{verb}", id_of(&grant));
        let failure = json!({ "error": { "class": "transport", "retry_after_ms": 60_000 } });
        client.post(&path("fail"), held(&grant, failure)).await.expect(200);
        client.post(&path("retry-now"), json!({ "reason": "x" })).await.expect(200);
        let grant = client.claim("c2").await;
        let auth = json!({ "error": { "class": "auth" }, "wait": { "kind": "auth", "ref": "drive" } });
        client.post(&path("fail"), held(&grant, auth)).await.expect(200);
        metric(&client, r#"tenure_waits{kind="auth"} 1"#).await;
        client.post(&path("reconnect"), json!({})).await.expect(200);
        let grant = client.claim("c3").await;
        metric(&client, "tenure_in_flight 1").await;
        let warned = json!({ "state": "completed_with_warnings", "warnings": ["slow"], "no_output": true });
        client.post(&path("close-out"), held(&grant, warned)).await.expect(200);
        client.ingest("waiting").await;

        let of = r#"{source="manual",workflow="triage",tenant="default"}"#;
        for counter in ["works_created", "retries", "auth_blocked", "warnings", "retry_successes"] {
            metric(&client, &format!("tenure_{counter}_total{of} 1")).await;
        }
        for line in [
            "tenure_duplicate_deliveries_total 1",
            "tenure_key_reuse_total 1",
            r#"tenure_works{state="queued"} 1"#,
            r#"tenure_works_ready{source="manual",kind="job"} 1"#,
            r#"tenure_time_in_state_seconds_count{state="running",source="manual",workflow="triage",tenant="default"} 3"#,
            r#"tenure_http_requests_total{method="POST",route="/v1/work/{id}/reconnect",status="200"} 1"#,
        ] {
            metric(&client, line).await;
        }
        let text = client.get("/metrics").await.expect(200);
        let groups =
            text.as_str().unwrap().lines().find(|line| line.starts_with("tenure_groups_total ")).unwrap();
        assert!(groups.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap() >= 8, "{groups}");
        bed.server.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_crossed_threshold_is_listed_counted_and_goes_away() {
    let bed =
        Bed::configured("[alerts]\nevery = \"100ms\"\npending_age = \"0s\"\nwait_deadline = false").await;
    let client = bed.admin();
    client.ingest("a").await;
    let alerts = async || client.get("/v1/alerts").await.expect(200)["items"].take();
    let alert = until("an alert", async || alerts().await.get(0).cloned()).await;
    assert_eq!((&alert["name"], &alert["source"]), (&json!("pending_age"), &json!("manual/job")));
    assert!(alert["message"].as_str().unwrap().contains("Check that their workers run"), "{alert}");
    metric(&client, r#"tenure_alerts{name="pending_age"} 1"#).await;
    client.claim("c1").await;
    until("no alert", async || (alerts().await == json!([])).then_some(())).await;
    bed.server.close().await.unwrap();
}

#[tokio::test]
async fn a_reload_changes_what_can_change_and_names_the_rest() {
    let bed = Bed::memory().await;
    let client = bed.admin();
    let mut fax = work("f");
    fax["source"]["system"] = json!("fax");
    client.post("/v1/work", fax.clone()).await.problem(422, "unknown_source");
    let toml = "listen = \"127.0.0.1:1\"\nhosts = [\"new.example\"]\n[rate]\nper_second = 1000\n\
                [sources.fax]\nlease = { ttl = \"9s\", renew = \"3s\", grace = \"1s\" }\nwaits = { user = \"1h\" }";
    let overlay = Overlay { db: Some(":memory:".into()), ..Overlay::default() };
    let new = Config::parse("tenure.toml", toml, overlay).unwrap();
    assert_eq!(bed.server.reloader().reload(&new), ["listen"]);
    client.post("/v1/work", fax).await.expect(201);
    let grant = client.claim("c1").await;
    assert_eq!(grant["ttl_ms"], 9_000);
    let ask = held(&grant, json!({ "waits": [{ "kind": "user", "ref": "q" }] }));
    let path = format!("/v1/work/{}/wait", id_of(&grant));
    client.post(&path, ask).await.expect(200);
    let wait = client.get("/v1/waits").await.expect(200)["items"][0].take();
    let at = |field: &str| wait[field].as_str().unwrap().parse::<tenure_api::wire::Timestamp>().unwrap().0;
    assert_eq!(at("deadline_at") - at("opened_at"), 3_600_000, "the source's own deadline");
    let mut request = client.request(axum::http::Method::GET, "/v1/work");
    request.headers_mut().insert("host", "new.example".parse().unwrap());
    client.raw(request).await.expect(200);
}

#[tokio::test]
async fn the_database_tells_of_itself_to_operators() {
    let beds = [
        (Bed::memory().await, "memory", ""),
        (Bed::sqlite().await, "sqlite", "journal_mode=wal synchronous=full"),
        (Bed::postgres().await, "postgres", "fsync= full_page_writes= synchronous_commit="),
    ];
    for (bed, engine, expected) in beds {
        let told = bed.admin().get("/v1/admin/database").await.expect(200);
        assert_eq!(told["engine"], engine);
        assert!(told["version"].as_str().is_some_and(|version| !version.is_empty()), "{told}");
        let settings = told["settings"].as_array().unwrap();
        for (setting, expected) in settings.iter().zip(expected.split(' ')) {
            let shown =
                format!("{}={}", setting["name"].as_str().unwrap(), setting["value"].as_str().unwrap());
            assert!(shown.starts_with(expected), "{shown}: the tests' own server may be weak");
            assert!(setting["safe"].is_boolean() && setting["wanted"].is_string(), "{setting}");
        }
        assert_eq!(told["schema"]["known"], told["schema"]["applied"]);
        assert_eq!(told["wal"]["bytes"].is_u64(), engine == "sqlite", "{told}");
        let bound = bed.client("person", &["operate"], Some(&["acme"])).await;
        bound.get("/v1/admin/database").await.problem(403, "forbidden");
    }
}

/// The work item is named to callers who may know it, and counted for the others; the daemon stays ready.
#[tokio::test]
async fn a_damaged_work_item_is_reported_and_the_daemon_stays_ready() {
    for postgres in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger.db");
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
        let url =
            tokio::task::spawn_blocking(move || postgres.then(|| tenure_testkit::shared().create_database()));
        let url = url.await.unwrap();
        let ledger = match &url {
            Some(url) => Ledger::open_postgres(url, options).await.unwrap(),
            None => Ledger::open_sqlite(&file, options).await.unwrap(),
        };
        let bed = Bed::over_configured(ledger, "[alerts]\nevery = \"100ms\"").await;
        let client = bed.admin();
        let mut due = work("damaged");
        due["policy"] = json!({ "timeouts": { "start_ms": 1_000 } });
        let made = client.post("/v1/work", due).await.expect(201);
        let id = made["work"]["id"].as_str().unwrap_or_else(|| made["id"].as_str().unwrap());
        match url {
            Some(url) => {
                let sql = "SET session_replication_role = replica; UPDATE work SET body = '{'";
                let psql = move || tenure_testkit::shared().psql(url.rsplit('/').next().unwrap(), sql);
                tokio::task::spawn_blocking(psql).await.unwrap();
            }
            None => {
                let conn = rusqlite::Connection::open(&file).unwrap();
                conn.execute("UPDATE work SET body = '{'", []).unwrap();
            }
        }
        clock.advance(2_000);
        Sweeper::new(clock.clone()).run_once(bed.server.ledger()).await.unwrap();
        let alert = until("an alert", async || {
            let alerts = client.get("/v1/alerts").await.expect(200)["items"].take();
            alerts.as_array().unwrap().iter().find(|alert| alert["name"] == "damaged").cloned()
        })
        .await;
        assert!(alert["message"].as_str().unwrap().contains(id), "{alert}");
        let told = client.get("/v1/admin/database").await.expect(200);
        assert_eq!(told["damaged"][0]["id"], json!(id));
        let ready = client.get("/readyz").await.expect(200);
        let checks = ready["checks"].as_array().unwrap();
        let damaged = checks.iter().find(|check| check["name"] == "damaged").unwrap();
        assert!(damaged["detail"].as_str().unwrap().starts_with("1 cannot be read"), "{damaged}");
        assert!(!ready.to_string().contains(id), "{ready}");
        bed.server.close().await.unwrap();
    }
}
