//! The feed by pages: the events of all work items after a cursor, without gaps.

use std::sync::Arc;

use axum::extract::State;
use tenure_api::wire::{self as w, Scope};
use tenure_core::action::Tenants;
use tenure_store::Position;

use super::{App, Json, JsonResult, Params, Problem, Who, error::Problems, work::page_size};
use crate::{auth::Authenticated, wire};

const PAGE: u32 = 100;

/// Reads the feed. A page may be short or empty while more events follow: continue from `next` until it no
/// longer changes.
#[utoipa::path(get, path = "/v1/events", tag = "event", params(w::EventQuery), security(("token" = ["view"])),
    responses((status = 200, description = "A page of events.", body = w::EventPage), Problems))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    Params(query): Params<w::EventQuery>,
) -> JsonResult<w::EventPage> {
    let after = query.after.as_deref().map(str::parse).transpose()?.unwrap_or(Position::default());
    let tenants = tenants(&who.session, query.tenant)?;
    let page = app.feed.page(after, page_size(query.limit, PAGE)?, &tenants).await?;
    let payloads = who.session.may(Scope::Payload);
    let items = page.events.iter().map(|event| wire::event(&event.stored, &event.tenant, payloads)).collect();
    let unreadable = page.unreadable.iter().map(|(_, event)| event.clone()).collect();
    Ok(Json(w::EventPage { items, unreadable, next: page.next.to_string() }))
}

/// The credential's tenants, or the requested one of them.
pub(super) fn tenants(session: &Authenticated, asked: Option<String>) -> Result<Tenants, Problem> {
    match asked {
        None => Ok(session.tenants.clone()),
        Some(tenant) => Ok(Tenants::Only(vec![session.tenant(Some(&tenant))?])),
    }
}
