//! Work items that do not progress, by cause.

use std::sync::Arc;

use axum::extract::State;
use tenure_api::wire as w;
use tenure_core::{Millis, stuck::Patience};

use super::{App, Json, JsonResult, Params, Who, error::Problems, work::page_size};
use crate::{config::Thresholds, wire};

const SHOWN: u32 = 20;

/// The patience where the alert that it follows is switched off.
const IDLE_MS: Millis = 300_000;

/// The sweeper queues what is due within a second.
const RETRY_MS: Millis = 60_000;

/// Lists the work items that do not progress, by cause, with evidence and the next step.
#[utoipa::path(get, path = "/v1/stuck", tag = "operator", params(w::StuckQuery), security(("token" = ["view"])),
    responses((status = 200, description = "The causes that were found.", body = w::Stuck), Problems))]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    Params(query): Params<w::StuckQuery>,
) -> JsonResult<w::Stuck> {
    let shown = page_size(query.limit, SHOWN)?;
    let patience = patience(&app.live.borrow().alerts);
    let report = who.caller().stuck(query.tenant.as_deref(), patience).await?;
    Ok(Json(wire::stuck(&report, shown)))
}

/// Queued work items and unassigned waits count from the age at which a queue is an alert.
fn patience(thresholds: &Thresholds) -> Patience {
    let idle = thresholds.pending_age.map(|age| Millis::try_from(age.as_millis()).unwrap_or(Millis::MAX));
    Patience { idle_ms: idle.unwrap_or(IDLE_MS), retry_ms: RETRY_MS }
}
