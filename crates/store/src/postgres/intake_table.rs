//! The rows of `tenure_intake`. They are ordered by `mark`: the id of the last transaction that had ended when the row
//! was inserted, or the inserting transaction's own id, if that is greater. A row is visible once it is committed, and
//! is deleted when it is taken, so a row that commits late is not skipped.

use std::{future::Future, pin::Pin, time::Duration};

use tenure_core::Millis;
use tokio_postgres::Row;

use super::{Postgres, connection::params, row::get};
use crate::{
    Error,
    intake_table::{IntakeRow, IntakeRows, IntakeTable, LONGEST},
    store::StoreFuture,
};

const WAITING: &str = "SELECT id, tenant, source_system, source_id, source_run_id, kind, disposition, \
     CASE WHEN octet_length(input) <= $3::bigint THEN input END, priority::bigint, session, correlation_id, \
     CASE WHEN octet_length(options) > $3::bigint THEN '[' ELSE options END FROM tenure_intake \
     WHERE rejected_at IS NULL AND tenant <> ALL ($1::text[]) ORDER BY mark, id LIMIT $2::bigint";
const SETTLE: &str = "WITH done AS (DELETE FROM tenure_intake WHERE id = ANY ($1::bigint[])) \
     UPDATE tenure_intake t SET rejected_at = $4::bigint, reason = v.reason \
     FROM unnest($2::bigint[], $3::text[]) AS v (id, reason) WHERE t.id = v.id";
const SUMMARY: &str = "SELECT \
     (SELECT count(*) FROM (SELECT 1 FROM tenure_intake WHERE rejected_at IS NULL LIMIT 10000) w), \
     (SELECT min(created_at) FROM (SELECT created_at FROM tenure_intake WHERE rejected_at IS NULL \
     ORDER BY mark, id LIMIT 1) o), \
     (SELECT count(*) FROM (SELECT 1 FROM tenure_intake WHERE rejected_at IS NOT NULL LIMIT 10000) r), \
     (SELECT reason FROM tenure_intake WHERE rejected_at IS NOT NULL ORDER BY rejected_at DESC, id DESC LIMIT 1)";

/// Polling is needed, because a hint can be lost.
const POLL: Duration = Duration::from_secs(1);

impl IntakeRows for Postgres {
    fn intake_rows<'a>(&'a self, except: &'a [String], limit: usize) -> StoreFuture<'a, Vec<IntakeRow>> {
        Box::pin(async move {
            let rows = self.lists.query(WAITING, params![except, limit as i64, LONGEST as i64]).await?;
            rows.iter().map(waiting).collect()
        })
    }

    fn settle_intake_rows<'a>(
        &'a self,
        done: &'a [i64],
        rejected: &'a [(i64, String)],
        at: Millis,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let ids: Vec<i64> = rejected.iter().map(|(id, _)| *id).collect();
            let reasons: Vec<&str> = rejected.iter().map(|(_, reason)| reason.as_str()).collect();
            self.points.write(SETTLE, params![done, ids, reasons, at]).await?;
            Ok(())
        })
    }

    fn intake_table(&self) -> StoreFuture<'_, IntakeTable> {
        Box::pin(async move {
            let rows = self.gauges.query(SUMMARY, params![]).await?;
            let row = rows.first().ok_or_else(|| Error::Corrupt("a count gave no row".to_owned()))?;
            Ok(IntakeTable {
                waiting: get::<i64>(row, 0)? as u64,
                oldest_at: get(row, 1)?,
                rejected: get::<i64>(row, 2)? as u64,
                newest_reason: get(row, 3)?,
            })
        })
    }

    fn intake_hint(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let _late = tokio::time::timeout(POLL, self.shared.intake.notified()).await;
        })
    }
}

fn waiting(row: &Row) -> Result<IntakeRow, Error> {
    Ok(IntakeRow {
        id: get(row, 0)?,
        tenant: get(row, 1)?,
        source_system: get(row, 2)?,
        source_id: get(row, 3)?,
        source_run_id: get(row, 4)?,
        kind: get(row, 5)?,
        disposition: get(row, 6)?,
        input: get(row, 7)?,
        priority: get(row, 8)?,
        session: get(row, 9)?,
        correlation_id: get(row, 10)?,
        options: get(row, 11)?,
        unreadable: None,
    })
}
