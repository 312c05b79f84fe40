//! Erasure of content, by people.

use std::sync::Arc;

use axum::extract::State;
use tenure_api::wire as w;
use tenure_store::{Erased, PrincipalKind};

use super::{
    App, Body, Json, JsonResult, Problem, Who,
    error::Problems,
    work::{find, page_size},
};

const LOOKED_AT: u32 = 1_000;

/// Erases the content of ended work items: of one, of a session or of a tenant. Their events and hashes stay.
#[utoipa::path(post, path = "/v1/admin/erase", tag = "admin", request_body = w::Erase,
    security(("token" = ["admin"])),
    responses((status = 200, description = "The number of work items whose content was erased, or would be.", body = w::EraseReport), Problems))]
pub(crate) async fn erase(
    State(app): State<Arc<App>>,
    who: Who,
    Body(body): Body<w::Erase>,
) -> JsonResult<w::EraseReport> {
    if who.session.principal.kind != PrincipalKind::Person {
        let detail = "Only a person's credential can erase content: it cannot be restored. Use one of yours.";
        return Err(Problem::new(w::Code::PersonRequired, detail));
    }
    let caller = who.caller();
    let erased = match (&body.work, &body.tenant) {
        (Some(work), None) if body.session.is_none() && body.cursor.is_none() && body.limit.is_none() => {
            caller.erase(find(&caller, work.as_str()).await?, &body.reason).await?;
            Erased { works: 1, ..Erased::default() }
        }
        (None, Some(tenant)) => {
            let before = body.cursor.as_deref().map(str::parse).transpose()?;
            let limit = page_size(body.limit, LOOKED_AT)?;
            caller.erase_of(tenant, body.session.as_deref(), before, limit, &body.reason).await?
        }
        _ => {
            return Err(Problem::invalid(
                "Name what to erase: `work` alone, or `tenant`, with `session` for one of its sessions.",
            ));
        }
    };
    let overwritten = who.dry_run || app.ledger.overwrite_erased().await?;
    Ok(Json(w::EraseReport {
        works: erased.works,
        kept: erased.kept,
        early_answers: erased.early_answers,
        overwritten,
        next: erased.next.map(|id| id.to_string()),
    }))
}
