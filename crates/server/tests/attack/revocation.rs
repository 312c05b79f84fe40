//! A token that was revoked or has expired ends its open calls: here, and on every other daemon of the same
//! ledger.

use std::time::Duration;

use axum::http::Method;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tenure_server::{
    Config, Overlay, Server,
    auth::{AdminToken, Secret},
};
use tower::ServiceExt;

use crate::bed::{ADMIN, Bed, Client, Reply};

/// A second is promised; the rest is for a busy machine.
const PATIENCE: Duration = Duration::from_secs(4);
const PARKED_MS: u64 = 120_000;

async fn daemon(db: &str) -> Bed {
    let overlay = Overlay { db: Some(db.to_owned()), ..Overlay::default() };
    let config = Config::parse("tenure.toml", "", overlay).unwrap();
    let server = Server::open(config, AdminToken::Given(Secret::given(ADMIN.to_owned()))).await.unwrap();
    let router = server.router();
    Bed { server, router, folder: None }
}

async fn token(bed: &Bed, more: Value) -> (Client, String) {
    let mut new = json!({ "name": "reader", "kind": "machine", "scopes": ["view", "work"] });
    new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = bed.admin().post("/v1/tokens", new).await.expect(201);
    let client = Client { router: bed.router.clone(), token: made["secret"].as_str().unwrap().to_owned() };
    (client, made["token"]["id"].as_str().unwrap().to_owned())
}

/// Every kind of open call, with this token; resolves when all of them have ended.
async fn open(client: &Client, work: &str, opened: impl FnOnce()) -> (String, Vec<Reply>) {
    let stream = client.request(Method::GET, "/v1/events/stream");
    let stream = client.router.clone().oneshot(stream).await.unwrap();
    assert_eq!(stream.status(), 200);
    let mut stream = stream.into_body().into_data_stream();
    let wait = format!("/v1/work/{work}?wait=terminal&timeout_ms={PARKED_MS}");
    let claim = json!({
        "worker": { "id": "w", "incarnation": "i" }, "request_id": "r", "kinds": ["nothing"], "wait_ms": PARKED_MS,
    });
    let lookups = json!({ "wait_ms": PARKED_MS });
    let calls = async {
        let (a, b, c) = tokio::join!(
            client.get(&wait),
            client.post("/v1/work/claim", claim),
            client.post("/v1/commands/claim", lookups)
        );
        vec![a, b, c]
    };
    let streamed = async {
        let mut text = String::new();
        while let Some(chunk) = stream.next().await {
            text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        }
        text
    };
    opened();
    tokio::time::timeout(PATIENCE, async { tokio::join!(streamed, calls) }).await.expect("all of it ends")
}

#[track_caller]
fn ended(text: &str, replies: &[Reply], word: &str) {
    assert!(text.contains("revoked or has expired"), "{text}");
    for reply in replies {
        reply.problem(401, "unauthorized");
        assert!(reply.body["detail"].as_str().unwrap().contains(word), "{}", reply.body);
    }
}

async fn a_revocation_ends_what_is_open(here: Bed, there: Bed) {
    let work = here.admin().ingest("a").await;
    let (client, id) = token(&here, json!({})).await;
    // One daemon revokes, and the other serves the calls.
    let path = format!("/v1/tokens/{id}?reason=lost");
    let elsewhere = Client { router: there.router.clone(), ..client.clone() };
    elsewhere.get("/v1/work").await.expect(200);
    let (tell, told) = tokio::sync::oneshot::channel();
    let opening = open(&elsewhere, &work, || tell.send(()).unwrap());
    let revoking = async {
        told.await.unwrap();
        here.admin().send(Method::DELETE, &path, None).await.expect(200)
    };
    let ((text, replies), revoked) = tokio::join!(opening, revoking);
    ended(&text, &replies, "revoked");
    assert_eq!(revoked["revoked"]["reason"], "lost");
    assert_eq!(revoked["revoked"]["by"]["name"], "admin");
    for daemon in [&here, &there] {
        let listed = daemon.admin().get("/v1/tokens").await.expect(200);
        let one = listed["items"].as_array().unwrap().iter().find(|one| one["id"] == json!(id)).unwrap();
        assert_eq!(one["revoked"], revoked["revoked"], "why is read afterwards");
    }
    for bed in [here, there] {
        bed.server.close().await.unwrap();
    }
}

#[tokio::test]
async fn on_two_daemons_over_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("ledger.db");
    let db = db.to_str().unwrap();
    a_revocation_ends_what_is_open(daemon(db).await, daemon(db).await).await;
}

#[tokio::test]
async fn on_two_daemons_over_postgres() {
    let db = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await.unwrap();
    a_revocation_ends_what_is_open(daemon(&db).await, daemon(&db).await).await;
}

#[tokio::test]
async fn an_expiry_ends_what_is_open() {
    let bed = Bed::memory().await;
    let work = bed.admin().ingest("a").await;
    let soon =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64 + 700;
    let soon = tenure_api::wire::Timestamp(soon).to_string();
    let (client, _) = token(&bed, json!({ "expires_at": soon })).await;
    let (text, replies) = open(&client, &work, || ()).await;
    ended(&text, &replies, "expired");
}

#[tokio::test]
async fn without_a_reason_nothing_is_revoked_or_pruned() {
    let bed = Bed::memory().await;
    let (client, id) = token(&bed, json!({})).await;
    for reason in ["", "?reason=", "?reason=%20"] {
        let path = format!("/v1/tokens/{id}{reason}");
        bed.admin().send(Method::DELETE, &path, None).await.problem(422, "reason_missing");
    }
    client.get("/v1/work").await.expect(200);
    let before = json!("2020-01-01T00:00:00Z");
    for prune in [json!({ "before": before }), json!({ "before": before, "reason": " " })] {
        bed.admin().post("/v1/admin/prune", prune).await.problem(422, "reason_missing");
    }
    assert_eq!(bed.admin().get("/v1/admin/prune").await.expect(200)["items"], json!([]));
}
