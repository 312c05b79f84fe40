//! A whole daemon: its relay is woken by writes, and the metrics show the results.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, to_bytes},
    http::{Request, header},
};
use tenure_core::{Actor, CommandState};
use tenure_server::{
    Config, Overlay, Server,
    auth::{AdminToken, Secret},
};
use tenure_store::ManualClock;
use tenure_testkit::{Provider, Reply};
use tower::ServiceExt;

use crate::bed::{Bed, outbound};

const ADMIN: &str = "an admin token for tests only";

async fn shown(server: &Server) -> String {
    let request = Request::get("/metrics")
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, format!("Bearer {ADMIN}"))
        .body(Body::empty())
        .unwrap();
    let answer = server.router().oneshot(request).await.unwrap();
    let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// The expected state is reached soon, by itself.
async fn until(server: &Server, lines: &[&str]) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let text = shown(server).await;
        let missing: Vec<_> =
            lines.iter().filter(|line| !text.lines().any(|shown| shown == **line)).collect();
        if missing.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "in vain: {missing:#?}\n{text}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_daemon_sends_its_commands_and_shows_them() {
    let provider = Provider::start(|call| match String::from_utf8_lossy(&call.body) {
        body if body.contains("\"target\":\"bad\"") => Reply::status(422),
        body if body.contains("\"target\":\"lost\"") => Reply::Drop,
        _ => Reply::json(200, r#"{"id":"m-1"}"#),
    });
    let toml = format!(
        "[[budgets]]\nper = \"tool\"\nunit = \"calls\"\nmax = 4\n\
         [[budgets]]\nper = \"tenant\"\nunit = \"calls\"\nmax = 8\ntool = \"hook\"\n\
         [[budgets]]\nper = \"tenant\"\nunit = \"calls\"\nmax = 20\n\
         [[budgets]]\nper = \"tenant\"\nunit = \"calls\"\nmax = 1\ntool = \"other\"\n\
         [tools.hook]\nexecutor = \"http\"\nrisk = \"low\"\n\
         [tools.hook.http]\nurl = \"{}\"\nnetworks = [\"127.0.0.0/8\"]\nexternal_id = \"/id\"\n",
        provider.url("/hook")
    );
    let overlay = Overlay { db: Some(":memory:".to_owned()), ..Overlay::default() };
    let config = Config::parse("tenure.toml", &toml, overlay).unwrap();
    let admin = AdminToken::Given(Secret::given(ADMIN.to_owned()));
    let mut server = Server::open(config.clone(), admin).await.unwrap();
    server.relay(outbound(Arc::default()));
    let version = config.live.policy.version().to_owned();
    let mut bed = Bed::over(server.ledger().clone(), Arc::new(ManualClock::new(0)), &toml, Arc::default());
    bed.version = version;
    let ids = bed.outbox("one", "hook", &["good", "bad", "lost"]).await;
    until(
        &server,
        &[
            r#"tenure_command_moves_total{tool="hook",state="dispatched"} 3"#,
            r#"tenure_command_moves_total{tool="hook",state="succeeded"} 1"#,
            r#"tenure_command_failures_total{class="validation",outcome="failed"} 1"#,
            r#"tenure_command_failures_total{class="transport",outcome="uncertain"} 1"#,
            r#"tenure_receipt_latency_seconds_count{tool="hook"} 1"#,
            r#"tenure_commands{state="uncertain"} 1"#,
            r#"tenure_commands_standing{tool="hook",state="uncertain"} 1"#,
            "tenure_commands_need_person 1",
            r#"tenure_budget_used{tenant="default",of="hook",tool="",unit="calls",period=""} 0.5"#,
            r#"tenure_budget_used{tenant="default",of="tenant",tool="hook",unit="calls",period=""} 0.25"#,
            r#"tenure_budget_used{tenant="default",of="tenant",tool="",unit="calls",period=""} 0.1"#,
        ],
    )
    .await;
    let person = server.ledger().caller(Actor::person("ada"));
    let evaluation = bed.new_command("hook", "bad", &serde_json::json!({})).evaluation;
    person.replay(ids[1], evaluation, Default::default(), "try").await.unwrap();
    until(
        &server,
        &["tenure_command_replays_total 1", r#"tenure_command_moves_total{tool="hook",state="failed"} 2"#],
    )
    .await;
    assert_eq!(server.ledger().command(ids[0]).await.unwrap().state, CommandState::Succeeded);
    server.close().await.unwrap();
}
