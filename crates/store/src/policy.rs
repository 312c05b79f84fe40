//! The policy that this process goes by: the door names it, and every group is decided under it.

use std::sync::{Arc, PoisonError, RwLock};

/// None: whatever the door says counts.
#[derive(Debug, Default)]
pub(crate) struct PolicyVersion(RwLock<Option<Arc<str>>>);

impl PolicyVersion {
    pub fn get(&self) -> Option<Arc<str>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, version: Option<&str>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = version.map(Arc::from);
    }
}
