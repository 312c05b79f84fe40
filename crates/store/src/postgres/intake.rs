//! The intake: a small table of its own, away from the hot path.

use tokio_postgres::Row;

use super::{
    Postgres,
    connection::params,
    row::{self, get},
};
use crate::{
    Error, IntakeChange,
    store::{IntakeStore, StoreFuture},
};

const ADD: &str = "INSERT INTO intake_change (tenant, paused, at, actor, reason) \
     VALUES ($1::text, $2::boolean, $3::bigint, $4::text, $5::text)";
const STANDING: &str = "SELECT tenant, paused, at, actor, reason FROM intake_change c WHERE paused \
     AND number = (SELECT max(d.number) FROM intake_change d WHERE d.tenant = c.tenant) ORDER BY tenant";
const CHANGES: &str =
    "SELECT tenant, paused, at, actor, reason FROM intake_change ORDER BY number DESC LIMIT $1::bigint";

impl IntakeStore for Postgres {
    fn pauses(&self) -> StoreFuture<'_, Vec<IntakeChange>> {
        Box::pin(async move { self.points.query(STANDING, params![]).await?.iter().map(change).collect() })
    }

    fn change_intake<'a>(&'a self, change: &'a IntakeChange) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let tenant = change.tenant.as_deref().unwrap_or_default();
            let values = params![tenant, change.paused, change.at, row::json(&change.actor), &change.reason];
            self.points.write(ADD, values).await?;
            Ok(())
        })
    }

    fn intake_changes(&self, limit: usize) -> StoreFuture<'_, Vec<IntakeChange>> {
        Box::pin(async move {
            self.points.query(CHANGES, params![limit as i64]).await?.iter().map(change).collect()
        })
    }
}

fn change(row: &Row) -> Result<IntakeChange, Error> {
    let tenant: String = get(row, 0)?;
    Ok(IntakeChange {
        tenant: (!tenant.is_empty()).then_some(tenant),
        paused: get(row, 1)?,
        at: get(row, 2)?,
        actor: row::parse(get(row, 3)?)?,
        reason: get(row, 4)?,
    })
}
