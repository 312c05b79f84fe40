//! The client: one method for each route, typed errors, and automatic retries only where they are safe.

mod admin;
mod call;
mod clock;
mod command;
mod error;
mod holder;
mod operate;
mod schedule;
mod sse;
mod stream;
mod transport;
mod work;

use std::{fmt::Display, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use tower_service::Service;

pub use clock::ServerClock;
pub use error::{Cause, Error};
pub use stream::{EventStream, Streamed};
pub use transport::{Body, BodyError, Sending, Transport};

/// How often a call that may be repeated is sent before its failure is returned.
const TRIES: usize = 4;

/// A connection to a ledger, with the caller's access token. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    token: Option<Arc<str>>,
    /// The server's name in messages.
    name: String,
    /// The `Host` header for a transport without a socket.
    host: Option<String>,
    tries: usize,
    dry_run: bool,
    clock: ServerClock,
}

impl Client {
    /// A client of the daemon at `url`: over https, or unencrypted on this machine only.
    pub fn http(url: &str, token: Option<&str>) -> Result<Self, Error> {
        Self::over_socket(url, token, false)
    }

    /// Like [`Client::http`], but `http://` URLs of other machines are allowed: the access token crosses the
    /// network unencrypted.
    pub fn plain_http(url: &str, token: Option<&str>) -> Result<Self, Error> {
        Self::over_socket(url, token, true)
    }

    fn over_socket(url: &str, token: Option<&str>, plain: bool) -> Result<Self, Error> {
        let mut client = Self::over(Arc::from(transport::over_socket(url, plain)?), token);
        client.name = url.to_owned();
        client.host = url.parse::<Uri>().ok().and_then(|uri| Some(uri.authority()?.as_str().to_owned()));
        Ok(client)
    }

    /// A client of a router in this process: the same routes, without a socket.
    pub fn in_process<S, Res>(router: S, token: Option<&str>) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<Res>> + Clone + Send + Sync + 'static,
        S::Error: Display,
        S::Future: Send,
        Res: http_body::Body<Data = Bytes> + Send + 'static,
        Res::Error: Display,
    {
        let mut client = Self::over(Arc::new(transport::InProcess(router)), token);
        client.host = Some("localhost".to_owned());
        client
    }

    /// A client over a custom transport.
    pub fn over(transport: Arc<dyn Transport>, token: Option<&str>) -> Self {
        let name = "the embedded ledger".to_owned();
        Self {
            transport,
            token: token.map(Arc::from),
            name,
            host: None,
            tries: TRIES,
            dry_run: false,
            clock: ServerClock::default(),
        }
    }

    /// The server's clock, estimated from its responses so far.
    pub fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// The same client without automatic retries.
    pub fn without_retries(mut self) -> Self {
        self.tries = 0;
        self
    }

    /// The same client for dry runs: calls are decided and get the usual response, and nothing is written.
    /// Calls that have no dry run, such as claims, are refused as `unsupported`.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}
