//! Work items that may not progress, by the reference definitions.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::{State, Work, WorkId, action::Tenants, records::SessionView};

use super::{Memory, listed};
use crate::{
    Listed,
    store::{Lane, Signs, StoreFuture, StuckStore},
};

impl StuckStore for Memory {
    fn suspects<'a>(
        &'a self,
        tenants: &'a Tenants,
        signs: Signs,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        self.ready(|inner| {
            let mut of_state: BTreeMap<State, usize> = BTreeMap::new();
            let mut works: Vec<&Work> = inner.records.works.values().map(AsRef::as_ref).collect();
            works.retain(|work| tenants.allow(&work.spec.tenant) && signs.suspect(work));
            works.sort_by_key(|work| work.id);
            works.retain(|work| {
                let count = of_state.entry(work.state).or_default();
                *count += 1;
                *count <= limit
            });
            listed(works, usize::MAX, |work| work.id, |_| 0)
        })
    }

    fn unclaimed<'a>(
        &'a self,
        tenants: &'a Tenants,
        signs: Signs,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        self.ready(|inner| {
            let mut works: Vec<&Work> = inner.records.works.values().map(AsRef::as_ref).collect();
            works.retain(|work| work.state == State::Queued && tenants.allow(&work.spec.tenant));
            works.sort_by_key(|work| work.id);
            works.truncate(limit);
            works.retain(|work| work.spec.created_at < signs.queued);
            works.retain(|work| {
                let view: SessionView =
                    work.spec.session_key().map(|key| inner.view(&key)).unwrap_or_default();
                work.spec.session.is_none()
                    || (view.holder.is_none() && view.head.is_none_or(|head| head == work.id))
            });
            listed(works, usize::MAX, |work| work.id, |_| 0)
        })
    }

    fn busy_lanes<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, Vec<Lane>> {
        self.ready(|inner| {
            let works = inner.records.works.values();
            let held = works.filter(|work| {
                matches!(work.state, State::Running | State::CancelRequested)
                    && tenants.allow(&work.spec.tenant)
            });
            let lanes: BTreeSet<Lane> = held
                .map(|work| {
                    let spec = &work.spec;
                    (spec.tenant.clone(), spec.source.system.clone(), spec.kind.clone())
                })
                .collect();
            lanes.into_iter().collect()
        })
    }
}
