//! The holder's verbs: each carries the fence and the token of its lease.

use std::sync::Arc;

use axum::extract::State;
use tenure_api::wire as w;
use tenure_core::{WorkId, action::CloseOut};
use tenure_store::{LeaseRef, NewWait};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{App, Body, Json, JsonResult, Problem, Segments, Who, error::Problems};
use crate::{
    evaluator::EvaluationInput,
    wire::{self, ToCore},
};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(accept))
        .routes(routes!(progress))
        .routes(routes!(release))
        .routes(routes!(fail))
        .routes(routes!(wait))
        .routes(routes!(close_out))
        .routes(routes!(complete))
}

fn lease(id: &str, fence: u64, token: String) -> Result<LeaseRef, Problem> {
    Ok(LeaseRef { work: id.parse::<WorkId>()?, fence, token })
}

/// Records how far a work item was handed over to its executor.
#[utoipa::path(post, path = "/v1/work/{id}/accept", tag = "worker", params(("id" = String, Path)),
    request_body = w::Accept, security(("token" = ["work"])),
    responses((status = 200, description = "Accepted.", body = w::Ack), Problems))]
pub(crate) async fn accept(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Accept>,
) -> JsonResult<w::Ack> {
    let lease = lease(&id, body.fence, body.token)?;
    Ok(Json(wire::ack(&who.caller().accept(&lease, body.strength.to_core()).await?)))
}

/// Reports progress, which is recorded as an event.
#[utoipa::path(post, path = "/v1/work/{id}/progress", tag = "worker", params(("id" = String, Path)),
    request_body = w::Progress, security(("token" = ["work"])),
    responses((status = 200, description = "Recorded.", body = w::Ack), Problems))]
pub(crate) async fn progress(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Progress>,
) -> JsonResult<w::Ack> {
    let lease = lease(&id, body.fence, body.token)?;
    let ack = who.caller().progress(&lease, &body.progress, body.request_id.as_deref()).await?;
    Ok(Json(wire::ack(&ack)))
}

/// Releases a work item, so that it can be claimed again.
#[utoipa::path(post, path = "/v1/work/{id}/release", tag = "worker", params(("id" = String, Path)),
    request_body = w::Release, security(("token" = ["work"])),
    responses((status = 200, description = "Released.", body = w::Ack), Problems))]
pub(crate) async fn release(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Release>,
) -> JsonResult<w::Ack> {
    let lease = lease(&id, body.fence, body.token)?;
    let caller = who.caller().having_used(wire::usage(body.usage));
    Ok(Json(wire::ack(&caller.release(&lease, body.message.as_deref()).await?)))
}

/// Reports a failure; the retry policy decides what happens to the work item.
#[utoipa::path(post, path = "/v1/work/{id}/fail", tag = "worker", params(("id" = String, Path)),
    request_body = w::Fail, security(("token" = ["work"])),
    responses((status = 200, description = "Recorded, with the work item's state.", body = w::Failed), Problems))]
pub(crate) async fn fail(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Fail>,
) -> JsonResult<w::Failed> {
    let lease = lease(&id, body.fence, body.token)?;
    let error = wire::failure(body.error);
    let caller = who.caller().having_used(wire::usage(body.usage));
    let Some(wait) = body.wait else {
        let work = wire::ack(&caller.fail(&lease, error).await?);
        return Ok(Json(w::Failed { work, wait: None }));
    };
    let wait = with_deadlines(&app, &who, lease.work, vec![wait]).await?.remove(0);
    let mut waiting = wire::waiting(caller.fail_until(&lease, error, wait).await?);
    Ok(Json(w::Failed { work: waiting.work, wait: waiting.waits.pop() }))
}

/// Pauses a work item durably. The lease ends, unless every answer has arrived already.
#[utoipa::path(post, path = "/v1/work/{id}/wait", tag = "worker", params(("id" = String, Path)),
    request_body = w::SetWait, security(("token" = ["work"])),
    responses((status = 200, description = "The waits, and the answers that have arrived already.", body = w::Waiting), Problems))]
pub(crate) async fn wait(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::SetWait>,
) -> JsonResult<w::Waiting> {
    let lease = lease(&id, body.fence, body.token)?;
    let waits = with_deadlines(&app, &who, lease.work, body.waits).await?;
    let w::WaitReason { tool, message } = body.reason.unwrap_or_default();
    let caller = who.caller().having_used(wire::usage(body.usage));
    let waiting = caller.wait_on_tool(&lease, waits, message.as_deref(), tool.as_deref()).await?;
    Ok(Json(wire::waiting(waiting)))
}

/// Gives waits without a deadline the one that is configured for the work item's source.
async fn with_deadlines(
    app: &App,
    who: &Who,
    work: WorkId,
    waits: Vec<w::NewWait>,
) -> Result<Vec<NewWait>, Problem> {
    let mut waits: Vec<NewWait> = waits.into_iter().map(wire::new_wait).collect::<Result<_, _>>()?;
    let open = |wait: &NewWait| wait.timeout_ms.is_none() && !wait.endless;
    let configured = app.live.borrow().sources.values().any(|source| !source.waits.is_empty());
    if configured && waits.iter().any(open) {
        let system = who.caller().work(work).await?.spec.source.system.clone();
        let live = app.live.borrow();
        let Some(source) = live.sources.get(&system) else { return Ok(waits) };
        for wait in waits.iter_mut().filter(|wait| open(wait)) {
            wait.timeout_ms = source.waits.get(&wait.kind).map(|after| after.as_millis() as u64);
        }
    }
    Ok(waits)
}

/// Closes a work item with its terminal state.
#[utoipa::path(post, path = "/v1/work/{id}/close-out", tag = "worker", params(("id" = String, Path)),
    request_body = w::CloseOut, security(("token" = ["work"])),
    responses((status = 200, description = "Closed.", body = w::Ack), Problems))]
pub(crate) async fn close_out(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
    Body(mut body): Body<w::CloseOut>,
) -> JsonResult<w::Ack> {
    let lease = lease(&id, body.fence, std::mem::take(&mut body.token))?;
    let caller = who.caller();
    let ack = if body.state == w::State::Abandoned && body.commands.is_empty() {
        let reason = body.error.map(|error| error.message).unwrap_or_default();
        caller.having_used(wire::usage(body.usage)).abandon_own(&lease, &reason).await?
    } else {
        let outbox = std::mem::take(&mut body.commands);
        let close = wire::close_out(body.end())?;
        let act = || async {
            let facts = match outbox[..] {
                [] => EvaluationInput::default(),
                _ => app.evaluator.input(&app.ledger, &caller, lease.work).await?,
            };
            let asked = facts.asked(caller.actor());
            let mut commands = Vec::with_capacity(outbox.len());
            for wanted in &outbox {
                let intent = app.evaluator.intent(asked, wanted).await?;
                commands.push(caller.outgoing(lease.work, intent).await?);
            }
            caller.close_out(&lease, CloseOut { commands, ..close.clone() }).await
        };
        app.evaluator.current(act).await?
    };
    Ok(Json(wire::ack(&ack)))
}

/// Closes an externally owned work item, with the completion token that its ingest returned.
#[utoipa::path(post, path = "/v1/work/{id}/complete", tag = "work", params(("id" = String, Path)),
    request_body = w::Complete, security(("token" = ["submit"])),
    responses((status = 200, description = "Closed.", body = w::Ack), Problems))]
pub(crate) async fn complete(
    who: Who,
    Segments([id]): Segments<1>,
    Body(mut body): Body<w::Complete>,
) -> JsonResult<w::Ack> {
    let token = std::mem::take(&mut body.token);
    let ack = who.caller().complete(id.parse()?, &token, wire::close_out(body.end())?).await?;
    Ok(Json(wire::ack(&ack)))
}
