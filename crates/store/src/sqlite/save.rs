//! The net result of a group, from records into the tables: events first, since the triggers hold every
//! row against its last event.

use std::{borrow::Cow, sync::Arc};

use rusqlite::{Statement, params};
use tenure_core::{
    Attempt, Event, Millis, State, Step, Wait, Work, WorkId,
    model::{AttemptEnd, Kept, Spec},
    records::{SessionView, TenantKey, Touch, reference_to},
};

use super::{
    log::RowRef,
    row::{self, Read},
    tables::Tables,
};
use crate::batch::{Batch, Row};
use crate::states::sql;

const WORK_FLAGS: &str =
    "UPDATE OR ROLLBACK work SET due_at = ?2, children = ?3, waiters = ?4 WHERE rowid = ?1";
const STEP_SAVE: &str = "INSERT OR REPLACE INTO step \
     (work, ordinal, name, input_hash, begun_at, completed_at, result_work, result_seq, voided) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const WAIT_SAVE: &str = "INSERT INTO wait \
     (id, work, tenant, reference, kind, state, opened_at, deadline_at, ended_at, answer_seq, detail) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
     ON CONFLICT (id) DO UPDATE SET state = ?6, deadline_at = ?8, ended_at = ?9, answer_seq = ?10, detail = ?11";
const KEPT_SAVE: &str = "INSERT OR REPLACE INTO kept \
     (tenant, reference, payload, actor, evidence, kept_at, mac) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const KEPT_DROP: &str = "DELETE FROM kept WHERE tenant = ?1 AND reference = ?2";

/// The open works that a closed one wakes: its children, then those that wait for it.
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
    /// Writes everything. Says which works became the heads of their sessions: parked claims have not been offered those.
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
        let evidence = match event.evidence.as_slice() {
            [] => None,
            some => Some(row::to_json(&some)?),
        };
        self.hot.event_insert.execute(params![
            event.work.0.as_bytes(),
            event.seq as i64,
            event.at,
            event.fact.kind(),
            event.from.map(State::code),
            event.to.code(),
            event.actor.kind.as_str(),
            &*event.actor.id,
            event.attempt,
            event.step,
            event.fence.map(|fence| fence as i64),
            event.data,
            event.message,
            event.payload.as_ref().map(|payload| payload.text()),
            evidence,
            event.content.as_ref().map(|content| &content.digest.0[..]),
            event.content.as_ref().and_then(|content| content.salt.as_ref()).map(|salt| &salt[..]),
            &event.prev_hash.0[..],
            &event.hash.0[..],
            previous.map(|place| place.last_event),
            event.actor.name.as_deref(),
        ])?;
        let place = RowRef {
            // A new work's row comes after its events.
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
                bind_mutable(&mut self.hot.work_update, work, place)?;
                self.hot.work_update.raw_bind_parameter(1, place.rowid)?;
                self.hot.work_update.raw_execute()?;
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
            // Several touches of one work are saved as the widest: each covers those below it.
            Touch::Due | Touch::Flags => {
                let values = params![self.place(work.id)?.rowid, work.due_at, work.children, work.waiters];
                self.cached(WORK_FLAGS)?.execute(values)?;
            }
        }
        Ok(())
    }

    fn insert_work(&mut self, work: &Work) -> Read<()> {
        let spec = &work.spec;
        let place = self.place(work.id)?;
        let statement = &mut self.hot.work_insert;
        bind_mutable(statement, work, place)?;
        statement.raw_bind_parameter(1, &work.id.0.as_bytes()[..])?;
        let own = work.id.to_string();
        let correlation = Some(spec.correlation_id.as_str()).filter(|given| *given != own);
        statement.raw_bind_parameter(23, &spec.tenant)?;
        statement.raw_bind_parameter(24, &spec.source.system)?;
        statement.raw_bind_parameter(25, &spec.source.id)?;
        statement.raw_bind_parameter(26, &spec.source.run_id)?;
        statement.raw_bind_parameter(27, spec.generation)?;
        statement.raw_bind_parameter(28, &spec.kind)?;
        statement.raw_bind_parameter(29, &spec.session)?;
        statement.raw_bind_parameter(30, spec.parent.as_ref().map(|parent| &parent.0.as_bytes()[..]))?;
        statement.raw_bind_parameter(31, correlation)?;
        statement.raw_bind_parameter(32, spec.workflow.as_ref().map(|workflow| &workflow.id))?;
        statement.raw_bind_parameter(33, spec.priority)?;
        statement.raw_bind_parameter(34, spec.created_at)?;
        statement.raw_execute()?;
        self.places.insert(work.id, RowRef { rowid: self.conn.last_insert_rowid(), ..place });
        self.specs.put(work.id, spec.clone());
        Ok(())
    }

    /// Those that let go of a session are saved before those that take it.
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

    /// Works of no session are on the queue exactly while they are queued.
    fn save_ready(&mut self, row: &Row<'_>) -> Read<()> {
        match (row.was_ready(), row.is_ready()) {
            (false, true) => self.put_ready(row.work),
            (true, false) => self.drop_ready(row.work),
            // It left and came back: it may be bound to an owner now.
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
        let (lane, id) = ((&spec.tenant, &spec.kind, &spec.source.system), work.id.0.as_bytes());
        let key = params![lane.0, lane.1, lane.2, spec.priority, spec.created_at, id];
        self.hot.ready_delete.execute(key)?;
        Ok(())
    }

    /// The sessions that this group touches, as they stand in the tables.
    fn heads(&mut self, batch: &Batch) -> Read<Vec<SessionView>> {
        batch.writes.sessions.iter().map(|key| self.session(key)).collect()
    }

    /// Moves each session's place on the queue from the work that had it to the one that has it now.
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
        self.hot.attempt_insert.execute(params![
            attempt.work.0.as_bytes(),
            attempt.fence as i64,
            attempt.number,
            attempt.worker,
            attempt.incarnation,
            attempt.request.0,
            attempt.claimed_at,
        ])?;
        Ok(())
    }

    fn save_end(&mut self, work: WorkId, fence: u64, end: &AttemptEnd) -> Read<()> {
        self.hot.attempt_end.execute(params![
            work.0.as_bytes(),
            fence as i64,
            end.at,
            row::name_of(end.outcome),
            end.body_hash.as_ref().map(|hash| &hash.0[..]),
            end.ack.as_ref().map(row::to_json).transpose()?,
            end.error.as_ref().map(row::to_json).transpose()?,
            (!end.usage.is_empty()).then(|| row::to_json(&end.usage)).transpose()?,
        ])?;
        Ok(())
    }

    fn save_step(&mut self, step: &Step) -> Read<()> {
        self.cached(STEP_SAVE)?.execute(params![
            step.work.0.as_bytes(),
            step.ordinal,
            step.name,
            &step.input_hash.0[..],
            step.begun_at,
            step.completed_at,
            step.result.as_ref().map(|(work, _)| &work.0.as_bytes()[..]),
            step.result.map(|(_, seq)| seq as i64),
            step.voided,
        ])?;
        Ok(())
    }

    fn save_wait(&mut self, wait: &Wait) -> Read<()> {
        self.cached(WAIT_SAVE)?.execute(params![
            wait.id.0.as_bytes(),
            wait.work.0.as_bytes(),
            wait.tenant,
            wait.reference,
            row::name_of(wait.kind),
            row::name_of(wait.state),
            wait.opened_at,
            wait.deadline_at,
            wait.ended_at,
            wait.answer_seq.map(|seq| seq as i64),
            row::to_json(&wait.detail)?,
        ])?;
        Ok(())
    }

    fn save_kept(&mut self, key: &TenantKey, kept: Option<&Kept>) -> Read<()> {
        match kept {
            Some(kept) => self.cached(KEPT_SAVE)?.execute(params![
                kept.tenant,
                kept.reference,
                kept.payload.text(),
                row::to_json(&kept.actor)?,
                row::to_json(&kept.evidence)?,
                kept.kept_at,
                self.key.row_mac(kept).0,
            ])?,
            None => self.cached(KEPT_DROP)?.execute(params![key.0, key.1])?,
        };
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

/// Binds what events change, as the insert and the update of a work both number it. The first parameter
/// says which work: its id, or where it lies.
fn bind_mutable(statement: &mut Statement<'_>, work: &Work, place: RowRef) -> Read<()> {
    let lease = work.lease.as_ref();
    statement.raw_bind_parameter(2, work.state.code())?;
    statement.raw_bind_parameter(3, work.seq as i64)?;
    statement.raw_bind_parameter(4, &work.head.0[..])?;
    statement.raw_bind_parameter(5, work.attempt)?;
    statement.raw_bind_parameter(6, work.fence as i64)?;
    statement.raw_bind_parameter(7, lease.map(|lease| lease.fence as i64))?;
    statement.raw_bind_parameter(8, lease.map(|lease| lease.expires_at))?;
    statement.raw_bind_parameter(9, lease.map(|lease| lease.renewed_at))?;
    statement.raw_bind_parameter(10, lease.and_then(|lease| lease.renewed_by.as_deref()))?;
    statement.raw_bind_parameter(11, lease.and_then(|lease| lease.lapsed_at))?;
    statement.raw_bind_parameter(12, work.open_waits)?;
    statement.raw_bind_parameter(13, work.next_retry_at)?;
    statement.raw_bind_parameter(14, work.due_at)?;
    statement.raw_bind_parameter(15, work.body.reason.as_ref().map(|reason| row::name_of(reason.code)))?;
    statement.raw_bind_parameter(16, work.body.holder.as_ref().map(|holder| &holder.id))?;
    statement.raw_bind_parameter(17, work.progress.as_ref().map(|progress| progress.text()))?;
    statement.raw_bind_parameter(18, work.updated_at)?;
    statement.raw_bind_parameter(19, work.children)?;
    statement.raw_bind_parameter(20, work.waiters)?;
    statement.raw_bind_parameter(21, work.body.text())?;
    statement.raw_bind_parameter(22, place.last_event)?;
    Ok(())
}
