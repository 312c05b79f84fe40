//! A restored copy starts its feed at positions that no reader has seen.
//!
//! A backup ends at an older position than the ledger that it was copied from. Readers of that ledger may have cursors
//! beyond it: if the copy continued to count, they would skip its new events. So a copy is marked, and the first
//! program that opens it raises the positions to the time of day, as is done with fences. Each restore of the same
//! backup gets different positions.

use rusqlite::{Connection, TransactionBehavior};
use tenure_core::Millis;

use super::settings::explain;
use crate::Error;

const MARK: &str = "INSERT INTO meta (key, value) VALUES ('copied', x'01') ON CONFLICT (key) DO NOTHING";
const UNMARK: &str = "DELETE FROM meta WHERE key = 'copied'";
const COUNTED: &str = "INSERT INTO sqlite_sequence (name, seq) SELECT 'event', 0 \
     WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'event')";
const LIFT: &str = "UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'event'";

/// More events than a ledger can record in a millisecond.
const EVENTS_OF_A_MILLISECOND: i64 = 1_024;

/// Marks a copy as a copy.
pub(super) fn mark(copy: &Connection) -> rusqlite::Result<()> {
    copy.execute(MARK, []).map(drop)
}

/// Must run before the first event is recorded in a copy.
pub(super) fn lift_positions(conn: &mut Connection, now: Millis) -> Result<(), Error> {
    let path = conn.path().unwrap_or_default().to_owned();
    let mut lift = || {
        let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if transaction.execute(UNMARK, [])? > 0 {
            transaction.execute(COUNTED, [])?;
            transaction.execute(LIFT, [now * EVENTS_OF_A_MILLISECOND])?;
        }
        transaction.commit()
    };
    lift().map_err(|error| explain(path.as_ref(), &error))
}
