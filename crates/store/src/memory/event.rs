//! The log in memory: the events of a work item, and the feed of all.

use tenure_core::{Evidence, Payload, WorkId, limits, payload::Digest};

use super::{Inner, Memory, position};
use crate::{
    EventKey, Listed, Position, StoredEvent,
    job::Payloads,
    query::weight,
    store::{EventStore, StoreFuture},
};

impl EventStore for Memory {
    fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        self.ready(|inner| {
            let indexes = inner.by_work.get(&work).map_or(&[][..], Vec::as_slice);
            page(indexes.iter().skip(after as usize).filter_map(|index| inner.stored(*index)), limit)
        })
    }

    fn evidence(&self, work: WorkId, after: u64) -> StoreFuture<'_, Vec<Evidence>> {
        self.ready(|inner| {
            let indexes = inner.by_work.get(&work).map_or(&[][..], Vec::as_slice);
            let events = indexes.iter().skip(after as usize).filter_map(|index| inner.stored(*index));
            events.flat_map(|stored| stored.event.evidence).collect()
        })
    }

    fn feed(&self, after: Position, limit: usize) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        self.ready(|inner| {
            let first = after.number.max(0) as usize;
            page(inner.log.range(first..).filter_map(|(index, _)| inner.stored(*index)), limit)
        })
    }

    fn feed_of<'a>(
        &'a self,
        tenants: &'a [String],
        after: Position,
        limit: usize,
    ) -> StoreFuture<'a, (Listed<StoredEvent, EventKey>, Position)> {
        self.ready(|inner| {
            let is_own = |id: &WorkId| {
                inner.records.works.get(id).is_some_and(|work| tenants.contains(&work.spec.tenant))
            };
            let own =
                inner.log.range(after.number.max(0) as usize..).filter(|(_, event)| is_own(&event.work));
            let page = page(own.filter_map(|(index, _)| inner.stored(*index)), limit);
            let end = inner.log.last_key_value().map_or(0, |(index, _)| *index as i64 + 1);
            let end = Position { number: end.max(after.number), ..after };
            let next = page.next().map_or(end, |last| last.position);
            (page, next)
        })
    }

    fn tail(&self) -> StoreFuture<'_, Position> {
        self.ready(|inner| Position { epoch: 0, txn: 0, number: inner.log.len() as i64 })
    }

    fn payloads<'a>(&'a self, keys: &'a [(WorkId, u64)]) -> StoreFuture<'a, Payloads> {
        self.ready(|inner| inner.payloads(keys))
    }

    fn links(&self, after: Position, limit: usize) -> StoreFuture<'_, Vec<(Position, Digest)>> {
        self.ready(|inner| {
            let later = inner.links.iter().enumerate().skip(after.number.max(0) as usize).take(limit);
            later.map(|(index, hash)| (position(index), *hash)).collect()
        })
    }
}

impl Inner {
    pub fn payloads(&self, keys: &[(WorkId, u64)]) -> Payloads {
        let find = |(work, seq): &(WorkId, u64)| -> Option<Payload> {
            let index = *self.by_work.get(work)?.get(usize::try_from(*seq).ok()?.checked_sub(1)?)?;
            self.log.get(&index)?.payload.clone()
        };
        keys.iter().filter_map(|key| Some((*key, find(key)?))).collect()
    }
}

/// The first of these events: as many as a page may have and weigh.
fn page(events: impl Iterator<Item = StoredEvent>, limit: usize) -> Listed<StoredEvent, EventKey> {
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
