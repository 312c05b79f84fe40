//! Batches: many calls in one request, each with its own response.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::word::words;

/// The maximum number of calls in a batch.
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

/// Up to 1,000 calls. Claims and long polls cannot be part of a batch.
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
    /// Default `POST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<BatchMethod>,
    /// As in the request line, for example `/v1/work`.
    pub path: String,
    /// The request's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// The responses to a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchReply {
    /// In the order of the calls.
    pub items: Vec<BatchResponse>,
}

/// The response to one call of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchResponse {
    /// The HTTP status of this call.
    pub status: u16,
    /// The response body of this call, or a problem.
    #[serde(default)]
    pub body: Value,
}
