//! Batches: many calls in one request. Each goes through admission on its own, in the given order. Calls that
//! cannot see each other's effects run concurrently, so that they share commits.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use axum::{
    Extension, Router,
    body::{Body, Bytes, to_bytes},
    extract::State,
    http::{HeaderMap, Method, Request, Uri, header},
    response::{IntoResponse, Response},
};
use futures_util::future::join_all;
use tenure_api::wire::{self as w, Code};
use tenure_core::WorkId;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::{LargeBody, Problem, error::Problems};
use crate::auth::InProcess;

/// The largest size of all responses together. A call whose response no longer fits must be sent alone: many
/// of them would exhaust memory.
const ANSWERS_MAX: usize = 32 * 1024 * 1024;
/// Reads that run concurrently. Writes need no such limit: their responses are small.
const READS_AT_ONCE: usize = 4;

/// Marks a call inside a batch: only the batch itself counts against its tenant's quota.
#[derive(Clone, Copy)]
pub(super) struct InBatch;

/// The routes that a batch can reach.
#[derive(Clone)]
pub(crate) struct Inner(pub Router);

/// Sends up to 1,000 calls. They run in the given order, a read sees the writes before it, and each has its
/// own response. Claims, long polls, streams and nested batches are refused.
#[utoipa::path(post, path = "/v1/batch", tag = "work", request_body = w::Batch, extensions(("x-no-dry-run" = json!(true))), security(("token" = [])),
    responses((status = 200, description = "The response of each call.", body = w::BatchReply), Problems))]
pub(crate) async fn batch(
    State(Inner(router)): State<Inner>,
    in_process: Option<Extension<InProcess>>,
    headers: HeaderMap,
    LargeBody(body): LargeBody<w::Batch>,
) -> Result<Response, Problem> {
    if body.items.len() > w::BATCH_MAX {
        let detail = format!(
            "A batch has at most {} items; this one has {}. Split it.",
            w::BATCH_MAX,
            body.items.len()
        );
        return Err(Problem::invalid(detail));
    }
    let by = By { headers, in_process: in_process.map(|Extension(in_process)| in_process) };
    let room = BatchLimits { bytes: AtomicUsize::new(ANSWERS_MAX), reads: Semaphore::new(READS_AT_ONCE) };
    let mut items: Vec<Option<w::BatchItem>> = body.items.into_iter().map(Some).collect();
    let mut answers: Vec<Option<BatchAnswer>> = items.iter().map(|_| None).collect();
    for chains in stretches(items.iter().flatten()) {
        let calls = chains.into_iter().map(|chain| {
            let calls: Vec<_> = chain.into_iter().filter_map(|n| Some((n, items[n].take()?))).collect();
            in_order(&router, &by, calls, &room)
        });
        for (n, answer) in join_all(calls).await.into_iter().flatten() {
            answers[n] = Some(answer);
        }
    }
    Ok(reply(answers.into_iter().flatten().collect()))
}

/// The response to one call, as text: parsed, it would take several times the memory.
struct BatchAnswer {
    status: u16,
    body: Bytes,
}

/// A [`w::BatchReply`].
fn reply(answers: Vec<BatchAnswer>) -> Response {
    let length: usize = answers.iter().map(|answer| answer.body.len() + 40).sum();
    let mut text = Vec::with_capacity(length + 12);
    text.extend_from_slice(b"{\"items\":[");
    for (n, BatchAnswer { status, body }) in answers.into_iter().enumerate() {
        let comma = if n > 0 { "," } else { "" };
        text.extend_from_slice(format!("{comma}{{\"status\":{status},\"body\":").as_bytes());
        text.extend_from_slice(&body);
        text.push(b'}');
    }
    text.extend_from_slice(b"]}");
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Calls of one batch that run one after another, by their index in the batch.
type Chain = Vec<usize>;

/// Calls of one kind may run concurrently unless they have the same key.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Kind {
    Read(usize),
    /// A new work item that no other item of the batch depends on, by its source's id.
    Ingest(String),
    /// A verb that changes this work item alone.
    Work(WorkId),
    /// A command reserved for this work item. A rerun's reserve reads other work items' commands.
    Reserve(WorkId),
    /// It may depend on any call before it.
    Alone,
}

/// Splits a batch into stretches that run one after another. The chains of one stretch run concurrently.
fn stretches<'a>(items: impl Iterator<Item = &'a w::BatchItem>) -> Vec<Vec<Chain>> {
    let mut stretches: Vec<Vec<Chain>> = Vec::new();
    let mut last = Kind::Alone;
    let mut places: HashMap<Kind, usize> = HashMap::new();
    for (n, item) in items.enumerate() {
        let kind = kind(n, item);
        if kind == Kind::Alone || std::mem::discriminant(&kind) != std::mem::discriminant(&last) {
            stretches.push(Vec::new());
            places.clear();
        }
        let Some(chains) = stretches.last_mut() else { continue };
        match places.get(&kind) {
            Some(place) => chains[*place].push(n),
            None => {
                places.insert(kind.clone(), chains.len());
                chains.push(vec![n]);
            }
        }
        last = kind;
    }
    stretches
}

/// The sender of the batch: each call is made in their name.
struct By {
    headers: HeaderMap,
    in_process: Option<InProcess>,
}

/// Limits shared by the calls of one batch.
struct BatchLimits {
    bytes: AtomicUsize,
    reads: Semaphore,
}

impl BatchLimits {
    /// Reserves so many bytes for a response, if they still fit.
    fn take(&self, bytes: usize) -> bool {
        self.bytes.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

async fn in_order(
    router: &Router,
    by: &By,
    calls: Vec<(usize, w::BatchItem)>,
    room: &BatchLimits,
) -> Vec<(usize, BatchAnswer)> {
    let mut answers = Vec::with_capacity(calls.len());
    for (n, item) in calls {
        answers.push((n, one(router.clone(), by, item, room).await));
    }
    answers
}

async fn one(router: Router, by: &By, item: w::BatchItem, room: &BatchLimits) -> BatchAnswer {
    let reads = item.method == Some(w::BatchMethod::Get);
    let request = match request(by, item) {
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
    // Every route that a batch can reach answers with JSON.
    BatchAnswer { status, body: if body.is_empty() { Bytes::from_static(b"null") } else { body } }
}

pub(super) fn too_long() -> Problem {
    let detail = format!(
        "The responses of a batch have at most {ANSWERS_MAX} bytes together, and this one no longer fits. The call was \
         made: send it again alone to see its response."
    );
    Problem::new(Code::TooLarge, detail)
}

fn refused(problem: Problem) -> BatchAnswer {
    let problem = problem.into_wire();
    let body = serde_json::to_vec(&problem).expect("wire types are plain JSON");
    BatchAnswer { status: problem.status, body: body.into() }
}

/// The URI of a call, as the router will read it: without a fragment, and never to another host.
fn target(path: &str) -> Result<Uri, Problem> {
    let uri: Uri = path.parse().map_err(|_| not_a_path(path))?;
    if uri.authority().is_some() || !uri.path().starts_with('/') { Err(not_a_path(path)) } else { Ok(uri) }
}

fn not_a_path(path: &str) -> Problem {
    Problem::invalid(format!("`{path}` is not a path. Write a path like `/v1/work`."))
}

/// Refuses calls that do not respond at once, and claims: a lost response would lose their leases.
fn check(uri: &Uri) -> Result<(), Problem> {
    let refused = ["/v1/work/claim", "/v1/commands/claim", "/v1/events/stream", "/v1/batch"];
    // Parsed as the route will parse it, since a name can be encoded in many ways. Unreadable queries are
    // refused.
    let params: Vec<(String, String)> =
        serde_urlencoded::from_str(uri.query().unwrap_or_default()).unwrap_or_default();
    let waits = params.iter().any(|(name, _)| name == "wait");
    if !uri.path().starts_with("/v1/") || refused.contains(&uri.path()) || waits {
        return Err(Problem::invalid(
            "A batch takes calls under /v1 that respond at once. Send claims, long polls, streams and batches as requests of \
             their own.",
        ));
    }
    Ok(())
}

/// Which earlier calls a call may depend on.
fn kind(n: usize, item: &w::BatchItem) -> Kind {
    let Ok(uri) = target(&item.path) else { return Kind::Alone };
    let segments: Vec<&str> = uri.path().split('/').skip(2).collect();
    let of_work = |id: &str, kind: fn(WorkId) -> Kind| id.parse().map_or(Kind::Alone, kind);
    let has = |field: &str| item.body.as_ref().is_some_and(|body| body.get(field).is_some());
    match (item.method.unwrap_or(w::BatchMethod::Post), &segments[..]) {
        (w::BatchMethod::Get, _) => Kind::Read(n),
        (w::BatchMethod::Put, ["work", id, "steps", _]) => of_work(id, Kind::Work),
        (w::BatchMethod::Post, ["work"]) if !["session", "parent", "claim"].into_iter().any(has) => {
            let source = item.body.as_ref().map_or(&serde_json::Value::Null, |body| &body["source"]);
            Kind::Ingest(source["id"].to_string())
        }
        (w::BatchMethod::Post, ["work", id, "commands"]) => of_work(id, Kind::Reserve),
        (w::BatchMethod::Post, ["work", id, "fail"]) if !has("wait") => of_work(id, Kind::Work),
        (
            w::BatchMethod::Post,
            [
                "work",
                id,
                "accept" | "progress" | "release" | "close-out" | "complete" | "cancel" | "abandon"
                | "retry-now" | "quarantine" | "decide",
            ],
        ) => of_work(id, Kind::Work),
        (w::BatchMethod::Post | w::BatchMethod::Put, _) => Kind::Alone,
    }
}

/// The call as a request of its own by the same caller.
fn request(by: &By, item: w::BatchItem) -> Result<Request<Body>, Problem> {
    let uri = target(&item.path)?;
    check(&uri)?;
    let method = match item.method.unwrap_or(w::BatchMethod::Post) {
        w::BatchMethod::Post => Method::POST,
        w::BatchMethod::Put => Method::PUT,
        w::BatchMethod::Get => Method::GET,
    };
    let body = item.body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let mut request = Request::new(body);
    (*request.method_mut(), *request.uri_mut()) = (method, uri);
    for name in [
        header::AUTHORIZATION,
        header::HOST,
        header::CONTENT_TYPE,
        header::HeaderName::from_static("traceparent"),
    ] {
        if let Some(value) = by.headers.get(&name) {
            request.headers_mut().insert(name, value.clone());
        }
    }
    request.extensions_mut().insert(InBatch);
    if let Some(in_process) = &by.in_process {
        request.extensions_mut().insert(in_process.clone());
    }
    Ok(request)
}
