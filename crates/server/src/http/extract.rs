//! Reading requests: JSON bodies, query parameters, ids in paths. Unreadable input becomes a problem that
//! says how to fix it.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Bytes, HttpBody, to_bytes},
    extract::{FromRequest, FromRequestParts, OptionalFromRequest, RawPathParams, Request},
    http::{HeaderMap, header, request::Parts},
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};
use tenure_api::{strict, wire::Code};
use tenure_core::Evidence;
use tenure_store::Caller;

use super::{Problem, admission::DryRun};
use crate::auth::Authenticated;

/// The largest body; a batch may have eight times as much.
pub(super) const BODY_MAX: usize = 1024 * 1024;
const BATCH_MAX: usize = 8 * BODY_MAX;

/// Time for a body to arrive: a slower one holds a connection and its memory.
const BODY_WITHIN: Duration = Duration::from_secs(60);

/// A JSON body.
pub(crate) struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read(request, BODY_MAX).await.map(Body)
    }
}

/// None: the request has no body, and so no type of one.
impl<T: DeserializeOwned, S: Send + Sync> OptionalFromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Option<Self>, Problem> {
        if !request.headers().contains_key(header::CONTENT_TYPE) && request.body().is_end_stream() {
            return Ok(None);
        }
        read(request, BODY_MAX).await.map(|body| Some(Body(body)))
    }
}

/// A JSON body with many calls.
pub(crate) struct LargeBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for LargeBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read(request, BATCH_MAX).await.map(LargeBody)
    }
}

async fn read<T: DeserializeOwned>(request: Request, max: usize) -> Result<T, Problem> {
    if !is_json(request.headers()) {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "Bodies are JSON. Send them with `Content-Type: application/json`.",
        ));
    }
    if request.headers().get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "Compressed bodies are not accepted. Send the body without `Content-Encoding`.",
        ));
    }
    let arriving = tokio::time::timeout(BODY_WITHIN, to_bytes(request.into_body(), max));
    let bytes = arriving.await.map_err(|_| too_slow())?.map_err(|error| unreadable(&error, max))?;
    strict::from_slice(&bytes).map_err(|error| not_understood(&error))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn unreadable(error: &axum::Error, max: usize) -> Problem {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return Problem::new(
                Code::TooLarge,
                format!(
                    "The body has more than {max} bytes. Store the large part elsewhere and send a reference to it."
                ),
            );
        }
        cause = error.source();
    }
    Problem::new(Code::Malformed, "The body ended early. Send the request again.")
}

fn too_slow() -> Problem {
    let seconds = BODY_WITHIN.as_secs();
    Problem::new(Code::Malformed, format!("The body did not arrive within {seconds} s. Send it faster."))
}

fn not_understood(error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    if !error.is_data() {
        return Problem::new(Code::Malformed, format!("The body is not JSON: {text}."));
    }
    if text.starts_with(strict::DUPLICATE) {
        return Problem::new(
            Code::Malformed,
            format!("The body has a {text}, and parsers differ on which one counts. Send it once."),
        );
    }
    if text.starts_with("unknown field") {
        return Problem::new(
            Code::UnknownField,
            format!("The body has an {text}. Leave it out, or correct its name."),
        );
    }
    if text.starts_with(NO_REASON) {
        return reason_missing();
    }
    Problem::invalid(format!("The body does not match its schema: {}. See /openapi.json.", plain(&text)))
}

/// The start of the parser's message for a missing reason.
const NO_REASON: &str = "missing field `reason`";

/// The same problem as for an empty reason.
fn reason_missing() -> Problem {
    Problem::new(Code::ReasonMissing, "Give a reason: this verb requires one, and it is recorded.")
}

/// The parser's message, without the names of our types and of its own.
fn plain(text: &str) -> String {
    const WORDS: [(&str, &str); 8] = [
        ("invalid type: sequence", "a list"),
        ("invalid type: map", "an object"),
        ("invalid type: ", ""),
        ("invalid value: ", ""),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
        ("unknown variant ", "unknown value "),
        ("expected internally tagged enum ", "expected struct "),
    ];
    let mut text = WORDS.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours));
    for number in ["u8", "u16", "u32", "u64", "i16", "i32", "i64"] {
        text = text.replace(&format!("expected {number}"), "expected an integer within its range");
    }
    if let Some((before, named)) = text.split_once("expected struct ") {
        let after = named.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        text = format!("{before}expected an object{after}");
    }
    text
}

/// Query parameters. Admission has refused unknown ones.
pub(crate) struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Admission has read `dry_run` for the routes that take it.
        let own = |pair: &&str| parts.method.is_safe() || !pair.starts_with("dry_run=");
        let query = parts.uri.query().unwrap_or_default();
        let query = query.split('&').filter(own).collect::<Vec<_>>().join("&");
        serde_urlencoded::from_str(&query).map(Params).map_err(|error| {
            let text = error.to_string();
            if text.starts_with(NO_REASON) {
                return reason_missing();
            }
            Problem::invalid(format!(
                "The query does not match its schema: {}. See /openapi.json.",
                plain(&text)
            ))
        })
    }
}

/// The variable parts of a path, in order.
pub(crate) struct Segments<const N: usize>(pub [String; N]);

impl<const N: usize, S: Send + Sync> FromRequestParts<S> for Segments<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let unreadable = || Problem::invalid("The path is not UTF-8. Encode it as UTF-8.");
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| unreadable())?;
        let segments: Vec<String> = params.iter().map(|(_, value)| value.to_owned()).collect();
        segments.try_into().map(Segments).map_err(|_| unreadable())
    }
}

/// The authenticated caller of a request, with its trace.
pub(crate) struct Who {
    pub session: Arc<Authenticated>,
    /// It only asks what would happen.
    pub dry_run: bool,
    evidence: Vec<Evidence>,
}

impl Who {
    /// The ledger's view for this request, with the trace that its records will carry.
    pub fn caller(&self) -> Caller {
        self.session.caller().clone().with_evidence(self.evidence.clone()).trying(self.dry_run)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let session = parts.extensions.get::<Arc<Authenticated>>().cloned();
        let session = session.ok_or_else(|| Problem::from(crate::auth::Denied::NoToken))?;
        let dry_run = parts.extensions.get::<DryRun>().is_some_and(|asked| asked.0);
        Ok(Who { session, dry_run, evidence: traceparent(&parts.headers).into_iter().collect() })
    }
}

/// The W3C trace context, if it is one: version, trace, span and flags in hexadecimal.
fn traceparent(headers: &HeaderMap) -> Option<Evidence> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str, len| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    let [version, trace, span, flags] = parts[..] else { return None };
    let sound = hex(version, 2)
        && hex(trace, 32)
        && hex(span, 16)
        && hex(flags, 2)
        && trace.bytes().any(|b| b != b'0')
        && span.bytes().any(|b| b != b'0');
    sound.then(|| Evidence { kind: "traceparent".to_owned(), reference: text.to_owned() })
}

/// Longer responses release their unused buffer.
const SPARE: usize = 64 * 1024;

/// A JSON response.
pub(crate) struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut body = serde_json::to_vec(&self.0).expect("wire types are plain JSON");
        if body.capacity() > SPARE {
            // The buffer grew by doubling, and stays in memory until a possibly slow client has read it.
            body.shrink_to_fit();
        }
        let body = Bytes::from(body);
        ([(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}
