//! Specs of works seen lately. They never change, so a known one need not be read, sent and parsed again,
//! and tells without a look-up whether its work belongs to a session.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tenure_core::{Spec, WorkId};

/// Specs in each of two generations: what is not used while a generation fills is forgotten.
const GENERATION: usize = 16_384;

#[derive(Default)]
struct Generations {
    young: HashMap<WorkId, Arc<Spec>>,
    old: HashMap<WorkId, Arc<Spec>>,
}

#[derive(Default)]
pub(super) struct Specs(Mutex<Generations>);

impl Specs {
    pub fn put(&self, specs: impl Iterator<Item = (WorkId, Arc<Spec>)>) {
        let mut specs_now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        specs.for_each(|(id, spec)| specs_now.put(id, spec));
    }

    /// The specs of all of these, or nothing.
    pub fn all(&self, ids: &[WorkId]) -> Option<HashMap<WorkId, Arc<Spec>>> {
        let mut specs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ids.iter().map(|id| Some((*id, specs.get(*id)?))).collect()
    }
}

impl Generations {
    fn put(&mut self, id: WorkId, spec: Arc<Spec>) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, spec);
    }

    fn get(&mut self, id: WorkId) -> Option<Arc<Spec>> {
        if let Some(spec) = self.young.get(&id) {
            return Some(spec.clone());
        }
        let spec = self.old.remove(&id)?;
        self.put(id, spec.clone());
        Some(spec)
    }
}
