//! The operators' verbs: each records a reason, and may name the last event that the operator saw.

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use tenure_api::wire::{self as w, Scope};

use super::{App, Body, Json, JsonResult, Problem, Segments, Who, error::Problems};
use crate::wire::{self, View};

/// Requests the cancellation of a work item.
#[utoipa::path(post, path = "/v1/work/{id}/cancel", tag = "operator", params(("id" = String, Path)),
    request_body = w::Cancel, security(("token" = ["operate"])),
    responses((status = 200, description = "Requested, or done.", body = w::Ack), Problems))]
pub(crate) async fn cancel(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Cancel>,
) -> JsonResult<w::Ack> {
    let caller = who.caller().having_seen(body.if_seq);
    Ok(Json(wire::ack(&caller.cancel(id.parse()?, &body.reason, body.deadline_ms).await?)))
}

/// Abandons a work item once its lease lapses.
#[utoipa::path(post, path = "/v1/work/{id}/abandon", tag = "operator", params(("id" = String, Path)),
    request_body = w::Abandon, security(("token" = ["operate"])),
    responses((status = 200, description = "Requested, or done.", body = w::Ack), Problems))]
pub(crate) async fn abandon(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Abandon>,
) -> JsonResult<w::Ack> {
    let caller = who.caller().having_seen(body.if_seq);
    Ok(Json(wire::ack(&caller.request_abandon(id.parse()?, &body.reason).await?)))
}

/// Ends the backoff of a retry now.
#[utoipa::path(post, path = "/v1/work/{id}/retry-now", tag = "operator", params(("id" = String, Path)),
    request_body = w::RetryNow, security(("token" = ["operate"])),
    responses((status = 200, description = "Queued.", body = w::Ack), Problems))]
pub(crate) async fn retry_now(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::RetryNow>,
) -> JsonResult<w::Ack> {
    let caller = who.caller().having_seen(body.if_seq);
    Ok(Json(wire::ack(&caller.retry_now(id.parse()?, &body.reason).await?)))
}

/// Runs an ended work item again, as a new work item linked to it.
#[utoipa::path(post, path = "/v1/work/{id}/rerun", tag = "operator", params(("id" = String, Path)),
    request_body = w::Rerun, security(("token" = ["replay"])),
    responses((status = 201, description = "The new work item.", body = w::Work),
        (status = 200, description = "The new work item that the same call created before.", body = w::Work), Problems))]
pub(crate) async fn rerun(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Rerun>,
) -> Result<Response, Problem> {
    // Repeating a command that succeeded or is in doubt is a replay, with its own scope.
    if !body.execute.is_empty() {
        who.session.require(Scope::Replay)?;
    }
    let execute = body.execute.iter().map(|key| wire::digest("execute", key)).collect::<Result<_, _>>()?;
    let from_step = body.from_step.as_deref();
    let rerun = who.caller().rerun_executing(id.parse()?, from_step, execute, &body.reason).await?;
    let payloads = who.session.may(Scope::Payload);
    let view = View { now: app.ledger.now().await?, payloads, ..View::default() };
    let status = if rerun.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(wire::work(&rerun.work, &view))).into_response())
}

/// Quarantines a work item for a person to decide.
#[utoipa::path(post, path = "/v1/work/{id}/quarantine", tag = "operator", params(("id" = String, Path)),
    request_body = w::Quarantine, security(("token" = ["operate"])),
    responses((status = 200, description = "Quarantined.", body = w::Ack), Problems))]
pub(crate) async fn quarantine(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Quarantine>,
) -> JsonResult<w::Ack> {
    let caller = who.caller().having_seen(body.if_seq);
    Ok(Json(wire::ack(&caller.quarantine(id.parse()?, &body.reason).await?)))
}

/// Records a person's decision on a quarantined work item.
#[utoipa::path(post, path = "/v1/work/{id}/decide", tag = "operator", params(("id" = String, Path)),
    request_body = w::Decide, security(("token" = ["operate"])),
    responses((status = 200, description = "Decided.", body = w::Ack), Problems))]
pub(crate) async fn decide(
    who: Who,
    Segments([id]): Segments<1>,
    Body(mut body): Body<w::Decide>,
) -> JsonResult<w::Ack> {
    let caller = who.caller().having_seen(body.if_seq);
    let reason = std::mem::take(&mut body.reason);
    Ok(Json(wire::ack(&caller.decide(id.parse()?, &reason, wire::decide(body)?).await?)))
}
