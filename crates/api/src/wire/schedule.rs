//! Schedules: works that come by themselves. Every change carries a reason, which is kept.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Actor, Code, Disposition, Timestamp, Word, WorkId, WorkPolicy, Workflow, word::words};

words! {
    /// What happens to a run that is due while the work of the last one is still open.
    Overlap {
        /// The run is fired.
        Allow = "allow",
        /// The run is skipped.
        Skip = "skip",
    }
}

words! {
    /// Why a run was not fired.
    SkipReason {
        /// The last run's work was still open.
        Overlap = "overlap",
        /// It was found later than `catch_up_ms` allows.
        Late = "late",
    }
}

words! {
    /// What became of a run.
    RunOutcome {
        /// It became a work.
        Ingested = "ingested",
        /// The ledger refused it.
        Refused = "refused",
    }
}

words! {
    /// What was done to a schedule.
    ScheduleAct {
        /// It was made, or replaced.
        Set = "set",
        /// It was stopped.
        Pause = "pause",
        /// It was started again.
        Resume = "resume",
        /// It was run beside its due times.
        Run = "run",
        /// It was deleted.
        Delete = "delete",
    }
}

/// What a run ingests: a work without its source, which is the scheduler's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// What kind of work a run is.
    pub kind: String,
    /// What may be done when its worker is lost.
    pub disposition: Disposition,
    /// What the worker needs, any JSON.
    pub input: Value,
    /// Lower comes first; 3 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// The session of every run's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The correlation id of every run's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The workflow that every run's work is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// How every run's work is treated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<WorkPolicy>,
}

/// A schedule to be made, or replaced: `cron` or `every_ms`, and what each run ingests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetSchedule {
    /// Why. It is kept.
    pub reason: String,
    /// One of the credential's; may be left out where it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Five fields: minute, hour, day of month, month, day of week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Whose clocks `cron` goes by, named as the IANA does; UTC unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Whenever the time since 1970 began is a multiple of it; a second or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// What each run ingests.
    pub template: Template,
    /// Skip unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// How late a run may still be fired; an hour unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_ms: Option<u64>,
    /// Left out: as it is. A new one runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// Stops a schedule, or starts it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PauseSchedule {
    /// Why. It is kept.
    pub reason: String,
    /// The schedule's tenant; may be left out where the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Runs a schedule now, beside its due times. The same `request_id` again is the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunSchedule {
    /// Why. It is kept.
    pub reason: String,
    /// Names the run.
    pub request_id: String,
    /// The schedule's tenant; may be left out where the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Why a schedule is deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct DeleteSchedule {
    /// Why. It is kept.
    pub reason: String,
    /// The schedule's tenant; may be left out where the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Whose schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ScheduleGet {
    /// The schedule's tenant; may be left out where the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Which schedules to list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ScheduleQuery {
    /// Only schedules of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// From 1 to 1,000; 50 unless told otherwise.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// What a run ingests, as readers see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TemplateView {
    /// What kind of work a run is.
    pub kind: String,
    /// What may be done when its worker is lost.
    #[cfg_attr(feature = "openapi", schema(value_type = Disposition))]
    pub disposition: Word<Disposition>,
    /// Only with the scope `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Lower comes first.
    pub priority: i16,
    /// The session of every run's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The correlation id of every run's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The workflow that every run's work is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// How every run's work is treated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<WorkPolicy>,
}

/// The last run that fired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleRun {
    /// The `run_id` of its work's source.
    pub run_id: String,
    /// When it was due.
    pub due_at: Timestamp,
    /// When it was ingested, or refused.
    pub at: Timestamp,
    /// Whether it was ingested.
    #[cfg_attr(feature = "openapi", schema(value_type = RunOutcome))]
    pub outcome: Word<RunOutcome>,
    /// The work that it became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
}

/// The last run that was passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleSkip {
    /// When it was due.
    pub due_at: Timestamp,
    /// When it was passed over.
    pub at: Timestamp,
    /// Why.
    #[cfg_attr(feature = "openapi", schema(value_type = SkipReason))]
    pub reason: Word<SkipReason>,
}

/// Why the last run was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleError {
    /// The run that was refused.
    pub run_id: String,
    /// When it was refused.
    pub at: Timestamp,
    /// Why, as a problem's code.
    #[cfg_attr(feature = "openapi", schema(value_type = Code))]
    pub code: Word<Code>,
    /// Why, and what to do.
    pub detail: String,
}

/// Who did what to a schedule, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleChange {
    /// When.
    pub at: Timestamp,
    /// Who did it.
    pub actor: Actor,
    /// What was done.
    #[cfg_attr(feature = "openapi", schema(value_type = ScheduleAct))]
    pub act: Word<ScheduleAct>,
    /// Why.
    pub reason: String,
}

/// Works that come by themselves, by cron or at an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedule {
    /// Its name, unique in its tenant.
    pub name: String,
    /// Its tenant.
    pub tenant: String,
    /// When it runs: minute, hour, day of month, month, day of week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The time zone that `cron` goes by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// How often it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// What each run ingests.
    pub template: TemplateView,
    /// What happens to a run while the work of the last one is open.
    #[cfg_attr(feature = "openapi", schema(value_type = Overlap))]
    pub overlap: Word<Overlap>,
    /// How late a run may still be fired.
    pub catch_up_ms: u64,
    /// Whether it is stopped.
    pub paused: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When a person changed it last.
    pub updated_at: Timestamp,
    /// When it runs next; absent while it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// The next five due times, `next_at` first.
    #[serde(default)]
    pub upcoming: Vec<Timestamp>,
    /// Runs that were ingested.
    pub fired: u64,
    /// Runs that were passed over.
    pub skipped: u64,
    /// The last run that fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<ScheduleRun>,
    /// The last run that was passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skip: Option<ScheduleSkip>,
    /// Gone once a run is ingested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ScheduleError>,
    /// What was done to it, newest first; only where one schedule is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ScheduleChange>,
}
