//! Pruning, and copies of the file while it is in use.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, Transaction, TransactionBehavior, backup::Backup, params};
use tenure_core::{Millis, WorkId, payload::Digest};

use super::{
    log,
    read::{Reader, bound},
    row::{self, Read},
    settings,
};
use crate::{
    Anchor, Error, Position, Pruned,
    retention::{Before, Tombstone},
};

/// Whether a work `w` may go: none of its identity's generations is open, too young (?1; with commands ?2), or
/// needed by an open work. Of a work with commands some are not superseded: those that took the others' places.
macro_rules! free {
    () => {
        "NOT EXISTS (SELECT 1 FROM work g WHERE g.tenant = w.tenant AND g.system = w.system \
         AND g.source_id = w.source_id AND g.run_id = w.run_id AND (g.state < 11 OR g.updated_at >= ?1 \
         OR (g.updated_at >= ?2 AND EXISTS (SELECT 1 FROM command q WHERE q.work = g.id \
         AND q.superseded = 0)) \
         OR EXISTS (SELECT 1 FROM command q WHERE q.work = g.id AND q.state <= 4) \
         OR EXISTS (SELECT 1 FROM work c WHERE c.parent = g.id AND c.state < 11) \
         OR EXISTS (SELECT 1 FROM wait q WHERE q.tenant = g.tenant AND q.state = 'open' \
         AND q.reference = 'work:w_' || lower(hex(g.id)))))"
    };
}

const PRUNABLE: &str = concat!(
    "SELECT DISTINCT a.id FROM (SELECT w.* FROM status s CROSS JOIN work w ON w.id = s.work \
     WHERE s.state >= 11 AND w.updated_at < ?1 AND ",
    free!(),
    " LIMIT ?3) f CROSS JOIN work a ON a.tenant = f.tenant AND a.system = f.system \
     AND a.source_id = f.source_id AND a.run_id = f.run_id ORDER BY a.id"
);
const BURY: &str = concat!(
    "INSERT INTO tombstone (work, tenant, system, source_id, run_id, generation, pruned_at) \
     SELECT w.id, w.tenant, w.system, w.source_id, w.run_id, w.generation, ?4 FROM work w WHERE w.id = ?3 AND ",
    free!()
);
const DELETE_REST: [&str; 7] = [
    "DELETE FROM attempt WHERE work = ?1",
    "DELETE FROM step WHERE work = ?1",
    "DELETE FROM wait WHERE work = ?1",
    "DELETE FROM command WHERE work = ?1 AND superseded = 0",
    "DELETE FROM command WHERE work = ?1 AND superseded = 1",
    "DELETE FROM status WHERE work = ?1",
    "DELETE FROM work WHERE id = ?1",
];
const TOMBSTONE: &str = "SELECT tenant, pruned_at FROM tombstone WHERE work = ?1";
const LINKS: &str = "SELECT position, hash FROM (SELECT position, hash FROM event WHERE position > ?1 \
     UNION ALL SELECT position, hash FROM link WHERE position > ?1) ORDER BY position LIMIT ?2";

const ANCHOR: &str = "SELECT CAST(value AS TEXT) FROM meta WHERE key = 'anchor'";
const SET_ANCHOR: &str = "INSERT INTO meta (key, value) VALUES ('anchor', CAST(?1 AS BLOB)) \
     ON CONFLICT (key) DO UPDATE SET value = excluded.value \
     WHERE json_extract(CAST(value AS TEXT), '$.events') < ?2";

/// Works of one transaction: other writers get a turn in between.
const AT_ONCE: usize = 500;

/// Pages copied in one go; between two the writer goes on.
const PAGES: i32 = 1_000;

/// Deletes those that are still free, and leaves tombstones.
pub(super) fn prune(conn: &Connection, ids: &[WorkId], before: Before, at: Millis) -> Read<Pruned> {
    let mut pruned = Pruned::default();
    // No writer of this process is in the middle of something, and others are kept out by the lock.
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    for id in ids {
        let id = id.0.as_bytes();
        if transaction.prepare_cached(BURY)?.execute(params![before.any, before.with_commands, id, at])? == 0
        {
            continue;
        }
        let (after, last) = log::after(0, usize::MAX);
        let all = params![id, after, last];
        transaction.prepare_cached(log::LINK)?.execute(all)?;
        pruned.events += transaction.prepare_cached(log::DELETE)?.execute(all)? as u64;
        for sql in DELETE_REST {
            transaction.prepare_cached(sql)?.execute([id])?;
        }
        pruned.works += 1;
    }
    transaction.commit()?;
    Ok(pruned)
}

pub(super) fn set_anchor(conn: &Connection, anchor: &Anchor) -> Read<()> {
    let values = params![row::to_json(anchor)?, anchor.events as i64];
    conn.prepare_cached(SET_ANCHOR)?.execute(values)?;
    Ok(())
}

/// In pieces of one transaction each.
pub(super) fn pieces(ids: &[WorkId]) -> impl Iterator<Item = Vec<WorkId>> {
    ids.chunks(AT_ONCE).map(<[WorkId]>::to_vec)
}

impl Reader {
    pub fn prunable(&mut self, before: Before, limit: usize) -> Read<Vec<WorkId>> {
        let key = params![before.any, before.with_commands, bound(limit)];
        self.all(PRUNABLE, key, |row| Ok(WorkId(row::uuid(row, 0)?)))
    }

    pub fn tombstone(&mut self, id: WorkId) -> Read<Option<Tombstone>> {
        let found = self.all(TOMBSTONE, [id.0.as_bytes()], |row| {
            Ok(Tombstone { tenant: row.get(0)?, pruned_at: row.get(1)? })
        })?;
        Ok(found.into_iter().next())
    }

    pub fn anchor(&mut self) -> Read<Option<Anchor>> {
        Ok(self.all(ANCHOR, [], |found| row::json(found, 0))?.into_iter().next())
    }

    pub fn links(&mut self, after: Position, limit: usize) -> Read<Vec<(Position, Digest)>> {
        self.all(LINKS, params![after.number, bound(limit)], |row| {
            Ok((Position { epoch: 0, txn: 0, number: row.get(0)? }, row::digest(row, 1)?))
        })
    }
}

/// Copies the file page by page: a consistent state of it, whatever is written meanwhile.
pub(super) fn backup(from: &Path, to: &Path) -> Result<(), Error> {
    // SQLite sees more in a name than a file's: `:memory:`, `file:…?…`, or nothing at all.
    let to =
        std::path::absolute(to).map_err(|error| Error::Unusable(format!("{}: {error}", to.display())))?;
    let to = to.as_path();
    if to.exists() {
        let detail = format!("{} is there already. A backup goes into a new file", to.display());
        return Err(Error::Unusable(detail));
    }
    let source = settings::reader(from)?;
    // Private from its first byte on; what cannot be made is told by the open below.
    let _ = settings::private(to);
    let copy = || {
        let mut target = Connection::open(to)?;
        Backup::new(&source, &mut target)?.run_to_completion(PAGES, Duration::ZERO, None)?;
        // The copy is one file, and as durable as its source.
        target.pragma_update(None, "journal_mode", "DELETE")?;
        target.close().map_err(|(_, error)| error)
    };
    copy().map_err(|error| {
        // A piece of a copy is no backup. If it cannot be removed either, the error already says enough.
        let _ = std::fs::remove_file(to);
        settings::explain(to, &error)
    })?;
    let synced = std::fs::File::open(to).and_then(|file| file.sync_all());
    synced.map_err(|error| Error::Unavailable(format!("{} was not synced: {error}", to.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::plan::{plan, tables};

    /// However many commands there are: of each work only its own are looked at.
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
