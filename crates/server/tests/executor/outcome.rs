//! The content of calls, and the outcome that each ending of a call proves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tenure_core::{command::EvidenceKind, model::ErrorClass};
use tenure_server::executor::{CallOutcome, IdPlace};
use tenure_testkit::{Provider, Reply};

use crate::{
    bed::{NOW, at, call, http, send},
    names::Names,
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[tokio::test]
async fn a_call_is_a_signed_webhook_with_a_stable_id() {
    let provider = Provider::always(Reply::json(200, r#"{"message":{"id":"m-1"}}"#));
    let mut target = at(&provider, "/hook?x=1");
    target.secret = Some(SECRET.parse().unwrap());
    target.headers = vec![("authorization".parse().unwrap(), "Bearer t".parse().unwrap())];
    target.external_id = Some(IdPlace::Body("/message/id".parse().unwrap()));
    let http = http(target, Names::new(&[]));
    match http.call(&call("bob"), NOW).await {
        CallOutcome::Succeeded(proof) => {
            assert_eq!((proof.kind, proof.external_id.as_deref()), (EvidenceKind::Provider, Some("m-1")));
            assert_eq!(proof.response.unwrap().value(), json!({ "message": { "id": "m-1" } }));
        }
        other => panic!("{other:?}"),
    }
    http.call(&call("bob"), NOW + 60_000).await;
    let calls = provider.calls();
    let sent = &calls[0];
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/hook?x=1"));
    assert_eq!(sent.header("webhook-id"), Some("tenure-0123456789"));
    assert_eq!(sent.header("idempotency-key"), Some("\"tenure-0123456789\""));
    assert_eq!(sent.header("webhook-timestamp"), Some("1700000000"));
    assert_eq!(sent.header("authorization"), Some("Bearer t"));
    let oracle = standardwebhooks::Webhook::new(SECRET).unwrap();
    let expected = oracle.sign("tenure-0123456789", 1_700_000_000, &sent.body).unwrap();
    assert_eq!(sent.header("webhook-signature"), Some(expected.as_str()));
    let body: Value = serde_json::from_slice(&sent.body).unwrap();
    assert_eq!(body["type"], "notify");
    assert_eq!(body["data"]["arguments"], json!({ "to": "bob", "text": "héllo" }));
    assert_eq!(body["data"]["target"], "bob");
    assert_eq!(body["data"]["correlation_id"], "trace-1");
    // A retry differs in its time alone: a provider that compares finds the same message.
    assert_eq!((&calls[1].body, calls[1].header("webhook-id")), (&sent.body, sent.header("webhook-id")));
    assert_ne!(calls[1].header("webhook-signature"), sent.header("webhook-signature"));
}

#[tokio::test]
async fn a_reply_that_is_lost_after_the_call_was_read_is_uncertain() {
    for reply in [Reply::Drop, Reply::Hang] {
        let provider = Provider::always(reply.clone());
        let mut target = at(&provider, "/");
        if matches!(reply, Reply::Hang) {
            // Long enough for a busy machine to read the call.
            target.timeout = Duration::from_secs(3);
        }
        let outcome = send(target).await;
        assert!(matches!(outcome, CallOutcome::Uncertain(_)), "{reply:?}: {outcome:?}");
        assert_eq!(provider.calls().len(), 1, "{reply:?}");
    }
}

#[tokio::test]
async fn a_closed_port_proves_that_nothing_was_sent() {
    let closed = {
        let provider = Provider::always(Reply::status(200));
        at(&provider, "/")
    };
    // The listener is stopped by a connection: it is gone once connecting fails.
    let address = closed.url.as_ref().unwrap().authority().unwrap().to_string();
    while std::net::TcpStream::connect(&address).is_ok() {}
    let unsent = |outcome: CallOutcome| match outcome {
        CallOutcome::Failed { error, unsent: true } => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(unsent(send(closed.clone()).await).class, ErrorClass::Transport);
    let mut nowhere = closed;
    nowhere.url = Some("http://no.such.name/".parse().unwrap());
    let error = unsent(send(nowhere).await);
    assert_eq!(error.class, ErrorClass::Transport);
    assert!(error.message.contains("no such name"), "{}", error.message);
}

#[tokio::test]
async fn no_handshake_is_proven_unsent() {
    let provider = Provider::always(Reply::status(200));
    let mut target = at(&provider, "/");
    target.url = Some(provider.url("/").replace("http:", "https:").parse().unwrap());
    let outcome = send(target).await;
    assert!(matches!(outcome, CallOutcome::Failed { unsent: true, .. }), "{outcome:?}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_or_never_ends_is_still_an_answer() {
    let provider = Provider::always(Reply::CutShort);
    match send(at(&provider, "/")).await {
        CallOutcome::Succeeded(proof) => assert_eq!(proof.response, None),
        other => panic!("{other:?}"),
    }
    let mut by_id = at(&provider, "/");
    by_id.external_id = Some(IdPlace::Body("/id".parse().unwrap()));
    assert!(matches!(send(by_id).await, CallOutcome::Uncertain(_)));
    let endless = Provider::always(Reply::json(200, &"x".repeat(2_000_000)));
    match send(at(&endless, "/")).await {
        CallOutcome::Succeeded(proof) => {
            assert_eq!((proof.reference.as_deref(), proof.response), (Some("HTTP 200"), None))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_second_answer_is_nobody_elses_receipt() {
    let calls = AtomicUsize::new(0);
    let provider = Provider::start(move |_| match calls.fetch_add(1, Ordering::Relaxed) % 2 {
        0 => Reply::Twice,
        _ => Reply::status(422),
    });
    let http = http(at(&provider, "/"), Names::new(&[]));
    for _ in 0..10 {
        assert!(matches!(http.call(&call("bob"), NOW).await, CallOutcome::Succeeded(_)));
        let next = http.call(&call("bob"), NOW).await;
        assert!(matches!(next, CallOutcome::Failed { unsent: false, .. }), "{next:?}");
    }
}

#[tokio::test]
async fn a_slow_provider_is_waited_for() {
    let provider = Arc::new(Provider::always(Reply::Held(Box::new(Reply::status(204)))));
    let sending = tokio::spawn(send(at(&provider, "/")));
    let waiting = provider.clone();
    tokio::task::spawn_blocking(move || waiting.wait_for(1)).await.unwrap();
    provider.release();
    assert!(matches!(sending.await.unwrap(), CallOutcome::Succeeded(_)));
}

#[tokio::test]
async fn connections_are_used_again() {
    let provider = Provider::always(Reply::status(200));
    let http = http(at(&provider, "/"), Names::new(&[]));
    for _ in 0..20 {
        assert!(matches!(http.call(&call("bob"), NOW).await, CallOutcome::Succeeded(_)));
    }
    assert_eq!(provider.calls().len(), 20);
    assert!(provider.connections() < 5, "{}", provider.connections());
}
