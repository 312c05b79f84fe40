//! The intake: whether new work items are accepted, and who paused it.

use serde::{Deserialize, Serialize};

use super::{Actor, Timestamp};

/// Pauses or resumes the intake of new work items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetIntake {
    /// True pauses it, false resumes it.
    pub paused: bool,
    /// The tenant; absent: every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The reason; it is recorded.
    pub reason: String,
}

/// A pause that is in effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IntakePause {
    /// The tenant; absent: every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Since when.
    pub at: Timestamp,
    /// The actor that paused it.
    pub actor: Actor,
    /// The reason.
    pub reason: String,
    /// The command line that ends it.
    pub next: String,
}

/// A past pause or resumption of the intake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IntakeChange {
    /// The tenant; absent: every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// True if it was paused, false if it was resumed.
    pub paused: bool,
    /// When.
    pub at: Timestamp,
    /// The actor.
    pub actor: Actor,
    /// The reason.
    pub reason: String,
}

/// Whether new work items are accepted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Intake {
    /// The pauses in effect; empty if new work items are accepted.
    pub pauses: Vec<IntakePause>,
    /// The latest changes, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<IntakeChange>,
}
