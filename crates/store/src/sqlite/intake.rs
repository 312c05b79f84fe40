//! The intake: a small table of its own, away from the hot path.

use rusqlite::{Row, params};

use super::{
    SqliteStore,
    read::bound,
    row::{self, Read, to_json},
};
use crate::{
    IntakeChange,
    store::{IntakeStore, StoreFuture},
};

const ADD: &str = "INSERT INTO intake_change (tenant, paused, at, actor, reason) VALUES (?1, ?2, ?3, ?4, ?5)";
const STANDING: &str = "SELECT tenant, paused, at, actor, reason FROM intake_change c WHERE paused = 1 \
     AND number = (SELECT max(d.number) FROM intake_change d WHERE d.tenant = c.tenant) ORDER BY tenant";
const CHANGES: &str =
    "SELECT tenant, paused, at, actor, reason FROM intake_change ORDER BY number DESC LIMIT ?1";

impl IntakeStore for SqliteStore {
    fn pauses(&self) -> StoreFuture<'_, Vec<IntakeChange>> {
        self.read(|reader| reader.all(STANDING, [], change))
    }

    fn change_intake<'a>(&'a self, change: &'a IntakeChange) -> StoreFuture<'a, ()> {
        let change = change.clone();
        self.write(move |conn| {
            let tenant = change.tenant.as_deref().unwrap_or_default();
            let values = params![tenant, change.paused, change.at, to_json(&change.actor)?, change.reason];
            conn.prepare_cached(ADD)?.execute(values)?;
            Ok(())
        })
    }

    fn intake_changes(&self, limit: usize) -> StoreFuture<'_, Vec<IntakeChange>> {
        self.read(move |reader| reader.all(CHANGES, [bound(limit)], change))
    }
}

fn change(row: &Row<'_>) -> Read<IntakeChange> {
    let tenant: String = row.get(0)?;
    Ok(IntakeChange {
        tenant: (!tenant.is_empty()).then_some(tenant),
        paused: row.get(1)?,
        at: row.get(2)?,
        actor: row::json(row, 3)?,
        reason: row.get(4)?,
    })
}
