//! Schedules, and the records of their changes: who, when and why. Not part of the event-sourced state.
//!
//! The schedules themselves are the core's records; this module adds the identity under which they are stored
//! and the append-only record of changes.

use tenure_core::{
    Actor, Code, Millis, Refusal, limits,
    model::Source,
    policy::Settings,
    schedule::{Act, Plan, SYSTEM, Schedule, Template, Timing},
    work::ingest::well_formed,
};

use crate::{NewWork, zone::Named};

/// The limit on schedules of a ledger.
pub(crate) const SCHEDULES_MAX: usize = 10_000;

/// One change of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleChange {
    /// When it was changed.
    pub at: Millis,
    /// Who changed it.
    pub actor: Actor,
    /// What was done.
    pub act: Act,
    /// Why.
    pub reason: String,
    /// The new plan; None unless the act is `Set`.
    pub plan: Option<Plan>,
}

/// A schedule to be stored, as a person defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSchedule {
    /// The tenant.
    pub tenant: String,
    /// The name, which identifies it within the tenant.
    pub name: String,
    /// When it runs and what it records.
    pub plan: Plan,
    /// None: unchanged; a new schedule is running.
    pub paused: Option<bool>,
}

impl NewSchedule {
    /// Checked as far as possible before a run is due, with the zone's name in its canonical spelling.
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

/// The work item of a run, to be ingested.
pub(crate) fn new_run(tenant: &str, name: &str, template: &Template, run_id: &str) -> NewWork {
    let template = template.clone();
    NewWork {
        tenant: tenant.to_owned(),
        source: Source { system: SYSTEM.to_owned(), id: name.to_owned(), run_id: run_id.to_owned() },
        priority: template.priority,
        title: template.title,
        session: template.session,
        correlation_id: template.correlation_id,
        workflow: template.workflow,
        policy: template.policy,
        ..NewWork::new(SYSTEM, name, &template.kind, template.disposition, template.input)
    }
}

/// The schedules that can be read. A damaged one does not affect the others.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn readable<E: std::fmt::Debug>(found: Vec<Result<Schedule, E>>) -> Vec<Schedule> {
    let told = |error: &E| tracing::warn!(?error, "a schedule cannot be read and is skipped");
    found.into_iter().filter_map(|one| one.inspect_err(told).ok()).collect()
}

/// The identity of a schedule: its tenant and its name.
pub(crate) type Key = (String, String);

pub(crate) fn key(schedule: &Schedule) -> Key {
    (schedule.tenant.clone(), schedule.name.clone())
}
