//! A call to make, and a scripted resolver.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tenure_core::{CommandId, Payload, WorkId};
use tenure_server::executor::{Call, CallOutcome, Http, HttpTarget, Outbound};
use tenure_testkit::Provider;
use uuid::Uuid;

use crate::names::Names;

pub const NOW: i64 = 1_700_000_000_123;

/// A tool that may call this machine, at a provider's path.
pub fn at(provider: &Provider, path: &str) -> HttpTarget {
    HttpTarget {
        url: Some(provider.url(path).parse().unwrap()),
        networks: vec!["127.0.0.0/8".parse().unwrap()],
        timeout: Duration::from_secs(30),
        ..HttpTarget::default()
    }
}

pub fn call(target: &str) -> Call {
    let arguments = Payload::new(&json!({ "to": "bob", "text": "héllo" })).unwrap();
    Call {
        command: CommandId(Uuid::from_u128(7)),
        work: WorkId(Uuid::from_u128(9)),
        tenant: "acme".into(),
        tool: "notify".into(),
        target: target.into(),
        input_hash: arguments.hash(),
        arguments,
        idempotency_key: "tenure-0123456789".into(),
        session: Some("chat-1".into()),
        correlation_id: Some("trace-1".into()),
    }
}

pub fn http(target: HttpTarget, names: Arc<Names>) -> Http {
    Http::new(&outbound(names), Arc::new(target))
}

pub fn outbound(names: Arc<Names>) -> Outbound {
    Outbound::with_tls(names, no_certificates())
}

fn no_certificates() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

/// One call of a tool, with names that resolve only to their own addresses.
pub async fn send(target: HttpTarget) -> CallOutcome {
    http(target, Names::new(&[])).call(&call("bob"), NOW).await
}
