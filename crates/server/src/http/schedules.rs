//! Schedules (cron): work items created at due times. Every change records its reason.

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use tenure_api::wire::{self as w, Scope};
use tenure_core::{
    action::Tenants,
    schedule::{SYSTEM, Schedule},
};

use super::{App, Body, Json, JsonResult, Params, Problem, Segments, Who, error::Problems, work::page_size};
use crate::wire;

const PAGE: u32 = 50;
/// The number of upcoming due times and of changes shown.
const UPCOMING: usize = 5;
const CHANGES: usize = 20;

/// A schedule with the fields that this caller may see.
fn view(app: &App, who: &Who, schedule: &Schedule) -> w::Schedule {
    // A schedule with a time zone unknown to this version is still shown.
    let upcoming = app.ledger.upcoming(schedule, UPCOMING).unwrap_or_default();
    wire::schedule(schedule, &upcoming, who.session.may(Scope::Payload))
}

/// Lists schedules by tenant and name.
#[utoipa::path(get, path = "/v1/schedules", tag = "schedules", params(w::ScheduleQuery),
    security(("token" = ["view"])),
    responses((status = 200, description = "A page of schedules.", body = w::Page<w::Schedule>), Problems))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    Params(query): Params<w::ScheduleQuery>,
) -> JsonResult<w::Page<w::Schedule>> {
    let limit = page_size(query.limit, PAGE)?;
    let tenants = query.tenant.map(|tenant| Tenants::Only(vec![tenant]));
    let after = match query.cursor.as_deref().map(|cursor| cursor.rsplit_once('/')) {
        Some(None) => {
            return Err(Problem::invalid("`cursor` is not valid. Use the `next` of a page."));
        }
        Some(after) => after,
        None => None,
    };
    let schedules = who.caller().schedules(tenants.as_ref(), after, limit).await?;
    let next = schedules.next().map(|(tenant, name)| format!("{tenant}/{name}"));
    let items = schedules.iter().map(|schedule| view(&app, &who, schedule)).collect();
    Ok(Json(w::Page { items, unreadable: wire::unreadable(&schedules.unreadable), next }))
}

/// Returns one schedule, with its last changes.
#[utoipa::path(get, path = "/v1/schedules/{name}", tag = "schedules",
    params(("name" = String, Path), w::ScheduleGet), security(("token" = ["view"])),
    responses((status = 200, description = "The schedule.", body = w::Schedule), Problems))]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([name]): Segments<1>,
    Params(query): Params<w::ScheduleGet>,
) -> JsonResult<w::Schedule> {
    let tenant = who.session.tenant(query.tenant.as_deref())?;
    let caller = who.caller();
    let schedule = view(&app, &who, &caller.schedule(&tenant, &name).await?);
    let changes = caller.schedule_changes(&tenant, &name, CHANGES).await?;
    Ok(Json(w::Schedule { changes: changes.iter().map(wire::schedule_change).collect(), ..schedule }))
}

/// Creates a schedule, or replaces its definition. Repeating the call changes nothing.
#[utoipa::path(put, path = "/v1/schedules/{name}", tag = "schedules", params(("name" = String, Path)),
    request_body = w::SetSchedule, security(("token" = ["operate"])),
    responses(
        (status = 201, description = "Created.", body = w::Schedule),
        (status = 200, description = "Replaced, or unchanged.", body = w::Schedule),
        Problems
    ))]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([name]): Segments<1>,
    Body(body): Body<w::SetSchedule>,
) -> Result<Response, Problem> {
    let tenant = who.session.tenant(body.tenant.as_deref())?;
    let policy = app.live.borrow().sources.get(SYSTEM).map(|source| source.policy).unwrap_or_default();
    let reason = body.reason.clone();
    let new = wire::new_schedule(name, tenant, body, &policy)?;
    let quotas = app.live.borrow().quotas;
    let _turn = app.usage.schedule(&who.session, &who.caller(), &new.tenant, &new.name, &quotas).await?;
    let (schedule, made) = who.caller().set_schedule(new, &reason).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(view(&app, &who, &schedule))).into_response())
}

/// Pauses a schedule. Runs that are due while it is paused are not caught up.
#[utoipa::path(post, path = "/v1/schedules/{name}/pause", tag = "schedules", params(("name" = String, Path)),
    request_body = w::PauseSchedule, security(("token" = ["operate"])),
    responses((status = 200, description = "Paused.", body = w::Schedule), Problems))]
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([name]): Segments<1>,
    Body(body): Body<w::PauseSchedule>,
) -> JsonResult<w::Schedule> {
    let tenant = who.session.tenant(body.tenant.as_deref())?;
    Ok(Json(view(&app, &who, &who.caller().pause_schedule(&tenant, &name, &body.reason).await?)))
}

/// Resumes a paused schedule from its next due time.
#[utoipa::path(post, path = "/v1/schedules/{name}/resume", tag = "schedules", params(("name" = String, Path)),
    request_body = w::PauseSchedule, security(("token" = ["operate"])),
    responses((status = 200, description = "Resumed.", body = w::Schedule), Problems))]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([name]): Segments<1>,
    Body(body): Body<w::PauseSchedule>,
) -> JsonResult<w::Schedule> {
    let tenant = who.session.tenant(body.tenant.as_deref())?;
    Ok(Json(view(&app, &who, &who.caller().resume_schedule(&tenant, &name, &body.reason).await?)))
}

/// Runs a schedule now, in addition to its due times, paused or not.
#[utoipa::path(post, path = "/v1/schedules/{name}/run-now", tag = "schedules", params(("name" = String, Path)),
    request_body = w::RunSchedule, security(("token" = ["operate"])),
    responses((status = 200, description = "`last_run` names its work item.", body = w::Schedule), Problems))]
pub(crate) async fn run_now(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([name]): Segments<1>,
    Body(body): Body<w::RunSchedule>,
) -> JsonResult<w::Schedule> {
    let tenant = who.session.tenant(body.tenant.as_deref())?;
    let ran = who.caller().run_schedule(&tenant, &name, &body.request_id, &body.reason).await?;
    Ok(Json(view(&app, &who, &ran)))
}

/// Deletes a schedule; its work items and its history are kept.
#[utoipa::path(delete, path = "/v1/schedules/{name}", tag = "schedules",
    params(("name" = String, Path), w::DeleteSchedule), security(("token" = ["operate"])),
    responses((status = 200, description = "The deleted schedule.", body = w::Schedule), Problems))]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([name]): Segments<1>,
    Params(query): Params<w::DeleteSchedule>,
) -> JsonResult<w::Schedule> {
    let tenant = who.session.tenant(query.tenant.as_deref())?;
    Ok(Json(view(&app, &who, &who.caller().delete_schedule(&tenant, &name, &query.reason).await?)))
}
