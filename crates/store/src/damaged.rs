//! Works and commands that cannot be read or judged. Everything else goes on without them; `readyz`, `doctor` and an
//! alert name them until they can be read again. Kept in memory: a damaged database is not asked to remember its damage.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tenure_core::Millis;

use crate::Error;

/// More are counted under the last one only: a person has to look at the whole database then.
const MOST: usize = 1_000;

/// One work or command that is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The id of a work or of a command, or the name of a list or table that could not be read to its end.
    pub id: String,
    pub why: String,
    /// When this process first found it so.
    pub since: Millis,
    /// A newer version wrote it: there is no damage.
    pub newer: bool,
}

/// What this process passes over now.
#[derive(Debug, Default)]
pub(crate) struct DamagedSet(Mutex<BTreeMap<String, Damaged>>);

impl DamagedSet {
    pub fn add(&self, id: String, error: &Error, at: Millis) {
        self.put(id, &error.to_string(), at, matches!(error, Error::Newer(_)));
    }

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
                    tracing::warn!(id, why, "it is passed over, everything else goes on");
                } else {
                    tracing::error!(id, why, "damaged: it is passed over, everything else goes on");
                }
                all.insert(id.clone(), Damaged { id, why: why.to_owned(), since: at, newer });
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// It could be read again, or is gone.
    pub fn remove(&self, id: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.remove(id).is_some() {
            tracing::info!(id, "no longer damaged");
        }
    }

    /// By id.
    pub fn list(&self) -> Vec<Damaged> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
