//! Work items that do not progress, by cause.

use serde::{Deserialize, Serialize};

use super::{CommandId, State, Timestamp, WaitId, Word, WorkId, word::words};

words! {
    /// Why a work item does not progress: the first that applies, in this order.
    StuckCause {
        /// Nobody knows whether one of its commands took effect.
        InDoubt = "in_doubt",
        /// Set aside after it lost several holders in a row, or failed several times in the same way.
        Poison = "poison",
        /// It waits for a work item that waits for it.
        CircularWait = "circular_wait",
        /// It waits for an answer that nobody is expected to give.
        UnansweredWait = "unanswered_wait",
        /// Its lease expired, and nobody else may go on.
        LeaseLost = "lease_lost",
        /// Its retry is overdue.
        RetryOverdue = "retry_overdue",
        /// Its holder renews and shows nothing else.
        Spinning = "spinning",
        /// It could be claimed, and no worker claims it.
        NoWorker = "no_worker",
    }
}

/// The work items that do not progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stuck {
    /// When they were looked for.
    pub checked_at: Timestamp,
    /// How many work items are open.
    pub open: u64,
    /// How long ago this daemon's sweeper finished a pass. Absent: it has no sweeper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept_ms_ago: Option<u64>,
    /// False if there were more candidates than one call reads: then the counts are lower bounds.
    pub complete: bool,
    /// One for each cause that was found.
    pub groups: Vec<StuckGroup>,
}

/// The work items that one cause stops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StuckGroup {
    /// The cause.
    #[cfg_attr(feature = "openapi", schema(value_type = StuckCause))]
    pub cause: Word<StuckCause>,
    /// How many there are.
    pub works: u64,
    /// Since when the oldest of them has been stuck.
    pub oldest_at: Timestamp,
    /// The safe action.
    pub action: String,
    /// The oldest of them, oldest first.
    pub items: Vec<StuckWork>,
}

/// A work item that does not progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StuckWork {
    /// The work item.
    pub work: WorkId,
    /// One line for people.
    pub title: String,
    /// Its kind.
    pub kind: String,
    /// Its tenant.
    pub tenant: String,
    /// Its state.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// Since when it has been stuck.
    pub since: Timestamp,
    /// The facts that support the cause.
    pub evidence: Vec<StuckFact>,
    /// A complete command line.
    pub next: String,
}

/// A fact, with the ids that it names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StuckFact {
    /// The fact, for people.
    pub text: String,
    /// The work items that it names; of a circle, in the order of their waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub works: Vec<WorkId>,
    /// The wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitId>,
    /// The command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandId>,
    /// The worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// Which stuck work items to show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct StuckQuery {
    /// Only work items of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The limit on items that are shown of each cause, from 1 to 1,000; default 20.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
