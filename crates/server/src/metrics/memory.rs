//! The state that the counters need of a work item between its events. Bounded: a work item that was evicted
//! is read again, and only the time in its current state is lost.

use std::{collections::HashSet, sync::Arc};

use tenure_core::{Event, Fact, Millis, Spec, Usage, Work, WorkId, recent::Recent};

use super::Labels;
use crate::feed::EventNews;

/// Work items in memory; the previous generation holds about as many again.
const WORKS: usize = 50_000;
/// Label sets counted separately; the rest is `other`.
const LABELS: usize = 1_000;
/// Label sets with their own times in states: each has a histogram for every state, so there are fewer.
const TIMED: usize = 100;
/// Models of sources counted separately; the rest is `other`.
const MODELS: usize = 200;

pub(super) struct Known {
    pub labels: Arc<Labels>,
    /// The labels of its times in states.
    pub timed: Arc<Labels>,
    /// When it entered its current state, if this process saw it.
    pub since: Option<Millis>,
    pub failed: bool,
    /// When it was found to have lost its holder, until it runs again or ends.
    pub lost: Option<Millis>,
    /// Recovery has decided about that loss.
    pub decided: bool,
}

impl Known {
    fn new(labels: Arc<Labels>, timed: Arc<Labels>, failed: bool) -> Self {
        Self { labels, timed, since: None, failed, lost: None, decided: false }
    }
}

pub(super) struct Memory {
    known: Recent<WorkId, Known>,
    labels: HashSet<Arc<Labels>>,
    timed: HashSet<Arc<Labels>>,
    models: HashSet<(String, String)>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            known: Recent::new(WORKS),
            labels: HashSet::new(),
            timed: HashSet::new(),
            models: HashSet::new(),
        }
    }
}

impl Memory {
    /// The work items of these events that must be read: neither in memory nor created here.
    pub fn unknown(&self, events: &[EventNews]) -> Vec<WorkId> {
        let mut unknown: Vec<WorkId> = Vec::new();
        for event in events.iter().map(|news| &news.stored.event) {
            if event.seq > 1 && !self.known.contains(event.work) {
                unknown.push(event.work);
            }
        }
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    pub fn learn(&mut self, work: &Work) {
        let (labels, timed) = self.labels_of(&work.spec);
        self.known.put(work.id, Known::new(labels, timed, work.body.failures > 0));
    }

    /// The state of the event's work item; its creation event supplies it.
    pub fn of(&mut self, event: &Event) -> Option<&mut Known> {
        if let Fact::WorkCreated(created) = &event.fact {
            let (labels, timed) = self.labels_of(&created.spec);
            self.known.put(event.work, Known::new(labels, timed, false));
        }
        self.known.get(event.work)
    }

    pub fn forget(&mut self, work: WorkId) {
        self.known.take(work);
    }

    /// The labels of source and model.
    pub fn model_of(&mut self, usage: &Usage) -> (String, String) {
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let model = (name(&usage.source), name(&usage.model));
        if self.models.contains(&model) {
            return model;
        }
        if self.models.len() >= MODELS {
            return ("other".to_owned(), "other".to_owned());
        }
        self.models.insert(model.clone());
        model
    }

    /// The labels of its counters, and of its times in states.
    fn labels_of(&mut self, spec: &Spec) -> (Arc<Labels>, Arc<Labels>) {
        let labels = Labels {
            source: spec.source.system.clone(),
            workflow: spec.workflow.as_ref().map_or_else(String::new, |workflow| workflow.id.clone()),
            tenant: spec.tenant.clone(),
        };
        let counted = bounded(&mut self.labels, LABELS, Arc::new(labels));
        let timed = bounded(&mut self.timed, TIMED, counted.clone());
        (counted, timed)
    }
}

/// The labels, shared with equal ones, while there is capacity; `other` from then on.
fn bounded(kept: &mut HashSet<Arc<Labels>>, most: usize, labels: Arc<Labels>) -> Arc<Labels> {
    let full = kept.len() >= most && !kept.contains(&labels);
    let labels = if full { Arc::new(Labels::other()) } else { labels };
    kept.get(&labels).cloned().unwrap_or_else(|| {
        kept.insert(labels.clone());
        labels
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(tenant: usize) -> Arc<Labels> {
        Arc::new(Labels { source: "s".into(), workflow: String::new(), tenant: tenant.to_string() })
    }

    #[test]
    fn labels_beyond_the_bound_are_other() {
        let mut kept = HashSet::new();
        for tenant in 0..5 {
            let shown = bounded(&mut kept, 3, labels(tenant));
            assert_eq!(shown.tenant == "other", tenant >= 3, "{shown:?}");
        }
        assert_eq!(bounded(&mut kept, 3, labels(1)), labels(1), "known labels stay");
        assert_eq!(kept.len(), 4, "and `other`");
    }
}
