//! Starting while PostgreSQL is unavailable: the daemon listens at once, reports why it is not ready, and
//! opens the ledger as soon as it can.

use std::{
    future::Future,
    net::TcpListener,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use tenure_store::Error;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    auth::AdminToken,
    config::{Config, Database},
    executor::Outbound,
    http,
    listen::Listener,
    server::{Server, StartError},
};

const AGAIN: Duration = Duration::from_secs(1);

/// Opens the ledger and serves it until `shutdown` resolves. `opened` is called once it is open.
///
/// Only an unavailable PostgreSQL server is retried: every other problem at the start is an error.
pub async fn run(
    config: Config,
    admin: AdminToken,
    socket: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
    opened: impl FnOnce(&Server),
) -> Result<(), StartError> {
    match Server::open(config.clone(), admin.clone()).await {
        Err(StartError::Ledger(error @ Error::Unavailable(_))) if is_remote(&config) => {
            wait_and_serve(config, admin, socket, shutdown, opened, error).await
        }
        server => {
            let server = server?;
            opened(&server);
            server.serve(socket, shutdown).await
        }
    }
}

fn is_remote(config: &Config) -> bool {
    matches!(config.db, Database::Postgres(_))
}

async fn wait_and_serve(
    config: Config,
    admin: AdminToken,
    socket: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
    opened: impl FnOnce(&Server),
    why: Error,
) -> Result<(), StartError> {
    tracing::warn!(error = %why, "the database is unavailable; retrying, and /readyz reports it meanwhile");
    let (tls, connections) = (config.tls.as_ref(), config.live.quotas.connections);
    let listener = Listener::new(socket, tls, connections).await.map_err(StartError::Socket)?;
    let stop = CancellationToken::new();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            shutdown.await;
            stop.cancel();
        }
    });
    let gate = StartupRouter::new(why);
    let drain = config.drain;
    let serving = tokio::spawn(listener.serve(gate.router(), stop.clone().cancelled_owned(), drain));
    let server = open_at_last(&config, &admin, &gate, &stop).await;
    match server {
        Ok(Some(mut server)) => {
            opened(&server);
            server.relay(Outbound::of_this_machine());
            gate.open(server.router());
            stop.cancelled().await;
            server.stop();
            let served = serving.await;
            server.close().await?;
            served.map_or(Ok(()), |served| served.map_err(StartError::Socket))
        }
        Ok(None) => serving.await.map_or(Ok(()), |served| served.map_err(StartError::Socket)),
        Err(error) => {
            stop.cancel();
            let _served = serving.await;
            Err(error)
        }
    }
}

/// None: shutdown came first.
async fn open_at_last(
    config: &Config,
    admin: &AdminToken,
    gate: &StartupRouter,
    stop: &CancellationToken,
) -> Result<Option<Server>, StartError> {
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(AGAIN) => {}
        }
        match Server::open(config.clone(), admin.clone()).await {
            Ok(server) => return Ok(Some(server)),
            Err(StartError::Ledger(error @ Error::Unavailable(_))) => gate.closed_because(error),
            Err(other) => return Err(other),
        }
    }
}

/// The HTTP service, before and after the ledger is open.
#[derive(Clone)]
struct StartupRouter(Arc<Mutex<Behind>>);

#[derive(Clone)]
enum Behind {
    Nothing(Error),
    Ledger(Router),
}

impl StartupRouter {
    fn new(why: Error) -> Self {
        Self(Arc::new(Mutex::new(Behind::Nothing(why))))
    }

    fn closed_because(&self, why: Error) {
        self.set(Behind::Nothing(why));
    }

    fn open(&self, router: Router) {
        self.set(Behind::Ledger(router));
    }

    fn set(&self, behind: Behind) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = behind;
    }

    fn router(&self) -> Router {
        let gate = self.clone();
        Router::new().fallback(move |request: Request| {
            let behind = gate.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            async move {
                match behind {
                    Behind::Ledger(router) => {
                        router.oneshot(request).await.unwrap_or_else(|never| match never {})
                    }
                    Behind::Nothing(why) => answer(&request, why),
                }
            }
        })
    }
}

fn answer(request: &Request, why: Error) -> Response {
    match request.uri().path() {
        "/healthz" => http::healthy().into_response(),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, http::not_ready(&why)).into_response(),
        _ => http::Problem::from(why).into_response(),
    }
}
