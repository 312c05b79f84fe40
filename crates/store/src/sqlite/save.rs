//! Saves the net result of a group. Events come first, because triggers compare every row with its last event.

use std::{borrow::Cow, sync::Arc};

use rusqlite::params;
use tenure_core::{
    Attempt, Event, Millis, State, Step, Wait, Work, WorkId,
    model::{AttemptEnd, Kept, Spec},
    records::{SessionView, TenantKey, Touch, reference_to},
};

use super::{
    log::{self, RowRef},
    row::{
        AttemptEndRow, AttemptRow, EventRow, KeptRow, Read, StepRow, WaitRow, WorkKeys, WorkRow, WorkSpec,
    },
    settings::{self, Overwrite},
    tables::Tables,
};
use crate::states::sql;
use crate::{
    batch::{Batch, Row},
    columns::{MAC, marks, names, sets_from, statement},
};

const ARM_WORK: &str =
    "UPDATE OR ROLLBACK work SET due_at = ?2, children = ?3, waiters = ?4 WHERE rowid = ?1";
/// The same as a renewal, which is sent far more often, and when it brought new progress.
const RENEW_WITH_PROGRESS: &str = "UPDATE OR ROLLBACK work SET \
     expires_at = ?2, renewed_at = ?3, renewed_by = ?4, progress = ?5, due_at = ?6, children = ?7, \
     waiters = ?8, progressed_at = ?9 WHERE rowid = ?1";
const SAVE_STEP: &str = statement!(
    "INSERT OR REPLACE INTO step (" { names(StepRow::COLUMNS) } ") VALUES (" { marks(StepRow::COLUMNS, 1) } ")"
);
const SAVE_WAIT: &str = statement!(
    "INSERT INTO wait (" { names(WaitRow::COLUMNS) } ") VALUES (" { marks(WaitRow::COLUMNS, 1) }
    ") ON CONFLICT (id) DO UPDATE SET " { sets_from("excluded", WaitRow::CHANGING) }
);
const SAVE_KEPT: &str = statement!(
    "INSERT OR REPLACE INTO kept (" { names(KeptRow::COLUMNS) } ", " { names(MAC) }
    ") VALUES (" { marks(KeptRow::COLUMNS, 1) } ", " { marks(MAC, 1 + KeptRow::COLUMNS.len()) } ")"
);
const DELETE_KEPT: &str = "DELETE FROM kept WHERE tenant = ?1 AND reference = ?2";

/// The contents that the records of a work item (?1) have from its erased events; a command may have an event (?2 or later) that is not erased.
const ERASE_REST: [&str; 3] = [
    "UPDATE attempt SET error = json_remove(error, '$.message') WHERE work = ?1 AND error IS NOT NULL AND ?2 > 0",
    "UPDATE wait SET detail = json_remove(detail, '$.prompt', '$.schema', '$.default') WHERE work = ?1 AND ?2 > 0",
    "UPDATE command SET body = json_remove(body, '$.message', '$.error.message') WHERE work = ?1 AND seq < ?2",
];

/// The open work items that the end of another one wakes: its children, and those that wait for it.
const WAKE_CHILDREN: [&str; 2] = [
    sql!("UPDATE work SET due_at = min(coalesce(due_at, ?2), ?2) WHERE parent = ?1 AND {state is open}"),
    sql!(
        "UPDATE status SET due_at = min(coalesce(due_at, ?2), ?2) \
     WHERE work IN (SELECT id FROM work WHERE parent = ?1) AND {state is open}"
    ),
];
const WAKE_WAITERS: [&str; 2] = [
    sql!(
        "UPDATE work SET due_at = min(coalesce(due_at, ?3), ?3) WHERE {state is open} AND id IN \
     (SELECT work FROM wait WHERE tenant = ?1 AND reference = ?2 AND state = 'open')"
    ),
    sql!(
        "UPDATE status SET due_at = min(coalesce(due_at, ?3), ?3) WHERE {state is open} AND work IN \
     (SELECT work FROM wait WHERE tenant = ?1 AND reference = ?2 AND state = 'open')"
    ),
];

impl Tables<'_> {
    /// Saves everything. Returns the work items that became the heads of their sessions, which parked claims have not
    /// been offered yet.
    pub fn save(&mut self, batch: &Batch) -> Read<Vec<Arc<Spec>>> {
        if batch.writes.is_empty() {
            return Ok(Vec::new());
        }
        for event in &batch.writes.events {
            self.save_event(event)?;
        }
        let heads_before = self.heads(batch)?;
        let rows = batch.rows();
        for row in &rows {
            self.save_row(row)?;
        }
        self.save_status(&rows)?;
        for attempt in &batch.writes.begun {
            self.save_attempt(attempt)?;
        }
        for (work, fence, end) in &batch.writes.ended {
            self.save_end(*work, *fence, end)?;
        }
        for step in batch.writes.steps.values() {
            self.save_step(step)?;
        }
        for wait in batch.writes.waits.values() {
            self.save_wait(wait)?;
        }
        for (key, kept) in &batch.writes.kept {
            self.save_kept(key, kept.as_ref())?;
        }
        self.save_commands(batch)?;
        self.erase(&batch.writes.erased)?;
        for row in &rows {
            self.save_ready(row)?;
        }
        for (work, children, waiters, at) in &batch.writes.wakes {
            self.wake(batch, *work, *children, *waiters, *at)?;
        }
        self.follow_heads(batch, heads_before)
    }

    fn save_event(&mut self, event: &Event) -> Read<()> {
        let previous = match event.seq {
            1 => None,
            _ => Some(self.place(event.work)?),
        };
        let statement = &mut self.hot.event_insert;
        let at = EventRow::bind(statement, 1, event)?;
        statement.raw_bind_parameter(at, previous.map(|place| place.last_event))?;
        statement.raw_execute()?;
        let place = RowRef {
            // The row of a new work item is inserted after its events.
            rowid: previous.map_or(0, |place| place.rowid),
            last_event: self.conn.last_insert_rowid(),
            seq: event.seq,
        };
        self.places.insert(event.work, place);
        Ok(())
    }

    fn save_row(&mut self, row: &Row<'_>) -> Read<()> {
        let work = row.work;
        match row.touch {
            Touch::Insert => self.insert_work(work)?,
            Touch::Event => {
                let place = self.place(work.id)?;
                let statement = &mut self.hot.work_update;
                statement.raw_bind_parameter(1, place.rowid)?;
                let at = WorkRow::bind(statement, 2, work)?;
                WorkKeys::bind(statement, at, (work, place.last_event))?;
                statement.raw_execute()?;
            }
            Touch::Renewal => {
                let lease = work.lease.as_ref();
                let place = self.place(work.id)?;
                self.hot.work_renew.execute(params![
                    place.rowid,
                    lease.map(|lease| lease.expires_at),
                    lease.map(|lease| lease.renewed_at),
                    lease.and_then(|lease| lease.renewed_by.as_deref()),
                    work.progress.as_ref().map(|progress| progress.text()),
                    work.due_at,
                    work.children,
                    work.waiters,
                ])?;
            }
            Touch::Progress => {
                let lease = work.lease.as_ref();
                let values = params![
                    self.place(work.id)?.rowid,
                    lease.map(|lease| lease.expires_at),
                    lease.map(|lease| lease.renewed_at),
                    lease.and_then(|lease| lease.renewed_by.as_deref()),
                    work.progress.as_ref().map(|progress| progress.text()),
                    work.due_at,
                    work.children,
                    work.waiters,
                    lease.and_then(|lease| lease.progressed_at),
                ];
                self.cached(RENEW_WITH_PROGRESS)?.execute(values)?;
            }
            // Several touches of one work item are saved as the widest one, which includes the others.
            Touch::Due | Touch::Flags => {
                let values = params![self.place(work.id)?.rowid, work.due_at, work.children, work.waiters];
                self.cached(ARM_WORK)?.execute(values)?;
            }
        }
        Ok(())
    }

    fn insert_work(&mut self, work: &Work) -> Read<()> {
        let place = self.place(work.id)?;
        let statement = &mut self.hot.work_insert;
        statement.raw_bind_parameter(1, &work.id.0.as_bytes()[..])?;
        let at = WorkRow::bind(statement, 2, work)?;
        let at = WorkKeys::bind(statement, at, (work, place.last_event))?;
        WorkSpec::bind(statement, at, work)?;
        statement.raw_execute()?;
        self.places.insert(work.id, RowRef { rowid: self.conn.last_insert_rowid(), ..place });
        self.specs.put(work.id, work.spec.clone());
        Ok(())
    }

    /// Work items that give up a session are saved before those that take it.
    fn save_status(&mut self, rows: &[Row<'_>]) -> Read<()> {
        for holding in [false, true] {
            let part = |row: &&Row<'_>| row.work.state.holds_session() == holding && row.status_changed();
            for row in rows.iter().filter(part) {
                let work = row.work;
                let (id, state) = (work.id.0.as_bytes(), work.state.code());
                if row.touch == Touch::Insert {
                    let spec = &work.spec;
                    let values = params![id, state, work.due_at, spec.tenant, spec.session, spec.created_at];
                    self.hot.status_insert.execute(values)?;
                } else {
                    self.hot.status_update.execute(params![id, state, work.due_at])?;
                }
            }
        }
        Ok(())
    }

    /// A work item without a session is in the queue exactly while it is queued.
    fn save_ready(&mut self, row: &Row<'_>) -> Read<()> {
        match (row.was_ready(), row.is_ready()) {
            (false, true) => self.put_ready(row.work),
            (true, false) => self.drop_ready(row.work),
            // It left the queue and came back: its owner may have changed.
            (true, true) if row.touch == Touch::Event => self.put_ready(row.work),
            (true, true) | (false, false) => Ok(()),
        }
    }

    fn put_ready(&mut self, work: &Work) -> Read<()> {
        let spec = &work.spec;
        self.hot.ready_insert.execute(params![
            spec.tenant,
            spec.kind,
            spec.source.system,
            spec.priority,
            spec.created_at,
            work.id.0.as_bytes(),
            work.bound_to()
        ])?;
        Ok(())
    }

    fn drop_ready(&mut self, work: &Work) -> Read<()> {
        let spec = &work.spec;
        let (queue, id) = ((&spec.tenant, &spec.kind, &spec.source.system), work.id.0.as_bytes());
        let key = params![queue.0, queue.1, queue.2, spec.priority, spec.created_at, id];
        self.hot.ready_delete.execute(key)?;
        Ok(())
    }

    /// The stored heads of the sessions that this group touches.
    fn heads(&mut self, batch: &Batch) -> Read<Vec<SessionView>> {
        batch.writes.sessions.iter().map(|key| self.session(key)).collect()
    }

    /// Moves each session's entry in the queue from its old head to its new one.
    fn follow_heads(&mut self, batch: &Batch, before: Vec<SessionView>) -> Read<Vec<Arc<Spec>>> {
        let mut came = Vec::new();
        for (key, before) in batch.writes.sessions.iter().zip(before) {
            let after = self.session(key)?;
            if let Some(old) = before.head.filter(|_| before.holder.is_none())
                && (after.holder.is_some() || after.head != Some(old))
                && let Some(work) = self.at_hand(batch, old)?
            {
                self.drop_ready(&work)?;
            }
            if let Some(head) = after.head
                && let Some(work) = self.at_hand(batch, head)?
            {
                if after.holder.is_none() && work.state == State::Queued {
                    self.put_ready(&work)?;
                    if before.holder.is_some() || before.head != after.head {
                        came.push(work.spec.clone());
                    }
                } else {
                    self.drop_ready(&work)?;
                }
            }
        }
        Ok(came)
    }

    fn at_hand<'b>(&mut self, batch: &'b Batch, id: WorkId) -> Read<Option<Cow<'b, Work>>> {
        match batch.records.works.get(&id) {
            Some(work) => Ok(Some(Cow::Borrowed(work))),
            None => Ok(self.work(id)?.map(Cow::Owned)),
        }
    }

    fn save_attempt(&mut self, attempt: &Attempt) -> Read<()> {
        let statement = &mut self.hot.attempt_insert;
        AttemptRow::bind(statement, 1, attempt)?;
        statement.raw_execute()?;
        Ok(())
    }

    fn save_end(&mut self, work: WorkId, fence: u64, end: &AttemptEnd) -> Read<()> {
        let statement = &mut self.hot.attempt_end;
        statement.raw_bind_parameter(1, &work.0.as_bytes()[..])?;
        statement.raw_bind_parameter(2, fence as i64)?;
        AttemptEndRow::bind(statement, 3, end)?;
        statement.raw_execute()?;
        Ok(())
    }

    fn save_step(&mut self, step: &Step) -> Read<()> {
        let mut statement = self.cached(SAVE_STEP)?;
        StepRow::bind(&mut statement, 1, step)?;
        statement.raw_execute()?;
        Ok(())
    }

    fn save_wait(&mut self, wait: &Wait) -> Read<()> {
        let mut statement = self.cached(SAVE_WAIT)?;
        WaitRow::bind(&mut statement, 1, wait)?;
        statement.raw_execute()?;
        Ok(())
    }

    fn save_kept(&mut self, key: &TenantKey, kept: Option<&Kept>) -> Read<()> {
        match kept {
            Some(kept) => {
                let mut statement = self.cached(SAVE_KEPT)?;
                let at = KeptRow::bind(&mut statement, 1, kept)?;
                statement.raw_bind_parameter(at, self.key.row_mac(kept).0)?;
                statement.raw_execute()?;
            }
            None => _ = self.cached(DELETE_KEPT)?.execute(params![key.0, key.1])?,
        }
        Ok(())
    }

    /// Freed pages are overwritten too: otherwise only what is freed within a page is.
    fn erase(&mut self, erased: &[(WorkId, u64)]) -> Read<()> {
        if erased.is_empty() {
            return Ok(());
        }
        settings::overwrite(self.conn, Overwrite::Everything)?;
        for (work, before) in erased {
            let (id, before) = (work.0.as_bytes(), *before as i64);
            self.cached(log::ERASE)?.execute(params![id, 0, before - 1])?;
            for sql in ERASE_REST {
                self.cached(sql)?.execute(params![id, before])?;
            }
        }
        settings::overwrite(self.conn, Overwrite::WithinPages)?;
        Ok(())
    }

    fn wake(&mut self, batch: &Batch, id: WorkId, children: bool, waiters: bool, at: Millis) -> Read<()> {
        if children {
            for sql in WAKE_CHILDREN {
                self.cached(sql)?.execute(params![id.0.as_bytes(), at])?;
            }
        }
        if let Some(work) = batch.records.works.get(&id).filter(|_| waiters) {
            for sql in WAKE_WAITERS {
                self.cached(sql)?.execute(params![work.spec.tenant, reference_to(id), at])?;
            }
        }
        Ok(())
    }
}
