//! The daemon: a ledger, its HTTP service and its background tasks; opened, served, reloaded, drained.

use std::{future::Future, io, net::TcpListener, sync::Arc};

use axum::{Extension, Router};
use tenure_api::wire as w;
use tenure_store::{
    Error, IntakeInsert, Ledger, Options, Scheduler, Sweeper, SystemClock, aside_with_stack, fair::Fair,
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    alerts::{Alerts, Watcher},
    anchors::{AnchorExporter, AnchorExports},
    auth::{AdminToken, Auth, DEFAULT_TENANT, FirstStart, FirstStartError, InProcess},
    config::{Config, ConfigError, Database, Live, is_readable_by_all},
    evaluator::Evaluator,
    executor::Outbound,
    feed::{Feed, FeedReader},
    http::{self, AdmissionLimits, App},
    listen::Listener,
    metrics::Metrics,
    reconciler::Reconciler,
    relay::Relay,
    wire,
};

/// Claims that look at the queue at once, in total and for one tenant: a tenant that claims endlessly delays
/// only itself.
const CLAIMS: usize = 256;
const CLAIMS_OF_A_TENANT: usize = CLAIMS / 2;

/// Nested policies and schemas are parsed recursively.
const RELOAD_STACK: usize = 16 * 1024 * 1024;

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(transparent)]
    Ledger(#[from] Error),
    #[error(transparent)]
    FirstStart(#[from] FirstStartError),
    #[error(
        "{0} contains the key of every token, and every user of this machine can read it: `chmod 600` it and the files beside \
         it that begin with its name, or set allow_readable_secrets"
    )]
    Readable(String),
    #[error("the socket cannot be served: {0}. With TLS, check tls.cert and tls.key: both are PEM files")]
    Socket(#[source] io::Error),
}

/// Why the configuration was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot start a thread to read the configuration: {0}")]
    Thread(#[from] io::Error),
}

/// An open ledger with its HTTP service and background tasks, which end with [`Server::close`].
pub struct Server {
    config: Config,
    app: Arc<App>,
    live: watch::Sender<Arc<Live>>,
    first_start: FirstStart,
    anchors: Arc<AnchorExports>,
    beside: JoinSet<()>,
}

impl Server {
    /// Opens the ledger, creates the first credential if there is none, and starts the background tasks.
    pub async fn open(config: Config, admin: AdminToken) -> Result<Self, StartError> {
        let options = Options {
            settings: config.live.settings(),
            allow_weak_settings: config.allow_weak_settings,
            accept_loss: config.accept_loss,
            ..Options::default()
        };
        let ledger = match &config.db {
            Database::Sqlite(path) => Ledger::open_sqlite(path, options).await?,
            Database::Postgres(url) => Ledger::open_postgres(url, options).await?,
            Database::Memory => Ledger::open_memory(options).await?,
        };
        // Only now is it known to be a ledger.
        if let Database::Sqlite(path) = &config.db
            && !config.allow_readable_secrets
            && is_readable_by_all(path)
        {
            ledger.close().await?;
            return Err(StartError::Readable(path.display().to_string()));
        }
        Self::over(ledger, config, admin).await
    }

    /// The same for a ledger that is open already.
    pub async fn over(ledger: Ledger, config: Config, admin: AdminToken) -> Result<Self, StartError> {
        let first_start = admin.ensure(&ledger).await?;
        let (live, seen) = watch::channel(Arc::new(config.live.clone()));
        let feed = Arc::new(Feed::new(ledger.clone()));
        let metrics = Arc::new(Metrics::default());
        let alerts = Arc::new(Alerts::default());
        let stopping = CancellationToken::new();
        let mut reader = FeedReader::new(feed.clone(), metrics.clone());
        // The first look fixes the start of the feed, so that later writes are not missed.
        reader.run_once().await?;
        let mut beside = JoinSet::new();
        beside.spawn(reader.run(stopping.clone()));
        let anchors = Arc::<AnchorExports>::default();
        let watcher = Watcher {
            ledger: ledger.clone(),
            live: seen.clone(),
            alerts: alerts.clone(),
            feed: feed.clone(),
            metrics: metrics.clone(),
            anchors: anchors.clone(),
        };
        beside.spawn(watcher.run(stopping.clone()));
        ledger.set_policy_version(Some(config.live.policy.version()));
        let auth = Auth::new(ledger.clone());
        beside.spawn(auth.open_calls().clone().run(ledger.clone(), stopping.clone()));
        let app = Arc::new(App {
            auth,
            evaluator: Arc::new(Evaluator::new(seen.clone())),
            doors: AdmissionLimits::new(Some(config.listen), config.live.rate),
            live: seen,
            backups: config.backups.clone(),
            usage: Arc::default(),
            claims: Fair::new(CLAIMS, CLAIMS_OF_A_TENANT),
            ledger,
            feed,
            metrics,
            alerts,
            stopping,
        });
        Ok(Self { config, app, live, first_start, anchors, beside })
    }

    /// Whether this start created the first credential, and where it is.
    pub fn first_start(&self) -> &FirstStart {
        &self.first_start
    }

    /// Does everything that is due once, for a process that exits before its sweeper would run. It has not
    /// watched any lease, and so lapses none.
    pub async fn sweep_once(&self) -> Result<(), Error> {
        Sweeper::new(Arc::new(SystemClock)).run_once(self.ledger()).await?;
        Scheduler.run_once(self.ledger()).await.map(drop)
    }

    pub fn ledger(&self) -> &Ledger {
        &self.app.ledger
    }

    /// Starts the relay, the reconciler and the exports of the anchor. For a daemon: a short-lived process must not begin calls.
    pub fn relay(&mut self, outbound: Outbound) {
        let (ledger, feed, stopping) = (self.ledger(), &self.app.feed, &self.app.stopping);
        let relay = Relay::new(ledger.clone(), self.app.evaluator.clone(), outbound.clone());
        let reconciler = Reconciler::new(ledger.clone(), self.app.live.clone(), outbound.clone());
        let exporter =
            AnchorExporter::new(ledger.clone(), self.app.live.clone(), outbound, self.anchors.clone());
        let relay = relay.run(feed.to_send.clone(), stopping.clone(), self.config.drain);
        let reconciler = reconciler.run(feed.to_look_up.clone(), stopping.clone());
        let exporter = exporter.run(stopping.clone());
        self.beside.spawn(relay);
        self.beside.spawn(reconciler);
        self.beside.spawn(exporter);
    }

    /// Every route, to be served, or to be called in process without a socket.
    pub fn router(&self) -> Router {
        http::router(&self.app)
    }

    /// The same routes for this process alone, which calls as the machine principal `name` and needs no
    /// token. Never serve it on a socket: it would give access to everybody.
    pub fn in_process(&self, name: &str) -> Result<Router, Error> {
        let caller = InProcess::new(self.ledger(), name)?;
        Ok(self.router().layer(Extension(caller)))
    }

    /// The row of the intake table that asks for this work item, for an application that inserts it in its own
    /// transaction. Its retry policy is completed from the configuration of its source.
    pub fn intake_insert(&self, new: w::Ingest) -> Result<IntakeInsert, Error> {
        let tenant = new.tenant.clone().unwrap_or_else(|| DEFAULT_TENANT.to_owned());
        let policy = self.app.live.borrow().sources.get(&new.source.system).map(|source| source.policy);
        IntakeInsert::try_from(&wire::new_work(new, tenant, &policy.unwrap_or_default())?)
    }

    /// Changes the configuration of a running daemon.
    pub fn reloader(&self) -> Reloader {
        Reloader { app: self.app.clone(), live: self.live.clone(), started: self.config.clone() }
    }

    /// Serves until `shutdown` resolves, then drains: new calls are refused, long polls and streams end,
    /// calls in progress finish and the ledger is closed, all within the configured time.
    pub async fn serve(
        mut self,
        socket: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), StartError> {
        let (tls, connections) = (self.config.tls.as_ref(), self.config.live.quotas.connections);
        let listener = Listener::new(socket, tls, connections).await.map_err(StartError::Socket)?;
        self.relay(Outbound::of_this_machine());
        let drain = self.config.drain;
        let stopping = self.app.stopping.clone();
        let stop = async move {
            shutdown.await;
            tracing::info!(deadline = ?drain, "draining");
            stopping.cancel();
        };
        let served = listener.serve(self.router(), stop, drain).await;
        self.close().await?;
        served.map_err(StartError::Socket)
    }

    /// Ends long polls and streams.
    pub(crate) fn stop(&self) {
        self.app.stopping.cancel();
    }

    /// Stops the background tasks and closes the ledger.
    pub async fn close(mut self) -> Result<(), Error> {
        self.app.stopping.cancel();
        while self.beside.join_next().await.is_some() {}
        self.app.ledger.close().await
    }
}

/// Changes the reloadable settings of a running daemon.
#[derive(Clone)]
pub struct Reloader {
    app: Arc<App>,
    live: watch::Sender<Arc<Live>>,
    started: Config,
}

impl Reloader {
    /// Reads a configuration and applies it with [`Reloader::reload`]. Compiling policies and schemas takes
    /// time, so it runs on a separate thread and delays no call and no shutdown. A configuration with errors
    /// changes nothing.
    pub async fn load(
        &self,
        load: impl FnOnce() -> Result<Config, ConfigError> + Send + 'static,
    ) -> Result<Vec<&'static str>, ReloadError> {
        Ok(self.reload(&aside_with_stack("reload", RELOAD_STACK, load).await??))
    }

    /// Applies the new configuration, and returns the keys that need a restart.
    pub fn reload(&self, new: &Config) -> Vec<&'static str> {
        self.app.ledger.set_settings(new.live.settings());
        self.app.doors.set_rate(new.live.rate);
        self.live.send_replace(Arc::new(new.live.clone()));
        self.app.evaluator.reload(&new.live);
        self.app.ledger.set_policy_version(Some(new.live.policy.version()));
        self.started.needs_restart(new)
    }
}
