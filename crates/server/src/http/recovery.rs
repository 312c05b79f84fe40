//! Recovery foretold: which held work items are at risk, and what will be decided about each.

use std::sync::Arc;

use axum::extract::State;
use tenure_api::wire as w;
use tenure_core::{
    State as WorkState, WorkId,
    action::Tenants,
    liveness::{self, Grade},
};
use tenure_store::WorkFilter;

use super::{App, Json, JsonResult, Params, Who, error::Problems, work::page_size};
use crate::wire;

const PAGE: u32 = 50;

/// Lists the work items that lost or may lose their holder, with the last receipt, the effects possibly done and what
/// recovery will decide.
#[utoipa::path(get, path = "/v1/recovery/victims", tag = "operator", params(w::VictimQuery),
    security(("token" = ["view"])),
    responses((status = 200, description = "A page of work items at risk.", body = w::Page<w::Victim>), Problems))]
pub(crate) async fn victims(
    State(app): State<Arc<App>>,
    who: Who,
    Params(query): Params<w::VictimQuery>,
) -> JsonResult<w::Page<w::Victim>> {
    let caller = who.caller();
    let limit = page_size(query.limit, PAGE)?;
    let before = query.cursor.as_deref().map(str::parse).transpose()?;
    let filter = WorkFilter {
        states: vec![WorkState::Running, WorkState::CancelRequested, WorkState::Stalled],
        tenants: query.tenant.map(|tenant| Tenants::Only(vec![tenant])),
        owner: query.worker,
        kind: query.kind,
        ..WorkFilter::default()
    };
    let works = caller.list(&filter, before, limit).await?;
    let next = works.next().map(WorkId::to_string);
    let now = app.ledger.now().await?;
    let mut items = Vec::new();
    for work in works.iter() {
        let late = liveness::grade(work, None, now)
            .is_none_or(|(grade, missed)| grade != Grade::Alive || missed > 0);
        if !late && !query.alive.unwrap_or(false) {
            continue;
        }
        if let Some(risk) = app.ledger.at_risk(work).await? {
            let last = app.ledger.last_receipt(work).await?;
            items.push(wire::victim(work, &risk, last.as_ref(), now));
        }
    }
    Ok(Json(w::Page { items, unreadable: wire::unreadable(&works.unreadable), next }))
}
