//! Recovery foretold: the work items that a lost holder puts at risk, and what will be decided about each.

use serde::{Deserialize, Serialize};

use super::{
    Code, CommandId, CommandState, Disposition, Lease, LeaseLiveness, Source, State, Timestamp, Unreadable,
    Word, WorkId, word::words,
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
    /// The actions that recovery may take.
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

/// The work items that a recovery plan covers: those that lost their holder, and those that were set aside because of
/// that. Omitted filters do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanRecovery {
    /// Only work items of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only work items of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only those that this worker holds, or held last before they stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// A recovery plan: the decisions that recovery would take now. Computing it changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecoveryPlan {
    /// The hash of its rows (work item, last event, verdict, resulting state) under the key of this ledger.
    pub id: String,
    /// When it was computed.
    pub at: Timestamp,
    /// At most 500 rows: the newest work items first, and last those that were set aside for a person.
    pub rows: Vec<RecoveryRow>,
    /// False if there are more work items than a plan can have: narrow it by tenant, kind or worker.
    pub complete: bool,
    /// Work items that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

/// The decision that recovery would take now on one work item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecoveryRow {
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
    /// The actions that recovery may take.
    #[cfg_attr(feature = "openapi", schema(value_type = Disposition))]
    pub disposition: Word<Disposition>,
    /// The step that its holder was in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The decision. Absent if a request to cancel decides instead of recovery.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Verdict>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Word<Verdict>>,
    /// The state that follows.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub to: Word<State>,
    /// The completed step after which it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<String>,
    /// The rule that applies, in a sentence.
    pub rule: String,
    /// Whether it is carried out when the plan is applied: the rules allow it now.
    pub safe: bool,
    /// Why it is not carried out now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The lease that ended or is past its grace, and who holds it. Absent after a release or a quarantine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// How certain it is that the holder is alive, as seen from this machine now.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<LeaseLiveness>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Word<LeaseLiveness>>,
    /// The evidence that the holder is dead, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof_of_death: Option<String>,
    /// The last effect that is proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_receipt: Option<LastReceipt>,
    /// The effects that were dispatched and have no receipt: they may have happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub possibly_done: Vec<PossibleEffect>,
    /// The reason of its state: for a work item that was set aside, the report for the person who decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
}

words! {
    /// The action that a person chose for a row of a plan instead of its verdict.
    OverrideVerdict {
        /// It is set aside for a person.
        Quarantine = "quarantine",
        /// It is abandoned once its lease has lapsed.
        Abandon = "abandon",
        /// It is left as it is.
        Leave = "leave",
    }
}

/// Another decision on one row of a plan. Only people may take it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RecoveryOverride {
    /// The work item.
    pub work: WorkId,
    /// The decision.
    pub verdict: OverrideVerdict,
    /// The reason; it is recorded.
    pub reason: String,
}

/// Carries out a recovery plan: exactly what it says, or nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ApplyRecovery {
    /// The plan's id.
    pub plan: String,
    /// The filter that the plan was computed with: only this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The filter that the plan was computed with: only this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The filter that the plan was computed with: only this worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Only these rows; omitted: every row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<WorkId>,
    /// Rows with another decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<RecoveryOverride>,
    /// The reason; it is recorded with each row.
    pub reason: String,
}

/// The results of an applied plan, row by row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecoveryReport {
    /// The plan.
    pub plan: String,
    /// Rows that were carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied: Vec<RecoveredRow>,
    /// Rows with nothing to do now, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftRow>,
    /// Rows that were refused and not changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedRow>,
}

/// A row that was carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecoveredRow {
    /// The work item.
    pub work: WorkId,
    /// Its state now.
    #[cfg_attr(feature = "openapi", schema(value_type = State))]
    pub state: Word<State>,
    /// The number of its last event.
    pub seq: u64,
}

/// A row with nothing to do now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeftRow {
    /// The work item.
    pub work: WorkId,
    /// Why nothing was done.
    pub because: String,
}

/// A row that was refused and not changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusedRow {
    /// The work item.
    pub work: WorkId,
    /// The stable code of the problem.
    #[cfg_attr(feature = "openapi", schema(value_type = Code))]
    pub code: Word<Code>,
    /// The reason, and what to do.
    pub because: String,
}
