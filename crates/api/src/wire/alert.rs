//! Alerts: configured thresholds that are exceeded now.

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// A threshold that is exceeded now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Alert {
    /// The name of the threshold, as in the configuration.
    pub name: String,
    /// The fault and where to look, in one sentence.
    pub message: String,
    /// The measured value.
    pub value: u64,
    /// The configured threshold.
    pub threshold: u64,
    /// When it was first found to be exceeded.
    pub since: Timestamp,
    /// The tenant that it concerns; absent if it concerns all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The source that it concerns; absent if it concerns all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}
