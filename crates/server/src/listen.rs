//! The socket: plain or TLS, served until told to stop, then drained within its time.

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use axum::Router;
use axum_server::{
    Handle,
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use hyper_util::rt::TokioTimer;

use crate::{config::Tls, http::HEADERS_COUNT};

/// Whoever takes longer to say what it wants is sent away.
const HEADERS: Duration = Duration::from_secs(30);

/// Bytes of a request line and its headers that are read at all.
const READ_MAX: usize = 512 * 1024;

/// A listener with the keys that it needs.
pub(crate) struct Listener {
    socket: TcpListener,
    keys: Option<RustlsConfig>,
}

impl Listener {
    pub async fn new(socket: TcpListener, tls: Option<&Tls>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let keys = match tls {
            None => None,
            Some(tls) => {
                // Another provider that was installed before does as well.
                let _installed = rustls::crypto::ring::default_provider().install_default();
                Some(RustlsConfig::from_pem_file(&tls.cert, &tls.key).await?)
            }
        };
        Ok(Self { socket, keys })
    }

    /// Serves until `stop` resolves; what is under way then has `drain` to finish.
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
        let service = router.into_make_service();
        let mut server = axum_server::from_tcp(self.socket)?.handle(handle);
        let http1 = &mut server.http_builder().http1();
        // Beyond what the guard refuses: whoever sends too much is told so, and not just cut off.
        http1.max_headers(2 * HEADERS_COUNT).max_buf_size(READ_MAX);
        http1.timer(TokioTimer::new()).header_read_timeout(HEADERS);
        server.http_builder().http2().max_header_list_size(READ_MAX as u32);
        let served = match self.keys {
            None => server.acceptor(NoDelayAcceptor::new()).serve(service).await,
            Some(keys) => {
                let acceptor = RustlsAcceptor::new(keys).acceptor(NoDelayAcceptor::new());
                server.acceptor(acceptor).serve(service).await
            }
        };
        stopper.abort();
        served
    }
}
