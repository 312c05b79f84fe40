//! The log: the events of a work item, and the feed of all.

use std::collections::HashMap;

use rusqlite::{Params, params};
use tenure_core::{Evidence, Payload, WorkId, limits, payload::Digest};

use super::{
    SqliteStore, log,
    read::{Reader, bound, take},
    retention::position,
    row::{self, EventRow, Read},
    work::TENANTS,
};
use crate::{
    EventKey, Listed, Position, StoredEvent,
    columns::{names, statement},
    job::Payloads,
    query::{FEED_SCAN, weight},
    store::{EventStore, StoreFuture},
};

const FEED: &str = statement!(
    "SELECT position, " { names(EventRow::COLUMNS) }
    " FROM event WHERE position > ?1 ORDER BY position LIMIT ?2"
);
const FEED_PLACES: &str = "SELECT position, work FROM event WHERE position > ?1 ORDER BY position LIMIT ?2";
const FEED_ONE: &str =
    statement!("SELECT position, " { names(EventRow::COLUMNS) } " FROM event WHERE position = ?1");
const TAIL: &str = "SELECT position FROM event ORDER BY position DESC LIMIT 1";
const LINKS: &str = "SELECT position, hash FROM (SELECT position, hash FROM event WHERE position > ?1 \
     UNION ALL SELECT position, hash FROM link WHERE position > ?1) ORDER BY position LIMIT ?2";

impl EventStore for SqliteStore {
    fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        self.read(move |reader| {
            let (after, last) = log::after(after, limit);
            reader.page(log::EVENTS, params![work.0.as_bytes(), after, last], limit)
        })
    }

    fn evidence(&self, work: WorkId, after: u64) -> StoreFuture<'_, Vec<Evidence>> {
        self.read(move |reader| {
            let (after, last) = log::after(after, usize::MAX);
            let lists = reader
                .all(log::EVIDENCE, params![work.0.as_bytes(), after, last], |row| row::json(row, 0))?;
            Ok(lists.into_iter().flat_map(|list: Vec<Evidence>| list).collect())
        })
    }

    fn feed(&self, after: Position, limit: usize) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        self.read(move |reader| {
            // There is one writer at a time, so positions are in the order of commits and every reader sees a prefix.
            reader.page(FEED, params![after.number, bound(limit)], limit)
        })
    }

    fn feed_of<'a>(
        &'a self,
        tenants: &'a [String],
        after: Position,
        limit: usize,
    ) -> StoreFuture<'a, (Listed<StoredEvent, EventKey>, Position)> {
        let tenants = tenants.to_vec();
        self.read(move |reader| {
            let mut places = reader.conn.prepare_cached(FEED_PLACES)?;
            let mut places = places.query(params![after.number, bound(FEED_SCAN)])?;
            let mut own: HashMap<WorkId, bool> = HashMap::new();
            let (mut page, mut next) = (Listed::default(), after);
            let (mut passed, mut bytes) = (0, 0);
            while page.count() < limit && bytes < limits::PAGE_BYTES {
                let Some(place) = places.next()? else { break };
                (passed, next.number) = (passed + 1, place.get(0)?);
                let work = WorkId(row::uuid(place, 1)?);
                let is_own = match own.get(&work) {
                    Some(known) => *known,
                    None => {
                        let tenant =
                            reader.all(TENANTS, [work.0.as_bytes()], |row| Ok(row.get::<_, String>(0)?))?;
                        let is_own = tenant.first().is_some_and(|tenant| tenants.contains(tenant));
                        own.insert(work, is_own);
                        is_own
                    }
                };
                if is_own {
                    let one = reader.page(FEED_ONE, [next.number], 1)?;
                    bytes += one.rows.iter().map(weight).sum::<usize>();
                    page.rows.extend(one.rows);
                    page.unreadable.extend(one.unreadable);
                    page.last = one.last;
                }
            }
            page.full = page.count() >= limit || bytes >= limits::PAGE_BYTES || passed == FEED_SCAN;
            Ok((page, next))
        })
    }

    fn tail(&self) -> StoreFuture<'_, Position> {
        self.read(|reader| {
            let last = reader.all(TAIL, [], |row| Ok(row.get(0)?))?.pop();
            Ok(last.map_or(Position::default(), |number| Position { number, ..Position::default() }))
        })
    }

    fn payloads<'a>(&'a self, keys: &'a [(WorkId, u64)]) -> StoreFuture<'a, Payloads> {
        let keys = keys.to_vec();
        self.read(move |reader| {
            let mut payloads = Payloads::with_capacity(keys.len());
            for (work, seq) in keys {
                let (before, number) = log::only(seq);
                let found = reader.all(log::PAYLOAD, params![work.0.as_bytes(), before, number], |row| {
                    Ok(row.get::<_, Option<String>>(0)?)
                })?;
                let payload = found.into_iter().flatten().next();
                payloads.extend(payload.map(|text| ((work, seq), Payload::stored(text))));
            }
            Ok(payloads)
        })
    }

    fn links(&self, after: Position, limit: usize) -> StoreFuture<'_, Vec<(Position, Digest)>> {
        self.read(move |reader| {
            reader.all(LINKS, params![after.number, bound(limit)], |row| {
                Ok((position(row.get(0)?), row::digest(row, 1)?))
            })
        })
    }
}

impl Reader {
    /// A page of events. It ends at the byte limit, and the rest is not read.
    fn page(&self, sql: &str, key: impl Params, limit: usize) -> Read<Listed<StoredEvent, EventKey>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(key)?;
        let (mut page, mut bytes) = (Listed::default(), 0);
        while let Some(found) = rows.next()? {
            let event = row::event(found);
            bytes += event.as_ref().map_or(0, weight);
            take(&mut page, row::event_key(found)?, event)?;
            if bytes >= limits::PAGE_BYTES {
                return Ok(Listed { full: true, ..page });
            }
        }
        Ok(page.up_to(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::plan::{plan, tables};

    #[test]
    fn a_tenants_feed_reads_whose_events_are_in_order_and_only_its_own_whole() {
        let conn = tables();
        assert_eq!(plan(&conn, FEED_PLACES), "SEARCH event USING INTEGER PRIMARY KEY (rowid>?)");
        assert_eq!(plan(&conn, FEED_ONE), "SEARCH event USING INTEGER PRIMARY KEY (rowid=?)");
    }
}
