//! The intake: a small table of its own, away from the hot path.

use tokio_postgres::Row;

use super::{
    connection::params,
    read::Reader,
    row::{self, get},
};
use crate::{Error, IntakeChange};

const ADD: &str = "INSERT INTO intake_change (tenant, paused, at, actor, reason) \
     VALUES ($1::text, $2::boolean, $3::bigint, $4::text, $5::text)";
const STANDING: &str = "SELECT tenant, paused, at, actor, reason FROM intake_change c WHERE paused \
     AND number = (SELECT max(d.number) FROM intake_change d WHERE d.tenant = c.tenant) ORDER BY tenant";
const CHANGES: &str =
    "SELECT tenant, paused, at, actor, reason FROM intake_change ORDER BY number DESC LIMIT $1::bigint";

impl Reader {
    pub async fn change_intake(&self, change: &IntakeChange) -> Result<(), Error> {
        let tenant = change.tenant.as_deref().unwrap_or_default();
        let values = params![tenant, change.paused, change.at, row::json(&change.actor), &change.reason];
        self.write(ADD, values).await?;
        Ok(())
    }

    pub async fn pauses(&self) -> Result<Vec<IntakeChange>, Error> {
        self.query(STANDING, params![]).await?.iter().map(change).collect()
    }

    pub async fn intake_changes(&self, limit: usize) -> Result<Vec<IntakeChange>, Error> {
        self.query(CHANGES, params![limit as i64]).await?.iter().map(change).collect()
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
