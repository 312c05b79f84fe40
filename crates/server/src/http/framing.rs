//! Refuses requests whose host or length two parsers could read differently: a proxy in front could see
//! another request than the daemon. Calls in process have no such proxy and are not checked.

use axum::{
    extract::Request,
    http::{HeaderValue, Version, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tenure_api::wire::Code;

use super::Problem;

/// Refuses an ambiguous request, and closes its connection: the bytes that follow may not be a request at all.
pub(crate) async fn check(request: Request, next: Next) -> Response {
    let Some(why) = ambiguous(&request) else { return next.run(request).await };
    let mut response = Problem::new(Code::Malformed, why).into_response();
    if request.version() < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn ambiguous(request: &Request) -> Option<&'static str> {
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter();
    let authority = request.uri().authority();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Some("The request has several `Host` headers. Send one."),
        (None, None) if authority.is_none() || request.version() < Version::HTTP_2 => {
            return Some("The request has no `Host` header. Send one with the daemon's name.");
        }
        (Some(host), None) if authority.is_some_and(|authority| authority.as_str() != host) => {
            return Some(
                "The request's URL and its `Host` header name different hosts. Send the same in both.",
            );
        }
        _ => {}
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => None,
        // RFC 9112 (6.3): `chunked` overrides a `Content-Length`, which the parser has dropped.
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => None,
        _ => Some(
            "The request's `Transfer-Encoding` is not exactly one `chunked`. Send it once, or send `Content-Length`.",
        ),
    }
}
