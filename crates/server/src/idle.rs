//! Closes connections that only occupy a slot: one without requests, one whose client does not read its
//! response, and one whose calls make no progress for long. A ping does not count as a call.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Extension,
    body::Body,
    extract::Request,
    http::Version,
    middleware::{AddExtension, Next},
    response::Response,
};
use axum_server::accept::Accept;
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep_until},
};
use tower::Layer;

use crate::{
    body_permit,
    connections::{ConnectionSlot, Connections},
};

/// The first call of a connection arrives within this time.
pub(crate) const FIRST_CALL: Duration = Duration::from_secs(30);
/// Longer than the longest long poll, and than the heartbeat interval of a stream.
pub(crate) const IDLE: Duration = Duration::from_secs(330);
/// A response that is not read for this long is dropped from memory. A stream buffers little, and has longer.
pub(crate) const UNREAD: Duration = Duration::from_secs(30);

/// The last activity seen on a connection.
pub(crate) struct Activity {
    opened: Instant,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// When a call last arrived, or part of a response was written. None: there was no call yet.
    last: Option<Instant>,
    /// HTTP/1 has no pings, so every write is part of a response.
    writes_count: bool,
    /// Responses, except streams, that are still in memory.
    unread: usize,
}

impl Activity {
    fn new() -> Arc<Self> {
        Arc::new(Self { opened: Instant::now(), seen: Mutex::default() })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moved(&self) {
        self.seen().last = Some(Instant::now());
    }

    fn wrote(&self) {
        let mut seen = self.seen();
        if seen.writes_count {
            seen.last = Some(Instant::now());
        }
    }

    /// When the connection counts as idle. Activity moves it on; only an unread response brings it closer.
    fn until(&self) -> Instant {
        let seen = self.seen();
        let limit = if seen.unread > 0 { UNREAD } else { IDLE };
        seen.last.map_or(self.opened + FIRST_CALL, |last| last + limit)
    }
}

/// A response that is being sent over a connection, until it is dropped.
struct Unread(Arc<Activity>);

impl Unread {
    fn of(activity: Arc<Activity>) -> Self {
        activity.seen().unread += 1;
        Self(activity)
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.0.seen().unread -= 1;
    }
}

/// Records a request as activity of its connection.
pub(crate) async fn note(request: Request, next: Next) -> Response {
    let Some(activity) = request.extensions().get::<Arc<Activity>>().cloned() else {
        return next.run(request).await;
    };
    let http1 = request.version() < Version::HTTP_2;
    activity.moved();
    activity.seen().writes_count = http1;
    let response = next.run(request).await;
    activity.moved();
    let response = match body_permit::length(&response) {
        Some(_) => body_permit::holding(response, Unread::of(activity.clone())),
        None => response,
    };
    if http1 {
        return response;
    }
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            activity.moved();
            frame
        }))
    })
}

/// A stream that fails when its connection is idle for too long.
pub(crate) struct Watched<S> {
    inner: S,
    activity: Arc<Activity>,
    timer: Pin<Box<Sleep>>,
    _place: ConnectionSlot,
}

impl<S> Watched<S> {
    fn new(inner: S, activity: Arc<Activity>, place: ConnectionSlot) -> Self {
        let timer = Box::pin(sleep_until(activity.until()));
        Self { inner, activity, timer, _place: place }
    }

    /// Fails once the connection was idle for too long. The timer is moved on only when it fires, since reads
    /// and writes are frequent.
    fn or_idle<T>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            return done;
        }
        let until = self.activity.until();
        if until < self.timer.deadline() {
            self.timer.as_mut().reset(until);
        }
        loop {
            ready!(self.timer.as_mut().poll(context));
            let until = self.activity.until();
            if until <= Instant::now() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.timer.as_mut().reset(until);
        }
    }

    fn wrote(&mut self, context: &mut Context<'_>, done: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(done, Poll::Ready(Ok(_))) {
            self.activity.wrote();
        }
        self.or_idle(context, done)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.or_idle(context, read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.wrote(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, pieces);
        self.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// Accepts connections while there is capacity, sends small responses at once, and watches each connection's
/// activity.
#[derive(Clone)]
pub(crate) struct WatchingAcceptor<A> {
    pub inner: A,
    pub connections: Arc<Connections>,
}

type Accepting<S, T> = Pin<Box<dyn Future<Output = io::Result<(Watched<S>, T)>> + Send>>;

impl<A, S> Accept<TcpStream, S> for WatchingAcceptor<A>
where
    A: Accept<TcpStream, S>,
    A::Future: Send + 'static,
{
    type Stream = Watched<A::Stream>;
    type Service = AddExtension<A::Service, Arc<Activity>>;
    type Future = Accepting<A::Stream, Self::Service>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let place = stream.peer_addr().and_then(|peer| {
            stream.set_nodelay(true)?;
            self.connections.admit(peer.ip()).ok_or_else(|| io::ErrorKind::QuotaExceeded.into())
        });
        let accepting = place.map(|place| (place, self.inner.accept(stream, service)));
        Box::pin(async move {
            let (place, accepting) = accepting?;
            let (stream, service) = accepting.await?;
            let activity = Activity::new();
            let service = Extension(activity.clone()).layer(service);
            Ok((Watched::new(stream, activity, place), service))
        })
    }
}
