//! Schedules: works that come by themselves. Every change carries a reason, which is kept.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Actor, Code, Disposition, Policy, Timestamp, Word, WorkId, Workflow, word::words};

words! {
    /// What happens to a run that is due while the work of the last one is still open.
    Overlap {
        Allow = "allow",
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
        Ingested = "ingested",
        Refused = "refused",
    }
}

words! {
    /// What was done to a schedule.
    ScheduleAct {
        Set = "set",
        Pause = "pause",
        Resume = "resume",
        Run = "run",
        Delete = "delete",
    }
}

/// What a run ingests: a work without its source, which is the scheduler's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Template {
    pub kind: String,
    pub disposition: Disposition,
    pub input: Value,
    /// Lower comes first; 3 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
}

/// A schedule to be made, or replaced: `cron` or `every_ms`, and what each run ingests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetSchedule {
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
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Runs a schedule now, beside its due times. The same `request_id` again is the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunSchedule {
    pub reason: String,
    pub request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Why a schedule is deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct DeleteSchedule {
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Whose schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ScheduleGet {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Which schedules to list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ScheduleQuery {
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
    pub kind: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Disposition))]
    pub disposition: Word<Disposition>,
    /// Only with the scope `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    pub priority: i16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
}

/// The last run that fired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleRun {
    /// The `run_id` of its work's source.
    pub run_id: String,
    pub due_at: Timestamp,
    /// When it was ingested, or refused.
    pub at: Timestamp,
    #[cfg_attr(feature = "openapi", schema(value_type = RunOutcome))]
    pub outcome: Word<RunOutcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
}

/// The last run that was passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleSkip {
    pub due_at: Timestamp,
    pub at: Timestamp,
    #[cfg_attr(feature = "openapi", schema(value_type = SkipReason))]
    pub reason: Word<SkipReason>,
}

/// Why the last run was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleError {
    pub run_id: String,
    pub at: Timestamp,
    #[cfg_attr(feature = "openapi", schema(value_type = Code))]
    pub code: Word<Code>,
    pub detail: String,
}

/// Who did what to a schedule, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleChange {
    pub at: Timestamp,
    pub actor: Actor,
    #[cfg_attr(feature = "openapi", schema(value_type = ScheduleAct))]
    pub act: Word<ScheduleAct>,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedule {
    pub name: String,
    pub tenant: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    pub template: TemplateView,
    #[cfg_attr(feature = "openapi", schema(value_type = Overlap))]
    pub overlap: Word<Overlap>,
    pub catch_up_ms: u64,
    pub paused: bool,
    pub created_at: Timestamp,
    /// When a person changed it last.
    pub updated_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// The next five due times, `next_at` first.
    #[serde(default)]
    pub upcoming: Vec<Timestamp>,
    /// Runs that were ingested.
    pub fired: u64,
    /// Runs that were passed over.
    pub skipped: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<ScheduleRun>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skip: Option<ScheduleSkip>,
    /// Gone once a run is ingested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ScheduleError>,
    /// What was done to it, newest first; only where one schedule is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ScheduleChange>,
}
