//! Work items and commands that cannot be read or decided on. They are skipped; `readyz`, `doctor` and an
//! alert name them until they can be read again. The list is kept in memory only, because the database itself
//! is damaged.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tenure_core::Millis;

use crate::Error;

/// The limit of the list. With more damage than this, somebody has to examine the whole database.
const MOST: usize = 1_000;

/// A work item or command that is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The id of the work item or command, or the name of a list or table that could not be read completely.
    pub id: String,
    /// Why it cannot be read.
    pub why: String,
    /// When this process first noticed the damage.
    pub since: Millis,
    /// A newer version wrote it: there is no damage.
    pub newer: bool,
}

/// Everything that this process skips now.
#[derive(Debug, Default)]
pub(crate) struct DamagedSet(Mutex<BTreeMap<String, Damaged>>);

impl DamagedSet {
    pub fn add(&self, id: String, error: &Error, at: Millis) {
        self.put(id, &error.to_string(), at, matches!(error, Error::Newer(_)));
    }

    #[cfg(feature = "postgres")]
    pub fn add_damage(&self, id: String, why: &str, at: Millis) {
        self.put(id, why, at, false);
    }

    fn put(&self, id: String, why: &str, at: Millis, newer: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full = all.len() >= MOST;
        match all.get_mut(&id) {
            Some(known) => (known.why, known.newer) = (why.to_owned(), newer),
            None if full => {}
            None => {
                if newer {
                    tracing::warn!(id, why, "skipped, everything else continues");
                } else {
                    tracing::error!(id, why, "damaged: skipped, everything else continues");
                }
                all.insert(id.clone(), Damaged { id, why: why.to_owned(), since: at, newer });
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Removes an entry that could be read again or no longer exists.
    pub fn remove(&self, id: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.remove(id).is_some() {
            tracing::info!(id, "no longer damaged");
        }
    }

    /// Sorted by id.
    pub fn list(&self) -> Vec<Damaged> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
