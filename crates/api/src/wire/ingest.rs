//! Ingest: a work item enters the ledger.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Claimant, Disposition, End, Evidence, Grant, Source, Work, WorkId, Workflow, word::words};

words! {
    /// The consequence for a work item if its parent ends.
    OnParentClose {
        /// It is cancelled.
        Cancel = "cancel",
        /// It continues.
        Leave = "leave",
    }
}

words! {
    /// How the delay of a retry is randomized.
    Jitter {
        /// Between zero and the whole delay.
        Full = "full",
        /// Between half of the delay and all of it.
        Equal = "equal",
        /// Exactly the delay.
        None = "none",
    }
}

words! {
    /// The consequence if the lease of started owner-bound work lapses.
    OnExpiry {
        /// It is stalled until it proves to be alive, a request, or its owner.
        Leave = "leave",
        /// It ends as `timed_out`: abandoning it was agreed in advance.
        Timeout = "timeout",
    }
}

/// A work item to record. Repeating the same source and content returns the existing one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    /// Its source, which is its identity.
    pub source: Source,
    /// The kind of work; workers claim by it.
    pub kind: String,
    /// One line for people, at most 200 characters. Without it, the source's id is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The recovery contract for the case that the worker is lost.
    pub disposition: Disposition,
    /// The input for the worker, any JSON.
    pub input: Value,
    /// Lower is claimed first; default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// At most one work item of a session is held at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// A tenant of the credential; optional if the credential has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Groups work items that belong together; default: the work item's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The workflow that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// The parent work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<WorkId>,
    /// The consequence for it if its parent ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_parent_close: Option<OnParentClose>,
    /// Its retry policy, lease timings and timeouts; default: the settings of its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<WorkPolicy>,
    /// Evidence: pointers to traces, logs or tickets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Claims it in the same transaction, if it can be claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claimant>,
    /// Only for externally owned work: records it with its end, because it is over already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<End>,
}

impl Ingest {
    /// A work item whose input is JSON already, with defaults for the rest.
    pub fn new(source: Source, kind: &str, disposition: Disposition, input: Value) -> Self {
        Self {
            source,
            kind: kind.to_owned(),
            title: None,
            disposition,
            input,
            priority: None,
            session: None,
            tenant: None,
            correlation_id: None,
            workflow: None,
            parent: None,
            on_parent_close: None,
            policy: None,
            evidence: Vec::new(),
            claim: None,
            born: None,
        }
    }

    /// A work item whose input is a type of the program.
    pub fn typed(
        source: Source,
        kind: &str,
        disposition: Disposition,
        input: &(impl Serialize + ?Sized),
    ) -> Result<Self, serde_json::Error> {
        Ok(Self::new(source, kind, disposition, serde_json::to_value(input)?))
    }
}

/// The retry policy, lease timings and timeouts of a work item. Omitted settings come from its source's
/// configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkPolicy {
    /// When it is retried after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// Its lease timings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseTimings>,
    /// Its deadlines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// The consequence if the lease of started owner-bound work lapses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<OnExpiry>,
}

/// When a failed work item is retried. Omitted settings come from its source's configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// The maximum number of failed attempts, the first one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The delay before the first retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_ms: Option<u64>,
    /// The factor by which each delay grows; 2 doubles it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<f64>,
    /// The longest delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// How a delay is randomized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
}

/// Lease timings: `ttl_ms` is at least three times `renew_ms`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LeaseTimings {
    /// For how long a renewal is valid.
    pub ttl_ms: u64,
    /// How often to renew.
    pub renew_ms: u64,
    /// How long after its expiry a lease is not considered lapsed.
    pub grace_ms: u64,
}

/// Deadlines, counted from ingest (start, overall) or from the claim (execution).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    /// From ingest to the first claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
    /// The duration of each attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ms: Option<u64>,
    /// From ingest to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overall_ms: Option<u64>,
}

/// A work item that was recorded now or existed already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ingested {
    /// The work item as it is now.
    pub work: Work,
    /// False if the work item existed already.
    pub created: bool,
    /// The lease, if the work item was claimed in the same transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Grant>,
    /// For externally owned work: the token with which its owner completes it. Returned here only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_token: Option<String>,
}
