//! Liveness, readiness and metrics.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use tenure_api::wire::{self as w, Code};
use tenure_core::intake::Pause;
use tenure_store::Error;

use super::{App, Json, Problem, Who, error::Problems};

/// The time after which a supervisor has restarted the process.
const RESTART_TAKES: Duration = Duration::from_secs(5);

/// Returns 200 while the process is healthy.
///
/// 503 when only a restart can help: writing has stopped and cannot recover by itself.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, description = "Healthy.", body = w::Health), Problems))]
pub(crate) async fn healthz(State(app): State<Arc<App>>) -> Result<Json<w::Health>, Problem> {
    match app.ledger.stopped().filter(|stop| stop.needs_restart(Instant::now())) {
        Some(stop) => {
            let detail = format!(
                "Writing has stopped and cannot recover by itself: {}. Restart the daemon.",
                stop.why
            );
            Err(Problem::later(Code::Stopped, detail, RESTART_TAKES))
        }
        None => Ok(healthy()),
    }
}

/// The response of every process that is alive.
pub(crate) fn healthy() -> Json<w::Health> {
    Json(w::Health { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// Returns whether requests can be served, and if not, why.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()),
    responses(
        Problems,
        (status = 200, description = "Ready.", body = w::Readiness),
        (status = 503, description = "Not ready, with the reasons.", body = w::Readiness)
    ))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Response {
    let health = app.ledger.health().await;
    let ledger = health.closed().map_or(Ok(()), Err);
    let serving = if app.stopping.is_cancelled() { Err("the daemon is stopping".to_owned()) } else { Ok(()) };
    // Paused intake does not make the daemon unready: recorded work goes on.
    let intake = w::Check { name: "intake".to_owned(), ok: true, detail: paused(&app.ledger.pauses()) };
    let mut checks = vec![check("ledger", ledger), check("serving", serving), intake];
    let newer = health.damaged.iter().filter(|one| one.newer).count();
    checks.extend(passed_over("damaged", health.damaged.len() - newer, "cannot be read"));
    checks.extend(passed_over("newer", newer, "were written by a newer version"));
    checks.extend(health.swept.map(|ago| sweeper(health.asleep(), ago)));
    let ready = checks.iter().all(|check| check.ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(w::Readiness { ready, checks })).into_response()
}

/// The response of a process whose ledger cannot be opened yet.
pub(crate) fn not_ready(why: &Error) -> Json<w::Readiness> {
    Json(w::Readiness { ready: false, checks: vec![check("ledger", Err(why.to_string()))] })
}

/// The time of the last sweep is shown also when all is well: it helps to find out why nothing lapses.
fn sweeper(asleep: Option<String>, ago: Duration) -> w::Check {
    let ok = asleep.is_none();
    let looked = || format!("looked {} ms ago", ago.as_millis());
    w::Check { name: "sweeper".to_owned(), ok, detail: Some(asleep.unwrap_or_else(looked)) }
}

/// Skipped rows do not make the daemon unready: everything else goes on. `tenure doctor` names them.
fn passed_over(name: &str, count: usize, why: &str) -> Option<w::Check> {
    let detail = format!("{count} {why} and are skipped");
    (count > 0).then(|| w::Check { name: name.to_owned(), ok: true, detail: Some(detail) })
}

/// Readable without a token, so it contains neither names nor reasons.
fn paused(pauses: &[Pause]) -> Option<String> {
    match pauses {
        [] => None,
        all if all.iter().any(|pause| pause.tenant.is_none()) => Some("paused for every tenant".to_owned()),
        some => Some(format!("paused for {} of the tenants", some.len())),
    }
}

fn check(name: &str, outcome: Result<(), String>) -> w::Check {
    w::Check { name: name.to_owned(), ok: outcome.is_ok(), detail: outcome.err() }
}

/// Returns metrics in OpenMetrics text format, over all tenants.
#[utoipa::path(get, path = "/metrics", tag = "health", security(("token" = ["view"])),
    responses((status = 200, description = "OpenMetrics text.", content_type = "application/openmetrics-text", body = String), Problems))]
pub(crate) async fn metrics(State(app): State<Arc<App>>, who: Who) -> Result<Response, Problem> {
    who.session.require_everywhere()?;
    let live = app.live.borrow().clone();
    let text = app.metrics.render(&app.ledger, &live).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
