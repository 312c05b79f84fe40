//! Work items in memory, with their steps and attempts.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use tenure_core::{Attempt, Millis, State, Step, Work, WorkId, action::Tenants};

use super::{Memory, listed};
use crate::{
    Listed, WorkFilter,
    store::{StoreFuture, WorkStore},
};

impl WorkStore for Memory {
    fn works<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, Listed<Work, WorkId>> {
        self.ready(|inner| {
            let works = ids.iter().filter_map(|id| Some((**inner.records.works.get(id)?).clone()));
            Listed::of(works.collect(), usize::MAX, |work| work.id)
        })
    }

    fn ids(&self, before: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        self.ready(|inner| {
            let below = |id: &&WorkId| before.is_none_or(|before| **id < before);
            let mut ids: Vec<WorkId> = inner.records.works.keys().filter(below).copied().collect();
            ids.sort_unstable_by(|a, b| b.cmp(a));
            ids.truncate(limit);
            ids
        })
    }

    fn between<'a>(
        &'a self,
        first: WorkId,
        last: WorkId,
        tenants: &'a Tenants,
        limit: usize,
    ) -> StoreFuture<'a, Vec<WorkId>> {
        self.ready(|inner| {
            let here = |work: &&Work| (first..=last).contains(&work.id) && tenants.allow(&work.spec.tenant);
            let works = inner.records.works.values().map(Arc::as_ref);
            works.filter(here).map(|work| work.id).take(limit).collect()
        })
    }

    fn tenants_of<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, HashMap<WorkId, String>> {
        self.ready(|inner| {
            let tenant = |id: &WorkId| Some((*id, inner.records.works.get(id)?.spec.tenant.clone()));
            ids.iter().filter_map(tenant).collect()
        })
    }

    fn list<'a>(
        &'a self,
        filter: &'a WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        self.ready(|inner| {
            let mut works: Vec<&Work> = inner
                .records
                .works
                .values()
                .map(Arc::as_ref)
                .filter(|work| before.is_none_or(|id| work.id < id) && filter.matches(work))
                .collect();
            works.sort_by_key(|work| std::cmp::Reverse(work.id));
            listed(works, limit, |work| work.id, body_bytes)
        })
    }

    fn counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<State, u64>> {
        self.ready(|inner| {
            let mut counts = BTreeMap::new();
            for work in inner.records.works.values().filter(|work| tenants.allow(&work.spec.tenant)) {
                *counts.entry(work.state).or_default() += 1;
            }
            counts
        })
    }

    fn steps(&self, work: WorkId) -> StoreFuture<'_, Vec<Step>> {
        self.ready(|inner| inner.records.steps.get(&work).cloned().unwrap_or_default())
    }

    fn attempts(&self, work: WorkId) -> StoreFuture<'_, Vec<Attempt>> {
        self.ready(|inner| {
            inner.attempts.range((work, 0)..=(work, u64::MAX)).map(|(_, attempt)| attempt.clone()).collect()
        })
    }

    fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Millis, WorkId)>> {
        self.ready(|inner| {
            let mut due: Vec<(Millis, WorkId)> = inner
                .records
                .works
                .values()
                .filter_map(|work| Some((work.due_at?, work.id)))
                .filter(|row| row.0 <= at && after.is_none_or(|after| *row > after))
                .collect();
            due.sort_unstable();
            due.truncate(limit);
            due
        })
    }

    fn next_due(&self) -> StoreFuture<'_, Option<Millis>> {
        self.ready(|inner| inner.records.works.values().filter_map(|work| work.due_at).min())
    }

    fn leased(&self, after: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        self.ready(|inner| {
            let mut ids: Vec<WorkId> = inner
                .records
                .works
                .values()
                .filter(|work| work.held_lease().is_some() && after.is_none_or(|id| work.id > id))
                .map(|work| work.id)
                .collect();
            ids.sort_unstable();
            ids.truncate(limit);
            ids
        })
    }
}

/// What a work counts towards the bytes of a page.
fn body_bytes(work: &Work) -> usize {
    serde_json::to_string(&*work.body).map_or(0, |text| text.len())
}
