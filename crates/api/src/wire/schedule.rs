//! Schedules: work items that are recorded at given times. Every change carries a reason, which is recorded.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Actor, Code, Disposition, Timestamp, Word, WorkId, WorkPolicy, Workflow, word::words};

words! {
    /// How a run is treated if the work item of the last run is still open.
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
        /// The work item of the last run was still open.
        Overlap = "overlap",
        /// It was noticed later than `catch_up_ms` allows.
        Late = "late",
    }
}

words! {
    /// The outcome of a run.
    RunOutcome {
        /// It became a work item.
        Ingested = "ingested",
        /// The ledger refused it.
        Refused = "refused",
    }
}

words! {
    /// The kind of a change to a schedule.
    ScheduleAct {
        /// It was created or replaced.
        Set = "set",
        /// It was paused.
        Pause = "pause",
        /// It was resumed.
        Resume = "resume",
        /// It was run outside its due times.
        Run = "run",
        /// It was deleted.
        Delete = "delete",
    }
}

/// The work item that a run ingests, without a source: the scheduler is the source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The kind of every run's work item.
    pub kind: String,
    /// The title of every run's work item, one line for people; the schedule's name without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The recovery contract for the case that the worker is lost.
    pub disposition: Disposition,
    /// The input for the worker, any JSON.
    pub input: Value,
    /// Lower is claimed first; default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// The session of every run's work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The correlation id of every run's work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The workflow of every run's work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// The retry policy, lease timings and timeouts of every run's work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<WorkPolicy>,
}

/// Creates or replaces a schedule: `cron` or `every_ms`, and the work item that each run ingests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetSchedule {
    /// The reason; it is recorded.
    pub reason: String,
    /// A tenant of the credential; optional if the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// A cron expression with five fields: minute, hour, day of month, month, day of week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The IANA name of the time zone of `cron`; default UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Runs whenever the time since the Unix epoch is a multiple of it; at least one second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// The work item that each run ingests.
    pub template: Template,
    /// Default `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// How late a run may still be fired; default one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_ms: Option<u64>,
    /// Whether the schedule is paused. Omitted: unchanged; a new schedule is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// Pauses or resumes a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PauseSchedule {
    /// The reason; it is recorded.
    pub reason: String,
    /// The schedule's tenant; optional if the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Runs a schedule now, outside its due times. Repeating the `request_id` is the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunSchedule {
    /// The reason; it is recorded.
    pub reason: String,
    /// Identifies the run.
    pub request_id: String,
    /// The schedule's tenant; optional if the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Why a schedule is deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct DeleteSchedule {
    /// The reason; it is recorded.
    pub reason: String,
    /// The schedule's tenant; optional if the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// The tenant of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ScheduleGet {
    /// The schedule's tenant; optional if the credential has only one.
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
    /// The `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// From 1 to 1,000; default 50.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// The work item that a run ingests, in responses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TemplateView {
    /// The kind of every run's work item.
    pub kind: String,
    /// The title of every run's work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The recovery contract for the case that the worker is lost.
    #[cfg_attr(feature = "openapi", schema(value_type = Disposition))]
    pub disposition: Word<Disposition>,
    /// The input; returned only with the `payload` scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Lower is claimed first.
    pub priority: i16,
    /// The session of every run's work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The correlation id of every run's work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The workflow of every run's work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// The retry policy, lease timings and timeouts of every run's work item.
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
    /// The work item that it became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
}

/// The last run that was skipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleSkip {
    /// When it was due.
    pub due_at: Timestamp,
    /// When it was skipped.
    pub at: Timestamp,
    /// The reason.
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

/// A change to a schedule: who, when and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleChange {
    /// When.
    pub at: Timestamp,
    /// The actor.
    pub actor: Actor,
    /// The kind of change.
    #[cfg_attr(feature = "openapi", schema(value_type = ScheduleAct))]
    pub act: Word<ScheduleAct>,
    /// The reason.
    pub reason: String,
}

/// A schedule: records work items by cron or at an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedule {
    /// Its name, unique in its tenant.
    pub name: String,
    /// Its tenant.
    pub tenant: String,
    /// The cron expression: minute, hour, day of month, month, day of week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The time zone of `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// The work item that each run ingests.
    pub template: TemplateView,
    /// How a run is treated if the work item of the last one is open.
    #[cfg_attr(feature = "openapi", schema(value_type = Overlap))]
    pub overlap: Word<Overlap>,
    /// How late a run may still be fired.
    pub catch_up_ms: u64,
    /// Whether it is paused.
    pub paused: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// When a person changed it last.
    pub updated_at: Timestamp,
    /// The next due time; absent while it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// The next five due times, `next_at` first.
    #[serde(default)]
    pub upcoming: Vec<Timestamp>,
    /// Runs that were ingested.
    pub fired: u64,
    /// Runs that were skipped.
    pub skipped: u64,
    /// The last run that fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<ScheduleRun>,
    /// The last run that was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skip: Option<ScheduleSkip>,
    /// Why the last run was refused; absent once a run is ingested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ScheduleError>,
    /// Its changes, newest first; only when a single schedule is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ScheduleChange>,
}
