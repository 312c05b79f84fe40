//! Pruning, in two steps: tombstones are set and committed; works are deleted when every transaction that may
//! not have seen their tombstones is over.

use std::time::Duration;

use tenure_core::{Millis, WorkId, payload::Digest};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    fault::Fault,
    load::uuids,
    read::Reader,
    row::{self, get},
    session::{Pipeline, Session, params},
};
use crate::{
    Anchor, Error, Position, Pruned,
    retention::{Before, Tombstone},
};

/// Whether a work `w` may go: none of its identity's generations is open, too young ($1; with commands $2), or
/// needed by an open work.
macro_rules! free {
    () => {
        "NOT EXISTS (SELECT 1 FROM work g WHERE g.tenant = w.tenant AND g.system = w.system \
         AND g.source_id = w.source_id AND g.run_id = w.run_id AND (g.state < 11 OR g.updated_at >= $1::bigint \
         OR (g.updated_at >= $2::bigint AND EXISTS (SELECT 1 FROM command q WHERE q.work = g.id)) \
         OR EXISTS (SELECT 1 FROM command_status q WHERE q.work = g.id AND q.state <= 4) \
         OR EXISTS (SELECT 1 FROM work c WHERE c.parent = g.id AND c.state < 11) \
         OR EXISTS (SELECT 1 FROM wait q WHERE q.tenant = g.tenant AND q.state = 'open' \
         AND q.reference = 'work:w_' || replace(g.id::text, '-', ''))))"
    };
}

const PRUNABLE: &str = concat!(
    "SELECT DISTINCT a.id FROM (SELECT w.tenant, w.system, w.source_id, w.run_id \
     FROM generate_series(11, 16) AS k(state) CROSS JOIN LATERAL (SELECT s.work FROM status s \
     WHERE s.state = k.state::smallint ORDER BY s.work) s CROSS JOIN LATERAL (SELECT v.* FROM work v \
     WHERE v.id = s.work LIMIT 1) w WHERE w.updated_at < $1::bigint AND ",
    free!(),
    " LIMIT $3::bigint) f CROSS JOIN LATERAL (SELECT b.id FROM work b WHERE b.tenant = f.tenant \
     AND b.system = f.system AND b.source_id = f.source_id AND b.run_id = f.run_id \
     ORDER BY b.generation LIMIT 100000) a ORDER BY a.id"
);
const BURY: &str = concat!(
    "INSERT INTO tombstone (work, tenant, system, source_id, run_id, generation, pruned_at) \
     SELECT w.id, w.tenant, w.system, w.source_id, w.run_id, w.generation, $4::bigint FROM unnest($3::uuid[]) AS k(id) JOIN work w ON w.id = k.id WHERE ",
    free!(),
    " ON CONFLICT DO NOTHING"
);
/// Whoever gets a higher number from now on sees the tombstones that are committed.
const BARRIER: &str = "UPDATE tombstone SET barrier = pg_snapshot_xmax(pg_current_snapshot())::text::bigint \
     WHERE NOT gone AND barrier IS NULL";
/// Each with whether nobody is left who may not see it.
const BURIED: &str = "SELECT t.work, t.barrier <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint \
     FROM tombstone t WHERE NOT t.gone AND t.barrier IS NOT NULL ORDER BY 2 DESC, t.work LIMIT $1::bigint";
const LOCK: &str = "SELECT w.id FROM work w WHERE w.id = ANY($1::uuid[]) ORDER BY w.id FOR UPDATE";
/// A work that was run again meanwhile, with all its generations, is kept after all.
const REPRIEVED: &str = "SELECT t.work FROM tombstone t WHERE t.work = ANY($1::uuid[]) AND EXISTS ( \
     SELECT 1 FROM work g WHERE g.tenant = t.tenant AND g.system = t.system AND g.source_id = t.source_id \
     AND g.run_id = t.run_id AND NOT EXISTS (SELECT 1 FROM tombstone o WHERE o.work = g.id))";
const REPRIEVE: &str = "DELETE FROM tombstone WHERE work = ANY($1::uuid[])";
const LINK: &str = "INSERT INTO link (epoch, txn, number, hash) SELECT e.epoch, e.txn, e.number, e.hash \
     FROM event e WHERE e.work = ANY($1::uuid[])";
const DELETE_EVENTS: &str = "DELETE FROM event WHERE work = ANY($1::uuid[])";
const DELETE_REST: [&str; 7] = [
    "DELETE FROM attempt_end WHERE work = ANY($1::uuid[])",
    "DELETE FROM step WHERE work = ANY($1::uuid[])",
    "DELETE FROM wait WHERE work = ANY($1::uuid[])",
    "DELETE FROM command_status WHERE work = ANY($1::uuid[])",
    "DELETE FROM command WHERE work = ANY($1::uuid[])",
    "DELETE FROM status WHERE state = ANY('{11,12,13,14,15,16}'::smallint[]) AND work = ANY($1::uuid[])",
    "UPDATE tombstone SET gone = true WHERE work = ANY($1::uuid[]) AND NOT gone",
];
const DELETE_WORKS: &str = "DELETE FROM work WHERE id = ANY($1::uuid[])";
const TOMBSTONE: &str = "SELECT tenant, pruned_at FROM tombstone WHERE work = $1::uuid AND gone";
const LINKS: &str = "SELECT l.epoch, l.txn, l.number, l.hash FROM ( \
     (SELECT epoch, txn, number, hash FROM event WHERE (epoch, txn, number) > ($1::int, $2::bigint, $3::bigint) \
     ORDER BY epoch, txn, number LIMIT $4::bigint) UNION ALL \
     (SELECT epoch, txn, number, hash FROM link WHERE (epoch, txn, number) > ($1::int, $2::bigint, $3::bigint) \
     ORDER BY epoch, txn, number LIMIT $4::bigint)) l \
     WHERE (l.epoch, l.txn) < ((SELECT m.value::int FROM meta m WHERE m.key = 'epoch'), \
     pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     ORDER BY l.epoch, l.txn, l.number LIMIT $4::bigint";

const ANCHOR: &str = "SELECT value FROM meta WHERE key = 'anchor'";
const SET_ANCHOR: &str = "INSERT INTO meta (key, value) VALUES ('anchor', $1::text) \
     ON CONFLICT (key) DO UPDATE SET value = excluded.value \
     WHERE (meta.value::json ->> 'events')::bigint < $2::bigint";

/// Works of one transaction.
const AT_ONCE: usize = 500;

/// How long a call waits for older transactions to end. What is left then, the next call deletes.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

impl Reader {
    pub async fn prunable(&self, before: Before, limit: usize) -> Result<Vec<WorkId>, Error> {
        let rows = self.query(PRUNABLE, params![before.any, before.with_commands, limit as i64]).await?;
        rows.iter().map(|row| row::id(row, 0)).collect()
    }

    /// Sets tombstones, and deletes the works of all whose time has come: these, or those of an earlier call.
    pub async fn prune(&self, ids: &[WorkId], before: Before, at: Millis) -> Result<Pruned, Error> {
        let session = self.own_session().await?;
        for piece in ids.chunks(AT_ONCE) {
            session
                .query(BURY, params![before.any, before.with_commands, uuids(piece), at])
                .await
                .map_err(|f| f.at_commit().error())?;
        }
        session.query(BARRIER, params![]).await.map_err(|f| f.error())?;
        let mut pruned = Pruned::default();
        let until = Instant::now() + PATIENCE;
        loop {
            let rows = session.query(BURIED, params![AT_ONCE as i64]).await.map_err(|f| f.error())?;
            let mut works: Vec<Uuid> = Vec::new();
            for row in &rows {
                if get(row, 1)? {
                    works.push(get(row, 0)?);
                }
            }
            if rows.is_empty() || (works.is_empty() && Instant::now() >= until) {
                return Ok(pruned);
            }
            if works.is_empty() {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            let piece = delete(&session, works).await.map_err(|fault| fault.error())?;
            pruned.works += piece.works;
            pruned.events += piece.events;
        }
    }

    pub async fn tombstone(&self, id: WorkId) -> Result<Option<Tombstone>, Error> {
        let rows = self.query(TOMBSTONE, params![id.0]).await?;
        let read = |row| Ok(Tombstone { tenant: get(row, 0)?, pruned_at: get(row, 1)? });
        rows.first().map(read).transpose()
    }

    pub async fn anchor(&self) -> Result<Option<Anchor>, Error> {
        let rows = self.query(ANCHOR, params![]).await?;
        rows.first().map(|row| row::parse(get(row, 0)?)).transpose()
    }

    pub async fn set_anchor(&self, anchor: Anchor) -> Result<(), Error> {
        let params = params![row::json(&anchor), anchor.events as i64];
        self.write(SET_ANCHOR, params).await.map(drop)
    }

    pub async fn links(&self, after: Position, limit: usize) -> Result<Vec<(Position, Digest)>, Error> {
        let params = params![after.epoch, after.txn, after.number, limit as i64];
        let rows = self.query(LINKS, params).await?;
        let read = |row| {
            let position = Position { epoch: get(row, 0)?, txn: get(row, 1)?, number: get(row, 2)? };
            Ok((position, row::digest(get(row, 3)?)?))
        };
        rows.iter().map(read).collect()
    }
}

/// One transaction. Dropping its session after a fault ends it.
async fn delete(session: &Session, mut works: Vec<Uuid>) -> Result<Pruned, Fault> {
    session.query("BEGIN", params![]).await?;
    session.query(LOCK, params![works.clone()]).await?;
    let reprieved = session.query(REPRIEVED, params![works.clone()]).await?;
    let reprieved = reprieved.iter().map(|row| get(row, 0)).collect::<Result<Vec<Uuid>, _>>()?;
    works.retain(|work| !reprieved.contains(work));
    let mut pipeline = Pipeline::default();
    pipeline.add_if(!reprieved.is_empty(), REPRIEVE, || params![reprieved]);
    pipeline.add(LINK, params![works.clone()]);
    let events = pipeline.add(DELETE_EVENTS, params![works.clone()]);
    for sql in DELETE_REST {
        pipeline.add(sql, params![works.clone()]);
    }
    let deleted = pipeline.add(DELETE_WORKS, params![works]);
    pipeline.add("COMMIT", params![]);
    let results = pipeline.run(session).await.map_err(Fault::at_commit)?;
    Ok(Pruned { works: results.affected(deleted), events: results.affected(events), more: false })
}
