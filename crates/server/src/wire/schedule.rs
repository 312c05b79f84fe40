//! Schedules on the wire.

use tenure_api::wire as w;
use tenure_core::{
    Millis, Refusal,
    policy::{PolicyOverrides, WorkPolicy},
    schedule::{CATCH_UP_MS, Cron, Overlap, Plan, RunOutcome, Schedule, Template, Timing},
};
use tenure_store::{NewSchedule, ScheduleChange};

use super::{ToCore, ToWire, actor, at, given::overrides};
use crate::http::Problem;

/// `source`: the scheduler's policy, which completes a partial retry policy.
pub(crate) fn new_schedule(
    name: String,
    tenant: String,
    set: w::SetSchedule,
    source: &WorkPolicy,
) -> Result<NewSchedule, Problem> {
    let timing = match (set.cron, set.every_ms, set.zone) {
        (Some(cron), None, zone) => {
            Timing::Cron { cron: Cron::parse(&cron)?, zone: zone.unwrap_or_else(|| "UTC".to_owned()) }
        }
        (None, Some(ms), None) => Timing::EveryMs(ms),
        (None, Some(_), Some(_)) => {
            return Err(Problem::invalid("`every_ms` has no time zone. Leave out `zone`, or give `cron`."));
        }
        (Some(_), Some(_), _) | (None, None, _) => {
            return Err(Problem::invalid("A schedule has either `cron` or `every_ms`. Give one of them."));
        }
    };
    let plan = Plan {
        timing,
        template: template(set.template, source),
        overlap: set.overlap.map_or_else(Overlap::default, ToCore::to_core),
        catch_up_ms: set.catch_up_ms.unwrap_or(CATCH_UP_MS),
    };
    Ok(NewSchedule { tenant, name, plan, paused: set.paused })
}

fn template(template: w::Template, source: &WorkPolicy) -> Template {
    Template {
        kind: template.kind,
        title: template.title,
        disposition: template.disposition.to_core(),
        input: template.input,
        priority: template.priority.unwrap_or(3),
        session: template.session,
        correlation_id: template.correlation_id,
        workflow: template.workflow.map(super::given::workflow),
        policy: template.policy.map(|policy| overrides(policy, source)).unwrap_or_default(),
    }
}

/// `payloads`: whether the caller may see the input.
pub(crate) fn schedule(schedule: &Schedule, upcoming: &[Millis], payloads: bool) -> w::Schedule {
    let (cron, zone, every_ms) = match &schedule.plan.timing {
        Timing::Cron { cron, zone } => (Some(cron.text().to_owned()), Some(zone.clone()), None),
        Timing::EveryMs(ms) => (None, None, Some(*ms)),
    };
    w::Schedule {
        name: schedule.name.clone(),
        tenant: schedule.tenant.clone(),
        cron,
        zone,
        every_ms,
        template: template_view(&schedule.plan.template, payloads),
        overlap: schedule.plan.overlap.to_wire().into(),
        catch_up_ms: schedule.plan.catch_up_ms,
        paused: schedule.paused,
        created_at: at(schedule.created_at),
        updated_at: at(schedule.updated_at),
        next_at: schedule.next_at.map(at),
        upcoming: upcoming.iter().copied().map(at).collect(),
        fired: schedule.fired,
        skipped: schedule.skipped,
        last_run: schedule.last_run.as_ref().map(|run| w::ScheduleRun {
            run_id: run.run_id.clone(),
            due_at: at(run.due_at),
            at: at(run.at),
            outcome: match run.outcome {
                RunOutcome::Ingested(_) => w::RunOutcome::Ingested.into(),
                RunOutcome::Refused(_) => w::RunOutcome::Refused.into(),
            },
            work: schedule.last_work().map(|id| id.to_string().into()),
        }),
        last_skip: schedule.last_skip.as_ref().map(|skip| w::ScheduleSkip {
            due_at: at(skip.due_at),
            at: at(skip.at),
            reason: skip.reason.to_wire().into(),
        }),
        last_error: schedule.last_error.as_ref().map(|error| w::ScheduleError {
            run_id: error.run_id.clone(),
            at: at(error.at),
            code: Problem::from(Refusal::new(error.code, error.detail.clone())).code.into(),
            detail: error.detail.clone(),
        }),
        changes: Vec::new(),
    }
}

fn template_view(template: &Template, payloads: bool) -> w::TemplateView {
    w::TemplateView {
        kind: template.kind.clone(),
        title: template.title.clone(),
        disposition: template.disposition.to_wire().into(),
        input: payloads.then(|| template.input.clone()),
        priority: template.priority,
        session: template.session.clone(),
        correlation_id: template.correlation_id.clone(),
        workflow: template
            .workflow
            .as_ref()
            .map(|flow| w::Workflow { id: flow.id.clone(), version: flow.version.clone() }),
        policy: (template.policy != PolicyOverrides::default()).then(|| policy(&template.policy)),
    }
}

fn policy(policy: &PolicyOverrides) -> w::WorkPolicy {
    w::WorkPolicy {
        retry: policy.retry.map(|retry| w::RetryPolicy {
            max_attempts: Some(retry.max_attempts),
            initial_ms: Some(retry.initial_ms),
            multiplier: Some(f64::from(retry.multiplier_permille) / 1_000.0),
            max_ms: Some(retry.max_ms),
            jitter: Some(retry.jitter.to_wire()),
        }),
        lease: policy.lease.map(|lease| w::LeaseTimings {
            ttl_ms: lease.ttl_ms,
            renew_ms: lease.renew_ms,
            grace_ms: lease.grace_ms,
        }),
        timeouts: policy.timeouts.map(|timeouts| w::Timeouts {
            start_ms: timeouts.start_ms,
            execution_ms: timeouts.execution_ms,
            overall_ms: timeouts.overall_ms,
        }),
        on_expiry: policy.on_expiry.map(ToWire::to_wire),
    }
}

pub(crate) fn schedule_change(change: &ScheduleChange) -> w::ScheduleChange {
    w::ScheduleChange {
        at: at(change.at),
        actor: actor(&change.actor),
        act: change.act.to_wire().into(),
        reason: change.reason.clone(),
    }
}
