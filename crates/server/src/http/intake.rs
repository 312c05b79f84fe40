//! The intake of new work items: reading, pausing and resuming it. Every change records its reason.

use tenure_api::wire as w;
use tenure_core::intake::Pause;
use tenure_store::Caller;

use super::{Body, Json, JsonResult, Problem, Who, error::Problems};
use crate::wire;

/// The number of changes shown.
const CHANGES: usize = 20;

/// Returns whether new work items are accepted, and who paused the intake.
#[utoipa::path(get, path = "/v1/intake", tag = "operator", security(("token" = ["view"])),
    responses((status = 200, description = "The current pauses and the last changes.", body = w::Intake), Problems))]
pub(crate) async fn get(who: Who) -> JsonResult<w::Intake> {
    let caller = who.caller();
    let pauses = caller.intake().await?;
    shown(&caller, &pauses).await
}

/// Pauses the intake of new work items, of one tenant or of all, or resumes it. Recorded work goes on.
/// Repeating the call changes nothing.
#[utoipa::path(post, path = "/v1/intake", tag = "operator", request_body = w::SetIntake,
    security(("token" = ["operate"])),
    responses((status = 200, description = "The current pauses.", body = w::Intake), Problems))]
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
