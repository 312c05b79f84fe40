//! A scripted server: responds by a function, and records the requests and their times.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use serde_json::{Value, json};
use tenure_api::{
    Client, Error,
    client::{Sending, Transport},
};
use tokio::{sync::Notify, time::Instant};

/// The script's response to a request.
pub enum Answer {
    Json(u16, Value),
    /// A response that is marked as a dry run.
    Tried(Value),
    /// A stream of text, after which the connection is cut.
    Text(&'static str),
    Unreachable,
    /// The request was sent, and no response came.
    Lost,
    /// The response never ends.
    Silence,
}

impl Answer {
    pub fn tried(self) -> Self {
        match self {
            Answer::Json(200, body) => Answer::Tried(body),
            other => other,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Asked {
    pub at: Instant,
    pub path: String,
    pub body: Value,
    pub last_event: Option<String>,
}

type Script = Box<dyn FnMut(&Asked) -> Answer + Send>;

#[derive(Clone)]
pub struct Fake {
    script: Arc<Mutex<Script>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    news: Arc<Notify>,
}

impl Fake {
    pub fn new(script: impl FnMut(&Asked) -> Answer + Send + 'static) -> Self {
        Self { script: Arc::new(Mutex::new(Box::new(script))), asked: Arc::default(), news: Arc::default() }
    }

    pub fn client(&self) -> Client {
        Client::over(Arc::new(self.clone()), Some("secret"))
    }

    /// Completes when a path with this ending was requested for the `n`th time.
    pub async fn until(&self, path: &str, n: usize) {
        loop {
            let news = self.news.notified();
            if self.asked(path).len() >= n {
                return;
            }
            news.await;
        }
    }

    /// All requests for a path with this ending.
    pub fn asked(&self, path: &str) -> Vec<Asked> {
        self.asked.lock().unwrap().iter().filter(|asked| asked.path.ends_with(path)).cloned().collect()
    }
}

impl Transport for Fake {
    fn send(&self, request: Request<Bytes>) -> Sending<'_> {
        let asked = Asked {
            at: Instant::now(),
            path: request.uri().to_string(),
            body: serde_json::from_slice(request.body()).unwrap_or(Value::Null),
            last_event: request.headers().get("last-event-id").map(|id| id.to_str().unwrap().to_owned()),
        };
        assert_eq!(request.headers()["authorization"], "Bearer secret");
        let answer = (self.script.lock().unwrap())(&asked);
        self.asked.lock().unwrap().push(asked);
        self.news.notify_waiters();
        Box::pin(async move {
            let tried = matches!(answer, Answer::Tried(_));
            let (status, bytes, cut) = match answer {
                Answer::Tried(body) => (200, body.to_string().into_bytes(), false),
                Answer::Json(status, body) => (status, body.to_string().into_bytes(), false),
                Answer::Text(text) => (200, text.as_bytes().to_vec(), true),
                Answer::Unreachable => return Err(Error::unreachable("it", "refused")),
                Answer::Lost => return Err(Error::no_response("it", "cut")),
                Answer::Silence => std::future::pending().await,
            };
            let body = stream::iter([Ok(Bytes::from(bytes))]);
            let body = if cut { body.chain(stream::iter([Err("cut".into())])).boxed() } else { body.boxed() };
            let mut response = Response::builder().status(status);
            if tried {
                response = response.header("tenure-dry-run", "true");
            }
            Ok(response.body(body).unwrap())
        })
    }
}

pub fn problem(status: u16, code: &str, retryable: Value) -> Answer {
    Answer::Json(
        status,
        json!({
            "type": "about:blank", "title": code, "status": status, "detail": "A sentence.", "code": code,
            "retryable": retryable
        }),
    )
}

pub fn ack(state: &str) -> Answer {
    Answer::Json(200, json!({ "id": "w_1", "state": state, "seq": 3 }))
}

pub fn work(id: &str, disposition: &str) -> Value {
    json!({
        "id": id, "source": { "system": "manual", "id": id }, "kind": "k", "tenant": "default",
        "correlation_id": "c", "generation": 1, "state": "running", "phase": "active", "seq": 2, "attempt": 1,
        "failures": 0, "priority": 3, "disposition": disposition,
        "timestamps": { "acknowledged": "2026-01-31T08:15:00.000Z", "updated": "2026-01-31T08:15:00.000Z" },
        "input_hash": "00"
    })
}

pub const TTL: Duration = Duration::from_secs(45);
pub const RENEW: Duration = Duration::from_secs(15);

/// A lease of a work item whose input is `{"n": 1}`.
pub fn grant(id: &str, disposition: &str) -> Value {
    json!({
        "work": work(id, disposition), "input": { "n": 1 }, "fence": 7, "token": "t",
        "expires_at": "2026-01-31T08:15:45.000Z", "renew_ms": RENEW.as_millis() as u64,
        "ttl_ms": TTL.as_millis() as u64
    })
}

/// Renews every lease in the request.
pub fn renewed(asked: &Asked, cancel_requested: bool) -> Answer {
    let leases: Vec<_> = asked.body["leases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lease| {
            json!({
                "id": lease["id"], "expires_at": "2026-01-31T08:16:00.000Z",
                "cancel_requested": cancel_requested
            })
        })
        .collect();
    Answer::Json(200, json!({ "leases": leases }))
}
