//! Workers, as seen through their leases, and draining one from outside.

use tenure_api::wire as w;
use tenure_core::{Code, Refusal, State, Work, limits};
use tenure_store::{Caller, Error, WorkFilter};

use super::{Body, Json, JsonResult, Problem, Segments, Who, error::Problems};
use crate::wire::{self, ToWire};

const PAGE: usize = 1_000;

/// Lists the workers that hold leases.
#[utoipa::path(get, path = "/v1/workers", tag = "worker", security(("token" = ["view"])),
    responses((status = 200, description = "The workers.", body = w::Page<w::WorkerView>), Problems))]
pub(crate) async fn list(who: Who) -> JsonResult<w::Page<w::WorkerView>> {
    let workers = who.caller().workers().await?.workers;
    Ok(Json(w::Page {
        items: workers.into_iter().map(wire::worker).collect(),
        unreadable: Vec::new(),
        next: None,
    }))
}

/// Asks a worker to stop everything that it holds. Rerunnable work goes back to the queue; only started
/// owner-bound work is cancelled or abandoned.
#[utoipa::path(post, path = "/v1/workers/{id}/drain", tag = "operator", params(("id" = String, Path)),
    request_body = w::Drain, security(("token" = ["operate"])),
    responses((status = 200, description = "The work items that were affected, and why others were not.", body = w::DrainReport), Problems))]
pub(crate) async fn drain(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Drain>,
) -> JsonResult<w::DrainReport> {
    limits::reason(&body.reason)?;
    let caller = who.caller();
    let held = held(&caller, &id, body.incarnation.as_deref()).await?;
    let mut report = w::DrainReport::default();
    for lever in body.levers {
        match lever {
            w::Lever::RequestCancel | w::Lever::Release | w::Lever::Abandon => {
                for work in &held {
                    pull(&caller, lever, work, &body.reason, &mut report).await?;
                }
            }
            w::Lever::StopClaiming | w::Lever::RevokeWaits | w::Lever::Flush => {
                let because = "Only the worker itself can release this one: ask it to drain.".to_owned();
                report.deferred.push(w::Deferred { lever: lever.into(), work: None, because });
            }
        }
    }
    Ok(Json(report))
}

/// The work items that the worker holds, in this incarnation or any.
async fn held(caller: &Caller, worker: &str, incarnation: Option<&str>) -> Result<Vec<Work>, Problem> {
    let states = vec![State::Running, State::CancelRequested, State::Stalled];
    let filter = WorkFilter { states, owner: Some(worker.to_owned()), ..WorkFilter::default() };
    let theirs = |work: &Work| {
        let holder = work.body.holder.as_ref();
        incarnation.is_none_or(|wanted| holder.is_some_and(|holder| holder.incarnation == wanted))
    };
    let mut held = Vec::new();
    let mut before = None;
    loop {
        let page = caller.list(&filter, before, PAGE).await?;
        before = page.next().copied();
        held.extend(page.rows.into_iter().filter(theirs));
        if before.is_none() {
            return Ok(held);
        }
    }
}

/// A work item that refuses is reported and does not stop the others.
async fn pull(
    caller: &Caller,
    lever: w::Lever,
    work: &Work,
    reason: &str,
    report: &mut w::DrainReport,
) -> Result<(), Problem> {
    let done = match (lever, work.owner_bound_started()) {
        (w::Lever::Abandon, true) => caller.request_abandon(work.id, reason).await,
        (w::Lever::Abandon, false) => Err(Error::Refused(Refusal::new(
            Code::IllegalState,
            "Only started owner-bound work is abandoned. This one goes back to the queue: when its holder releases \
             it, or when its lease lapses.",
        ))),
        (w::Lever::RequestCancel, true) => caller.cancel(work.id, reason, None).await,
        _ => caller.request_release(work.id, reason).await,
    };
    let id = Some(work.id.to_string().into());
    match done {
        Ok(ack) if ack.state.is_terminal() => {
            report.confirmed.push(w::Pulled { lever: lever.into(), work: id })
        }
        Ok(ack) => report.deferred.push(w::Deferred {
            lever: lever.into(),
            work: id,
            because: format!(
                "Requested. The work item is {} until its holder stops or its lease lapses.",
                ack.state.to_wire()
            ),
        }),
        Err(Error::Refused(refusal)) => {
            report.deferred.push(w::Deferred { lever: lever.into(), work: id, because: refusal.detail });
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
