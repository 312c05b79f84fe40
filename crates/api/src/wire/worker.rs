//! Workers, and how one is drained.

use serde::{Deserialize, Serialize};

use super::{LeaseLiveness, Timestamp, Word, WorkId, word::words};

/// A worker that holds something, as its leases show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerView {
    /// The worker's id.
    pub id: String,
    /// Which start of it.
    pub incarnation: String,
    /// How many leases it holds.
    pub leases: u64,
    /// The worst of its leases.
    #[cfg_attr(feature = "openapi", schema(value_type = LeaseLiveness))]
    pub liveness: Word<LeaseLiveness>,
    /// What the liveness was graded from, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// When the lease that was not renewed for longest was renewed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_renewal_at: Option<Timestamp>,
    /// By how many renewals it is late, at most.
    pub missed: u32,
    /// When the first of its leases expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_expiry_at: Option<Timestamp>,
}

words! {
    /// What a drain does, in this order.
    Lever {
        /// Nothing new is claimed.
        StopClaiming = "stop_claiming",
        /// Handlers are asked to stop.
        RequestCancel = "request_cancel",
        /// What did not stop is handed back.
        Release = "release",
        /// Started owner-bound work of one's own is given up: nobody else could know how it ended.
        Abandon = "abandon",
        /// Open waits are called off.
        RevokeWaits = "revoke_waits",
        /// What was decided is delivered before the end.
        Flush = "flush",
    }
}

/// Drains a worker from outside: its works are asked to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// Why. It is kept.
    pub reason: String,
    /// Only this incarnation; left out, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// From outside, `request_cancel` and `release` ask the holders to stop and hand back, and started owner-bound
    /// work to be cancelled; `abandon` gives up started owner-bound work once its lease lapsed. The rest are the
    /// worker's own.
    pub levers: Vec<Lever>,
}

/// What a lever did for certain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pulled {
    /// The lever.
    #[cfg_attr(feature = "openapi", schema(value_type = Lever))]
    pub lever: Word<Lever>,
    /// The work; absent where it is about the worker itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
}

/// What a lever could not do, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Deferred {
    /// The lever.
    #[cfg_attr(feature = "openapi", schema(value_type = Lever))]
    pub lever: Word<Lever>,
    /// The work; absent where it is about the worker itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// Why it was not done.
    pub because: String,
}

/// What a drain did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DrainReport {
    /// What is certain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<Pulled>,
    /// What could not be done, and why. It is safe: leases run out, and recovery does what is declared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<Deferred>,
}
