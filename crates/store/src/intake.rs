//! Whose intake is paused, and who did it: lines that are only added to. The last one of a tenant says how it stands.

use tenure_core::{Actor, Millis, action::Tenants, intake::Pause};

/// What somebody did to the intake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntakeChange {
    /// None: of every tenant.
    pub tenant: Option<String>,
    /// False: it was resumed.
    pub paused: bool,
    pub at: Millis,
    pub actor: Actor,
    pub reason: String,
}

impl IntakeChange {
    pub(crate) fn pause(&self) -> Pause {
        let Self { tenant, actor, at, reason, .. } = self.clone();
        Pause { tenant, by: actor, at, reason }
    }

    /// Whether it is about one of these tenants.
    pub(crate) fn concerns(&self, tenants: &Tenants) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| tenants.allow(tenant))
    }
}
