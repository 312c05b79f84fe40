//! Faults that only the database can find: narrow tables that disagree with their work items, rows that the ledger did
//! not write, and a schema that differs from the migrations'.

use tokio_postgres::{Client, Error as PgError, Row, error::SqlState};

use super::{
    Postgres,
    connection::params,
    fault::Fault,
    migrate::{self, MIGRATIONS},
    row::{self, get},
    unlogged,
};
use crate::{
    Anchor, Error, check,
    states::sql,
    store::{CheckStore, SelfCheck, Store, StoreFuture},
    token::Key,
};

/// The maximum number of reported faults of one kind.
const TOLD: usize = 100;

/// Each statement returns sentences, and none if there is no fault.
const CHECKS: &[&str] = &[
    "SELECT 'w_' || replace(w.id::text, '-', '') || ' and its status row disagree' \
     FROM work w LEFT JOIN status s ON s.work = w.id \
     WHERE s.work IS NULL OR (s.state, s.due_at, s.tenant, s.session, s.created_at) IS DISTINCT FROM \
     (w.state, w.due_at, w.tenant, w.session, w.created_at) LIMIT 100",
    "SELECT 'w_' || replace(s.work::text, '-', '') || ' has several status rows' \
     FROM status s GROUP BY s.work HAVING count(*) > 1 LIMIT 100",
    "SELECT 'w_' || replace(w.id::text, '-', '') || ' differs from its specification' \
     FROM (SELECT work.*, work.spec::json AS said FROM work) w \
     WHERE (w.tenant, w.system, w.source_id, w.run_id, w.kind, w.session, w.workflow_id, w.generation::text, \
     w.priority::text, w.created_at::text, 'w_' || replace(w.parent::text, '-', ''), \
     coalesce(w.correlation_id, 'w_' || replace(w.id::text, '-', ''))) IS DISTINCT FROM \
     (w.said ->> 'tenant', w.said #>> '{source,system}', w.said #>> '{source,id}', \
     coalesce(w.said #>> '{source,run_id}', ''), w.said ->> 'kind', w.said ->> 'session', \
     w.said #>> '{workflow,id}', w.said ->> 'generation', w.said ->> 'priority', w.said ->> 'created_at', \
     w.said ->> 'parent', w.said ->> 'correlation_id') LIMIT 100",
    "SELECT 'w_' || replace(s.work::text, '-', '') || ' has a status row and no work' \
     FROM status s WHERE NOT EXISTS (SELECT 1 FROM work w WHERE w.id = s.work) LIMIT 100",
    "SELECT 'w_' || replace(w.id::text, '-', '') || ' does not match its last event' \
     FROM work w LEFT JOIN event e ON e.work = w.id AND e.seq = w.seq \
     WHERE (e.to_state, e.hash) IS DISTINCT FROM (w.state, w.head) \
     OR EXISTS (SELECT 1 FROM event later WHERE later.work = w.id AND later.seq > w.seq) LIMIT 100",
    "SELECT 'w_' || replace(w.id::text, '-', '') || ' does not count its open waits right' \
     FROM work w WHERE w.open_waits <> \
     (SELECT count(*) FROM wait t WHERE t.work = w.id AND t.state = 'open') LIMIT 100",
    sql!(
        "SELECT 'w_' || replace(coalesce(r.work, c.id)::text, '-', '') || CASE WHEN r.work IS NULL \
     THEN ' is claimable and not on the queue' ELSE ' is on the queue and not claimable' END \
     FROM ready r FULL JOIN ( \
     SELECT w.* FROM work w \
     WHERE {w.state is queued} AND (w.session IS NULL OR NOT EXISTS (SELECT 1 FROM status o \
     WHERE o.tenant = w.tenant AND o.session = w.session AND o.session IS NOT NULL \
     AND {o.state is held}) AND w.id = (SELECT h.work FROM status h \
     WHERE h.tenant = w.tenant AND h.session = w.session AND h.session IS NOT NULL \
     AND {h.state is pending} ORDER BY h.created_at, h.work LIMIT 1)) \
     ) c ON c.id = r.work \
     WHERE r.work IS NULL OR c.id IS NULL OR (r.kind, r.system, r.priority, r.created_at, r.tenant, r.session, \
     r.bound) IS DISTINCT FROM (c.kind, c.system, c.priority, c.created_at, c.tenant, c.session, c.bound) LIMIT 100"
    ),
    "SELECT 'w_' || replace(t.work::text, '-', '') || ' waits for an answer that is kept for it' \
     FROM kept k JOIN wait t ON t.tenant = k.tenant AND t.reference = k.reference \
     WHERE t.state = 'open' AND k.kept_at + 86400000 > t.opened_at AND t.kind <> 'approval' LIMIT 100",
    "SELECT 'c_' || replace(c.id::text, '-', '') || ' and its status row disagree' \
     FROM command c LEFT JOIN command_status s ON s.command = c.id \
     WHERE s.command IS NULL OR (s.state, s.due_at, s.tenant, s.work) IS DISTINCT FROM \
     (c.state, c.due_at, c.tenant, c.work) LIMIT 100",
    "SELECT 'c_' || replace(c.id::text, '-', '') || ' is not what it was reserved as' \
     FROM (SELECT command.*, command.spec::json AS said FROM command) c \
     WHERE (c.tenant, c.tool, c.target, c.executor, encode(c.key, 'hex'), encode(c.input_hash, 'hex')) \
     IS DISTINCT FROM (c.said ->> 'tenant', c.said ->> 'tool', c.said ->> 'target', c.said ->> 'executor', \
     c.said ->> 'key', c.said ->> 'input_hash') LIMIT 100",
    "SELECT 'c_' || replace(s.command::text, '-', '') || ' has a status row and no command' \
     FROM command_status s WHERE NOT EXISTS (SELECT 1 FROM command c WHERE c.id = s.command) LIMIT 100",
    "SELECT 'w_' || replace(a.work::text, '-', '') || ' has the end of an attempt that nobody claimed' \
     FROM attempt_end a WHERE NOT EXISTS (SELECT 1 FROM event e WHERE e.work = a.work AND e.fence = a.fence \
     AND e.request IS NOT NULL) LIMIT 100",
    "SELECT 'event ' || e.seq || ' of w_' || replace(e.work::text, '-', '') || ' is not found by its claim' \
     FROM event e WHERE (e.type = 'claimed') <> (e.request IS NOT NULL) \
     OR e.data !~ ('\"request\":' || e.request || '[,}]') LIMIT 100",
    "SELECT 'event ' || e.seq || ' of w_' || replace(e.work::text, '-', '') || ' belongs to no work' \
     FROM event e WHERE NOT EXISTS (SELECT 1 FROM work w WHERE w.id = e.work) LIMIT 100",
    "SELECT DISTINCT 'w_' || replace(l.work::text, '-', '') || ' was pruned and has no tombstone' FROM link l \
     WHERE l.work IS NOT NULL AND NOT EXISTS (SELECT 1 FROM tombstone t WHERE t.work = l.work) LIMIT 100",
    "SELECT 'w_' || replace(t.work::text, '-', '') || ' was pruned, and nobody is recorded to have done so' \
     FROM tombstone t WHERE NOT EXISTS (SELECT 1 FROM pruning p WHERE p.at = t.pruned_at) LIMIT 100",
];

/// The objects of the first schema of the search path, by kind and name.
const OBJECTS: &str = "WITH c AS (SELECT * FROM pg_class WHERE relnamespace = current_schema()::regnamespace) \
     SELECT 'trigger', t.tgname || ' on ' || c.relname, pg_get_triggerdef(t.oid, true) || \
     CASE t.tgenabled WHEN 'O' THEN '' ELSE ' (enabled: ' || t.tgenabled::text || ')' END \
     FROM pg_trigger t JOIN c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal \
     UNION ALL SELECT 'rule', r.rulename || ' on ' || c.relname, pg_get_ruledef(r.oid, true) \
     FROM pg_rewrite r JOIN c ON c.oid = r.ev_class WHERE r.rulename <> '_RETURN' \
     UNION ALL SELECT 'policy', p.polname || ' on ' || c.relname, coalesce(pg_get_expr(p.polqual, p.polrelid), '') \
     FROM pg_policy p JOIN c ON c.oid = p.polrelid \
     UNION ALL SELECT 'table', c.relname, CASE c.relpersistence WHEN 'p' THEN 'kept' ELSE 'not kept' END || \
     CASE WHEN c.relrowsecurity THEN ', row security' ELSE '' END || \
     CASE WHEN c.relforcerowsecurity THEN ', forced row security' ELSE '' END FROM c WHERE c.relkind = 'r' \
     UNION ALL SELECT 'constraint', o.conname || ' on ' || c.relname, pg_get_constraintdef(o.oid, true) \
     FROM pg_constraint o JOIN c ON c.oid = o.conrelid WHERE o.contype NOT IN ('n', 't') \
     UNION ALL SELECT 'index', c.relname, pg_get_indexdef(i.indexrelid, 0, true) || \
     CASE WHEN i.indisvalid THEN '' ELSE ' (not valid)' END FROM pg_index i JOIN c ON c.oid = i.indexrelid \
     UNION ALL SELECT 'function', p.proname, p.prosrc FROM pg_proc p \
     WHERE p.pronamespace = current_schema()::regnamespace \
     UNION ALL SELECT 'column', a.attname || ' of ' || c.relname, format_type(a.atttypid, a.atttypmod) || \
     CASE WHEN a.attnotnull THEN ' not null' ELSE '' END || coalesce(' ' || pg_get_expr(d.adbin, d.adrelid), '') \
     FROM pg_attribute a JOIN c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid \
     AND d.adnum = a.attnum WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped";

const SCHEMA_NOT_CHECKED: &str = "the schema, because the ledger's role may not create one to compare it with. \
     `GRANT CREATE ON DATABASE` to it, and verify again";

/// For statements that read whole tables: no time limit, and any plan.
const UNHURRIED: &str = "SET statement_timeout = 0; RESET plan_cache_mode; RESET enable_seqscan; \
     RESET enable_bitmapscan; RESET enable_hashjoin; RESET enable_mergejoin";
const ANCHOR: &str = "SELECT value FROM meta WHERE key = 'anchor'";
const SET_ANCHOR: &str = "UPDATE meta SET value = $1::text \
     WHERE key = 'anchor' AND (value::json #>> '{anchor,events}')::bigint < $2::bigint";

impl CheckStore for Postgres {
    fn self_check(&self) -> StoreFuture<'_, SelfCheck> {
        Box::pin(async move {
            // It reads everything, so it has its own connection without a time limit.
            let session = self.lists.own_session().await?;
            session.client.batch_execute(UNHURRIED).await.map_err(failed)?;
            checked(&session.client, self.key()).await
        })
    }

    fn anchor(&self) -> StoreFuture<'_, Anchor> {
        Box::pin(async move {
            let rows = self.points.query(ANCHOR, params![]).await?;
            self.key().without_mac(rows.first().map(|row| row::parse(get(row, 0)?)).transpose()?)
        })
    }

    fn set_anchor(&self, anchor: Anchor) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let params = params![row::json(&self.key().with_mac(anchor)), anchor.events as i64];
            self.points.write(SET_ANCHOR, params).await.map(drop)
        })
    }
}

/// Runs each check.
async fn checked(client: &Client, key: &Key) -> Result<SelfCheck, Error> {
    let mut result = SelfCheck::default();
    for check in CHECKS {
        for row in client.query(*check, &[]).await.map_err(failed)? {
            result.faults.push(get(&row, 0)?);
        }
    }
    result.faults.append(&mut unlogged::faults(client, key, TOLD).await?);
    match schema_faults(client).await? {
        Some(mut faults) => result.faults.append(&mut faults),
        None => result.not_checked.push(SCHEMA_NOT_CHECKED.to_owned()),
    }
    Ok(result)
}

fn failed(error: PgError) -> Error {
    Fault::from(error).error()
}

/// Compares the schema with that of a new ledger, which is created beside it and rolled back. None: the ledger's role may
/// not create one.
async fn schema_faults(client: &Client) -> Result<Option<Vec<String>>, Error> {
    let rows = client.query("SELECT number FROM migration", &[]).await.map_err(failed)?;
    let applied = rows.iter().map(|row| get(row, 0)).collect::<Result<Vec<i32>, Error>>()?;
    let known: Vec<i32> = MIGRATIONS.iter().map(|migration| migration.number).collect();
    if let Some(fault) = check::unknown(&applied, &known) {
        return Ok(Some(vec![fault]));
    }
    let stored = objects(client).await.map_err(failed)?;
    client.batch_execute("BEGIN").await.map_err(failed)?;
    let expected = new_objects(client).await;
    client.batch_execute("ROLLBACK").await.map_err(failed)?;
    match expected {
        Ok(expected) => Ok(Some(check::differences(&expected, &stored))),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

async fn new_objects(client: &Client) -> Result<check::Schema, PgError> {
    let name: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    let sql = format!("CREATE SCHEMA tenure_verify_{name}; SET LOCAL search_path = tenure_verify_{name}");
    client.batch_execute(&sql).await?;
    migrate::make_tables(client).await?;
    objects(client).await
}

async fn objects(client: &Client) -> Result<check::Schema, PgError> {
    let rows = client.query(OBJECTS, &[]).await?;
    let object = |row: &Row| Ok(((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?));
    rows.iter().map(object).collect()
}
