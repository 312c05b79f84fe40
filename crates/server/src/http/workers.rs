//! Workers, as seen through their leases and their waiting claims, and draining one from outside.

use tenure_api::wire as w;
use tenure_core::{Code, Phase, Refusal, State, Work};
use tenure_store::{Caller, Error, WorkFilter};

use super::{Body, Json, JsonResult, Problem, Segments, Who, error::Problems};
use crate::wire::{self, ToWire};

const PAGE: usize = 1_000;

/// Lists the workers that hold leases, and those whose claims wait for work at this daemon.
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
    if body.reason.trim().is_empty() {
        return Err(Refusal::new(
            Code::ReasonMissing,
            "Give a reason: a drain requires one, and it is recorded.",
        )
        .into());
    }
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
            w::Lever::RevokeWaits => {
                for work in &parked(&caller, &id, body.incarnation.as_deref()).await? {
                    revoke(&caller, work, &body.reason, &mut report).await?;
                }
            }
            w::Lever::StopClaiming => defer(
                &mut report,
                lever,
                "Only the worker itself can stop its claims, and until then it may claim released work again: send \
                 its process SIGTERM.",
            ),
            w::Lever::Flush => defer(
                &mut report,
                lever,
                "Only the worker itself can deliver the outcomes that it has decided: send its process SIGTERM, which \
                 delivers them before it ends.",
            ),
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
    every(caller, &filter, theirs).await
}

async fn every(
    caller: &Caller,
    filter: &WorkFilter,
    theirs: impl Fn(&Work) -> bool,
) -> Result<Vec<Work>, Problem> {
    let mut works = Vec::new();
    let mut before = None;
    loop {
        let page = caller.list(filter, before, PAGE).await?;
        before = page.next().copied();
        works.extend(page.rows.into_iter().filter(&theirs));
        if before.is_none() {
            return Ok(works);
        }
    }
}

/// A lever that no work item is affected by.
fn defer(report: &mut w::DrainReport, lever: w::Lever, because: &str) {
    report.deferred.push(w::Deferred { lever: lever.into(), work: None, because: because.to_owned() });
}

/// The waiting work items that only this worker may continue. Others go on with any worker once they are answered, and
/// keep their waits.
async fn parked(caller: &Caller, worker: &str, incarnation: Option<&str>) -> Result<Vec<Work>, Problem> {
    let filter = WorkFilter { phase: Some(Phase::Waiting), ..WorkFilter::default() };
    let theirs = |work: &Work| {
        let first = work.body.first_started.as_ref().filter(|_| work.owner_bound_started());
        first.is_some_and(|first| {
            first.worker == worker && incarnation.is_none_or(|wanted| first.incarnation == wanted)
        })
    };
    every(caller, &filter, theirs).await
}

/// Its owner finds the waits cancelled, and goes on without answers.
async fn revoke(
    caller: &Caller,
    work: &Work,
    reason: &str,
    report: &mut w::DrainReport,
) -> Result<(), Problem> {
    let lever = w::Lever::RevokeWaits.into();
    let id = Some(work.id.to_string().into());
    match caller.revoke_waits(work.id, reason).await {
        Ok(_) => report.confirmed.push(w::Pulled { lever, work: id }),
        Err(Error::Refused(refusal)) => {
            report.deferred.push(w::Deferred { lever, work: id, because: refusal.detail });
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
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
