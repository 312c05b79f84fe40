//! Settings that apply to every group of this process: the current policy, and whose intake is paused. Cached
//! in memory, so that the hot path does not query the database.

use std::sync::{Arc, PoisonError, RwLock};

use tenure_core::{Records, intake::Pause};

#[derive(Debug, Default)]
pub(crate) struct LedgerSettings {
    /// None: the caller's policy is not checked.
    policy: RwLock<Option<Arc<str>>>,
    /// None: no intake is paused.
    paused: RwLock<Option<Arc<[Pause]>>>,
}

impl LedgerSettings {
    pub fn set_policy(&self, version: Option<&str>) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = version.map(Arc::from);
    }

    pub fn paused(&self) -> Option<Arc<[Pause]>> {
        self.paused.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_paused(&self, pauses: Vec<Pause>) {
        let pauses = (!pauses.is_empty()).then(|| Arc::from(pauses));
        *self.paused.write().unwrap_or_else(PoisonError::into_inner) = pauses;
    }

    /// The settings for a group that is about to be decided.
    pub fn apply(&self, records: &mut Records) {
        records.policy_version = self.policy.read().unwrap_or_else(PoisonError::into_inner).clone();
        records.paused = self.paused();
    }
}
