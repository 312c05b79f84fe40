//! Faults that only the database can find: damaged pages, narrow tables that disagree with their work items, rows that
//! the ledger did not write, and a schema that differs from the migrations'.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use tenure_core::WorkId;

use super::{
    SqliteStore,
    fault::Fault,
    migrate::{self, MIGRATIONS},
    readers,
    row::{self, Read, to_json},
    unlogged,
};
use crate::{
    Anchor, check,
    states::sql,
    store::{CheckStore, SelfCheck, StoreFuture},
};

/// The maximum number of reported faults of one kind.
const TOLD: usize = 100;

/// Queries that find inconsistent work items, each with a description of the fault.
const CHECKS: &[(&str, &str)] = &[
    (
        "does not match its last event",
        "SELECT w.id FROM work w WHERE (w.seq, w.state, w.head) IS NOT (SELECT e.seq, e.to_state, e.hash \
         FROM event e WHERE e.position = w.last_event AND e.work = w.id) \
         OR EXISTS (SELECT 1 FROM event n WHERE n.previous = w.last_event)",
    ),
    (
        "has an event without a predecessor",
        "SELECT DISTINCT e.work FROM event e WHERE e.seq > 1 AND NOT EXISTS (SELECT 1 FROM event p \
         WHERE p.position = e.previous AND p.work = e.work AND p.seq = e.seq - 1)",
    ),
    (
        "has events but no row",
        "SELECT DISTINCT e.work FROM event e INDEXED BY event_mark WHERE e.seq = 1 AND e.seq % 64 = 1 AND NOT EXISTS \
         (SELECT 1 FROM work w WHERE w.id = e.work)",
    ),
    (
        "differs from its specification in the log",
        "SELECT w.id FROM work w JOIN event e ON e.work = w.id AND e.seq = 1 AND e.seq % 64 = 1 \
         WHERE (w.tenant, w.system, w.source_id, w.run_id, w.generation, w.kind, w.session, w.priority, \
         w.created_at, w.workflow_id) IS NOT (json_extract(e.data, '$.spec.tenant'), \
         json_extract(e.data, '$.spec.source.system'), json_extract(e.data, '$.spec.source.id'), \
         coalesce(json_extract(e.data, '$.spec.source.run_id'), ''), json_extract(e.data, '$.spec.generation'), \
         json_extract(e.data, '$.spec.kind'), json_extract(e.data, '$.spec.session'), \
         json_extract(e.data, '$.spec.priority'), json_extract(e.data, '$.spec.created_at'), \
         json_extract(e.data, '$.spec.workflow.id'))",
    ),
    (
        "disagrees with its narrow row",
        "SELECT w.id FROM work w LEFT JOIN status s ON s.work = w.id WHERE s.work IS NULL \
         OR s.state <> w.state OR s.due_at IS NOT w.due_at OR s.tenant <> w.tenant \
         OR s.session IS NOT w.session OR s.created_at <> w.created_at",
    ),
    (
        "has a narrow row but no row",
        "SELECT s.work FROM status s WHERE NOT EXISTS (SELECT 1 FROM work w WHERE w.id = s.work)",
    ),
    (
        "could be claimed but is not on the queue",
        sql!(
            "SELECT s.work FROM status s JOIN work w ON w.id = s.work WHERE {s.state is queued} \
         AND (s.session IS NULL OR (NOT EXISTS (SELECT 1 FROM status h WHERE h.tenant = s.tenant \
         AND h.session = s.session AND {h.state is held}) AND s.work = \
         (SELECT q.work FROM status q WHERE q.tenant = s.tenant AND q.session = s.session \
         AND {q.state is pending} ORDER BY q.created_at, q.work LIMIT 1))) \
         AND NOT EXISTS (SELECT 1 FROM ready r WHERE r.tenant = w.tenant AND r.kind = w.kind \
         AND r.system = w.system AND r.priority = w.priority AND r.created_at = w.created_at AND r.work = w.id)"
        ),
    ),
    (
        "is on the queue but cannot be claimed",
        sql!(
            "SELECT r.work FROM ready r LEFT JOIN status s ON s.work = r.work WHERE ({s.state is queued}) IS NOT TRUE \
         OR (s.session IS NOT NULL AND (EXISTS (SELECT 1 FROM status h WHERE h.tenant = s.tenant \
         AND h.session = s.session AND {h.state is held}) OR s.work <> \
         (SELECT q.work FROM status q WHERE q.tenant = s.tenant AND q.session = s.session \
         AND {q.state is pending} ORDER BY q.created_at, q.work LIMIT 1)))"
        ),
    ),
    (
        "is held without an open attempt",
        "SELECT w.id FROM work w WHERE w.lease_fence IS NOT NULL AND w.lapsed_at IS NULL AND NOT EXISTS \
         (SELECT 1 FROM attempt a WHERE a.work = w.id AND a.fence = w.lease_fence AND a.ended_at IS NULL)",
    ),
    (
        "waits for an answer that is kept for it",
        "SELECT q.work FROM kept k JOIN wait q ON q.tenant = k.tenant AND q.reference = k.reference \
         WHERE q.state = 'open' AND k.kept_at + 86400000 > q.opened_at AND q.kind <> 'approval'",
    ),
    (
        "counts other open waits than it has",
        "SELECT w.id FROM work w WHERE w.open_waits <> \
         (SELECT count(*) FROM wait q WHERE q.work = w.id AND q.state = 'open')",
    ),
    (
        "was pruned and has no tombstone",
        "SELECT DISTINCT l.work FROM link l WHERE l.work IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM tombstone t WHERE t.work = l.work)",
    ),
    (
        "was pruned, and nobody is recorded to have done so",
        "SELECT t.work FROM tombstone t WHERE NOT EXISTS (SELECT 1 FROM pruning p WHERE p.at = t.pruned_at)",
    ),
];

const OBJECTS: &str =
    "SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";

const ANCHOR: &str = "SELECT CAST(value AS TEXT) FROM meta WHERE key = 'anchor'";
const SET_ANCHOR: &str = "UPDATE meta SET value = CAST(?1 AS BLOB) \
     WHERE key = 'anchor' AND json_extract(CAST(value AS TEXT), '$.anchor.events') < ?2";

impl CheckStore for SqliteStore {
    fn self_check(&self) -> StoreFuture<'_, SelfCheck> {
        let key = self.key.clone();
        Box::pin(readers::at_leisure(&self.path, move |reader| {
            let integrity = reader.all("PRAGMA integrity_check", [], |row| Ok(row.get::<_, String>(0)?))?;
            let mut faults: Vec<String> = integrity.into_iter().filter(|line| line != "ok").collect();
            for (fault, sql) in CHECKS {
                let sql = format!("{sql} LIMIT {TOLD}");
                let works = reader.all(&sql, [], |row| Ok(WorkId(row::uuid(row, 0)?)))?;
                faults.extend(works.into_iter().map(|work| format!("{work} {fault}")));
            }
            faults.append(&mut unlogged::faults(&reader.conn, &key, TOLD)?);
            faults.append(&mut schema_faults(&reader.conn)?);
            Ok(faults.into())
        }))
    }

    fn anchor(&self) -> StoreFuture<'_, Anchor> {
        let key = self.key.clone();
        self.read(move |reader| {
            let stored = reader.all(ANCHOR, [], |found| row::json(found, 0))?.pop();
            key.without_mac(stored).map_err(Fault::Data)
        })
    }

    fn set_anchor(&self, anchor: Anchor) -> StoreFuture<'_, ()> {
        let stored = self.key.with_mac(anchor);
        self.write(move |conn| {
            conn.prepare_cached(SET_ANCHOR)?.execute(params![to_json(&stored)?, anchor.events as i64])?;
            Ok(())
        })
    }
}

/// Compares the schema with that of a new ledger.
fn schema_faults(conn: &Connection) -> Read<Vec<String>> {
    let mut statement = conn.prepare("SELECT number FROM migration")?;
    let applied = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    let known: Vec<i64> = MIGRATIONS.iter().map(|migration| migration.number).collect();
    if let Some(fault) = check::unknown(&applied, &known) {
        return Ok(vec![fault]);
    }
    let mut new = Connection::open_in_memory()?;
    migrate::run(&mut new, MIGRATIONS, 0).map_err(Fault::Data)?;
    Ok(check::differences(&objects(&new)?, &objects(conn)?))
}

fn objects(conn: &Connection) -> Read<check::Schema> {
    let mut statement = conn.prepare(OBJECTS)?;
    let mut rows = statement.query([])?;
    let mut objects = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let sql: String = row.get(2)?;
        let words = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        objects.insert((row.get(0)?, row.get(1)?), words);
    }
    Ok(objects)
}
