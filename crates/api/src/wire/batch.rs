//! Batches: many calls in one request, each answered on its own.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::word::words;

/// No batch has more items.
pub const BATCH_MAX: usize = 1_000;

words! {
    /// The method of a call in a batch.
    BatchMethod {
        /// Most verbs.
        Post = "POST",
        /// Steps and schedules.
        Put = "PUT",
        /// Reads.
        Get = "GET",
    }
}

/// Up to 1,000 calls. Claims and long polls cannot ride.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// The calls, in order.
    pub items: Vec<BatchItem>,
}

/// One call of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchItem {
    /// `POST` unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<BatchMethod>,
    /// As in the request line, `/v1/work` for one.
    pub path: String,
    /// The request's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// The answers to a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchReply {
    /// In the order given.
    pub items: Vec<BatchAnswer>,
}

/// The answer to one call of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchAnswer {
    /// The status that the call alone would have had.
    pub status: u16,
    /// What the call alone would have answered: its reply, or a problem.
    #[serde(default)]
    pub body: Value,
}
