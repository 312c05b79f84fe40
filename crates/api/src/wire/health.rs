//! Liveness and readiness of the daemon.

use serde::{Deserialize, Serialize};

/// The process is running.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok`
    pub status: String,
    /// The daemon's version.
    pub version: String,
}

/// Whether requests can be served, and if not, why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Readiness {
    /// Whether every check passed.
    pub ready: bool,
    /// The checks and their results.
    pub checks: Vec<Check>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    /// The name of the check.
    pub name: String,
    /// Whether it passed.
    pub ok: bool,
    /// The fault, and what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
