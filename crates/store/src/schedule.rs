//! Schedules beside the event-sourced state, and what was done to them: who, when and why.
//!
//! They are the core's records; here they get an identity to be kept under and a trail that is only added to.

use tenure_core::{
    Actor, Code, Millis, Refusal, limits,
    model::Source,
    policy::Settings,
    schedule::{Act, Plan, SYSTEM, Schedule, Template, Timing},
    work::ingest::well_formed,
};

use crate::{NewWork, zone::Named};

/// Schedules of a ledger; nobody needs more.
pub(crate) const SCHEDULES_MAX: usize = 10_000;

/// What somebody did to a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleChange {
    pub at: Millis,
    pub actor: Actor,
    pub act: Act,
    pub reason: String,
    /// What it was set to; None for every other act.
    pub plan: Option<Plan>,
}

/// A schedule to be kept: what a person decides about it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSchedule {
    pub tenant: String,
    pub name: String,
    pub plan: Plan,
    /// None: as it is; a new one runs.
    pub paused: Option<bool>,
}

impl NewSchedule {
    /// Checked as far as it can be before a run comes, with the zone spelt as its list does.
    pub(crate) fn settle(mut self, settings: &Settings) -> Result<(Self, Named), Refusal> {
        limits::name("tenant", &self.tenant)?;
        limits::name("name", &self.name)?;
        if self.name.contains('/') {
            let detail = "`name` has a slash; names stand in addresses. Use dots or dashes.";
            return Err(Refusal::new(Code::Invalid, detail));
        }
        self.plan.check()?;
        let found = Named::of(&self.plan.timing)?;
        if let Timing::Cron { zone, .. } = &mut self.plan.timing {
            found.name().clone_into(zone);
        }
        let run = new_run(&self.tenant, &self.name, &self.plan.template, "a run");
        well_formed(&run.settle(settings)?)?;
        Ok((self, found))
    }
}

/// A run, as it is ingested.
pub(crate) fn new_run(tenant: &str, name: &str, template: &Template, run_id: &str) -> NewWork {
    let template = template.clone();
    NewWork {
        tenant: tenant.to_owned(),
        source: Source { system: SYSTEM.to_owned(), id: name.to_owned(), run_id: run_id.to_owned() },
        priority: template.priority,
        session: template.session,
        correlation_id: template.correlation_id,
        workflow: template.workflow,
        policy: template.policy,
        ..NewWork::new(SYSTEM, name, &template.kind, template.disposition, template.input)
    }
}

/// Those that can be read. A damaged one costs the others nothing.
pub(crate) fn readable<E: std::fmt::Debug>(found: Vec<Result<Schedule, E>>) -> Vec<Schedule> {
    let told = |error: &E| tracing::warn!(?error, "a schedule cannot be read, and is passed over");
    found.into_iter().filter_map(|one| one.inspect_err(told).ok()).collect()
}

/// What identifies a schedule: its tenant and its name.
pub(crate) type Key = (String, String);

pub(crate) fn key(schedule: &Schedule) -> Key {
    (schedule.tenant.clone(), schedule.name.clone())
}
