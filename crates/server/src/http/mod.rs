//! HTTP: one file for each noun. A handler reads the request, calls the ledger and writes the response.

mod admin;
mod admission;
mod alerts;
mod backup;
mod batch;
mod claim;
mod command_verbs;
mod commands;
mod contract;
mod erase;
mod error;
mod events;
mod extract;
mod framing;
mod health;
mod holder;
mod ingest;
mod intake;
mod operate;
mod recovery;
mod schedules;
mod steps;
mod stream;
mod stuck;
mod tokens;
mod waits;
mod work;
mod workers;

use std::{path::PathBuf, sync::Arc};

use axum::{Router, middleware};
use tenure_store::{Ledger, fair::Fair};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    alerts::Alerts, auth::Auth, config::Live, evaluator::Evaluator, feed::Feed, metrics::Metrics,
    quotas::Usage,
};
pub use admission::AdmissionLimits;
pub(crate) use admission::HEADERS_COUNT;
pub(crate) use error::Problem;
use extract::{Body, Json, LargeBody, Params, Segments, Who};
pub(crate) use framing::check as check_framing;
pub(crate) use health::{healthy, not_ready};

/// State shared by all handlers.
pub(crate) struct App {
    pub ledger: Ledger,
    pub auth: Auth,
    pub feed: Arc<Feed>,
    pub metrics: Arc<Metrics>,
    pub alerts: Arc<Alerts>,
    pub live: watch::Receiver<Arc<Live>>,
    pub doors: AdmissionLimits,
    /// The backup folder.
    pub backups: Option<PathBuf>,
    /// Evaluates commands before the ledger decides.
    pub evaluator: Arc<Evaluator>,
    /// Each tenant's use of what quotas limit.
    pub usage: Arc<Usage>,
    /// Limits the claims that look at the queue at once.
    pub claims: Arc<Fair>,
    /// Cancelled at shutdown: long polls and streams end.
    pub stopping: CancellationToken,
}

/// The result of most handlers.
type JsonResult<T> = Result<Json<T>, Problem>;

/// All routes, split into those that a batch may contain and the others.
fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(contract::base())
        .routes(routes!(work::list, ingest::ingest))
        .routes(routes!(work::get))
        .routes(routes!(work::events))
        .routes(routes!(work::explain))
        .routes(routes!(claim::claim))
        .routes(routes!(claim::renew))
        .merge(holder::routes())
        .routes(routes!(steps::put))
        .routes(routes!(operate::cancel))
        .routes(routes!(operate::abandon))
        .routes(routes!(operate::retry_now))
        .routes(routes!(operate::rerun))
        .routes(routes!(operate::quarantine))
        .routes(routes!(operate::decide))
        .routes(routes!(waits::list))
        .routes(routes!(waits::revoke))
        .routes(routes!(waits::resolve_one))
        .routes(routes!(waits::resolve))
        .routes(routes!(waits::approve))
        .routes(routes!(waits::reconnect))
        .routes(routes!(commands::list, commands::reserve_alone))
        .routes(routes!(commands::claim))
        .routes(routes!(commands::get))
        .routes(routes!(commands::explain))
        .routes(routes!(commands::reserve))
        .routes(routes!(commands::replay_plan))
        .routes(routes!(command_verbs::approve))
        .routes(routes!(command_verbs::reject))
        .routes(routes!(command_verbs::dispatch))
        .routes(routes!(command_verbs::receipt))
        .routes(routes!(command_verbs::fail))
        .routes(routes!(command_verbs::uncertain))
        .routes(routes!(command_verbs::reconcile))
        .routes(routes!(command_verbs::replay))
        .routes(routes!(command_verbs::record))
        .routes(routes!(command_verbs::cancel))
        .routes(routes!(intake::get, intake::set))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::get, schedules::put, schedules::delete))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::run_now))
        .routes(routes!(recovery::victims))
        .routes(routes!(recovery::plan))
        .routes(routes!(recovery::apply))
        .routes(routes!(stuck::get))
        .routes(routes!(workers::list))
        .routes(routes!(workers::drain))
        .routes(routes!(events::list))
        .routes(routes!(stream::stream))
        .routes(routes!(alerts::list))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(admin::prune, admin::prunings))
        .routes(routes!(erase::erase))
        .routes(routes!(admin::verify))
        .routes(routes!(admin::anchor))
        .routes(routes!(backup::backup))
        .routes(routes!(admin::database))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(contract::openapi))
        .routes(routes!(contract::page))
        .routes(routes!(contract::script))
        .routes(routes!(contract::style))
}

/// The complete HTTP service: routes, batches over them, and admission before each.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let (inner, mut openapi) = routes().with_state::<()>(app.clone()).split_for_parts();
    let (batch, of_batch) = OpenApiRouter::new().routes(routes!(batch::batch)).split_for_parts();
    openapi.merge(of_batch);
    let contract = Arc::new(contract::Contract::new(openapi));
    let guard = admission::Admission { app: app.clone(), contract: contract.clone() };
    let guarded =
        |router: Router| router.route_layer(middleware::from_fn_with_state(guard.clone(), admission::guard));
    let closed = |router: Router| {
        router
            .fallback(admission::no_such_route)
            .method_not_allowed_fallback(admission::method_not_allowed)
            .layer(axum::Extension(contract.clone()))
    };
    let inner = guarded(inner);
    let batch = guarded(batch.with_state(batch::Inner(closed(inner.clone()))));
    closed(inner.merge(batch))
}

/// The contract as it is published.
pub fn openapi() -> String {
    let (_, mut openapi) = routes().split_for_parts();
    let (_, of_batch) = OpenApiRouter::<batch::Inner>::new().routes(routes!(batch::batch)).split_for_parts();
    openapi.merge(of_batch);
    String::from_utf8(contract::Contract::new(openapi).text.into()).expect("JSON is UTF-8")
}
