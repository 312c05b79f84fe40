//! Alerts: the configured thresholds that are crossed now.

use std::sync::Arc;

use axum::extract::State;
use tenure_api::wire as w;

use super::{App, Json, JsonResult, Who, error::Problems};

/// Lists the alerts that are active now, over all tenants.
#[utoipa::path(get, path = "/v1/alerts", tag = "event", security(("token" = ["view"])),
    responses((status = 200, description = "The active alerts.", body = w::Page<w::Alert>), Problems))]
pub(crate) async fn list(State(app): State<Arc<App>>, who: Who) -> JsonResult<w::Page<w::Alert>> {
    who.session.require_everywhere()?;
    Ok(Json(w::Page { items: app.alerts.list(), unreadable: Vec::new(), next: None }))
}
