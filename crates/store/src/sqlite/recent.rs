//! What was used lately, by work. Two generations: when the younger is full, the older is forgotten.

use std::collections::HashMap;

use tenure_core::WorkId;

/// Entries of one generation.
const GENERATION: usize = 8_192;

pub(super) struct Recent<T> {
    young: HashMap<WorkId, T>,
    old: HashMap<WorkId, T>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<T> Recent<T> {
    pub fn get(&mut self, id: WorkId) -> Option<&T> {
        if let Some(entry) = self.old.remove(&id) {
            self.put(id, entry);
        }
        self.young.get(&id)
    }

    pub fn take(&mut self, id: WorkId) -> Option<T> {
        self.young.remove(&id).or_else(|| self.old.remove(&id))
    }

    pub fn put(&mut self, id: WorkId, entry: T) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&id);
        self.young.insert(id, entry);
    }

    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}
