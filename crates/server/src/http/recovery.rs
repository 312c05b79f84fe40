//! Recovery: which held work items are at risk, what would be done about each now, and having that carried out.

use std::sync::Arc;

use axum::extract::State;
use serde_json::json;
use tenure_api::wire as w;
use tenure_core::{
    State as WorkState, WorkId,
    action::Tenants,
    liveness::{self, Grade},
    recovery::Instead,
};
use tenure_store::{AppliedPlan, ApplyPlan, PlanFilter, PlanOverride, RecoveryPlan, RowOutcome, WorkFilter};

use super::{App, Body, Json, JsonResult, Params, Problem, Who, error::Problems, work::page_size};
use crate::wire::{self, ToWire};

const PAGE: u32 = 50;

/// Lists the work items that lost or may lose their holder, with the last receipt, the effects possibly done and what
/// recovery will decide.
#[utoipa::path(get, path = "/v1/recovery/victims", tag = "operator", params(w::VictimQuery),
    security(("token" = ["view"])),
    responses((status = 200, description = "A page of work items at risk.", body = w::Page<w::Victim>), Problems))]
pub(crate) async fn victims(
    State(app): State<Arc<App>>,
    who: Who,
    Params(query): Params<w::VictimQuery>,
) -> JsonResult<w::Page<w::Victim>> {
    let caller = who.caller();
    let limit = page_size(query.limit, PAGE)?;
    let before = query.cursor.as_deref().map(str::parse).transpose()?;
    let filter = WorkFilter {
        states: vec![WorkState::Running, WorkState::CancelRequested, WorkState::Stalled],
        tenants: query.tenant.map(|tenant| Tenants::Only(vec![tenant])),
        owner: query.worker,
        kind: query.kind,
        ..WorkFilter::default()
    };
    let works = caller.list(&filter, before, limit).await?;
    let next = works.next().map(WorkId::to_string);
    let now = app.ledger.now().await?;
    let mut items = Vec::new();
    for work in works.iter() {
        let late = liveness::grade(work, None, now)
            .is_none_or(|(grade, missed)| grade != Grade::Alive || missed > 0);
        if !late && !query.alive.unwrap_or(false) {
            continue;
        }
        if let Some(risk) = app.ledger.at_risk(work).await? {
            let last = app.ledger.last_receipt(work).await?;
            items.push(wire::victim(work, &risk, last.as_ref(), now));
        }
    }
    Ok(Json(w::Page { items, unreadable: wire::unreadable(&works.unreadable), next }))
}

/// Computes what recovery would do now with every work item that lost its holder or was set aside because of that.
/// Changes nothing.
#[utoipa::path(post, path = "/v1/recovery/plan", tag = "operator", request_body = w::PlanRecovery,
    security(("token" = ["view"])),
    responses((status = 200, description = "The plan.", body = w::RecoveryPlan), Problems))]
pub(crate) async fn plan(
    State(app): State<Arc<App>>,
    who: Who,
    Body(body): Body<w::PlanRecovery>,
) -> JsonResult<w::RecoveryPlan> {
    let w::PlanRecovery { tenant, kind, worker } = body;
    let plan = who.caller().recovery_plan(&PlanFilter { tenant, kind, worker }).await?;
    let mut rows = Vec::new();
    for planned in &plan.rows {
        let last = app.ledger.last_receipt(&planned.work).await?;
        rows.push(wire::recovery_row(planned, last.as_ref(), plan.at));
    }
    let unreadable = wire::unreadable(&plan.unreadable);
    Ok(Json(w::RecoveryPlan {
        id: plan.id,
        at: wire::at(plan.at),
        rows,
        complete: plan.complete,
        unreadable,
    }))
}

/// Carries out a recovery plan: exactly what it says, or nothing. Each safe row is decided on its own.
#[utoipa::path(post, path = "/v1/recovery/apply", tag = "operator", request_body = w::ApplyRecovery,
    security(("token" = ["operate"])),
    responses((status = 200, description = "What became of the rows.", body = w::RecoveryReport), Problems))]
pub(crate) async fn apply(who: Who, Body(body): Body<w::ApplyRecovery>) -> JsonResult<w::RecoveryReport> {
    let w::ApplyRecovery { plan, tenant, kind, worker, rows, overrides, reason } = body;
    let overrides = overrides.into_iter().map(|other| {
        let instead = match other.verdict {
            w::OverrideVerdict::Quarantine => Some(Instead::Quarantine),
            w::OverrideVerdict::Abandon => Some(Instead::Abandon),
            w::OverrideVerdict::Leave => None,
        };
        Ok(PlanOverride { work: other.work.as_str().parse()?, instead, reason: other.reason })
    });
    let overrides = overrides.collect::<Result<_, Problem>>()?;
    let rows = rows.iter().map(|id| id.as_str().parse()).collect::<Result<_, _>>()?;
    let apply = ApplyPlan { filter: PlanFilter { tenant, kind, worker }, plan, rows, overrides, reason };
    let done = match who.caller().apply_plan(&apply).await? {
        AppliedPlan::Stale(now) => return Err(stale(&now)),
        AppliedPlan::Done(done) => done,
    };
    let mut report =
        w::RecoveryReport { plan: apply.plan, applied: Vec::new(), left: Vec::new(), refused: Vec::new() };
    for (planned, outcome) in done {
        let work = planned.row.work.to_string().into();
        match outcome {
            RowOutcome::Applied(ack) => {
                report.applied.push(w::RecoveredRow {
                    work,
                    state: ack.state.to_wire().into(),
                    seq: ack.seq,
                });
            }
            RowOutcome::Left(because) => report.left.push(w::LeftRow { work, because }),
            RowOutcome::Refused(error) => {
                let problem = Problem::from(error);
                let (code, because) = (problem.code.into(), problem.detail.into_owned());
                report.refused.push(w::RefusedRow { work, code, because });
            }
        }
    }
    Ok(Json(report))
}

/// The problem of a plan that is no longer true, with the rows as they are now.
fn stale(now: &RecoveryPlan) -> Problem {
    let row = |planned: &tenure_store::PlannedRecovery| {
        let row = &planned.row;
        let verdict = row.verdict.map(|verdict| verdict.to_wire());
        json!({ "work": row.work.to_string(), "seq": row.seq, "verdict": verdict, "to": row.to.to_wire() })
    };
    Problem::stale_plan(&now.id, now.rows.iter().map(row).collect())
}
