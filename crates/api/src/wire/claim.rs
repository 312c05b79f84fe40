//! Claims: a worker takes ownership of work items.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Step, Timestamp, Wait, Work, WorkId};

/// The evidence of life that a worker offers besides its renewals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[serde(try_from = "LivenessFields")]
pub enum Liveness {
    /// None besides its renewals.
    #[default]
    Opaque,
    /// A process that a sweeper on the same machine, in the same boot and PID namespace, can look up.
    LocalProcess {
        /// The machine's boot id, from `/proc/sys/kernel/random/boot_id`.
        boot_id: String,
        /// The inode of the PID namespace.
        pid_namespace: u64,
        /// The process id.
        pid: u32,
        /// In clock ticks since boot.
        start_time: u64,
    },
}

/// Lists the fields of every variant by name, because serde itself would also accept a tagged list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LivenessFields {
    #[serde(rename = "type")]
    kind: LivenessKind,
    boot_id: Option<String>,
    pid_namespace: Option<u64>,
    pid: Option<u32>,
    start_time: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum LivenessKind {
    Opaque,
    LocalProcess,
}

impl TryFrom<LivenessFields> for Liveness {
    type Error = &'static str;

    fn try_from(fields: LivenessFields) -> Result<Self, &'static str> {
        let LivenessFields { kind, boot_id, pid_namespace, pid, start_time } = fields;
        match (kind, boot_id, pid_namespace, pid, start_time) {
            (LivenessKind::Opaque, None, None, None, None) => Ok(Liveness::Opaque),
            (LivenessKind::Opaque, ..) => Err("`liveness` of type `opaque` has no other fields"),
            (LivenessKind::LocalProcess, Some(boot_id), Some(pid_namespace), Some(pid), Some(start_time)) => {
                Ok(Liveness::LocalProcess { boot_id, pid_namespace, pid, start_time })
            }
            (LivenessKind::LocalProcess, ..) => Err(
                "`liveness` of type `local_process` has `boot_id`, `pid_namespace`, `pid` and `start_time`",
            ),
        }
    }
}

/// The claiming worker: an id that stays the same, and an incarnation that is new at each start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// The worker's id, the same after a restart.
    pub id: String,
    /// New at each start.
    pub incarnation: String,
    /// How a sweeper can check that it is alive, besides its renewals.
    #[serde(default)]
    pub liveness: Liveness,
}

/// A claim that is made together with another action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claimant {
    /// The claiming worker.
    pub worker: Worker,
    /// Repeating the request id returns the leases that it got and that are still valid.
    pub request_id: String,
    /// Owner-bound work is started by the holder's first verb instead of the claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub defer_start: bool,
}

/// A claim by filter, or of given work items: all of them or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claiming worker.
    pub worker: Worker,
    /// Repeating the request id returns the leases that it got and that are still valid.
    pub request_id: String,
    /// Only work items of these sources; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Only work items of these kinds; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Only work items of these tenants; empty means every tenant of the credential.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
    /// Exactly these work items: all of them or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<WorkId>,
    /// How many to claim; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// How long to wait for work when the queue is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Owner-bound work is started by the holder's first verb instead of the claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub defer_start: bool,
}

impl Claim {
    /// A claim of one work item of any source and kind.
    pub fn new(worker: Worker, request_id: &str) -> Self {
        Self {
            worker,
            request_id: request_id.to_owned(),
            sources: Vec::new(),
            kinds: Vec::new(),
            tenants: Vec::new(),
            ids: Vec::new(),
            max: None,
            wait_ms: None,
            defer_start: false,
        }
    }
}

/// A lease, with everything that its holder needs to continue the work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// The work item as it is now.
    pub work: Work,
    /// The input of the work item. Null only after an erasure.
    #[serde(default)]
    pub input: Value,
    /// The lease's number; each lease of a work item has a greater one than the last. Every write of the
    /// holder carries it.
    pub fence: u64,
    /// The lease token, which every write of the holder carries. Returned here only.
    pub token: String,
    /// When the lease expires unless it is renewed.
    pub expires_at: Timestamp,
    /// Renew at least this often.
    pub renew_ms: u64,
    /// For how long a renewal is valid.
    pub ttl_ms: u64,
    /// Checkpoints, with the results of the completed ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Waits that have ended, with their answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Wait>,
}

/// The result of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grants {
    /// The leases; empty if nothing can be claimed.
    pub leases: Vec<Grant>,
}
