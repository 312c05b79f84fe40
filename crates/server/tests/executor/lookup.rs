//! Asking a provider over HTTP whether a command happened.

use std::{sync::Arc, time::Duration};

use tenure_core::command::{EvidenceKind, Finding};
use tenure_server::{
    executor::HttpTarget,
    lookup::{Asker, Found, Lookup},
};
use tenure_testkit::{Provider, Reply};

use crate::{
    bed::{NOW, at, call, outbound},
    names::Names,
};

async fn ask(target: HttpTarget) -> Found {
    let by = Lookup::Http(Arc::new(target));
    Asker::new(&by, &outbound(Names::new(&[]))).unwrap().ask(&call("bob"), NOW).await
}

#[tokio::test]
async fn a_clear_answer_counts() {
    let provider = Provider::always(Reply::json(200, r#"{"outcome":"found","external_id":"m-1"}"#));
    match ask(at(&provider, "/find")).await.finding {
        Finding::Found(proof) => {
            assert_eq!((proof.kind, proof.external_id.as_deref()), (EvidenceKind::Lookup, Some("m-1")));
        }
        other => panic!("{other:?}"),
    }
    let asked = provider.calls();
    assert_eq!(asked[0].header("webhook-id"), Some("tenure-0123456789"));
    let provider = Provider::always(Reply::json(200, r#"{"outcome":"absent"}"#));
    assert_eq!(ask(at(&provider, "/find")).await.finding, Finding::Absent);
}

#[tokio::test]
async fn everything_else_is_unknown_with_the_reason() {
    for (reply, reason) in [
        (Reply::status(404), "404"),
        (Reply::json(404, r#"{"outcome":"absent"}"#), "404"),
        (Reply::status(500), "500"),
        (Reply::status(200), "not a finding"),
        (Reply::json(200, "<html>not found</html>"), "not a finding"),
        (Reply::json(200, &"x".repeat(1_000_000)), "could not be read"),
        (Reply::CutShort, "could not be read"),
        (Reply::redirect(302, "/login"), "302"),
        (Reply::Drop, ""),
        (Reply::Hang, "no response came"),
    ] {
        let provider = Provider::always(reply.clone());
        let mut target = at(&provider, "/find");
        if matches!(reply, Reply::Hang) {
            target.timeout = Duration::from_millis(300);
        }
        let found = ask(target).await;
        let message = found.message.unwrap();
        assert_eq!(found.finding, Finding::Unknown, "{message}");
        assert!(message.contains(reason), "{reason}: {message}");
    }
}

#[tokio::test]
async fn a_lookup_is_guarded_like_a_call() {
    let inside = Provider::always(Reply::json(200, r#"{"outcome":"absent"}"#));
    let mut target = at(&inside, "/find");
    target.networks.clear();
    let found = ask(target).await;
    assert_eq!(found.finding, Finding::Unknown);
    assert!(found.message.unwrap().contains("not a public address"));
    assert_eq!(inside.connections(), 0);
}
