//! Housekeeping of the whole ledger, for credentials that are bound to no tenant.

use std::sync::Arc;

use axum::extract::State;
use tenure_api::wire as w;
use tenure_store::Error;

use super::{Answer, App, Body, Json, Problem, Who, error::Problems, work::page_size};
use crate::wire;

const PRUNED: u32 = 1_000;

/// Forgets works that ended before a time. Their identities stay, so that nothing runs again.
#[utoipa::path(post, path = "/v1/admin/prune", tag = "admin", request_body = w::Prune,
    security(("token" = ["admin"])),
    responses((status = 200, description = "What was forgotten, or would be.", body = w::PruneReport), Problems))]
pub(crate) async fn prune(
    State(app): State<Arc<App>>,
    who: Who,
    Body(body): Body<w::Prune>,
) -> Answer<w::PruneReport> {
    who.session.require_everywhere()?;
    let limit = page_size(body.limit, PRUNED)?;
    if body.dry_run || who.dry_run {
        let ids = app.ledger.prunable(body.before.0, limit).await?;
        let events = app.ledger.works(&ids).await?.iter().map(|work| work.seq).sum();
        return Ok(Json(w::PruneReport { works: ids.len() as u64, events, more: ids.len() >= limit }));
    }
    let pruned = app.ledger.prune(body.before.0, limit).await?;
    let by = &who.session.name;
    tracing::info!(%by, reason = body.reason, before = %body.before, works = pruned.works, "works were pruned");
    Ok(Json(w::PruneReport { works: pruned.works, events: pruned.events, more: pruned.more }))
}

/// Copies the ledger, while it is in use, to a new file on the daemon's machine.
#[utoipa::path(post, path = "/v1/admin/backup", tag = "admin", request_body = w::Backup,
    extensions(("x-no-dry-run" = json!(true))), security(("token" = ["admin"])),
    responses((status = 200, description = "The copy.", body = w::BackupReport), Problems))]
pub(crate) async fn backup(
    State(app): State<Arc<App>>,
    who: Who,
    Body(body): Body<w::Backup>,
) -> Answer<w::BackupReport> {
    who.session.require_everywhere()?;
    app.ledger.backup(&body.path).await.map_err(|error| match error {
        // It is the target that cannot be used: the caller named it.
        Error::Unusable(detail) => {
            Problem::invalid(format!("No backup was made: {detail}. Name another file."))
        }
        other => other.into(),
    })?;
    let copy = tokio::fs::metadata(&body.path).await;
    let copy = copy.map_err(|error| Problem::invalid(format!("The copy cannot be looked at: {error}.")))?;
    Ok(Json(w::BackupReport { path: body.path, bytes: copy.len() }))
}

/// Reads everything back and tells what contradicts itself.
#[utoipa::path(post, path = "/v1/admin/verify", tag = "admin", security(("token" = ["admin"])),
    responses((status = 200, description = "What was read and found.", body = w::VerifyReport), Problems))]
pub(crate) async fn verify(State(app): State<Arc<App>>, who: Who) -> Answer<w::VerifyReport> {
    who.session.require_everywhere()?;
    let report = app.ledger.verify().await?;
    let fault = |fault: tenure_store::Fault| w::Fault {
        work: fault.work.map(|id| id.to_string().into()),
        what: fault.what,
    };
    Ok(Json(w::VerifyReport {
        works: report.works,
        events: report.events,
        faults: report.faults.into_iter().map(fault).collect(),
    }))
}

/// Tells which database the ledger is in, whether its commits last, and which schema it has.
#[utoipa::path(get, path = "/v1/admin/database", tag = "admin", security(("token" = ["operate"])),
    responses((status = 200, description = "What the database says of itself.", body = w::Database), Problems))]
pub(crate) async fn database(State(app): State<Arc<App>>, who: Who) -> Answer<w::Database> {
    who.session.require_everywhere()?;
    Ok(Json(wire::database(app.ledger.diagnosis().await?, &app.ledger.stats())))
}
