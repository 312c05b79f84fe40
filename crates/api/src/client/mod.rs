//! The client: a method a route, typed failures, and repeats only where they are safe.

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

/// How often a call that may be repeated is sent again before its failure is told.
const TRIES: usize = 4;

/// A connection to a ledger, and who one is there. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    token: Option<Arc<str>>,
    /// How it is called in messages.
    name: String,
    /// Named where no socket says it.
    host: Option<String>,
    tries: usize,
    dry_run: bool,
    clock: ServerClock,
}

impl Client {
    /// A client of the daemon at `url`: over https, or on this machine.
    pub fn http(url: &str, token: Option<&str>) -> Result<Self, Error> {
        Self::over_socket(url, token, false)
    }

    /// The same, and `http://` URLs of other machines are allowed: the token crosses the network unencrypted.
    pub fn plain_http(url: &str, token: Option<&str>) -> Result<Self, Error> {
        Self::over_socket(url, token, true)
    }

    fn over_socket(url: &str, token: Option<&str>, plain: bool) -> Result<Self, Error> {
        let mut client = Self::over(Arc::from(transport::over_socket(url, plain)?), token);
        client.name = url.to_owned();
        client.host = url.parse::<Uri>().ok().and_then(|uri| Some(uri.authority()?.as_str().to_owned()));
        Ok(client)
    }

    /// A client of a router in this process: the same routes, no socket.
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

    /// A client over a transport of one's own.
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

    /// The server's time, as its answers have told it so far.
    pub fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// The same client, which tells every failure at once.
    pub fn without_retries(mut self) -> Self {
        self.tries = 0;
        self
    }

    /// The same client, whose calls are decided and answered as ever, and write nothing. What cannot be tried, like
    /// a claim, is refused as `unsupported`.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}
