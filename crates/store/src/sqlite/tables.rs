//! The writer's connection, its prepared statements for the hot path, and its caches between groups.

use std::sync::Arc;

use rusqlite::{Connection, PrepFlags, Statement};
use tenure_core::ByWork;

use super::{
    command,
    log::{INPUTS, RowRef, SPEC},
    row::{AttemptEndRow, AttemptRow, EventRow, Read, Specs, WorkKeys, WorkRow, WorkSpec, specs},
};
use crate::{
    columns::{Column, Columns, marks, names, sets, statement},
    ledger_settings::LedgerSettings,
    speed::{RecentWorks, Remembered},
    token::Key,
};

/// A work item by its id.
pub(super) const WORK: &str =
    statement!("SELECT rowid, last_event, id, " { names(WorkRow::COLUMNS) } " FROM work WHERE id = ?1");

/// Appends one event. Without ROLLBACK, SQLite would keep a statement journal because of the triggers.
pub const INSERT_EVENT: &str = statement!(
    "INSERT OR ROLLBACK INTO event (" { names(EventRow::COLUMNS) } ", " { names(PREVIOUS) }
    ") VALUES (" { marks(EventRow::COLUMNS, 1) } ", " { marks(PREVIOUS, 1 + EventRow::COLUMNS.len()) } ")"
);
/// The position of the previous event.
const PREVIOUS: Columns = &[Column { name: "previous", kind: "" }];

/// Saves the changes of a work item. Its rowid is known from loading, which saves one search.
pub const UPDATE_WORK: &str = statement!(
    "UPDATE OR ROLLBACK work SET " { sets(WorkRow::COLUMNS, 2) }
    ", " { sets(WorkKeys::COLUMNS, 2 + WorkRow::COLUMNS.len()) } " WHERE rowid = ?1"
);

const INSERT_WORK: &str = statement!(
    "INSERT OR ROLLBACK INTO work (id, " { names(WorkRow::COLUMNS) } ", " { names(WorkKeys::COLUMNS) }
    ", " { names(WorkSpec::COLUMNS) } ") VALUES (?1, " { marks(WorkRow::COLUMNS, 2) }
    ", " { marks(WorkKeys::COLUMNS, 2 + WorkRow::COLUMNS.len()) }
    ", " { marks(WorkSpec::COLUMNS, 2 + WorkRow::COLUMNS.len() + WorkKeys::COLUMNS.len()) } ")"
);

const RENEW_WORK: &str = "UPDATE OR ROLLBACK work SET \
     expires_at = ?2, renewed_at = ?3, renewed_by = ?4, progress = ?5, due_at = ?6, children = ?7, \
     waiters = ?8 WHERE rowid = ?1";

const INSERT_STATUS: &str = "INSERT OR ROLLBACK INTO status \
     (work, state, due_at, tenant, session, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const UPDATE_STATUS: &str = "UPDATE OR ROLLBACK status SET state = ?2, due_at = ?3 WHERE work = ?1";

const INSERT_READY: &str = "INSERT OR REPLACE INTO ready \
     (tenant, kind, system, priority, created_at, work, bound) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

const DELETE_READY: &str = "DELETE FROM ready WHERE tenant = ?1 AND kind = ?2 AND system = ?3 AND priority = ?4 AND created_at = ?5 \
     AND work = ?6";

const INSERT_ATTEMPT: &str = statement!(
    "INSERT OR ROLLBACK INTO attempt (" { names(AttemptRow::COLUMNS) }
    ") VALUES (" { marks(AttemptRow::COLUMNS, 1) } ")"
);

const SAVE_END: &str = statement!(
    "UPDATE OR ROLLBACK attempt SET " { sets(AttemptEndRow::COLUMNS, 3) } " WHERE work = ?1 AND fence = ?2"
);

/// The statements that every group uses.
pub(super) struct Hot<'c> {
    pub begin: Statement<'c>,
    pub commit: Statement<'c>,
    pub version: Statement<'c>,
    pub work: Statement<'c>,
    pub spec: Statement<'c>,
    pub input: Statement<'c>,
    pub event_insert: Statement<'c>,
    pub work_insert: Statement<'c>,
    pub work_update: Statement<'c>,
    pub work_renew: Statement<'c>,
    pub status_insert: Statement<'c>,
    pub status_update: Statement<'c>,
    pub ready_insert: Statement<'c>,
    pub ready_delete: Statement<'c>,
    pub attempt_insert: Statement<'c>,
    pub attempt_end: Statement<'c>,
    pub command_of_key: Statement<'c>,
    pub command_insert: Statement<'c>,
    pub command_update: Statement<'c>,
}

pub(super) struct Tables<'c> {
    pub conn: &'c Connection,
    pub key: Key,
    pub hot: Hot<'c>,
    pub specs: Specs,
    /// The rowids of the current group's work items.
    pub places: ByWork<RowRef>,
    /// Work items as this process last saved or read them, with their rowids. Valid while no other process has written,
    /// which every group checks under the lock.
    pub works: RecentWorks<(RowRef, Remembered)>,
    /// The file's version at the last check. It changes when another connection commits.
    pub seen: i64,
    /// Whether the current group has marked the file as in use.
    pub marked: bool,
    pub ledger_settings: Arc<LedgerSettings>,
}

impl<'c> Tables<'c> {
    pub fn new(conn: &'c Connection, key: Key, ledger_settings: Arc<LedgerSettings>) -> Read<Self> {
        // Kept for the life of the connection, so not in the small memory that SQLite has for short uses.
        let prepare = |sql: &str| conn.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT);
        let hot = Hot {
            begin: prepare("BEGIN IMMEDIATE")?,
            commit: prepare("COMMIT")?,
            version: prepare("PRAGMA data_version")?,
            work: prepare(WORK)?,
            spec: prepare(SPEC)?,
            input: prepare(INPUTS)?,
            event_insert: prepare(INSERT_EVENT)?,
            work_insert: prepare(INSERT_WORK)?,
            work_update: prepare(UPDATE_WORK)?,
            work_renew: prepare(RENEW_WORK)?,
            status_insert: prepare(INSERT_STATUS)?,
            status_update: prepare(UPDATE_STATUS)?,
            ready_insert: prepare(INSERT_READY)?,
            ready_delete: prepare(DELETE_READY)?,
            attempt_insert: prepare(INSERT_ATTEMPT)?,
            attempt_end: prepare(SAVE_END)?,
            command_of_key: prepare(command::BY_KEY)?,
            command_insert: prepare(command::INSERT)?,
            command_update: prepare(command::UPDATE)?,
        };
        Ok(Self {
            conn,
            key,
            hot,
            specs: specs(),
            places: ByWork::default(),
            works: RecentWorks::default(),
            seen: 0,
            marked: false,
            ledger_settings,
        })
    }

    pub fn version(&mut self) -> Read<i64> {
        Ok(self.hot.version.query_row([], |row| row.get(0))?)
    }
}
