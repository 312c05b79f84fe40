//! Calls over HTTP: a signed webhook with a stable id, sent once. A redirect that keeps method and body is
//! followed, up to a limit, and checked like the first URL; nothing else is ever sent again.

mod answer;
mod egress;
mod names;
mod sign;

use std::{error::Error as StdError, sync::Arc, time::Duration};

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri,
    header::{CONTENT_TYPE, LOCATION, USER_AGENT},
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioTimer},
};
use ipnet::IpNet;
use tenure_core::Millis;

pub use egress::{Resolve, Resolving};
pub use names::SystemResolver;
pub use sign::WebhookSecret;

use super::{Call, CallOutcome, Message};
use crate::tools::Pointer;
use egress::{Connector, EgressRules, NoConnection};

/// Bytes read of a response.
const ANSWER_BYTES: usize = 256 * 1024;
const REDIRECTS: usize = 3;
/// Idle connections are closed before most servers would close them during a call.
const IDLE: Duration = Duration::from_secs(2);
/// The longest time for connecting; never more than half of the call's timeout.
const CONNECT: Duration = Duration::from_secs(10);

/// How one tool is called.
#[derive(Clone, PartialEq)]
pub struct HttpTarget {
    /// None: the command's target is the URL.
    pub url: Option<Uri>,
    pub method: Method,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub secret: Option<WebhookSecret>,
    pub timeout: Duration,
    /// Names that may be called besides the URL's own. Without both, any public one. On a redirect to them,
    /// headers and signatures are left out.
    pub hosts: Vec<String>,
    /// Networks that may be called although they are not public.
    pub networks: Vec<IpNet>,
    pub external_id: Option<IdPlace>,
    /// Statuses with which this provider confirms that it did nothing.
    pub unsent_statuses: Vec<u16>,
}

impl HttpTarget {
    /// Whether its calls carry secrets.
    pub fn has_secrets(&self) -> bool {
        !self.headers.is_empty() || self.secret.is_some()
    }
}

impl Default for HttpTarget {
    fn default() -> Self {
        Self {
            url: None,
            method: Method::POST,
            headers: Vec::new(),
            secret: None,
            timeout: Duration::from_secs(20),
            hosts: Vec::new(),
            networks: Vec::new(),
            external_id: None,
            unsent_statuses: Vec::new(),
        }
    }
}

/// Headers may be credentials: only their names are shown.
impl std::fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("HttpTarget")
            .field("url", &self.url)
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

/// Where the provider's id is in its response.
#[derive(Clone, Debug, PartialEq)]
pub enum IdPlace {
    Header(HeaderName),
    Body(Pointer),
}

/// Shared by all calls: the resolver and the trusted certificates.
#[derive(Clone)]
pub struct Outbound {
    resolver: Arc<dyn Resolve>,
    tls: rustls::ClientConfig,
}

impl Outbound {
    /// With the machine's certificates.
    pub fn new(resolver: Arc<dyn Resolve>) -> std::io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(std::io::Error::other)?;
        Ok(Self { resolver, tls: builder.with_native_roots()?.with_no_client_auth() })
    }

    /// With the machine's resolver and certificates. Without certificates, https calls fail their handshake,
    /// and everything else works.
    pub fn of_this_machine() -> Self {
        Self::new(Arc::<SystemResolver>::default()).unwrap_or_else(|error| {
            tracing::warn!(%error, "this machine has no trusted certificates: https calls will fail");
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("the provider has the default versions");
            let tls = builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
            Self::with_tls(Arc::<SystemResolver>::default(), tls)
        })
    }

    /// With chosen certificates.
    pub fn with_tls(resolver: Arc<dyn Resolve>, tls: rustls::ClientConfig) -> Self {
        Self { resolver, tls }
    }
}

/// One tool's calls. It has connections of its own, so that no other tool reaches a host through them.
#[derive(Clone)]
pub struct Http {
    target: Arc<HttpTarget>,
    guard: Arc<EgressRules>,
    client: legacy::Client<HttpsConnector<Connector>, Full<Bytes>>,
}

/// The response to a call.
pub struct HttpAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Or why it could not be read completely.
    pub body: Result<Bytes, String>,
}

/// Why there is no response.
#[derive(Debug)]
pub enum Trouble {
    /// Not allowed; nothing was sent.
    Refused(String),
    /// No connection; nothing was sent.
    Unreachable(String),
    /// It may have been sent.
    Lost(String),
    TimedOut(Duration),
}

impl Http {
    pub fn new(outbound: &Outbound, target: Arc<HttpTarget>) -> Self {
        let own = target.url.as_ref().and_then(Uri::host).map(str::to_owned);
        let hosts = own.into_iter().chain(target.hosts.iter().cloned()).collect();
        let guard = Arc::new(EgressRules { hosts, networks: target.networks.clone() });
        let connector = Connector {
            guard: guard.clone(),
            resolver: outbound.resolver.clone(),
            timeout: CONNECT.min(target.timeout / 2),
        };
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(outbound.tls.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(https);
        Self { target, guard, client }
    }

    /// Makes the call. `now` is the time in the signature.
    pub async fn call(&self, call: &Call, now: Millis) -> CallOutcome {
        match self.exchange(call, now).await {
            Ok(answer) => answer::outcome(&self.target, &answer, now),
            Err(trouble) => answer::no_answer(trouble),
        }
    }

    /// Sends a command's body and reads the response.
    pub async fn exchange(&self, call: &Call, now: Millis) -> Result<HttpAnswer, Trouble> {
        self.send(&call.message(), now).await
    }

    /// Sends a message and reads the response.
    pub async fn send(&self, message: &Message<'_>, now: Millis) -> Result<HttpAnswer, Trouble> {
        let url = match &self.target.url {
            Some(url) => url.clone(),
            None => message.target.parse().map_err(|_| {
                Trouble::Refused(format!("the target `{}` is not a URL", super::excerpt(message.target, 200)))
            })?,
        };
        let timeout = self.target.timeout;
        let answered = tokio::time::timeout(timeout, self.follow(message, url, now)).await;
        answered.unwrap_or(Err(Trouble::TimedOut(timeout)))
    }

    async fn follow(&self, message: &Message<'_>, url: Uri, now: Millis) -> Result<HttpAnswer, Trouble> {
        let mut next = url.clone();
        for _ in 0..=REDIRECTS {
            // A pooled connection is not resolved again, so the URL is checked here as well.
            self.guard.url(&next).map_err(|error| Trouble::Refused(error.to_string()))?;
            let request = self.request(message, &next, self.is_trusted(&url, &next), now);
            let response = self.client.request(request).await.map_err(trouble)?;
            let (parts, stream) = response.into_parts();
            let keeps_the_call =
                matches!(parts.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            if !keeps_the_call {
                let read = Limited::new(stream, ANSWER_BYTES).collect().await;
                let body = read.map(|whole| whole.to_bytes()).map_err(|error| error.to_string());
                return Ok(HttpAnswer { status: parts.status, headers: parts.headers, body });
            }
            // The receiver has done nothing and names another URL, so an unusable one counts as not sent.
            next = location(&next, &parts.headers)
                .ok_or_else(|| Trouble::Refused(format!("{next} redirects without a usable URL")))?;
        }
        Err(Trouble::Refused(format!("{url} redirects more than {REDIRECTS} times")))
    }

    /// Whether configured headers and signatures, which are credentials, may be sent to `next`: only to the
    /// scheme, host and port of the configured URL, not to others by a redirect. If the command names the
    /// URL, it chooses neither scheme nor port for them: they are sent only over `https` on its default port.
    fn is_trusted(&self, first: &Uri, next: &Uri) -> bool {
        let chosen = match &self.target.url {
            Some(url) => authority(url),
            None => authority(first).filter(|(scheme, _, port)| (scheme.as_str(), *port) == ("https", 443)),
        };
        chosen.is_some() && chosen == authority(next)
    }

    fn request(&self, message: &Message<'_>, url: &Uri, trusted: bool, now: Millis) -> Request<Full<Bytes>> {
        let unix_s = now.div_euclid(1_000);
        let value = |text: String| HeaderValue::from_str(&text).expect("keys and base64 are ASCII");
        let mut headers = HeaderMap::new();
        if trusted {
            headers.extend(self.target.headers.iter().cloned());
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("tenure/", env!("CARGO_PKG_VERSION"))));
        headers.insert("idempotency-key", value(format!("\"{}\"", message.id)));
        headers.insert("webhook-id", value(message.id.to_owned()));
        headers.insert("webhook-timestamp", value(unix_s.to_string()));
        if let Some(secret) = self.target.secret.as_ref().filter(|_| trusted) {
            headers.insert("webhook-signature", value(secret.sign(message.id, unix_s, &message.body)));
        }
        let mut request = Request::new(Full::new(message.body.clone()));
        *request.method_mut() = self.target.method.clone();
        *request.uri_mut() = url.clone();
        *request.headers_mut() = headers;
        request
    }
}

/// Scheme, host and port in normalized form.
fn authority(uri: &Uri) -> Option<(String, String, u16)> {
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = egress::port(uri);
    Some((scheme, uri.host()?.to_ascii_lowercase(), port))
}

/// The URL of a redirect; a path is on the same host.
fn location(from: &Uri, headers: &HeaderMap) -> Option<Uri> {
    let text = headers.get(LOCATION)?.to_str().ok()?;
    if !text.starts_with('/') || text.starts_with("//") {
        return text.parse().ok();
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = Some(text.parse().ok()?);
    Uri::from_parts(parts).ok()
}

fn trouble(error: legacy::Error) -> Trouble {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    let mut deepest = String::new();
    while let Some(error) = cause {
        match error.downcast_ref() {
            Some(NoConnection::Refused(why)) => return Trouble::Refused(why.clone()),
            Some(NoConnection::Unreachable(why)) => return Trouble::Unreachable(why.clone()),
            None => deepest = error.to_string(),
        }
        cause = error.source();
    }
    // Without a connection and its TLS handshake, no byte of the call was written.
    if error.is_connect() { Trouble::Unreachable(deepest) } else { Trouble::Lost(deepest) }
}
