//! Schedules: when the next run is due, which runs are fired, and which are skipped.
//!
//! A schedule is not a work item and has no events: a fired run is an ordinary ingest, whose identity (the
//! schedule's name and the due time) makes it one work item however many processes fire it. Stores keep
//! schedules; only these functions change them.

mod calendar;
mod cron;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use calendar::rfc3339;
pub use cron::{Cron, Moments, Zone};

use crate::{
    Millis, WorkId, limits,
    model::{Disposition, Workflow},
    policy::PolicyOverrides,
    refusal::{Code, Refusal},
};

/// The source system of every run.
pub const SYSTEM: &str = "scheduler";
/// The default of `catch_up_ms`, for which late runs are still fired: one hour.
pub const CATCH_UP_MS: u64 = 3_600_000;
/// The maximum of `catch_up_ms`: thirty days.
pub const CATCH_UP_MAX_MS: u64 = 30 * 24 * 3_600_000;
/// The minimum interval, because schedulers look every second.
pub const EVERY_MIN_MS: u64 = 1_000;
/// How many runs one look fires, and how many it judges, at most. The next look continues.
const FIRES_MAX: usize = 100;
const JUDGED_MAX: usize = 10_000;

/// The due times of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Timing {
    /// By local time in a zone with this IANA name.
    Cron { cron: Cron, zone: String },
    /// Whenever the time since the Unix epoch is a multiple of it.
    EveryMs(u64),
}

impl Timing {
    pub fn check(&self) -> Result<(), Refusal> {
        match self {
            Timing::Cron { cron, .. } => limits::name("cron", cron.text()),
            Timing::EveryMs(ms) if *ms < EVERY_MIN_MS => Err(Refusal::new(
                Code::ImpossibleTimings,
                format!(
                    "`every_ms` is {ms}; a schedule runs at most once a second. Give {EVERY_MIN_MS} or more."
                ),
            )),
            Timing::EveryMs(ms) => limits::duration("every_ms", *ms),
        }
    }

    /// The first due time after a moment. `zone` is the plan's time zone.
    pub fn after(&self, zone: &dyn Zone, after: Millis) -> Option<Millis> {
        match self {
            Timing::Cron { cron, .. } => cron.after(zone, after),
            Timing::EveryMs(ms) => {
                let ms = *ms as Millis;
                Some((after.div_euclid(ms) + 1) * ms)
            }
        }
    }
}

/// How a run is treated if the work item of the last run is still open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    Allow,
    #[default]
    Skip,
}

/// The work item that a run ingests, without a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    pub kind: String,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub disposition: Disposition,
    pub input: Value,
    pub priority: i16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    #[serde(default)]
    pub policy: PolicyOverrides,
}

/// The settings of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub timing: Timing,
    pub template: Template,
    pub overlap: Overlap,
    pub catch_up_ms: u64,
}

impl Plan {
    pub fn check(&self) -> Result<(), Refusal> {
        self.timing.check()?;
        if self.catch_up_ms > CATCH_UP_MAX_MS {
            return Err(Refusal::new(
                Code::ImpossibleTimings,
                format!(
                    "`catch_up_ms` is {}; at most thirty days are allowed. Give {CATCH_UP_MAX_MS} or less.",
                    self.catch_up_ms
                ),
            ));
        }
        Ok(())
    }
}

/// A run that is to be ingested: decided, and not known to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    pub run_id: String,
    pub due_at: Millis,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RunOutcome {
    Ingested(WorkId),
    Refused(Code),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub run_id: String,
    pub due_at: Millis,
    /// When it was ingested, or refused.
    pub at: Millis,
    pub outcome: RunOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The work item of the last run was still open.
    Overlap,
    /// It was noticed later than `catch_up_ms` allows.
    Late,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    pub due_at: Millis,
    pub at: Millis,
    pub reason: SkipReason,
}

/// Why a run was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunError {
    pub run_id: String,
    pub at: Millis,
    pub code: Code,
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    pub tenant: String,
    pub name: String,
    pub plan: Plan,
    pub paused: bool,
    /// Incremented by every change: a save with any revision but the next has missed a change.
    pub revision: u64,
    pub created_at: Millis,
    /// When a person changed it last.
    pub updated_at: Millis,
    /// None while it is paused.
    pub next_at: Option<Millis>,
    pub pending: Vec<Pending>,
    pub fired: u64,
    pub skipped: u64,
    pub last_run: Option<Run>,
    pub last_skip: Option<Skip>,
    /// Why the last run was refused; cleared once a run is ingested.
    pub last_error: Option<RunError>,
}

impl Schedule {
    /// A new schedule: its first run is the next due time of its plan.
    pub fn new(tenant: &str, name: &str, plan: Plan, zone: &dyn Zone, now: Millis) -> Self {
        Self {
            tenant: tenant.to_owned(),
            name: name.to_owned(),
            next_at: plan.timing.after(zone, now),
            plan,
            paused: false,
            revision: 1,
            created_at: now,
            updated_at: now,
            pending: Vec::new(),
            fired: 0,
            skipped: 0,
            last_run: None,
            last_skip: None,
            last_error: None,
        }
    }

    /// When it must be looked at; at once if a run was decided and not finished.
    pub fn due_at(&self) -> Option<Millis> {
        self.pending.iter().map(|pending| pending.due_at).chain(self.next_at).min()
    }

    /// The work item by which an overlap is judged.
    pub fn last_work(&self) -> Option<WorkId> {
        match self.last_run.as_ref()?.outcome {
            RunOutcome::Ingested(work) => Some(work),
            RunOutcome::Refused(_) => None,
        }
    }

    /// Changes the plan. Runs that were due under the old plan and not noticed yet are dropped.
    #[must_use]
    pub fn with_plan(&self, plan: Plan, zone: &dyn Zone, now: Millis) -> Self {
        let next_at = if self.paused {
            None
        } else if plan.timing == self.plan.timing {
            self.next_at
        } else {
            plan.timing.after(zone, now)
        };
        Self { plan, next_at, updated_at: now, ..self.next() }
    }

    /// Pauses or resumes it. Runs that were due during the pause are not caught up.
    #[must_use]
    pub fn with_paused(&self, paused: bool, zone: &dyn Zone, now: Millis) -> Self {
        let next_at = if paused { None } else { self.plan.timing.after(zone, now) };
        Self { paused, next_at, updated_at: now, ..self.next() }
    }

    /// Decides on every run that is due: fires or skips it. `open`: the last run's work item has not ended.
    #[must_use]
    pub fn looked_at(&self, zone: &dyn Zone, mut open: bool, now: Millis) -> Self {
        let mut next = self.next();
        for _ in 0..JUDGED_MAX {
            let Some(due_at) = next.next_at.filter(|due| *due <= now) else { break };
            if next.pending.len() == FIRES_MAX {
                break;
            }
            if now - due_at > self.plan.catch_up_ms as Millis {
                next.skip(due_at, SkipReason::Late, now);
            } else if open && self.plan.overlap == Overlap::Skip {
                next.skip(due_at, SkipReason::Overlap, now);
            } else {
                next.pending.push(Pending { run_id: rfc3339(due_at), due_at });
                open = true;
            }
            next.next_at = self.plan.timing.after(zone, due_at);
        }
        next
    }

    /// A run that a person requests, outside the due times.
    #[must_use]
    pub fn with_run(&self, run_id: String, now: Millis) -> Self {
        let mut next = self.next();
        next.pending.push(Pending { run_id, due_at: now });
        next
    }

    /// The outcomes of the pending runs, in their order.
    #[must_use]
    pub fn ran(&self, outcomes: Vec<Result<WorkId, Refusal>>, now: Millis) -> Self {
        let mut next = self.next();
        for (Pending { run_id, due_at }, outcome) in next.pending.drain(..).zip(outcomes) {
            let outcome = match outcome {
                Ok(work) => {
                    next.fired += 1;
                    next.last_error = None;
                    RunOutcome::Ingested(work)
                }
                Err(Refusal { code, detail, .. }) => {
                    next.last_error = Some(RunError { run_id: run_id.clone(), at: now, code, detail });
                    RunOutcome::Refused(code)
                }
            };
            next.last_run = Some(Run { run_id, due_at, at: now, outcome });
        }
        next
    }

    fn next(&self) -> Self {
        Self { revision: self.revision + 1, ..self.clone() }
    }

    fn skip(&mut self, due_at: Millis, reason: SkipReason, at: Millis) {
        self.skipped += 1;
        self.last_skip = Some(Skip { due_at, at, reason });
    }
}

/// The kind of a change to a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    Set,
    Pause,
    Resume,
    Run,
    Delete,
}

#[cfg(test)]
mod tests;
