//! Alerts: thresholds of the configuration that are crossed now.

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// A threshold that is crossed now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Alert {
    /// Which threshold, as in the configuration.
    pub name: String,
    /// What is wrong and what to look at, in one sentence.
    pub message: String,
    /// What was measured.
    pub value: u64,
    /// The configured threshold.
    pub threshold: u64,
    /// When it was found crossed first.
    pub since: Timestamp,
    /// The tenant that it is about; absent where it is about all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The source that it is about; absent where it is about all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}
