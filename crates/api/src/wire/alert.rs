//! Alerts: thresholds of the configuration that are crossed now.

use serde::{Deserialize, Serialize};

use super::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Alert {
    /// Which threshold, as in the configuration.
    pub name: String,
    /// What is wrong and what to look at, in one sentence.
    pub message: String,
    pub value: u64,
    pub threshold: u64,
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}
