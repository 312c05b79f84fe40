//! The intake of new works: looked at, paused, resumed. An act carries a reason, which is kept.

use tenure_api::wire as w;
use tenure_core::intake::Pause;
use tenure_store::Caller;

use super::{Body, Json, JsonResult, Problem, Who, error::Problems};
use crate::wire;

/// Acts that are told.
const CHANGES: usize = 20;

/// Whether new works are let in, and who stopped it.
#[utoipa::path(get, path = "/v1/intake", tag = "operator", security(("token" = ["view"])),
    responses((status = 200, description = "The pauses that stand, and the last acts.", body = w::Intake), Problems))]
pub(crate) async fn get(who: Who) -> JsonResult<w::Intake> {
    let caller = who.caller();
    let pauses = caller.intake().await?;
    shown(&caller, &pauses).await
}

/// Pauses the intake of new works, of a tenant or of all, or resumes it. What is in goes on; the same again changes
/// nothing.
#[utoipa::path(post, path = "/v1/intake", tag = "operator", request_body = w::SetIntake,
    security(("token" = ["operate"])),
    responses((status = 200, description = "The pauses that stand now.", body = w::Intake), Problems))]
pub(crate) async fn set(who: Who, Body(body): Body<w::SetIntake>) -> JsonResult<w::Intake> {
    let caller = who.caller();
    let tenant = body.tenant.as_deref();
    let pauses = if body.paused {
        caller.pause_intake(tenant, &body.reason).await?
    } else {
        caller.resume_intake(tenant, &body.reason).await?
    };
    shown(&caller, &pauses).await
}

async fn shown(caller: &Caller, pauses: &[Pause]) -> Result<Json<w::Intake>, Problem> {
    let changes = caller.intake_changes(CHANGES).await?;
    Ok(Json(w::Intake {
        pauses: pauses.iter().map(wire::intake_pause).collect(),
        changes: changes.iter().map(wire::intake_change).collect(),
    }))
}
