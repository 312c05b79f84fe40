//! Batches: many calls in one request, each answered on its own.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::word::words;

/// No batch has more items.
pub const BATCH_MAX: usize = 1_000;

words! {
    BatchMethod {
        Post = "POST",
        Put = "PUT",
        Get = "GET",
    }
}

/// Up to 1,000 calls. Claims and long polls cannot ride.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Batch {
    pub items: Vec<BatchItem>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchItem {
    /// `POST` unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<BatchMethod>,
    /// As in the request line, `/v1/work` for one.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchReply {
    /// In the order given.
    pub items: Vec<BatchAnswer>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchAnswer {
    pub status: u16,
    /// What the call alone would have answered: its reply, or a problem.
    #[serde(default)]
    pub body: Value,
}
