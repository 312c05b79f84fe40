//! Records of pausing and resuming the intake. Records are only appended; the last one of a tenant is its
//! current state.

use tenure_core::{Actor, Millis, action::Tenants, intake::Pause};

/// One change of the intake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntakeChange {
    /// None: every tenant.
    pub tenant: Option<String>,
    /// False: resumed.
    pub paused: bool,
    /// When it was changed.
    pub at: Millis,
    /// Who changed it.
    pub actor: Actor,
    /// Why.
    pub reason: String,
}

impl IntakeChange {
    pub(crate) fn pause(&self) -> Pause {
        let Self { tenant, actor, at, reason, .. } = self.clone();
        Pause { tenant, by: actor, at, reason }
    }

    /// Whether it concerns one of these tenants.
    pub(crate) fn concerns(&self, tenants: &Tenants) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| tenants.allow(tenant))
    }
}
