//! The log of a work, in the one table of all events. It is linked: each event names the one before it, the work's row names
//! the last. Every 64th has an entry in an index, the first among them: an event from the middle is found from the next one
//! that has. See `schema.sql`.

use rusqlite::{OptionalExtension, params};
use tenure_core::{Payload, WorkId};

use super::{
    fault::Fault,
    row::{EventRow, Read},
    tables::Tables,
};
use crate::columns::{names, statement, text};

/// The `place` and the `number` of a work's (?1) events, from its last one that counts (?3) or a few later ones, back to the
/// one after ?2. A link that leads elsewhere, in a file that somebody edited, ends it.
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

/// The event of a work (?1) that comes first.
macro_rules! first {
    ($column:literal) => {
        concat!(
            "SELECT ",
            $column,
            " FROM event INDEXED BY event_mark WHERE work = ?1 AND seq = 1 AND seq % 64 = 1"
        )
    };
}

/// What a work was ingested as. Its row, which every event rewrites, does not say it again.
pub(super) const SPEC: &str = first!("data");
pub(super) const INPUTS: &str = first!("payload");

/// Those after ?2, up to ?3.
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

/// All of them.
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

/// The bounds of one event, as the statements take them.
pub(super) fn only(seq: u64) -> (i64, i64) {
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    (seq - 1, seq)
}

/// The bounds of those after one.
pub(super) fn after(seq: u64, limit: usize) -> (i64, i64) {
    let after = i64::try_from(seq).unwrap_or(i64::MAX);
    (after, after.saturating_add(i64::try_from(limit).unwrap_or(i64::MAX)))
}

/// Where a work lies, and its last event.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowRef {
    pub rowid: i64,
    pub last_event: i64,
    pub seq: u64,
}

impl Tables<'_> {
    /// A row that changes was loaded in this very transaction.
    pub fn place(&self, id: WorkId) -> Read<RowRef> {
        self.places.get(&id).copied().ok_or_else(|| Fault::stored(format!("{id} was changed unread")))
    }

    /// Where an event lies.
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
