//! The client: its retries, its errors, and how its stream continues.

use std::time::Duration;

use crate::fake::{Answer, Fake, ack, problem, work};
use serde_json::json;
use tenure_api::{
    Client, Error,
    client::Streamed,
    wire::{Code, Disposition, EventQuery, Ingest, Quarantine, Source, WorkId},
};

fn new_work() -> Ingest {
    let source = Source { system: "manual".into(), id: "1".into(), run_id: String::new() };
    Ingest::new(source, "k", Disposition::Rerunnable, json!(null))
}

fn quarantine() -> Quarantine {
    Quarantine { reason: "odd".into(), if_seq: None }
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_call_is_retried_until_a_response() {
    let mut failures =
        [Answer::Unreachable, Answer::Lost, problem(503, "outcome_unknown", json!(null))].into_iter();
    let fake = Fake::new(move |_| {
        let ingested = json!({ "work": work("w_1", "rerunnable"), "created": false });
        failures.next().unwrap_or(Answer::Json(200, ingested))
    });
    let ingested = fake.client().ingest(&new_work()).await.unwrap();
    assert_eq!(ingested.work.id, WorkId::from("w_1"));
    assert_eq!(fake.asked("/v1/work").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_idempotent_is_not_retried() {
    let fake = Fake::new(|_| Answer::Lost);
    let error = fake.client().quarantine(&"w_1".into(), &quarantine()).await.unwrap_err();
    assert_eq!(fake.asked("/quarantine").len(), 1);
    assert!(!error.is_retryable() && !error.is_terminal(), "it is unknown: {error}");

    let mut first = Some(Answer::Unreachable);
    let fake = Fake::new(move |_| first.take().unwrap_or_else(|| ack("quarantined")));
    fake.client().quarantine(&"w_1".into(), &quarantine()).await.unwrap();
    assert_eq!(fake.asked("/quarantine").len(), 2, "what was never sent cannot have been done");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_is_retried_and_must_be_confirmed() {
    let mut first = Some(Answer::Lost);
    let fake = Fake::new(move |_| first.take().unwrap_or_else(|| ack("quarantined").tried()));
    let trying = fake.client().dry_run();
    trying.quarantine(&"w_1".into(), &quarantine()).await.unwrap();
    assert_eq!(fake.asked("/quarantine?dry_run=true").len(), 2, "a dry run may be repeated");

    let deaf = Fake::new(|_| ack("quarantined"));
    let error = deaf.client().dry_run().quarantine(&"w_1".into(), &quarantine()).await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn refusals_are_returned_at_once_and_typed() {
    let fake = Fake::new(|asked| match asked.path.as_str() {
        "/v1/work/w_1" => problem(404, "not_found", json!(false)),
        _ => problem(409, "busy", json!(true)),
    });
    let missing = fake.client().work(&"w_1".into()).await.unwrap_err();
    assert!(missing.is_terminal() && missing.code() == Some(Code::NotFound), "{missing}");
    let busy = fake.client().ingest(&new_work()).await.unwrap_err();
    assert!(busy.is_retryable() && busy.code() == Some(Code::Busy), "{busy}");
    assert_eq!(fake.asked("/v1/work").len(), 1, "the caller decides whether to wait for a holder");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let mut first = true;
    let fake = Fake::new(move |_| {
        if std::mem::take(&mut first) {
            let Answer::Json(status, mut body) = problem(429, "rate_limited", json!(true)) else {
                unreachable!()
            };
            body["retry_after_ms"] = json!(3_000);
            return Answer::Json(status, body);
        }
        Answer::Json(200, work("w_1", "rerunnable"))
    });
    fake.client().work(&"w_1".into()).await.unwrap();
    let asked = fake.asked("/v1/work/w_1");
    assert!(asked[1].at - asked[0].at >= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_proxys_response_is_not_taken_for_the_daemons() {
    let mut answers =
        [Answer::Json(502, json!("<html>")), Answer::Json(200, work("w_1", "rerunnable"))].into_iter();
    let fake = Fake::new(move |_| answers.next().unwrap());
    fake.client().work(&"w_1".into()).await.unwrap();
    let fake = Fake::new(|_| Answer::Json(418, json!("I am something else")));
    let error = fake.client().work(&"w_1".into()).await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }) && error.is_terminal(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_times_out() {
    let fake = Fake::new(|_| Answer::Silence);
    let error = fake.client().without_retries().work(&"w_1".into()).await.unwrap_err();
    assert!(matches!(error, Error::NoResponse { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_cut_stream_resumes_after_its_last_event() {
    const EVENT: &str = concat!(
        r#"{"position":"P","work":"w_1","seq":1,"at":"2026-01-31T08:15:00.000Z","type":"dreamt","to":"queued","#,
        r#""actor":{"type":"person","id":"ana"},"attempt":0,"prev_hash":"0","hash":"1"}"#
    );
    let text: &'static str = Box::leak(
        format!(": hello\n\nevent: event\nid: p1\ndata: {EVENT}\n\nevent: later\ndata: x\n\n")
            .into_boxed_str(),
    );
    let mut answers = [
        Answer::Text(text),
        problem(503, "unavailable", json!(true)),
        Answer::Text("event: gap\ndata: {\"after\":\"p5\"}\n\n"),
        Answer::Text(text),
    ]
    .into_iter();
    let fake =
        Fake::new(move |_| answers.next().unwrap_or_else(|| problem(401, "unauthorized", json!(false))));
    let mut stream = fake.client().stream(EventQuery { after: Some("p0".into()), ..EventQuery::default() });
    assert!(matches!(stream.next().await.unwrap(), Streamed::Event(event) if event.kind == "dreamt"));
    assert!(matches!(stream.next().await.unwrap(), Streamed::Gap(gap) if gap.after == "p5"));
    assert!(matches!(stream.next().await.unwrap(), Streamed::Event(_)));
    assert_eq!(stream.next().await.unwrap_err().code(), Some(Code::Unauthorized));
    let seen: Vec<_> = fake.asked("after=p0").into_iter().map(|asked| asked.last_event).collect();
    let seen: Vec<_> = seen.iter().map(Option::as_deref).collect();
    assert_eq!(seen, [None, Some("p1"), Some("p1"), Some("p5"), Some("p1")]);
}

#[tokio::test]
async fn an_empty_port_is_unreachable_and_a_bad_url_is_rejected() {
    let port = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let client = Client::http(&format!("http://127.0.0.1:{port}"), None).unwrap().without_retries();
    let error = client.health().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && error.is_retryable(), "{error}");
    assert!(std::error::Error::source(&error).is_some(), "{error:?}");
    for url in ["127.0.0.1:7171", "ftp://x", "http://", "not a url"] {
        assert!(Client::http(url, None).err().unwrap().is_terminal(), "{url}");
    }
}

#[test]
fn a_token_leaves_this_machine_only_encrypted_by_default() {
    for beyond in [
        "http://ledger.example:7171",
        "http://192.0.2.1",
        "http://[2001:db8::1]:7171",
        "http://localhost.example",
    ] {
        let error = Client::http(beyond, Some("secret")).err().unwrap();
        assert!(error.is_terminal() && error.to_string().contains("TENURE_ALLOW_PLAIN_HTTP"), "{error}");
        assert!(Client::plain_http(beyond, Some("secret")).is_ok());
    }
    for fine in ["https://ledger.example", "http://localhost:7171", "http://127.0.0.1", "http://[::1]:7171"] {
        assert!(Client::http(fine, Some("secret")).is_ok(), "{fine}");
    }
}
