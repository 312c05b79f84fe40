//! Waits in memory, and early answers that are kept for them.

use tenure_core::{Change, Millis, Wait, WaitId, model::Kept, records::TenantKey};

use super::{Memory, listed};
use crate::{
    Listed, WaitFilter,
    store::{StoreFuture, WaitStore},
};

impl WaitStore for Memory {
    fn waits<'a>(
        &'a self,
        filter: &'a WaitFilter,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Wait, (Millis, WaitId)>> {
        self.ready(|inner| {
            let all = inner.records.waits.iter();
            let mut waits: Vec<&Wait> = all
                .filter(|(id, _)| {
                    let session = inner.records.works.get(id).and_then(|work| work.spec.session.as_ref());
                    filter.session.is_none() || filter.session.as_ref() == session
                })
                .flat_map(|(_, waits)| waits)
                .filter(|wait| {
                    filter.tenants.as_ref().is_none_or(|tenants| tenants.allow(&wait.tenant))
                        && filter.id.is_none_or(|id| wait.id == id)
                        && filter.work.is_none_or(|id| wait.work == id)
                        && (filter.works.is_empty() || filter.works.contains(&wait.work))
                        && filter.reference.as_ref().is_none_or(|r| wait.reference == *r)
                        && filter.kind.is_none_or(|kind| wait.kind == kind)
                        && filter.state.is_none_or(|state| wait.state == state)
                        && filter.after.is_none_or(|after| (wait.opened_at, wait.id) > after)
                        && (!filter.last_ended || wait.ended_at.is_some())
                })
                .collect();
            let ended = |wait: &&Wait| wait.ended_at.filter(|_| filter.last_ended).map(std::cmp::Reverse);
            waits.sort_by_key(|wait| (ended(wait), wait.opened_at, wait.id));
            listed(waits, limit, |wait| (wait.opened_at, wait.id), |wait| wait.detail.bytes())
        })
    }

    fn kept<'a>(&'a self, tenant: &'a str, reference: &'a str) -> StoreFuture<'a, Option<Kept>> {
        let key = (tenant.to_owned(), reference.to_owned());
        self.ready(|inner| inner.records.kept.get(&key).cloned().flatten())
    }

    fn forget_kept_of<'a>(&'a self, tenant: &'a str) -> StoreFuture<'a, u64> {
        self.change(|inner| {
            let kept =
                inner.records.kept.iter().filter(|((owner, _), kept)| owner == tenant && kept.is_some());
            let keys: Vec<TenantKey> = kept.map(|(key, _)| key.clone()).collect();
            let count = keys.len() as u64;
            keys.into_iter()
                .for_each(|(tenant, reference)| inner.records.absorb(Change::Unkeep { tenant, reference }));
            count
        })
    }

    fn forget_kept(&self, at: Millis) -> StoreFuture<'_, u64> {
        let mut inner = self.inner();
        let old: Vec<TenantKey> = inner
            .records
            .kept
            .iter()
            .filter(|(_, kept)| kept.as_ref().is_some_and(|kept| kept.kept_at <= at))
            .map(|(key, _)| key.clone())
            .collect();
        let count = old.len() as u64;
        old.into_iter()
            .for_each(|(tenant, reference)| inner.records.absorb(Change::Unkeep { tenant, reference }));
        Box::pin(std::future::ready(Ok(count)))
    }
}
