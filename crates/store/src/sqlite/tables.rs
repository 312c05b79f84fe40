//! The writer's hands: its connection, the statements of the hot path prepared once, and what it may
//! remember between groups.

use std::sync::Arc;

use rusqlite::{Connection, PrepFlags, Statement};
use tenure_core::ByWork;

use super::{
    command,
    log::{INPUT, RowRef, SPEC},
    row::{Read, Specs, specs, work_columns},
};
use crate::{
    ledger_settings::LedgerSettings,
    speed::{RecentWorks, Remembered},
    token::Key,
};

/// A work by its id.
pub(super) const WORK: &str = concat!("SELECT ", work_columns!(), " FROM work WHERE id = ?1");

/// Appends one event. Without ROLLBACK, SQLite would journal the statement for its triggers' sake.
pub const EVENT_INSERT: &str = "INSERT OR ROLLBACK INTO event \
     (work, seq, at, type, from_state, to_state, actor_type, actor_id, attempt, step, fence, data, message, \
     payload, evidence, digest, salt, prev_hash, hash, previous, actor_name) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, \
     ?21)";

/// Saves all that events change of a work. The load has seen its rowid: one search less.
pub const WORK_UPDATE: &str = "UPDATE OR ROLLBACK work SET \
     state = ?2, seq = ?3, head = ?4, attempt = ?5, fence = ?6, lease_fence = ?7, expires_at = ?8, \
     renewed_at = ?9, renewed_by = ?10, lapsed_at = ?11, open_waits = ?12, next_retry_at = ?13, \
     due_at = ?14, reason = ?15, owner = ?16, progress = ?17, updated_at = ?18, children = ?19, \
     waiters = ?20, body = ?21, last_event = ?22 \
     WHERE rowid = ?1";

pub(super) const WORK_INSERT: &str = "INSERT OR ROLLBACK INTO work \
     (id, state, seq, head, attempt, fence, lease_fence, expires_at, renewed_at, renewed_by, lapsed_at, \
     open_waits, next_retry_at, due_at, reason, owner, progress, updated_at, children, waiters, body, \
     last_event, tenant, system, source_id, run_id, generation, kind, session, parent, correlation_id, workflow_id, \
     priority, created_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
     ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34)";

const WORK_RENEW: &str = "UPDATE OR ROLLBACK work SET \
     expires_at = ?2, renewed_at = ?3, renewed_by = ?4, progress = ?5, due_at = ?6, children = ?7, \
     waiters = ?8 WHERE rowid = ?1";

const STATUS_INSERT: &str = "INSERT OR ROLLBACK INTO status \
     (work, state, due_at, tenant, session, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const STATUS_UPDATE: &str = "UPDATE OR ROLLBACK status SET state = ?2, due_at = ?3 WHERE work = ?1";

const READY_INSERT: &str = "INSERT OR REPLACE INTO ready \
     (tenant, kind, system, priority, created_at, work, bound) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

const READY_DELETE: &str = "DELETE FROM ready WHERE tenant = ?1 AND kind = ?2 AND system = ?3 AND priority = ?4 AND created_at = ?5 \
     AND work = ?6";

const ATTEMPT_INSERT: &str = "INSERT OR ROLLBACK INTO attempt \
     (work, fence, number, worker, incarnation, request, claimed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

const ATTEMPT_END: &str = "UPDATE OR ROLLBACK attempt SET \
     ended_at = ?3, outcome = ?4, body_hash = ?5, ack = ?6, error = ?7, usage = ?8 WHERE work = ?1 AND fence = ?2";

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
    /// Where the works of the group at hand lie.
    pub places: ByWork<RowRef>,
    /// Work items as this process last saved or read them, with the place of each row. Valid while nobody else has written
    /// since, which every group checks under the lock.
    pub works: RecentWorks<(RowRef, Remembered)>,
    /// The file's version at the last look: it moves when another connection has committed.
    pub seen: i64,
    /// Whether the group at hand has marked the file as in use.
    pub marked: bool,
    pub ledger_settings: Arc<LedgerSettings>,
}

impl<'c> Tables<'c> {
    pub fn new(conn: &'c Connection, key: Key, ledger_settings: Arc<LedgerSettings>) -> Read<Self> {
        // Kept for good, and so not in the small memory that SQLite has for passing needs.
        let prepare = |sql: &str| conn.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT);
        let hot = Hot {
            begin: prepare("BEGIN IMMEDIATE")?,
            commit: prepare("COMMIT")?,
            version: prepare("PRAGMA data_version")?,
            work: prepare(WORK)?,
            spec: prepare(SPEC)?,
            input: prepare(INPUT)?,
            event_insert: prepare(EVENT_INSERT)?,
            work_insert: prepare(WORK_INSERT)?,
            work_update: prepare(WORK_UPDATE)?,
            work_renew: prepare(WORK_RENEW)?,
            status_insert: prepare(STATUS_INSERT)?,
            status_update: prepare(STATUS_UPDATE)?,
            ready_insert: prepare(READY_INSERT)?,
            ready_delete: prepare(READY_DELETE)?,
            attempt_insert: prepare(ATTEMPT_INSERT)?,
            attempt_end: prepare(ATTEMPT_END)?,
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
