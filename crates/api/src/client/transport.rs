//! How a request reaches the server: over a socket, or as a call into a router in this process.

use std::{fmt::Display, future::Future, net::IpAddr, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, BodyStream, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::Connect, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tower_service::Service;

use super::Error;

/// The time limit of a connection attempt.
const CONNECT: Duration = Duration::from_secs(5);
/// Detects a dead peer, and keeps proxies from closing the connection of a quiet long poll.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Why a response body was cut.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A response body as it arrives.
pub type Body = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

/// A request in progress, until its response begins.
pub type Sending<'a> = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send + 'a>>;

/// A way to send requests to a server.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request whose URI is a path. Returns [`Error::Unreachable`] only if nothing was sent.
    fn send(&self, request: Request<Bytes>) -> Sending<'_>;
}

/// A connection over a socket.
pub(super) struct Http<C> {
    base: String,
    client: legacy::Client<C, Full<Bytes>>,
}

/// A transport to `http://…` or `https://…`. With `plain`, the access token may leave this machine
/// unencrypted.
pub(super) fn over_socket(base: &str, plain: bool) -> Result<Box<dyn Transport>, Error> {
    let base = base.trim_end_matches('/').to_owned();
    let uri: Uri = base.parse().map_err(|e| bad_url(&base, e))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(host)) if !plain && !is_here(host) => Err(Error::setup(format!(
            "`{base}` is not encrypted: the access token and all data would cross the network in plain text. \
             Use https, or allow it: TENURE_ALLOW_PLAIN_HTTP=true, `Client::plain_http`."
        ))),
        (Some("http"), Some(_)) => Ok(Box::new(Http { base, client: pool(tcp()) })),
        (Some("https"), Some(_)) => Ok(Box::new(Http { client: pool(tls()?), base })),
        _ => Err(bad_url(&base, "it names no scheme and host")),
    }
}

fn is_here(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

fn bad_url(base: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let cause = cause.into();
    let detail = format!("`{base}` is not the URL of a daemon: {cause}. Write it as http://127.0.0.1:7171.");
    Error::Setup { detail, cause: Some(Arc::from(cause)) }
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp
}

fn tls() -> Result<HttpsConnector<HttpConnector>, Error> {
    let mut tcp = tcp();
    tcp.enforce_http(false);
    let provider = rustls::crypto::ring::default_provider();
    let builder = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider).map_err(|cause| {
        Error::Setup {
            detail: format!(
                "The system's certificates cannot be read: {cause}. Name a file in SSL_CERT_FILE."
            ),
            cause: Some(Arc::new(cause)),
        }
    })?;
    Ok(builder.https_only().enable_http1().wrap_connector(tcp))
}

fn pool<C: Connect + Clone>(connector: C) -> legacy::Client<C, Full<Bytes>> {
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(60))
        .build(connector)
}

impl<C: Connect + Clone + Send + Sync + 'static> Transport for Http<C> {
    fn send(&self, request: Request<Bytes>) -> Sending<'_> {
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            parts.uri = format!("{}{}", self.base, parts.uri).parse().map_err(|e| bad_url(&self.base, e))?;
            let sent = self.client.request(Request::from_parts(parts, Full::new(body))).await;
            let response = sent.map_err(|cause| match cause.is_connect() {
                true => Error::unreachable(&self.base, cause),
                false => Error::no_response(&self.base, cause),
            })?;
            Ok(response.map(stream))
        })
    }
}

/// A router in this process, called without a socket.
pub(super) struct InProcess<S>(pub S);

impl<S, Res> Transport for InProcess<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<Res>> + Clone + Send + Sync + 'static,
    S::Error: Display,
    S::Future: Send,
    Res: http_body::Body<Data = Bytes> + Send + 'static,
    Res::Error: Display,
{
    fn send(&self, request: Request<Bytes>) -> Sending<'_> {
        let mut router = self.0.clone();
        Box::pin(async move {
            let failed = |cause: S::Error| Error::no_response("the embedded ledger", cause.to_string());
            std::future::poll_fn(|cx| router.poll_ready(cx)).await.map_err(failed)?;
            let response = router.call(request.map(Full::new)).await.map_err(failed)?;
            Ok(response.map(stream))
        })
    }
}

fn stream<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Display,
{
    let frames = BodyStream::new(body.boxed_unsync());
    Box::pin(frames.filter_map(|frame| {
        std::future::ready(match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(e) => Some(Err(e.to_string().into())),
        })
    }))
}
