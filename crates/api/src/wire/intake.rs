//! The intake: whether new works are let in, and who stopped it.

use serde::{Deserialize, Serialize};

use super::{Actor, Timestamp};

/// Pauses the intake of new works, or resumes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetIntake {
    /// False: resume it.
    pub paused: bool,
    /// None: of every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Why. It is kept.
    pub reason: String,
}

/// A pause that stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IntakePause {
    /// None: of every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Since when.
    pub at: Timestamp,
    /// Who paused it.
    pub actor: Actor,
    /// Why.
    pub reason: String,
}

/// What somebody did to the intake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IntakeChange {
    /// None: of every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// False: it was resumed.
    pub paused: bool,
    /// When.
    pub at: Timestamp,
    /// Who did it.
    pub actor: Actor,
    /// Why.
    pub reason: String,
}

/// Whether new works are let in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Intake {
    /// Empty: new works are let in.
    pub pauses: Vec<IntakePause>,
    /// The last acts, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<IntakeChange>,
}
