//! Recovery foretold: the work items that a lost holder puts at risk, and what will be decided about each.

use serde::{Deserialize, Serialize};

use super::{
    CommandId, CommandState, Disposition, Lease, Source, State, Timestamp, Word, WorkId, word::words,
};

words! {
    /// The decision of recovery on a work item whose holder is lost.
    Verdict {
        /// Queued again from its beginning.
        Retry = "retry",
        /// Queued again after its last completed step.
        Resume = "resume",
        /// Stalled until a lookup says whether its commands in doubt happened.
        Reconcile = "reconcile",
        /// Set aside for a person.
        Quarantine = "quarantine",
        /// Ended as `abandoned`: its outcome cannot be known.
        Abandon = "abandon",
        /// Stalled until its holder returns, its death is proven, or a person asks to abandon it.
        Leave = "leave",
        /// Ended as `failed`: its failures are exhausted.
        Fail = "fail",
        /// Ended as `timed_out`, as it declared for a lost holder.
        TimeOut = "time_out",
    }
}

/// What follows if the holder stays silent. It is the decision of the ledger's own rules over the stored records, made
/// for the time at which it would be due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Forecast {
    /// When it is decided. Absent: only news decides it, such as a proof of death, a lookup or a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    /// Absent if a deadline or a request to cancel decides instead of recovery.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Verdict>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Word<Verdict>>,
    /// The state that follows.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// The completed step after which it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<String>,
    /// The commands of which nobody would know whether they took effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<DoubtedCommand>,
    /// All of it in one sentence.
    pub sentence: String,
}

/// A command that would be in doubt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DoubtedCommand {
    /// The command.
    pub id: CommandId,
    /// Its tool.
    pub tool: String,
    /// Its target.
    pub target: String,
}

/// A work item that its holder's death, a restart or an outage puts at risk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Victim {
    /// The work item.
    pub work: WorkId,
    /// The number of its last event.
    pub seq: u64,
    /// One line for people.
    pub title: String,
    /// Its source.
    pub source: Source,
    /// Its kind.
    pub kind: String,
    /// Its tenant.
    pub tenant: String,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Its state.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// What recovery may do.
    #[cfg_attr(feature = "openapi", schema(value_type = Disposition))]
    pub disposition: Word<Disposition>,
    /// The step that its holder is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The holder and its lease. Absent if the lease has ended and the item is stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// The last effect that is proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_receipt: Option<LastReceipt>,
    /// The effects that were dispatched and have no receipt: they may have happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub possibly_done: Vec<PossibleEffect>,
    /// What follows if the holder stays silent.
    pub if_silent: Forecast,
}

/// The last effect of a work item that is proven.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LastReceipt {
    /// The command.
    pub command: CommandId,
    /// Its tool.
    pub tool: String,
    /// Its target.
    pub target: String,
    /// When the receipt was recorded.
    pub at: Timestamp,
    /// The provider's id for the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
}

/// An effect that may have happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PossibleEffect {
    /// The command.
    pub command: CommandId,
    /// Its tool.
    pub tool: String,
    /// Its target.
    pub target: String,
    /// `dispatched` or `uncertain`.
    #[cfg_attr(feature = "openapi", schema(value_type = CommandState))]
    pub state: Word<CommandState>,
    /// When it was dispatched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched_at: Option<Timestamp>,
}

/// Which held work items to list, newest first. Omitted filters do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct VictimQuery {
    /// Only those that this worker holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Only work items of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only work items of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Also those whose holder is alive: default false, which lists only holders that missed a renewal or lapsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive: Option<bool>,
    /// The `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// How many held work items to look at, from 1 to 1,000; default 50. A page may hold fewer.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
