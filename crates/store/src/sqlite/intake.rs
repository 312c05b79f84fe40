//! Pauses of the intake: a small table that the write path does not use.

use super::{
    SqliteStore,
    read::bound,
    row::{self, to_json},
    table::table,
};
use crate::{
    IntakeChange,
    columns::{marks, names, statement},
    store::{IntakeStore, StoreFuture},
};

const ADD: &str = statement!(
    "INSERT INTO intake_change (" { names(IntakeRow::COLUMNS) } ") VALUES (" { marks(IntakeRow::COLUMNS, 1) } ")"
);
const PAUSES: &str = statement!(
    "SELECT " { names(IntakeRow::COLUMNS) } " FROM intake_change c WHERE paused = 1 \
     AND number = (SELECT max(d.number) FROM intake_change d WHERE d.tenant = c.tenant) ORDER BY tenant"
);
const CHANGES: &str =
    statement!("SELECT " { names(IntakeRow::COLUMNS) } " FROM intake_change ORDER BY number DESC LIMIT ?1");

impl IntakeStore for SqliteStore {
    fn pauses(&self) -> StoreFuture<'_, Vec<IntakeChange>> {
        self.read(|reader| reader.all(PAUSES, [], |row| IntakeRow::read(row, 0)))
    }

    fn change_intake<'a>(&'a self, change: &'a IntakeChange) -> StoreFuture<'a, ()> {
        let change = change.clone();
        self.write(move |conn| {
            let mut statement = conn.prepare_cached(ADD)?;
            IntakeRow::bind(&mut statement, 1, &change)?;
            statement.raw_execute()?;
            Ok(())
        })
    }

    fn intake_changes(&self, limit: usize) -> StoreFuture<'_, Vec<IntakeChange>> {
        self.read(move |reader| reader.all(CHANGES, [bound(limit)], |row| IntakeRow::read(row, 0)))
    }
}

table! {
    /// An empty tenant stands for all tenants.
    IntakeRow(change: &IntakeChange) {
        tenant = change.tenant.as_deref().unwrap_or_default(),
        paused = change.paused,
        at = change.at,
        actor = to_json(&change.actor)?,
        reason = change.reason,
    }
    read(row) -> IntakeChange {
        let tenant: String = row.get(tenant)?;
        Ok(IntakeChange {
            tenant: (!tenant.is_empty()).then_some(tenant),
            paused: row.get(paused)?,
            at: row.get(at)?,
            actor: row::json(row, actor)?,
            reason: row.get(reason)?,
        })
    }
}
