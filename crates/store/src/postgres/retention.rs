//! Pruning in two steps: tombstones are inserted and committed; the work items are deleted when every transaction that
//! may not see their tombstones has ended.

use std::time::Duration;

use tenure_core::{Identity, Millis, WorkId, model::Source};
use tokio::time::Instant;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Postgres,
    connection::{PgConnection, Pipeline, params},
    fault::Fault,
    load::uuids,
    row::{self, get},
    table::table,
};
use crate::{
    Error, Position, Pruned, Pruning,
    columns::{MAC, names, statement, values},
    retention::{Before, Tombstone},
    states::sql,
    store::{RetentionStore, Store, StoreFuture},
    token::Key,
    unlogged::Link,
};

/// Whether a work item `w` may be pruned: no generation of its identity is open, too young ($1; with commands $2), or
/// needed by an open work item.
macro_rules! free {
    () => {
        "NOT EXISTS (SELECT 1 FROM work g WHERE g.tenant = w.tenant AND g.system = w.system \
         AND g.source_id = w.source_id AND g.run_id = w.run_id AND ({g.state is open} OR g.updated_at >= $1::bigint \
         OR (g.updated_at >= $2::bigint AND EXISTS (SELECT 1 FROM command q WHERE q.work = g.id)) \
         OR EXISTS (SELECT 1 FROM command_status q WHERE q.work = g.id AND {command q.state is open}) \
         OR EXISTS (SELECT 1 FROM work c WHERE c.parent = g.id AND {c.state is open}) \
         OR EXISTS (SELECT 1 FROM wait q WHERE q.tenant = g.tenant AND q.state = 'open' \
         AND q.reference = 'work:w_' || replace(g.id::text, '-', ''))))"
    };
}

macro_rules! tombstone_columns {
    () => {
        "work, tenant, system, source_id, run_id, generation, pruned_at"
    };
}
pub(super) use tombstone_columns;

macro_rules! link_columns {
    () => {
        "epoch, txn, number, hash, work"
    };
}
pub(super) use link_columns;

const PRUNABLE: &str = sql!(
    "SELECT DISTINCT a.id FROM (SELECT w.tenant, w.system, w.source_id, w.run_id \
     FROM unnest({array of terminal}) AS k(state) CROSS JOIN LATERAL (SELECT s.work FROM status s \
     WHERE s.state = k.state ORDER BY s.work) s CROSS JOIN LATERAL (SELECT v.* FROM work v \
     WHERE v.id = s.work LIMIT 1) w WHERE w.updated_at < $1::bigint AND ",
    free!(),
    " LIMIT $3::bigint) f CROSS JOIN LATERAL (SELECT b.id FROM work b WHERE b.tenant = f.tenant \
     AND b.system = f.system AND b.source_id = f.source_id AND b.run_id = f.run_id \
     ORDER BY b.generation LIMIT 100000) a ORDER BY a.id"
);
const BURY: &str = sql!(
    "INSERT INTO tombstone (",
    tombstone_columns!(),
    ") SELECT w.id, w.tenant, w.system, w.source_id, w.run_id, w.generation, $4::bigint FROM unnest($3::uuid[]) AS k(id) JOIN work w ON w.id = k.id WHERE ",
    free!(),
    " ON CONFLICT DO NOTHING RETURNING ",
    tombstone_columns!()
);
const SET_MAC: &str = "UPDATE tombstone t SET mac = v.mac FROM unnest($1::uuid[], $2::bytea[]) AS v(work, mac) \
     WHERE t.work = v.work";
/// Every transaction with a higher id sees the committed tombstones.
const BARRIER: &str = "UPDATE tombstone SET barrier = pg_snapshot_xmax(pg_current_snapshot())::text::bigint \
     WHERE NOT gone AND barrier IS NULL";
/// The tombstones whose work items still exist. The last column: whether every running transaction sees the tombstone.
const BURIED: &str = concat!(
    "SELECT ",
    tombstone_columns!(),
    ", mac, barrier <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint \
     FROM tombstone WHERE NOT gone AND barrier IS NOT NULL ORDER BY 9 DESC, work LIMIT $1::bigint"
);
const LOCK: &str = "SELECT w.id FROM work w WHERE w.id = ANY($1::uuid[]) ORDER BY w.id FOR UPDATE";
/// A work item whose identity was run again meanwhile is kept, with all its generations.
const REPRIEVED: &str = "SELECT t.work FROM tombstone t WHERE t.work = ANY($1::uuid[]) AND EXISTS ( \
     SELECT 1 FROM work g WHERE g.tenant = t.tenant AND g.system = t.system AND g.source_id = t.source_id \
     AND g.run_id = t.run_id AND NOT EXISTS (SELECT 1 FROM tombstone o WHERE o.work = g.id))";
const REPRIEVE: &str = "DELETE FROM tombstone WHERE work = ANY($1::uuid[])";
const EVENTS: &str = concat!("SELECT ", link_columns!(), " FROM event WHERE work = ANY($1::uuid[])");
const LINK: &str = concat!(
    "INSERT INTO link (",
    link_columns!(),
    ", mac) SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bytea[], $5::uuid[], $6::bytea[])"
);
const DELETE_EVENTS: &str = "DELETE FROM event WHERE work = ANY($1::uuid[])";
const DELETE_REST: [&str; 7] = [
    "DELETE FROM attempt_end WHERE work = ANY($1::uuid[])",
    "DELETE FROM step WHERE work = ANY($1::uuid[])",
    "DELETE FROM wait WHERE work = ANY($1::uuid[])",
    "DELETE FROM command_status WHERE work = ANY($1::uuid[])",
    "DELETE FROM command WHERE work = ANY($1::uuid[])",
    sql!("DELETE FROM status WHERE state = ANY({array of terminal}) AND work = ANY($1::uuid[])"),
    "UPDATE tombstone SET gone = true WHERE work = ANY($1::uuid[]) AND NOT gone",
];
const DELETE_WORKS: &str = "DELETE FROM work WHERE id = ANY($1::uuid[])";
const TOMBSTONE: &str =
    concat!("SELECT ", tombstone_columns!(), " FROM tombstone WHERE work = $1::uuid AND gone");

/// Work items pruned in one transaction.
const AT_ONCE: usize = 500;

/// How long a call waits for older transactions to end. The next call deletes the rest.
const TRANSACTIONS_TIMEOUT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

const ADD: &str = statement!(
    "INSERT INTO pruning (" { names(PruningRow::COLUMNS) } ", " { names(MAC) }
    ") VALUES (" { values(PruningRow::COLUMNS, 1) } ", " { values(MAC, 1 + PruningRow::COLUMNS.len()) } ")"
);
const ANY_PRUNED: &str = "SELECT EXISTS (SELECT 1 FROM tombstone)";
const PRUNINGS: &str = statement!("SELECT " { names(PruningRow::COLUMNS) } " FROM pruning ORDER BY number DESC LIMIT $1::bigint");

impl RetentionStore for Postgres {
    fn prunable(&self, before: Before, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        Box::pin(async move {
            let rows = self
                .lists
                .query_own(PRUNABLE, params![before.any, before.with_commands, limit as i64])
                .await?;
            rows.iter().map(|row| row::id(row, 0)).collect()
        })
    }

    fn add_pruning<'a>(&'a self, pruning: &'a Pruning) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mac = self.key().row_mac(pruning);
            let mut params = Vec::new();
            PruningRow::bind(pruning, &mut params);
            params.extend(params![mac.0.to_vec()]);
            self.points.write(ADD, params).await.map(drop)
        })
    }

    fn prunings(&self, limit: usize) -> StoreFuture<'_, Vec<Pruning>> {
        Box::pin(async move {
            let rows = self.lists.query(PRUNINGS, params![limit as i64]).await?;
            rows.iter().map(|row| PruningRow::read(row, 0)).collect()
        })
    }

    fn prune<'a>(&'a self, works: &'a [WorkId], before: Before, at: Millis) -> StoreFuture<'a, Pruned> {
        Box::pin(async move {
            // Inserts tombstones, and deletes all work items whose barrier has passed, including those of earlier
            // calls.
            let (key, session) = (self.key(), self.lists.own_session().await?);
            for piece in works.chunks(AT_ONCE) {
                bury(&session, key, piece, before, at).await.map_err(|fault| fault.error())?;
            }
            session.query(BARRIER, params![]).await.map_err(|f| f.error())?;
            let mut pruned = Pruned::default();
            let until = Instant::now() + TRANSACTIONS_TIMEOUT;
            loop {
                let rows = session.query(BURIED, params![AT_ONCE as i64]).await.map_err(|f| f.error())?;
                let mut works: Vec<Uuid> = Vec::new();
                for row in &rows {
                    // Only a tombstone with a genuine MAC.
                    if get(row, 8)?
                        && let Some(tombstone) = key.genuine(tombstone(row)?, row::mac(row, 7)?)
                    {
                        works.push(tombstone.work.0);
                    }
                }
                if rows.is_empty() || (works.is_empty() && Instant::now() >= until) {
                    return Ok(pruned);
                }
                if works.is_empty() {
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
                let piece = delete(&session, key, works).await.map_err(|fault| fault.error())?;
                pruned.works += piece.works;
                pruned.events += piece.events;
            }
        })
    }

    fn tombstone(&self, work: WorkId) -> StoreFuture<'_, Option<Tombstone>> {
        Box::pin(async move {
            let rows = self.points.query(TOMBSTONE, params![work.0]).await?;
            rows.first().map(tombstone).transpose()
        })
    }

    /// VACUUM does it, when it comes to the tables.
    fn overwrite_erased(&self) -> StoreFuture<'_, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }

    fn any_pruned(&self) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let rows = self.points.query(ANY_PRUNED, params![]).await?;
            rows.first().map_or(Ok(false), |row| get(row, 0))
        })
    }
}

table! {
    /// The record of a pruning. Its MAC is in the next column.
    one pub(super) PruningRow(pruning: Pruning) {
        at: "bigint" = pruning.at,
        actor: "text" = row::json(&pruning.actor),
        reason: "text" = &pruning.reason,
        ended_before: "bigint" = pruning.ended_before,
        works: "bigint" = pruning.works as i64,
    }
    read(row) -> Pruning {
        Ok(Pruning {
            at: get(row, at)?,
            actor: row::parse(get(row, actor)?)?,
            reason: get(row, reason)?,
            ended_before: get(row, ended_before)?,
            works: get::<i64>(row, works)? as u64,
        })
    }
}

pub(super) fn tombstone(row: &Row) -> Result<Tombstone, Error> {
    let source = Source { system: get(row, 2)?, id: get(row, 3)?, run_id: get(row, 4)? };
    Ok(Tombstone {
        work: row::id(row, 0)?,
        identity: Identity { tenant: get(row, 1)?, source },
        generation: get::<i32>(row, 5)? as u32,
        pruned_at: get(row, 6)?,
    })
}

pub(super) fn link(row: &Row) -> Result<Link, Error> {
    let work = get::<Option<Uuid>>(row, 4)?.map(WorkId);
    Ok(Link { position: position(row)?, hash: row::digest(get(row, 3)?)?, work })
}

pub(super) fn position(row: &Row) -> Result<Position, Error> {
    Ok(Position { epoch: get(row, 0)?, txn: get(row, 1)?, number: get(row, 2)? })
}

/// Inserts tombstones with their MACs.
async fn bury(
    session: &PgConnection,
    key: &Key,
    ids: &[WorkId],
    before: Before,
    at: Millis,
) -> Result<(), Fault> {
    session.query("BEGIN", params![]).await?;
    let rows = session.query(BURY, params![before.any, before.with_commands, uuids(ids), at]).await?;
    let (mut works, mut macs): (Vec<Uuid>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    for row in &rows {
        let tombstone = tombstone(row)?;
        macs.push(key.row_mac(&tombstone).0.to_vec());
        works.push(tombstone.work.0);
    }
    session.query(SET_MAC, params![works, macs]).await?;
    session.query("COMMIT", params![]).await.map_err(Fault::at_commit).map(drop)
}

/// Inserts the links of these work items' events, with their MACs.
async fn link_events(session: &PgConnection, key: &Key, works: &[Uuid]) -> Result<(), Fault> {
    let rows = session.query(EVENTS, params![works]).await?;
    let links = rows.iter().map(link).collect::<Result<Vec<Link>, Error>>()?;
    let values = params![
        links.iter().map(|link| link.position.epoch).collect::<Vec<_>>(),
        links.iter().map(|link| link.position.txn).collect::<Vec<_>>(),
        links.iter().map(|link| link.position.number).collect::<Vec<_>>(),
        links.iter().map(|link| link.hash.0.to_vec()).collect::<Vec<_>>(),
        links.iter().map(|link| link.work.map(|work| work.0)).collect::<Vec<_>>(),
        links.iter().map(|link| key.row_mac(link).0.to_vec()).collect::<Vec<_>>(),
    ];
    session.query(LINK, values).await.map(drop)
}

/// Deletes in one transaction. After a fault, dropping the connection ends it.
async fn delete(session: &PgConnection, key: &Key, mut works: Vec<Uuid>) -> Result<Pruned, Fault> {
    session.query("BEGIN", params![]).await?;
    session.query(LOCK, params![works.clone()]).await?;
    let reprieved = session.query(REPRIEVED, params![works.clone()]).await?;
    let reprieved = reprieved.iter().map(|row| get(row, 0)).collect::<Result<Vec<Uuid>, _>>()?;
    works.retain(|work| !reprieved.contains(work));
    link_events(session, key, &works).await?;
    let mut pipeline = Pipeline::default();
    pipeline.add_if(!reprieved.is_empty(), REPRIEVE, || params![reprieved]);
    let events = pipeline.add(DELETE_EVENTS, params![works.clone()]);
    for sql in DELETE_REST {
        pipeline.add(sql, params![works.clone()]);
    }
    let deleted = pipeline.add(DELETE_WORKS, params![works]);
    pipeline.add("COMMIT", params![]);
    let results = pipeline.run(session).await.map_err(Fault::at_commit)?;
    Ok(Pruned { works: results.affected(deleted), events: results.affected(events), more: false })
}
