//! The socket: plain or TLS, served until shutdown, then drained within the configured time.

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use axum::{Router, middleware};
use axum_server::{
    Handle,
    accept::DefaultAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use hyper_util::rt::TokioTimer;
use rustix::net::sockopt;

use crate::{
    config::Tls,
    connections::{Bounds, Connections},
    http::{HEADERS_COUNT, check_framing},
    idle::{self, FIRST_CALL, WatchingAcceptor},
};

/// Bytes of a request line and its headers that are buffered. The same amount may wait to be written to a
/// connection whose peer does not read, which adds up over a thousand of them.
const READ_MAX: usize = 128 * 1024;

/// A peer that reads nothing of a stream for this long is disconnected.
const GONE: Duration = Duration::from_secs(300);

/// Concurrent calls on one HTTP/2 connection.
const STREAMS_OF_A_CONNECTION: u32 = 200;

/// A listener with its TLS keys.
pub(crate) struct Listener {
    socket: TcpListener,
    keys: Option<RustlsConfig>,
    connections: Arc<Connections>,
}

impl Listener {
    pub async fn new(socket: TcpListener, tls: Option<&Tls>, bounds: Bounds) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Accepted connections inherit it.
        sockopt::set_tcp_user_timeout(&socket, GONE.as_millis() as u32)?;
        let keys = match tls {
            None => None,
            Some(tls) => {
                // A provider that was installed before is fine too.
                let _installed = rustls::crypto::ring::default_provider().install_default();
                Some(RustlsConfig::from_pem_file(&tls.cert, &tls.key).await?)
            }
        };
        Ok(Self { socket, keys, connections: Connections::new(bounds) })
    }

    /// Serves until `stop` resolves; calls in progress then have `drain` to finish.
    pub async fn serve(
        self,
        router: Router,
        stop: impl Future<Output = ()> + Send + 'static,
        drain: Duration,
    ) -> io::Result<()> {
        let handle = Handle::<SocketAddr>::new();
        let stopper = tokio::spawn({
            let handle = handle.clone();
            async move {
                stop.await;
                handle.graceful_shutdown(Some(drain));
            }
        });
        let service = router
            .layer(middleware::from_fn(check_framing))
            .layer(middleware::from_fn(idle::note))
            .into_make_service_with_connect_info::<SocketAddr>();
        let mut server = axum_server::from_tcp(self.socket)?.handle(handle);
        let http1 = &mut server.http_builder().http1();
        // Larger than the limits of admission, so that an oversized request gets a problem rather than a
        // closed connection.
        http1.max_headers(2 * HEADERS_COUNT).max_buf_size(READ_MAX);
        http1.timer(TokioTimer::new()).header_read_timeout(FIRST_CALL);
        let http2 = &mut server.http_builder().http2();
        http2.max_header_list_size(READ_MAX as u32).max_concurrent_streams(STREAMS_OF_A_CONNECTION);
        http2.max_send_buf_size(READ_MAX);
        let connections = self.connections;
        let served = match self.keys {
            None => {
                let inner = DefaultAcceptor::new();
                server.acceptor(WatchingAcceptor { inner, connections }).serve(service).await
            }
            Some(keys) => {
                let inner = RustlsAcceptor::new(keys);
                server.acceptor(WatchingAcceptor { inner, connections }).serve(service).await
            }
        };
        stopper.abort();
        served
    }
}

#[cfg(test)]
mod tests;
