//! Batches: many calls in one request. Each goes through the same door on its own; together they fall into the
//! same groups of the ledger.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State,
    http::{HeaderMap, Method, Request, header},
};
use futures_util::future::join_all;
use serde_json::Value;
use tenure_api::wire::{self as w, Code};
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::{Answer, Json, LargeBody, Problem, error::Problems};

/// What all answers may take together: a call whose answer no longer fits is for a request of its own, since many
/// of them would fill the machine.
const ANSWERS_MAX: usize = 32 * 1024 * 1024;
/// Reads that are answered at once. Writes go together, so that they share commits; what they answer is small.
const READS_AT_ONCE: usize = 4;

/// The routes that a batch can reach.
#[derive(Clone)]
pub(crate) struct Inner(pub Router);

/// Sends up to 1,000 calls at once; each is answered on its own, in the order given. Claims, long polls, streams
/// and batches cannot ride.
#[utoipa::path(post, path = "/v1/batch", tag = "work", request_body = w::Batch, extensions(("x-no-dry-run" = json!(true))), security(("token" = [])),
    responses((status = 200, description = "Each call's answer.", body = w::BatchReply), Problems))]
pub(crate) async fn batch(
    State(Inner(router)): State<Inner>,
    headers: HeaderMap,
    LargeBody(body): LargeBody<w::Batch>,
) -> Answer<w::BatchReply> {
    if body.items.len() > w::BATCH_MAX {
        let detail = format!(
            "A batch has at most {} items, this one has {}. Split it.",
            w::BATCH_MAX,
            body.items.len()
        );
        return Err(Problem::invalid(detail));
    }
    let room = Room { bytes: AtomicUsize::new(ANSWERS_MAX), reads: Semaphore::new(READS_AT_ONCE) };
    let calls = body.items.into_iter().map(|item| one(router.clone(), &headers, item, &room));
    Ok(Json(w::BatchReply { items: join_all(calls).await }))
}

/// What the calls of one batch share.
struct Room {
    bytes: AtomicUsize,
    reads: Semaphore,
}

impl Room {
    /// Whether an answer of so many bytes still fits; then they are taken.
    fn take(&self, bytes: usize) -> bool {
        self.bytes.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

async fn one(router: Router, headers: &HeaderMap, item: w::BatchItem, room: &Room) -> w::BatchAnswer {
    let reads = item.method == Some(w::BatchMethod::Get);
    let request = match request(headers, item) {
        Ok(request) => request,
        Err(problem) => return refused(problem),
    };
    let _turn = if reads { room.reads.acquire().await.ok() } else { None };
    let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    let status = response.status().as_u16();
    let Ok(body) = to_bytes(response.into_body(), ANSWERS_MAX).await else { return refused(too_long()) };
    if !room.take(body.len()) {
        return refused(too_long());
    }
    w::BatchAnswer { status, body: serde_json::from_slice(&body).unwrap_or(Value::Null) }
}

fn too_long() -> Problem {
    let detail = format!(
        "The answers of a batch have at most {ANSWERS_MAX} bytes, and this one no longer fits. The call itself was \
         made: send the same again on its own to see what it answered."
    );
    Problem::new(Code::TooLarge, detail)
}

fn refused(problem: Problem) -> w::BatchAnswer {
    let problem = problem.into_wire();
    let status = problem.status;
    w::BatchAnswer { status, body: serde_json::to_value(problem).unwrap_or(Value::Null) }
}

/// The call as if it had come alone, by the same caller.
fn request(headers: &HeaderMap, item: w::BatchItem) -> Result<Request<Body>, Problem> {
    let (path, query) = item.path.split_once('?').unwrap_or((&item.path, ""));
    // As the route itself will read it: a name can be written in many ways. What it cannot read it refuses.
    let params: Vec<(String, String)> = serde_urlencoded::from_str(query).unwrap_or_default();
    let waits = params.iter().any(|(name, _)| name == "wait");
    if !path.starts_with("/v1/") || path.ends_with("/claim") || path == "/v1/events/stream" || waits {
        let detail =
            "Only calls under /v1 that answer at once can ride: no claim, long poll, stream or batch.";
        return Err(Problem::invalid(detail));
    }
    let method = match item.method.unwrap_or(w::BatchMethod::Post) {
        w::BatchMethod::Post => Method::POST,
        w::BatchMethod::Put => Method::PUT,
        w::BatchMethod::Get => Method::GET,
    };
    let body = item.body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let mut request = Request::builder().method(method).uri(&item.path).body(body).map_err(|_| {
        Problem::invalid(format!("`{}` is no path. Write it as in the request line.", item.path))
    })?;
    for name in [
        header::AUTHORIZATION,
        header::HOST,
        header::CONTENT_TYPE,
        header::HeaderName::from_static("traceparent"),
    ] {
        if let Some(value) = headers.get(&name) {
            request.headers_mut().insert(name, value.clone());
        }
    }
    Ok(request)
}
