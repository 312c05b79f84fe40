//! Ingest: a work enters the ledger.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Claimant, Disposition, End, Evidence, Grant, Source, Work, WorkId, Workflow, word::words};

words! {
    /// What becomes of a work when its parent ends.
    OnParentClose {
        /// It is cancelled.
        Cancel = "cancel",
        /// It goes on.
        Leave = "leave",
    }
}

words! {
    /// How a retry's delay is spread.
    Jitter {
        /// Anywhere from nothing to the whole delay.
        Full = "full",
        /// At least half of the delay.
        Equal = "equal",
        /// The delay as it is.
        None = "none",
    }
}

words! {
    /// What a lapse means for started owner-bound work.
    OnExpiry {
        /// Stalled until proof, a request, or its owner.
        Leave = "leave",
        /// A pre-signed abandon: it ends as `timed_out`.
        Timeout = "timeout",
    }
}

/// A work to be recorded. The same source and content again returns what is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    /// Where it came from: its identity.
    pub source: Source,
    /// What kind of work it is; workers claim by it.
    pub kind: String,
    /// What may be done when its worker is lost.
    pub disposition: Disposition,
    /// What the worker needs, any JSON.
    pub input: Value,
    /// Lower comes first; 3 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// At most one work of a session is held at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// One of the credential's; may be left out where it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Ties works together that belong together; the work's own id where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The workflow that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
    /// The work that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<WorkId>,
    /// What becomes of it when its parent ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_parent_close: Option<OnParentClose>,
    /// How it wants to be treated; its source's settings where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<WorkPolicy>,
    /// Pointers to what supports it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Claims it in the same act, where nothing stands against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claimant>,
    /// Detached work that is over already: only for externally owned work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<End>,
}

impl Ingest {
    /// A work with an input that is JSON already, and defaults for the rest.
    pub fn new(source: Source, kind: &str, disposition: Disposition, input: Value) -> Self {
        Self {
            source,
            kind: kind.to_owned(),
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

    /// A work with an input of the program's own.
    pub fn typed(
        source: Source,
        kind: &str,
        disposition: Disposition,
        input: &(impl Serialize + ?Sized),
    ) -> Result<Self, serde_json::Error> {
        Ok(Self::new(source, kind, disposition, serde_json::to_value(input)?))
    }
}

/// How a work wants to be treated. What is left out comes from its source's settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkPolicy {
    /// When it is tried again after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// How long a lease lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseTimings>,
    /// Its deadlines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// What a lapse means for started owner-bound work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<OnExpiry>,
}

/// When a failed work is tried again. What is left out comes from its source's settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// Counts failures, the first one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The delay before the first retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_ms: Option<u64>,
    /// 2 doubles each delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<f64>,
    /// No delay is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// How a delay is spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
}

/// Lease timings: `ttl_ms` is at least three times `renew_ms`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LeaseTimings {
    /// For how long a renewal holds.
    pub ttl_ms: u64,
    /// How often to renew.
    pub renew_ms: u64,
    /// How long after the expiry nothing is concluded.
    pub grace_ms: u64,
}

/// Declared deadlines, counted from ingest (start, overall) or from the claim (execution).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    /// Until it is claimed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
    /// For each attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ms: Option<u64>,
    /// Until it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overall_ms: Option<u64>,
}

/// A work that was recorded, or was there already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ingested {
    /// The work as it stands.
    pub work: Work,
    /// False where the same work was already there.
    pub created: bool,
    /// The lease, where the work was claimed in the same act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Grant>,
    /// For externally owned work: what its owner completes it with. Shown here only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_token: Option<String>,
}
