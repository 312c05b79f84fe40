//! Pauses of the intake: a small table that the write path does not use.

use super::{
    Postgres,
    connection::params,
    row::{self, get},
    table::table,
};
use crate::{
    IntakeChange,
    columns::{names, statement, values},
    store::{IntakeStore, StoreFuture},
};

const ADD: &str = statement!(
    "INSERT INTO intake_change (" { names(IntakeRow::COLUMNS) } ") VALUES (" { values(IntakeRow::COLUMNS, 1) } ")"
);
const PAUSES: &str = statement!(
    "SELECT " { names(IntakeRow::COLUMNS) } " FROM intake_change c WHERE paused \
     AND number = (SELECT max(d.number) FROM intake_change d WHERE d.tenant = c.tenant) ORDER BY tenant"
);
const CHANGES: &str = statement!("SELECT " { names(IntakeRow::COLUMNS) } " FROM intake_change ORDER BY number DESC LIMIT $1::bigint");

impl IntakeStore for Postgres {
    fn pauses(&self) -> StoreFuture<'_, Vec<IntakeChange>> {
        Box::pin(async move {
            self.points.query(PAUSES, params![]).await?.iter().map(|row| IntakeRow::read(row, 0)).collect()
        })
    }

    fn change_intake<'a>(&'a self, change: &'a IntakeChange) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut params = Vec::new();
            IntakeRow::bind(change, &mut params);
            self.points.write(ADD, params).await?;
            Ok(())
        })
    }

    fn intake_changes(&self, limit: usize) -> StoreFuture<'_, Vec<IntakeChange>> {
        Box::pin(async move {
            self.points
                .query(CHANGES, params![limit as i64])
                .await?
                .iter()
                .map(|row| IntakeRow::read(row, 0))
                .collect()
        })
    }
}

table! {
    /// An empty tenant stands for all tenants.
    one IntakeRow(change: IntakeChange) {
        tenant: "text" = change.tenant.as_deref().unwrap_or_default(),
        paused: "boolean" = change.paused,
        at: "bigint" = change.at,
        actor: "text" = row::json(&change.actor),
        reason: "text" = &change.reason,
    }
    read(row) -> IntakeChange {
        let tenant: String = get(row, tenant)?;
        Ok(IntakeChange {
            tenant: (!tenant.is_empty()).then_some(tenant),
            paused: get(row, paused)?,
            at: get(row, at)?,
            actor: row::parse(get(row, actor)?)?,
            reason: get(row, reason)?,
        })
    }
}
