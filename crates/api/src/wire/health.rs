//! Whether the daemon is up, and whether it can serve.

use serde::{Deserialize, Serialize};

/// The process answers.
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
    /// What was checked.
    pub checks: Vec<Check>,
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// Whether it is as it should be.
    pub ok: bool,
    /// What is wrong, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
