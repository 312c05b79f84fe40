//! What is looked up in memory: sessions, payloads and pages of events.

use std::sync::Arc;

use tenure_core::{
    Payload, State, Work, WorkId, limits,
    records::{SessionView, TenantKey},
};

use super::Inner;
use crate::{EventKey, Listed, Position, StoredEvent, WorkFilter, job::Payloads, query::weight};

impl Inner {
    pub fn view(&self, key: &TenantKey) -> SessionView {
        let members: Vec<&Work> = self
            .records
            .works
            .values()
            .map(Arc::as_ref)
            .filter(|work| work.spec.session_key().as_ref() == Some(key))
            .collect();
        let pending = |work: &&&Work| matches!(work.state, State::Queued | State::RetryScheduled);
        SessionView {
            holder: members.iter().find(|work| work.state.holds_session()).map(|work| work.id),
            head: members
                .iter()
                .filter(pending)
                .min_by_key(|work| (work.spec.created_at, work.id))
                .map(|work| work.id),
            unsure: false,
        }
    }

    pub fn list(&self, filter: &WorkFilter, before: Option<WorkId>, limit: usize) -> Listed<Work, WorkId> {
        let mut works: Vec<&Work> = self
            .records
            .works
            .values()
            .map(Arc::as_ref)
            .filter(|work| before.is_none_or(|id| work.id < id) && filter.matches(work))
            .collect();
        works.sort_by_key(|work| std::cmp::Reverse(work.id));
        listed(works, limit, |work| work.id, body_bytes)
    }

    pub fn feed_of(
        &self,
        tenants: &[String],
        after: Position,
        limit: usize,
    ) -> (Listed<StoredEvent, EventKey>, Position) {
        let is_own =
            |id: &WorkId| self.records.works.get(id).is_some_and(|work| tenants.contains(&work.spec.tenant));
        let own = self.log.range(after.number.max(0) as usize..).filter(|(_, event)| is_own(&event.work));
        let page = page(own.filter_map(|(index, _)| self.stored(*index)), limit);
        let end = self.log.last_key_value().map_or(0, |(index, _)| *index as i64 + 1);
        let end = Position { number: end.max(after.number), ..after };
        let next = page.next().map_or(end, |last| last.position);
        (page, next)
    }

    pub fn payloads(&self, keys: &[(WorkId, u64)]) -> Payloads {
        let find = |(work, seq): &(WorkId, u64)| -> Option<Payload> {
            let index = *self.by_work.get(work)?.get(usize::try_from(*seq).ok()?.checked_sub(1)?)?;
            self.log.get(&index)?.payload.clone()
        };
        keys.iter().filter_map(|key| Some((*key, find(key)?))).collect()
    }
}

/// What a work counts towards the bytes of a page.
pub(super) fn body_bytes(work: &Work) -> usize {
    serde_json::to_string(&*work.body).map_or(0, |text| text.len())
}

/// The first of these rows: as many as a page may have and weigh.
pub(super) fn listed<T: Clone, K>(
    rows: Vec<&T>,
    limit: usize,
    key: impl Fn(&T) -> K,
    weight: impl Fn(&T) -> usize,
) -> Listed<T, K> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for row in rows.into_iter().take(limit) {
        bytes += weight(row);
        page.push(row.clone());
        if bytes >= limits::PAGE_BYTES {
            let full = page.len();
            return Listed::of(page, full, key);
        }
    }
    Listed::of(page, limit, key)
}

/// The first of these events: as many as a page may have and weigh.
pub(super) fn page(events: impl Iterator<Item = StoredEvent>, limit: usize) -> Listed<StoredEvent, EventKey> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for event in events.take(limit) {
        bytes += weight(&event);
        page.push(event);
        if bytes >= limits::PAGE_BYTES {
            let full = page.len();
            return Listed::of(page, full, StoredEvent::key);
        }
    }
    Listed::of(page, limit, StoredEvent::key)
}
