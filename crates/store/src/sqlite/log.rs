//! The log of a work item, in the one table of all events. It is a linked list: each event has the position of the
//! previous one, and the work item's row that of the last. Every 64th event, the first included, has an entry in an
//! index, from which an event in the middle is reached. See `schema.sql`.

use rusqlite::{OptionalExtension, params};
use tenure_core::{Payload, WorkId};

use super::{
    fault::Fault,
    row::{EventRow, Read},
    tables::Tables,
};
use crate::columns::{names, statement, text};

/// The `place` and the `number` of a work item's (?1) events, backwards from its last one (?3), or from a few later
/// ones, to the one after ?2. A wrong link, in a file that was edited, ends the walk.
macro_rules! log {
    () => {
        "WITH RECURSIVE log (place, prior, number) AS (\
         SELECT position, previous, seq FROM event WHERE position = coalesce(\
         (SELECT position FROM event INDEXED BY event_mark \
         WHERE work = ?1 AND seq % 64 = 1 AND seq >= ?3 ORDER BY seq LIMIT 1), \
         (SELECT last_event FROM work WHERE id = ?1)) \
         UNION ALL \
         SELECT e.position, e.previous, e.seq FROM log CROSS JOIN event e ON e.position = prior \
         WHERE number > ?2 + 1 AND e.work = ?1 AND e.seq = number - 1) "
    };
}

/// The first event of a work item (?1).
macro_rules! first {
    ($column:literal) => {
        concat!(
            "SELECT ",
            $column,
            " FROM event INDEXED BY event_mark WHERE work = ?1 AND seq = 1 AND seq % 64 = 1"
        )
    };
}

/// The specification of a work item: the data of its first event. Its row, which every event rewrites, does not repeat
/// it.
pub(super) const SPEC: &str = first!("data");
pub(super) const INPUTS: &str = first!("payload");

/// The events after ?2, up to ?3.
pub(super) const EVENTS: &str = statement!(
    { text(log!()) } "SELECT position, " { names(EventRow::COLUMNS) }
    " FROM log CROSS JOIN event ON position = place WHERE number > ?2 AND number <= ?3 ORDER BY number"
);
pub(super) const EVIDENCE: &str = concat!(
    log!(),
    "SELECT evidence FROM log CROSS JOIN event ON position = place \
     WHERE number > ?2 AND number <= ?3 AND evidence IS NOT NULL ORDER BY number"
);
pub(super) const PAYLOAD: &str =
    concat!(log!(), "SELECT payload FROM log CROSS JOIN event ON position = place WHERE number = ?3");
const PLACE: &str = concat!(log!(), "SELECT place FROM log WHERE number = ?3");

/// All events.
pub(super) const LINKS: &str = concat!(
    log!(),
    "SELECT position, hash FROM log CROSS JOIN event ON position = place WHERE number > ?2 AND number <= ?3"
);
pub(super) const DELETE: &str = concat!(
    log!(),
    "DELETE FROM event WHERE position IN (SELECT place FROM log WHERE number > ?2 AND number <= ?3)"
);

/// The record of an erasure keeps its reason.
pub(super) const ERASE: &str = concat!(
    log!(),
    "UPDATE event SET message = NULL, payload = NULL, evidence = NULL, salt = NULL \
     WHERE type <> 'content_erased' AND position IN (SELECT place FROM log WHERE number > ?2 AND number <= ?3)"
);

/// The bounds of one event, for these statements.
pub(super) fn only(seq: u64) -> (i64, i64) {
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    (seq - 1, seq)
}

/// The bounds of the events after one.
pub(super) fn after(seq: u64, limit: usize) -> (i64, i64) {
    let after = i64::try_from(seq).unwrap_or(i64::MAX);
    (after, after.saturating_add(i64::try_from(limit).unwrap_or(i64::MAX)))
}

/// The rowid of a work item, and its last event.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowRef {
    pub rowid: i64,
    pub last_event: i64,
    pub seq: u64,
}

impl Tables<'_> {
    /// A row that changes was loaded in the same transaction.
    pub fn place(&self, id: WorkId) -> Read<RowRef> {
        self.places.get(&id).copied().ok_or_else(|| Fault::stored(format!("{id} was changed unread")))
    }

    /// The position of an event.
    pub fn event_place(&self, work: WorkId, seq: u64) -> Read<i64> {
        if let Some(place) = self.places.get(&work).filter(|place| place.seq == seq) {
            return Ok(place.last_event);
        }
        let (before, seq) = only(seq);
        let found = self.one(PLACE, params![work.0.as_bytes(), before, seq], |row| Ok(row.get(0)?))?;
        found.ok_or_else(|| Fault::stored(format!("{work} has no event {seq}")))
    }

    pub fn payload(&mut self, work: WorkId, seq: u64) -> Read<Option<Payload>> {
        let id = work.0.as_bytes();
        let text: Option<Option<String>> = match only(seq) {
            (_, 1) => self.hot.input.query_row([id], |row| row.get(0)).optional()?,
            (before, seq) => self.one(PAYLOAD, params![id, before, seq], |row| Ok(row.get(0)?))?,
        };
        Ok(text.flatten().map(Payload::stored))
    }
}
