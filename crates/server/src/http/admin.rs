//! Administration of the whole ledger, for credentials that are not bound to a tenant.

use std::sync::Arc;

use axum::extract::State;
use tenure_api::wire as w;

use super::{App, Body, Json, JsonResult, Params, Who, error::Problems, work::page_size};
use crate::wire;

const PRUNED: u32 = 1_000;
const PRUNINGS: u32 = 100;

/// Deletes work items that ended before a time. Their identities are kept, so nothing runs again.
#[utoipa::path(post, path = "/v1/admin/prune", tag = "admin", request_body = w::Prune,
    security(("token" = ["admin"])),
    responses((status = 200, description = "The number of work items and events deleted, or that would be.", body = w::PruneReport), Problems))]
pub(crate) async fn prune(
    State(app): State<Arc<App>>,
    who: Who,
    Body(body): Body<w::Prune>,
) -> JsonResult<w::PruneReport> {
    who.session.require_everywhere()?;
    let limit = page_size(body.limit, PRUNED)?;
    if body.dry_run || who.dry_run {
        let ids = app.ledger.prunable(body.before.0, limit).await?;
        let events = app.ledger.readable_works(&ids).await?.iter().map(|work| work.seq).sum();
        return Ok(Json(w::PruneReport { works: ids.len() as u64, events, more: ids.len() >= limit }));
    }
    let by = who.session.principal.actor();
    let pruned = app.ledger.prune(&by, &body.reason, body.before.0, limit).await?;
    if pruned.works > 0 {
        app.ledger.overwrite_erased().await?;
    }
    Ok(Json(w::PruneReport { works: pruned.works, events: pruned.events, more: pruned.more }))
}

/// Lists who pruned, when and why, newest first.
#[utoipa::path(get, path = "/v1/admin/prune", tag = "admin", params(w::LimitQuery), security(("token" = ["admin"])),
    responses((status = 200, description = "The calls that pruned something.", body = w::Page<w::Pruning>), Problems))]
pub(crate) async fn prunings(
    State(app): State<Arc<App>>,
    who: Who,
    Params(query): Params<w::LimitQuery>,
) -> JsonResult<w::Page<w::Pruning>> {
    who.session.require_everywhere()?;
    let prunings = app.ledger.prunings(page_size(query.limit, PRUNINGS)?).await?;
    Ok(Json(w::Page {
        items: prunings.iter().map(wire::pruning).collect(),
        unreadable: Vec::new(),
        next: None,
    }))
}

/// Reads the whole ledger and returns every contradiction that it finds, also with a copy of the anchor.
#[utoipa::path(post, path = "/v1/admin/verify", tag = "admin", request_body = Option<w::Verify>,
    security(("token" = ["admin"])),
    responses((status = 200, description = "The counts of what was read, and the faults.", body = w::VerifyReport), Problems))]
pub(crate) async fn verify(
    State(app): State<Arc<App>>,
    who: Who,
    body: Option<Body<w::Verify>>,
) -> JsonResult<w::VerifyReport> {
    who.session.require_everywhere()?;
    let copy = body.and_then(|Body(body)| body.anchor).map(wire::signed_anchor).transpose()?;
    let report = app.ledger.verify_with(copy.as_ref()).await?;
    let fault = |fault: tenure_store::Fault| w::Fault {
        work: fault.work.map(|id| id.to_string().into()),
        what: fault.what,
    };
    Ok(Json(w::VerifyReport {
        works: report.works,
        events: report.events,
        newer: report.newer,
        anchored: copy.map(|copy| copy.anchor.events),
        faults: report.faults.into_iter().map(fault).collect(),
        not_checked: report.not_checked,
    }))
}

/// Returns a signed copy of the ledger's anchor, to be stored outside the ledger's machine.
#[utoipa::path(get, path = "/v1/admin/anchor", tag = "admin", security(("token" = ["operate"])),
    responses((status = 200, description = "The anchor over all events that are settled by now.", body = w::Anchor), Problems))]
pub(crate) async fn anchor(State(app): State<Arc<App>>, who: Who) -> JsonResult<w::Anchor> {
    who.session.require_everywhere()?;
    Ok(Json(wire::anchor(&app.ledger.signed_anchor().await?)))
}

/// Returns which database the ledger uses, whether its commits are durable, and its schema version.
#[utoipa::path(get, path = "/v1/admin/database", tag = "admin", security(("token" = ["operate"])),
    responses((status = 200, description = "The database's diagnosis.", body = w::Database), Problems))]
pub(crate) async fn database(State(app): State<Arc<App>>, who: Who) -> JsonResult<w::Database> {
    who.session.require_everywhere()?;
    let told = wire::database(app.ledger.diagnosis().await?, &app.ledger.stats(), app.ledger.damaged());
    let intake = wire::intake_table(app.ledger.intake_table().await?);
    Ok(Json(w::Database { intake: Some(intake), ..told }))
}
