//! A single call: how it is written, sent, retried when that is safe, and read.

use std::{sync::Arc, time::Duration};

use backon::{ExponentialBuilder, Retryable};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::{Method, Request, Response, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Client, Error,
    transport::{Body, BodyError},
};
use crate::{
    tolerant,
    wire::{Code, DRY_RUN_HEADER, Problem},
};

/// How long a response may take, not counting the time for which the call asks the server to wait.
const ANSWER: Duration = Duration::from_secs(30);
/// The longest response: a page of a thousand work items with their payloads fits.
const ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// Whether a call whose outcome is unknown may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It is idempotent by its identity, request id or lease, or it only reads.
    Safe,
    /// A repeat would have a second effect, or would be refused because of the first.
    Unsafe,
}

pub(super) struct Call {
    method: Method,
    path: String,
    body: Option<Bytes>,
    repeat: Repeat,
    timeout: Option<Duration>,
    last_event: Option<String>,
    /// The call is a dry run.
    dry_run: bool,
    /// A response with status 503 is a result and not a problem.
    also_unavailable: bool,
}

impl Call {
    fn new(method: Method, path: String) -> Self {
        let repeat = Repeat::Safe;
        Self {
            method,
            path,
            body: None,
            repeat,
            timeout: Some(ANSWER),
            last_event: None,
            dry_run: false,
            also_unavailable: false,
        }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path.into())
    }

    pub fn post(path: impl Into<String>, body: &impl Serialize) -> Self {
        Self::new(Method::POST, path.into()).body(body)
    }

    pub fn put(path: impl Into<String>, body: &impl Serialize) -> Self {
        Self::new(Method::PUT, path.into()).body(body)
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path.into())
    }

    fn body(self, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("wire types are plain structs with string keys");
        Self { body: Some(body.into()), ..self }
    }

    pub fn query(mut self, query: &impl Serialize) -> Self {
        let query = serde_urlencoded::to_string(query).expect("queries are flat structs");
        if !query.is_empty() {
            self.path = format!("{}?{query}", self.path);
        }
        self
    }

    pub fn once(self) -> Self {
        Self { repeat: Repeat::Unsafe, ..self }
    }

    pub fn once_if(self, once: bool) -> Self {
        if once { self.once() } else { self }
    }

    /// The call asks the server to wait this long before it responds.
    pub fn waits(self, wait: Duration) -> Self {
        Self { timeout: Some(ANSWER + wait), ..self }
    }

    /// Removes the time limit.
    pub fn without_time_limit(self) -> Self {
        Self { timeout: None, ..self }
    }

    pub fn also_unavailable(self) -> Self {
        Self { also_unavailable: true, ..self }
    }

    /// The same call as a dry run, which can be repeated any number of times.
    fn dry_run(self) -> Self {
        let mark = if self.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{mark}dry_run=true", self.path);
        Self { path, repeat: Repeat::Safe, dry_run: true, ..self }
    }

    pub fn last_event(self, id: Option<String>) -> Self {
        Self { last_event: id, ..self }
    }
}

/// Everything but the characters that RFC 3986 calls unreserved.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A path segment, escaped: callers may name anything.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, &ESCAPED).to_string()
}

impl Client {
    /// Sends a call, retries it if that is safe and can help, and reads its response.
    pub(super) async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let call = if self.dry_run && !call.method.is_safe() { call.dry_run() } else { call };
        let again = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(2))
            .with_max_times(self.tries)
            .with_jitter();
        let answer = (|| self.once(&call))
            .retry(again)
            .when(|error| repeatable(error, call.repeat))
            .adjust(|error, delay| delay.map(|delay| delay.max(asked_delay(error))))
            .await?;
        tolerant::from_slice(&answer)
            .map_err(|cause| Error::unreadable(&format!("{} answered", call.path), cause))
    }

    async fn once(&self, call: &Call) -> Result<Bytes, Error> {
        let answer = async {
            let response = self.open(call).await?;
            let body = collect(response.into_body()).await;
            body.map_err(|cause| Error::no_response(&self.name, cause))
        };
        let Some(timeout) = call.timeout else { return answer.await };
        tokio::time::timeout(timeout, answer).await.unwrap_or_else(|_| {
            Err(Error::no_response(&self.name, format!("no response within {} s", timeout.as_secs())))
        })
    }

    /// Sends a call and returns the response body as it arrives; a problem is read and returned as an error.
    pub(super) async fn open(&self, call: &Call) -> Result<Response<Body>, Error> {
        let mut request = Request::builder().method(&call.method).uri(&call.path);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if call.body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(id) = &call.last_event {
            request = request.header("last-event-id", id);
        }
        if let Some(host) = &self.host {
            request = request.header(header::HOST, host);
        }
        let request = request.body(call.body.clone().unwrap_or_default()).map_err(|cause| Error::Setup {
            detail: format!("The request to {} cannot be written: {cause}.", call.path),
            cause: Some(Arc::new(cause)),
        })?;
        let response = self.transport.send(request).await?;
        if let Some(date) = response.headers().get(header::DATE).and_then(|date| date.to_str().ok()) {
            self.clock.observe(date);
        }
        let status = response.status();
        if call.dry_run && status.is_success() && !response.headers().contains_key(DRY_RUN_HEADER) {
            let detail =
                format!("the response of {} does not confirm a dry run: it may have been done", call.path);
            return Err(Error::protocol(detail));
        }
        if status.is_success() || (call.also_unavailable && status == StatusCode::SERVICE_UNAVAILABLE) {
            return Ok(response);
        }
        let wait =
            response.headers().get(header::RETRY_AFTER).and_then(|at| at.to_str().ok()).map(str::to_owned);
        let body = collect(response.into_body()).await;
        let body = body.map_err(|cause| Error::no_response(&self.name, cause))?;
        let mut problem: Problem = tolerant::from_slice(&body).map_err(|_| match status {
            // A proxy could not reach the daemon, or lost its response.
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Error::no_response(&self.name, status.to_string())
            }
            _ => Error::protocol(format!("{} responded {status} without a problem document", call.path)),
        })?;
        if let Some(seconds) = wait.and_then(|text| text.parse::<u64>().ok()) {
            problem.retry_after_ms.get_or_insert(seconds * 1_000);
        }
        Err(Error::Problem(Box::new(problem)))
    }
}

async fn collect(mut body: Body) -> Result<Bytes, BodyError> {
    let mut bytes = BytesMut::new();
    while let Some(part) = body.next().await {
        let part = part?;
        if bytes.len() + part.len() > ANSWER_BYTES {
            return Err("its response is too long".into());
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes.freeze())
}

/// Only failures on the way to the server are retried. Refusals such as `busy` are for the caller to handle.
fn repeatable(error: &Error, repeat: Repeat) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        Error::NoResponse { .. } => repeat == Repeat::Safe,
        Error::Problem(problem) => match problem.code.known() {
            Some(Code::Unavailable | Code::RateLimited) => problem.retryable == Some(true),
            Some(Code::OutcomeUnknown) => repeat == Repeat::Safe,
            _ => false,
        },
        Error::Protocol { .. } | Error::Setup { .. } | Error::Json { .. } => false,
    }
}

fn asked_delay(error: &Error) -> Duration {
    let Error::Problem(problem) = error else { return Duration::ZERO };
    Duration::from_millis(problem.retry_after_ms.unwrap_or(0).min(10_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_segment_cannot_escape() {
        assert_eq!(segment("send mail/../x?y#z%"), "send%20mail%2F..%2Fx%3Fy%23z%25");
        assert_eq!(segment("w_01-9~"), "w_01-9~");
    }
}
