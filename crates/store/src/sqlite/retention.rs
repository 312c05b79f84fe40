//! Pruning: deletes work items and their events, and leaves tombstones and links.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, ToSql, Transaction, TransactionBehavior, params};
use tenure_core::{Identity, Millis, WorkId, model::Source};

use super::{
    SqliteStore, log,
    read::bound,
    readers,
    row::{self, Read, to_json},
    settings::{self, Overwrite},
    table::table,
};
use crate::{
    Position, Pruned, Pruning,
    columns::{MAC, marks, names, statement},
    retention::{Before, Tombstone},
    states::sql,
    store::{RetentionStore, StoreFuture},
    token::Key,
    unlogged::Link,
};

/// Whether a work item `w` may be pruned: no generation of its identity is open, too young (?1; with commands ?2), or
/// needed by an open work item. A work item with commands always has at least one that is not superseded: the successor
/// of the others.
macro_rules! free {
    () => {
        "NOT EXISTS (SELECT 1 FROM work g WHERE g.tenant = w.tenant AND g.system = w.system \
         AND g.source_id = w.source_id AND g.run_id = w.run_id AND ({g.state is open} OR g.updated_at >= ?1 \
         OR (g.updated_at >= ?2 AND EXISTS (SELECT 1 FROM command q WHERE q.work = g.id \
         AND q.superseded = 0)) \
         OR EXISTS (SELECT 1 FROM command q WHERE q.work = g.id AND {command q.state is open}) \
         OR EXISTS (SELECT 1 FROM work c WHERE c.parent = g.id AND {c.state is open}) \
         OR EXISTS (SELECT 1 FROM wait q WHERE q.tenant = g.tenant AND q.state = 'open' \
         AND q.reference = 'work:w_' || lower(hex(g.id)))))"
    };
}

macro_rules! tombstone_columns {
    () => {
        "work, tenant, system, source_id, run_id, generation, pruned_at"
    };
}
pub(super) use tombstone_columns;

const PRUNABLE: &str = sql!(
    "SELECT DISTINCT a.id FROM (SELECT w.* FROM status s CROSS JOIN work w ON w.id = s.work \
     WHERE {s.state is terminal} AND w.updated_at < ?1 AND ",
    free!(),
    " LIMIT ?3) f CROSS JOIN work a ON a.tenant = f.tenant AND a.system = f.system \
     AND a.source_id = f.source_id AND a.run_id = f.run_id ORDER BY a.id"
);
const BURY: &str = sql!(
    "INSERT INTO tombstone (",
    tombstone_columns!(),
    ") SELECT w.id, w.tenant, w.system, w.source_id, w.run_id, w.generation, ?4 FROM work w WHERE w.id = ?3 AND ",
    free!(),
    " RETURNING ",
    tombstone_columns!()
);
const SET_MAC: &str = "UPDATE tombstone SET mac = ?2 WHERE work = ?1";
const LINK: &str = "INSERT INTO link (position, hash, work, mac) VALUES (?1, ?2, ?3, ?4)";
const DELETE_REST: [&str; 7] = [
    "DELETE FROM attempt WHERE work = ?1",
    "DELETE FROM step WHERE work = ?1",
    "DELETE FROM wait WHERE work = ?1",
    "DELETE FROM command WHERE work = ?1 AND superseded = 0",
    "DELETE FROM command WHERE work = ?1 AND superseded = 1",
    "DELETE FROM status WHERE work = ?1",
    "DELETE FROM work WHERE id = ?1",
];
const TOMBSTONE: &str = concat!("SELECT ", tombstone_columns!(), " FROM tombstone WHERE work = ?1");

/// Tries to empty the write-ahead log, and the pause between two.
const OVERWRITE_TRIES: usize = 10;
const OVERWRITE_AGAIN: Duration = Duration::from_millis(50);

/// Work items pruned in one transaction. Other writers get a turn in between.
const AT_ONCE: usize = 500;

/// Deletes the work items that may still be pruned, and leaves tombstones.
fn prune(conn: &Connection, key: &Key, ids: &[WorkId], before: Before, at: Millis) -> Read<Pruned> {
    let mut pruned = Pruned::default();
    settings::overwrite(conn, Overwrite::Everything)?;
    // This process has no other open write, and the lock excludes other processes.
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    for work in ids {
        let id = work.0.as_bytes();
        let chosen = params![before.any, before.with_commands, id, at];
        let buried =
            transaction.prepare_cached(BURY)?.query_row(chosen, |row| Ok(tombstone(row))).optional()?;
        let Some(tombstone) = buried.transpose()? else { continue };
        transaction.prepare_cached(SET_MAC)?.execute(params![id, key.row_mac(&tombstone).0])?;
        let (after, last) = log::after(0, usize::MAX);
        let all = params![id, after, last];
        for link in links(&transaction, *work, all)? {
            let values = params![link.position.number, link.hash.0, id, key.row_mac(&link).0];
            transaction.prepare_cached(LINK)?.execute(values)?;
        }
        pruned.events += transaction.prepare_cached(log::DELETE)?.execute(all)? as u64;
        for sql in DELETE_REST {
            transaction.prepare_cached(sql)?.execute([id])?;
        }
        pruned.works += 1;
    }
    transaction.commit()?;
    settings::overwrite(conn, Overwrite::WithinPages)?;
    Ok(pruned)
}

/// The links of all events of a work item.
fn links(conn: &Connection, work: WorkId, all: &[&dyn ToSql]) -> Read<Vec<Link>> {
    let mut statement = conn.prepare_cached(log::LINKS)?;
    let mut rows = statement.query(all)?;
    let mut links = Vec::new();
    while let Some(row) = rows.next()? {
        links.push(Link { position: position(row.get(0)?), hash: row::digest(row, 1)?, work: Some(work) });
    }
    Ok(links)
}

pub(super) fn position(number: i64) -> Position {
    Position { epoch: 0, txn: 0, number }
}

const ADD: &str = statement!(
    "INSERT INTO pruning (" { names(PruningRow::COLUMNS) } ", " { names(MAC) }
    ") VALUES (" { marks(PruningRow::COLUMNS, 1) } ", " { marks(MAC, 1 + PruningRow::COLUMNS.len()) } ")"
);
const ANY_PRUNED: &str = "SELECT EXISTS (SELECT 1 FROM tombstone)";
const PRUNINGS: &str =
    statement!("SELECT " { names(PruningRow::COLUMNS) } " FROM pruning ORDER BY number DESC LIMIT ?1");

table! {
    /// The record of a pruning. Its MAC is in the next column.
    pub(super) PruningRow(pruning: &Pruning) {
        at = pruning.at,
        actor = to_json(&pruning.actor)?,
        reason = pruning.reason,
        ended_before = pruning.ended_before,
        works = pruning.works as i64,
    }
    read(row) -> Pruning {
        Ok(Pruning {
            at: row.get(at)?,
            actor: row::json(row, actor)?,
            reason: row.get(reason)?,
            ended_before: row.get(ended_before)?,
            works: row.get::<_, i64>(works)? as u64,
        })
    }
}

pub(super) fn tombstone(row: &Row<'_>) -> Read<Tombstone> {
    let source = Source { system: row.get(2)?, id: row.get(3)?, run_id: row.get(4)? };
    Ok(Tombstone {
        work: WorkId(row::uuid(row, 0)?),
        identity: Identity { tenant: row.get(1)?, source },
        generation: row.get(5)?,
        pruned_at: row.get(6)?,
    })
}

impl RetentionStore for SqliteStore {
    fn prunable(&self, before: Before, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        Box::pin(readers::at_leisure(&self.path, move |reader| {
            let key = params![before.any, before.with_commands, bound(limit)];
            reader.all(PRUNABLE, key, |row| Ok(WorkId(row::uuid(row, 0)?)))
        }))
    }

    fn add_pruning<'a>(&'a self, pruning: &'a Pruning) -> StoreFuture<'a, ()> {
        let (pruning, mac) = (pruning.clone(), self.key.row_mac(pruning));
        self.write(move |conn| {
            let mut statement = conn.prepare_cached(ADD)?;
            let at = PruningRow::bind(&mut statement, 1, &pruning)?;
            statement.raw_bind_parameter(at, mac.0)?;
            statement.raw_execute()?;
            Ok(())
        })
    }

    fn prunings(&self, limit: usize) -> StoreFuture<'_, Vec<Pruning>> {
        self.read(move |reader| reader.all(PRUNINGS, [bound(limit)], |row| PruningRow::read(row, 0)))
    }

    fn prune<'a>(&'a self, works: &'a [WorkId], before: Before, at: Millis) -> StoreFuture<'a, Pruned> {
        Box::pin(async move {
            let mut pruned = Pruned::default();
            for piece in works.chunks(AT_ONCE) {
                let (key, piece) = (self.key.clone(), piece.to_vec());
                let one = self.write(move |conn| prune(conn, &key, &piece, before, at)).await?;
                pruned.works += one.works;
                pruned.events += one.events;
            }
            Ok(pruned)
        })
    }

    fn tombstone(&self, work: WorkId) -> StoreFuture<'_, Option<Tombstone>> {
        self.read(move |reader| Ok(reader.all(TOMBSTONE, [work.0.as_bytes()], tombstone)?.pop()))
    }

    fn overwrite_erased(&self) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            for _ in 0..OVERWRITE_TRIES {
                if self.write(|conn| Ok(settings::restart_log(conn)?)).await? {
                    return Ok(true);
                }
                // A checkpoint or a short read is over by then.
                tokio::time::sleep(OVERWRITE_AGAIN).await;
            }
            Ok(false)
        })
    }

    fn any_pruned(&self) -> StoreFuture<'_, bool> {
        self.read(move |reader| Ok(reader.all(ANY_PRUNED, [], |row| Ok(row.get(0)?))?.pop().unwrap_or(false)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::plan::{plan, tables};

    /// Only a work item's own commands are read, no matter how many others exist.
    #[test]
    fn pruning_finds_commands_by_their_work() {
        let conn = tables();
        let asked = [(PRUNABLE, ["command_key", "command_open"]), (BURY, ["command_key", "command_open"])];
        let deleted = DELETE_REST.iter().filter(|sql| sql.contains("FROM command "));
        let deleted: Vec<(&str, [&str; 2])> = deleted.map(|sql| (*sql, ["command_", "work=?"])).collect();
        assert_eq!(deleted.len(), 2);
        for (sql, by) in asked.into_iter().chain(deleted) {
            let plan = plan(&conn, sql);
            assert!(by.iter().all(|index| plan.contains(index)), "{sql}\n{plan}");
            assert!(!plan.contains("SCAN q") && !plan.contains("SCAN command"), "{sql}\n{plan}");
        }
    }
}
