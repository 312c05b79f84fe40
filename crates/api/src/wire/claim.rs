//! Claims: a worker takes ownership.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Step, Timestamp, Wait, Work, WorkId};

/// What a worker offers as evidence of its life besides renewing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[serde(try_from = "LivenessFields")]
pub enum Liveness {
    /// Nothing but its renewals.
    #[default]
    Opaque,
    /// A process that a sweeper on the same boot and in the same PID namespace can look up.
    LocalProcess {
        /// The machine's boot, from `/proc/sys/kernel/random/boot_id`.
        boot_id: String,
        /// The inode of the PID namespace.
        pid_namespace: u64,
        /// The process id.
        pid: u32,
        /// In clock ticks since boot.
        start_time: u64,
    },
}

/// The fields of every kind by name: serde itself would also take a tagged list for one.
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

/// Who claims: an id that stays, an incarnation that is new at each boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// The worker's id, the same at every start.
    pub id: String,
    /// New at each start.
    pub incarnation: String,
    /// What can be looked up of it besides its renewals.
    #[serde(default)]
    pub liveness: Liveness,
}

/// A claim that rides on another act.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claimant {
    /// Who claims.
    pub worker: Worker,
    /// The same request again returns its leases that are still held.
    pub request_id: String,
    /// Owner-bound work is started by its first verb, not by the claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub defer_start: bool,
}

/// A claim by filter, or of given works: all of them or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Who claims.
    pub worker: Worker,
    /// The same request again returns its leases that are still held.
    pub request_id: String,
    /// Only works of these sources; of any where it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Only works of these kinds; of any where it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Only works of these tenants; of any of the credential's where it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
    /// Exactly these works: all of them or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<WorkId>,
    /// 1 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// How long an empty queue is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Owner-bound work is started by its first verb, not by the claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub defer_start: bool,
}

impl Claim {
    /// A claim of one work of any source and kind.
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

/// A lease with all that its holder needs to go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// The work as it stands.
    pub work: Work,
    /// Null only after an erasure.
    #[serde(default)]
    pub input: Value,
    /// The lease's number, greater than any before it of this work. Every write of the holder carries it.
    pub fence: u64,
    /// Carried by every write of the holder. Shown here only.
    pub token: String,
    /// When the lease expires unless it is renewed.
    pub expires_at: Timestamp,
    /// Renew at least so often.
    pub renew_ms: u64,
    /// For how long a renewal holds.
    pub ttl_ms: u64,
    /// Checkpoints, with the results of the completed ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Waits that have ended, with their answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Wait>,
}

/// What a claim was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grants {
    /// The leases; empty where nothing can be claimed.
    pub leases: Vec<Grant>,
}
