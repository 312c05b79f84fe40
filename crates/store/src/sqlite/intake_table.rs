//! The rows of `tenure_intake`. One program writes at a time, so the order of the ids is the order of the commits.

use std::{future::Future, pin::Pin, time::Duration};

use rusqlite::{Connection, Row, params, types::ValueRef};
use tenure_core::Millis;

use super::{
    SqliteStore,
    read::bound,
    row::{Read, to_json},
};
use crate::{
    intake_table::{IntakeRow, IntakeRows, IntakeTable, LONGEST},
    store::StoreFuture,
};

const WAITING: &str = "SELECT id, tenant, source_system, source_id, source_run_id, kind, disposition, \
     CASE WHEN length(CAST(input AS BLOB)) <= ?3 THEN input END, priority, session, correlation_id, \
     CASE WHEN length(CAST(options AS BLOB)) > ?3 THEN '[' ELSE options END FROM tenure_intake \
     WHERE rejected_at IS NULL AND tenant NOT IN (SELECT value FROM json_each(?1)) ORDER BY id LIMIT ?2";
const SUMMARY: &str = "SELECT \
     (SELECT count(*) FROM (SELECT 1 FROM tenure_intake WHERE rejected_at IS NULL LIMIT 10000)), \
     (SELECT created_at FROM tenure_intake WHERE rejected_at IS NULL ORDER BY id LIMIT 1), \
     (SELECT count(*) FROM (SELECT 1 FROM tenure_intake WHERE rejected_at IS NOT NULL LIMIT 10000)), \
     (SELECT reason FROM tenure_intake WHERE rejected_at IS NOT NULL ORDER BY rejected_at DESC, id DESC LIMIT 1)";
const DELETE: &str = "DELETE FROM tenure_intake WHERE id IN (SELECT value FROM json_each(?1))";
const REJECT: &str = "UPDATE tenure_intake SET rejected_at = ?2, reason = ?3 WHERE id = ?1";

/// SQLite does not notify a process of another process's commit.
const POLL: Duration = Duration::from_millis(50);

impl IntakeRows for SqliteStore {
    fn intake_rows<'a>(&'a self, except: &'a [String], limit: usize) -> StoreFuture<'a, Vec<IntakeRow>> {
        let except = except.to_vec();
        self.read(move |reader| {
            reader.all(WAITING, params![to_json(&except)?, bound(limit), LONGEST as i64], waiting)
        })
    }

    fn settle_intake_rows<'a>(
        &'a self,
        done: &'a [i64],
        rejected: &'a [(i64, String)],
        at: Millis,
    ) -> StoreFuture<'a, ()> {
        let (done, rejected) = (done.to_vec(), rejected.to_vec());
        self.write(move |conn| settle(conn, &done, &rejected, at))
    }

    fn intake_table(&self) -> StoreFuture<'_, IntakeTable> {
        self.read(|reader| {
            let counted = reader.all(SUMMARY, [], |row| {
                Ok(IntakeTable {
                    waiting: row.get::<_, i64>(0)? as u64,
                    oldest_at: row.get(1)?,
                    rejected: row.get::<_, i64>(2)? as u64,
                    newest_reason: row.get(3)?,
                })
            });
            Ok(counted?.pop().unwrap_or_default())
        })
    }

    fn intake_hint(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(POLL))
    }
}

fn settle(conn: &Connection, done: &[i64], rejected: &[(i64, String)], at: Millis) -> Read<()> {
    let transaction = conn.unchecked_transaction()?;
    transaction.prepare_cached(DELETE)?.execute([to_json(&done)?])?;
    for (id, reason) in rejected {
        transaction.prepare_cached(REJECT)?.execute(params![id, at, reason])?;
    }
    Ok(transaction.commit()?)
}

fn waiting(row: &Row<'_>) -> Read<IntakeRow> {
    let mut unreadable = None;
    // SQLite accepts any bytes as text, and such a row must not hide the others.
    let mut text = |column: usize| -> Read<Option<String>> {
        let value = row.get_ref(column)?;
        let (ValueRef::Text(bytes) | ValueRef::Blob(bytes)) = value else { return Ok(None) };
        let text = String::from_utf8_lossy(bytes).into_owned();
        if text.as_bytes() != bytes {
            unreadable = Some(format!("column {column}: it is not UTF-8"));
        }
        Ok(Some(text))
    };
    let row = IntakeRow {
        id: row.get(0)?,
        tenant: text(1)?.unwrap_or_default(),
        source_system: text(2)?.unwrap_or_default(),
        source_id: text(3)?.unwrap_or_default(),
        source_run_id: text(4)?.unwrap_or_default(),
        kind: text(5)?.unwrap_or_default(),
        disposition: text(6)?.unwrap_or_default(),
        input: text(7)?,
        priority: row.get(8)?,
        session: text(9)?,
        correlation_id: text(10)?,
        options: text(11)?,
        unreadable: None,
    };
    Ok(IntakeRow { unreadable, ..row })
}
