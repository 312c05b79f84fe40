//! Workers, and how one is drained.

use serde::{Deserialize, Serialize};

use super::{LeaseLiveness, Timestamp, Word, WorkId, word::words};

/// A worker that holds leases or waits for work, as its leases and its open claims show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerView {
    /// The worker's id.
    pub id: String,
    /// The incarnation of that worker.
    pub incarnation: String,
    /// How many leases it holds.
    pub leases: u64,
    /// The liveness of the least certain of its leases.
    #[cfg_attr(feature = "openapi", schema(value_type = LeaseLiveness))]
    pub liveness: Word<LeaseLiveness>,
    /// The basis of the liveness grade, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// The oldest last renewal of its leases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_renewal_at: Option<Timestamp>,
    /// The greatest number of renewals that one of its leases has missed.
    pub missed: u32,
    /// When the first of its leases expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_expiry_at: Option<Timestamp>,
    /// Its claims that wait for work at the daemon that answers. Other daemons on the same database know their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<IdleClaim>,
}

/// A claim that waits for work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IdleClaim {
    /// The kinds that it claims. Absent: any kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// The source systems that it claims. Absent: any source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// The tenants that it claims for, among those of the reader. Absent: all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<String>>,
    /// Since when this claim has waited.
    pub since: Timestamp,
}

words! {
    /// The steps of a drain, in this order.
    Lever {
        /// Nothing new is claimed.
        StopClaiming = "stop_claiming",
        /// Handlers are asked to stop.
        RequestCancel = "request_cancel",
        /// Work that did not stop is released.
        Release = "release",
        /// Owner-bound work that this worker started is given up: nobody else can know how it ended.
        Abandon = "abandon",
        /// Open waits are cancelled.
        RevokeWaits = "revoke_waits",
        /// Decided outcomes are delivered before the process ends.
        Flush = "flush",
    }
}

/// Drains a worker from outside: its holders are asked to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// The reason; it is recorded.
    pub reason: String,
    /// Only this incarnation; omitted: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// From outside, `request_cancel` and `release` ask the holders to stop and release, and `request_cancel` requests a
    /// cancel of started owner-bound work; `abandon` gives up started owner-bound work once its lease lapsed;
    /// `revoke_waits` ends the waits of started owner-bound work that only this worker may continue. The other levers
    /// are available only to the worker itself.
    pub levers: Vec<Lever>,
}

/// A confirmed action of a lever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pulled {
    /// The lever.
    #[cfg_attr(feature = "openapi", schema(value_type = Lever))]
    pub lever: Word<Lever>,
    /// The work item; absent if the action concerns the worker itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
}

/// An action that a lever could not take, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Deferred {
    /// The lever.
    #[cfg_attr(feature = "openapi", schema(value_type = Lever))]
    pub lever: Word<Lever>,
    /// The work item; absent if the action concerns the worker itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// Why it was not done.
    pub because: String,
}

/// The result of a drain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DrainReport {
    /// Actions that are confirmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<Pulled>,
    /// Actions that could not be taken, and why. Nothing is lost: leases expire, and recovery does what the
    /// work items declare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<Deferred>,
}
