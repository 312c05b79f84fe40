//! A daemon without a socket, and helpers to call it.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Method, Request, StatusCode, header},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_server::{
    Config, Overlay, Server,
    auth::{AdminToken, Secret},
};
use tenure_store::{Ledger, ManualClock, Options};
use tower::ServiceExt;

pub const ADMIN: &str = "an admin token for tests only";

/// A daemon in process.
pub struct Bed {
    pub server: Server,
    pub router: Router,
    /// Kept as long as the ledger in it.
    pub folder: Option<TempDir>,
}

impl Bed {
    pub async fn memory() -> Self {
        Self::with(":memory:", "", None).await
    }

    /// In memory, with lines of `tenure.toml`.
    pub async fn configured(toml: &str) -> Self {
        Self::with(":memory:", toml, None).await
    }

    pub async fn sqlite() -> Self {
        Self::sqlite_with("").await
    }

    /// On SQLite, with lines of `tenure.toml`.
    pub async fn sqlite_with(toml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        Self::with(path.to_str().unwrap(), toml, Some(folder)).await
    }

    pub async fn postgres() -> Self {
        Self::postgres_with("").await
    }

    /// On PostgreSQL, with lines of `tenure.toml`.
    pub async fn postgres_with(toml: &str) -> Self {
        // Created by a blocking `psql`; the first one also starts the server.
        let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await;
        Self::with(&made.unwrap(), toml, None).await
    }

    /// In memory, with lines of `tenure.toml` and a manual clock. Nothing sweeps.
    pub async fn at(clock: Arc<ManualClock>, toml: &str) -> Self {
        let config = Config::parse("tenure.toml", toml, Overlay::default()).unwrap();
        let options = Options { clock: Some(clock), sweep: false, ..Options::default() };
        let ledger = Ledger::open_memory(options).await.unwrap();
        let admin = AdminToken::Given(Secret::given(ADMIN.to_owned()));
        let server = Server::over(ledger, config, admin).await.unwrap();
        let router = server.router();
        Self { server, router, folder: None }
    }

    async fn with(db: &str, toml: &str, folder: Option<TempDir>) -> Self {
        let overlay = Overlay { db: Some(db.to_owned()), ..Overlay::default() };
        let config = Config::parse("tenure.toml", toml, overlay).unwrap();
        let admin = AdminToken::Given(Secret::given(ADMIN.to_owned()));
        let server = Server::open(config, admin).await.unwrap();
        let router = server.router();
        Self { server, router, folder }
    }

    /// Over a ledger that was opened with its own clock.
    pub async fn over(ledger: Ledger) -> Self {
        Self::over_configured(ledger, "").await
    }

    /// The same, with lines of `tenure.toml`.
    pub async fn over_configured(ledger: Ledger, toml: &str) -> Self {
        let config = Config::parse("tenure.toml", toml, Overlay::default()).unwrap();
        let admin = AdminToken::Given(Secret::given(ADMIN.to_owned()));
        let server = Server::over(ledger, config, admin).await.unwrap();
        let router = server.router();
        Self { server, router, folder: None }
    }

    /// As the administrator.
    pub fn admin(&self) -> Client {
        Client { router: self.router.clone(), token: ADMIN.to_owned() }
    }

    /// With a credential of its own.
    pub async fn client(&self, kind: &str, scopes: &[&str], tenants: Option<&[&str]>) -> Client {
        let mut body = json!({ "name": format!("a {kind}"), "kind": kind, "scopes": scopes });
        if let Some(tenants) = tenants {
            body["tenants"] = json!(tenants);
        }
        let made = self.admin().post("/v1/tokens", body).await.expect(201);
        Client { router: self.router.clone(), token: made["secret"].as_str().unwrap().to_owned() }
    }
}

/// A caller with a token.
#[derive(Clone)]
pub struct Client {
    pub router: Router,
    pub token: String,
}

impl Client {
    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(Method::POST, path, Some(body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.send(Method::PUT, path, Some(body)).await
    }

    pub async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Reply {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
            *request.body_mut() = Body::from(body.to_string());
        }
        self.raw(request).await
    }

    /// A request of this client, to be changed before it is sent.
    pub fn request(&self, method: Method, path: &str) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let headers = request.headers_mut();
        headers.insert(header::HOST, "localhost".parse().unwrap());
        headers.insert(header::AUTHORIZATION, format!("Bearer {}", self.token).parse().unwrap());
        request
    }

    pub async fn raw(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = to_bytes(body, 64 << 20).await.unwrap();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Reply { status: head.status, headers: head.headers, body }
    }

    /// Records a work item and returns its id.
    pub async fn ingest(&self, id: &str) -> String {
        let made = self.post("/v1/work", work(id)).await.expect(201);
        made["work"]["id"].as_str().unwrap().to_owned()
    }

    /// Claims one work item: its id, fence and token.
    pub async fn claim(&self, request: &str) -> Value {
        let claim = json!({ "worker": { "id": "w1", "incarnation": "i1" }, "request_id": request });
        self.post("/v1/work/claim", claim).await.expect(200)["leases"][0].take()
    }
}

pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Reply {
    /// The body, if the status is this one.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body
    }

    /// Checks that it is a problem with this code, complete and with a detail that says what to do.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) {
        assert_eq!(self.status.as_u16(), status, "{code}: {}", self.body);
        assert_eq!(self.body["code"], code, "{}", self.body);
        assert_eq!(self.body["status"], status);
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json");
        assert!(self.body.get("retryable").is_some(), "{}", self.body);
        assert!(self.body["detail"].as_str().is_some_and(|detail| detail.len() > 20), "{}", self.body);
    }
}

/// Runs each test on every store.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => { crate::bed::on_every_store!(""; $($name),*); };
    ($toml:expr; $($name:ident),* $(,)?) => {
        mod memory {
            use super::*;
            $(#[tokio::test] async fn $name() { super::$name(Bed::configured($toml).await).await; })*
        }
        crate::bed::on_both_databases! { $($name: $toml),* }
    };
}
pub(crate) use on_every_store;

/// The same without memory, which responds at once; each test with its own lines of `tenure.toml`, if it
/// gives some.
macro_rules! on_both_databases {
    ($($name:ident $(: $toml:expr)?),* $(,)?) => {
        mod sqlite {
            use super::*;
            $(#[tokio::test] async fn $name() {
                super::$name(Bed::sqlite_with(&<[&str]>::concat(&[$($toml)?])).await).await;
            })*
        }
        mod postgres {
            use super::*;
            $(#[tokio::test] async fn $name() {
                super::$name(Bed::postgres_with(&<[&str]>::concat(&[$($toml)?])).await).await;
            })*
        }
    };
}
pub(crate) use on_both_databases;

/// A small job.
pub fn work(id: &str) -> Value {
    json!({
        "source": { "system": "manual", "id": id },
        "kind": "job",
        "disposition": "rerunnable",
        "input": { "do": id },
    })
}

/// The fence and token of a holder's verb, with the other fields.
pub fn held(grant: &Value, mut more: Value) -> Value {
    more["fence"] = grant["fence"].clone();
    more["token"] = grant["token"].clone();
    more
}

pub fn id_of(grant: &Value) -> &str {
    grant["work"]["id"].as_str().unwrap()
}
