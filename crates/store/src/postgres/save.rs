//! Writes the net result of a group: set-based, and no more of a row than was touched. Columns come as arrays. Where they
//! are many, the select list unnests them: in FROM, each would be stored by itself first and read back from there.

use tenure_core::{
    Event, Fact, State, Work, WorkId,
    records::{Touch, reference_to},
};
use uuid::Uuid;

use super::{
    bench_support::{INSERT_EVENT, UPDATE_WORK},
    command,
    connection::{Pipeline, params},
    load::{Mark, session_slot, uuids},
    row::{json, name},
};
use crate::batch::{Batch, Row};
use crate::states::sql;
use crate::token::Key;

pub(super) const INSERT_WORK: &str = "INSERT INTO work (id, created_at, generation, priority, session_lock, \
     parent, tenant, system, source_id, run_id, kind, session, correlation_id, workflow_id, spec, state, \
     children, waiters, attempt, open_waits, seq, fence, lease_fence, expires_at, renewed_at, lapsed_at, \
     next_retry_at, due_at, updated_at, head, renewed_by, reason, owner, bound, progress, body) SELECT * \
     FROM (SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::int[]), unnest($4::smallint[]), \
     unnest($5::smallint[]), unnest($6::uuid[]), unnest($7::text[]), unnest($8::text[]), unnest($9::text[]), \
     unnest($10::text[]), unnest($11::text[]), unnest($12::text[]), unnest($13::text[]), unnest($14::text[]), \
     unnest($15::text[]), unnest($16::smallint[]), unnest($17::boolean[]), unnest($18::boolean[]), \
     unnest($19::int[]), unnest($20::int[]), unnest($21::bigint[]), unnest($22::bigint[]), \
     unnest($23::bigint[]), unnest($24::bigint[]), unnest($25::bigint[]), unnest($26::bigint[]), \
     unnest($27::bigint[]), unnest($28::bigint[]), unnest($29::bigint[]), unnest($30::bytea[]), \
     unnest($31::text[]), unnest($32::text[]), unnest($33::text[]), unnest($34::text[]), unnest($35::text[]), \
     unnest($36::text[])) AS v(id, created_at, generation, priority, session_lock, parent, tenant, system, \
     source_id, run_id) WHERE NOT EXISTS (SELECT 1 FROM tombstone t WHERE t.tenant = v.tenant \
     AND t.system = v.system AND t.source_id = v.source_id AND t.run_id = v.run_id \
     AND t.generation >= v.generation) ON CONFLICT ON CONSTRAINT work_identity DO NOTHING RETURNING id";
/// Flags ride along: a renewed work may have got its first child in the same group.
const RENEW_WORK: &str = "UPDATE work w SET expires_at = v.expires_at, renewed_at = v.renewed_at, \
     renewed_by = v.renewed_by, progress = v.progress, due_at = v.due_at, children = v.children, \
     waiters = v.waiters FROM (SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::bigint[]), \
     unnest($4::text[]), unnest($5::text[]), unnest($6::bigint[]), unnest($7::boolean[]), \
     unnest($8::boolean[])) AS v(id, expires_at, renewed_at, renewed_by, progress, due_at, children, waiters) \
     WHERE w.id = v.id";
const ARM_WORK: &str = "UPDATE work w SET due_at = v.due_at, children = v.children, waiters = v.waiters \
     FROM (SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::boolean[]), unnest($4::boolean[])) \
     AS v(id, due_at, children, waiters) WHERE w.id = v.id";
const INSERT_STATUS: &str = "INSERT INTO status (work, state, due_at, tenant, session, created_at) \
     SELECT unnest($1::uuid[]), unnest($2::smallint[]), unnest($3::bigint[]), unnest($4::text[]), \
     unnest($5::text[]), unnest($6::bigint[])";
const UPDATE_STATUS: &str = "UPDATE status s SET state = v.state, due_at = v.due_at \
     FROM (SELECT unnest($1::uuid[]), unnest($2::smallint[]), unnest($3::smallint[]), unnest($4::bigint[])) \
     AS v(work, before, state, due_at) WHERE s.state = v.before AND s.work = v.work";
const DELETE_READY: &str = "DELETE FROM ready r USING (SELECT unnest($1::text[]), unnest($2::text[]), \
     unnest($3::text[]), unnest($4::smallint[]), unnest($5::bigint[]), unnest($6::uuid[])) \
     AS v(tenant, kind, system, priority, created_at, work) \
     WHERE r.tenant = v.tenant AND r.kind = v.kind AND r.system = v.system \
     AND r.priority = v.priority AND r.created_at = v.created_at AND r.work = v.work";
const INSERT_READY: &str = "INSERT INTO ready (tenant, kind, system, priority, created_at, work, bound) \
     SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::text[]), unnest($4::smallint[]), \
     unnest($5::bigint[]), unnest($6::uuid[]), unnest($7::text[])";

/// The queued head of each session that nobody holds.
macro_rules! heads {
    () => {
        "unnest($1::text[], $2::text[]) AS k(tenant, session) CROSS JOIN LATERAL ( \
         SELECT h.work, h.state FROM status h WHERE h.tenant = k.tenant AND h.session = k.session \
         AND h.session IS NOT NULL AND {h.state is pending} ORDER BY h.created_at, h.work LIMIT 1) s \
         WHERE {s.state is queued} AND NOT EXISTS (SELECT 1 FROM status o WHERE o.tenant = k.tenant \
         AND o.session = k.session AND o.session IS NOT NULL \
         AND {o.state is held})"
    };
}
const UNREADY_SESSIONS: &str = sql!(
    "DELETE FROM ready r USING unnest($1::text[], $2::text[]) AS d(tenant, session) \
     WHERE r.tenant = d.tenant AND r.session = d.session AND r.session IS NOT NULL \
     AND (r.bound IS DISTINCT FROM (SELECT w.bound FROM work w WHERE w.id = r.work) \
     OR r.work NOT IN (SELECT s.work FROM ",
    heads!(),
    "))"
);
const READY_SESSIONS: &str = sql!(
    "INSERT INTO ready (tenant, kind, system, priority, created_at, work, session, bound) \
     SELECT w.tenant, w.kind, w.system, w.priority, w.created_at, w.id, w.session, w.bound \
     FROM work w WHERE w.id IN (SELECT s.work FROM ",
    heads!(),
    ") ON CONFLICT DO NOTHING"
);
const INSERT_END: &str = "INSERT INTO attempt_end (work, fence, ended_at, outcome, body_hash, ack, error, \
     usage) SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::text[]), \
     unnest($5::bytea[]), unnest($6::text[]), unnest($7::text[]), unnest($8::text[])";
const SAVE_STEP: &str = "INSERT INTO step (work, ordinal, name, input_hash, begun_at, completed_at, \
     result_work, result_seq, voided) SELECT unnest($1::uuid[]), unnest($2::int[]), unnest($3::text[]), \
     unnest($4::bytea[]), unnest($5::bigint[]), unnest($6::bigint[]), unnest($7::uuid[]), \
     unnest($8::bigint[]), unnest($9::boolean[]) ON CONFLICT (work, ordinal) DO UPDATE \
     SET name = excluded.name, input_hash = excluded.input_hash, begun_at = excluded.begun_at, \
     completed_at = excluded.completed_at, result_work = excluded.result_work, \
     result_seq = excluded.result_seq, voided = excluded.voided";
const SAVE_WAIT: &str = "INSERT INTO wait (id, work, tenant, reference, kind, state, opened_at, deadline_at, \
     ended_at, answer_seq, detail) SELECT unnest($1::uuid[]), unnest($2::uuid[]), unnest($3::text[]), \
     unnest($4::text[]), unnest($5::text[]), unnest($6::text[]), unnest($7::bigint[]), unnest($8::bigint[]), \
     unnest($9::bigint[]), unnest($10::bigint[]), unnest($11::text[]) ON CONFLICT (id) DO UPDATE \
     SET state = excluded.state, deadline_at = excluded.deadline_at, ended_at = excluded.ended_at, \
     answer_seq = excluded.answer_seq, detail = excluded.detail";
const SAVE_KEPT: &str = "INSERT INTO kept (tenant, reference, payload, actor, evidence, kept_at, mac) \
     SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::text[]), unnest($4::text[]), \
     unnest($5::text[]), unnest($6::bigint[]), unnest($7::bytea[]) ON CONFLICT (tenant, reference) DO UPDATE \
     SET payload = excluded.payload, actor = excluded.actor, evidence = excluded.evidence, \
     kept_at = excluded.kept_at, mac = excluded.mac";
const DELETE_KEPT: &str = "DELETE FROM kept t USING unnest($1::text[], $2::text[]) AS v(tenant, reference) \
     WHERE t.tenant = v.tenant AND t.reference = v.reference";

/// Open works that closed works have to wake: children, and those that wait for them.
macro_rules! woken {
    () => {
        "SELECT w.id FROM work w WHERE w.parent = ANY($1::uuid[]) AND {w.state is open} \
         UNION SELECT t.work FROM unnest($2::text[]) AS k(reference) JOIN wait t \
         ON t.tenant = ANY($3::text[]) AND t.reference = k.reference AND t.state = 'open'"
    };
}
pub(super) const WOKEN: &str = sql!(woken!());
/// Never waits: a group that holds works must not wait for more of them.
pub(super) const WOKEN_FREE: &str =
    sql!("SELECT w.id FROM work w WHERE w.id IN (", woken!(), ") FOR NO KEY UPDATE SKIP LOCKED");
const WAKE_WORK: &str = sql!(
    "UPDATE work w SET due_at = least(w.due_at, v.at) \
     FROM unnest($1::uuid[], $2::bigint[]) AS v(id, at) WHERE w.id = v.id AND {w.state is open}"
);
const WAKE_STATUS: &str = sql!(
    "UPDATE status s SET due_at = least(s.due_at, v.at) \
     FROM unnest($1::uuid[], $2::bigint[]) AS v(id, at) WHERE s.work = v.id \
     AND s.state = ANY({array of open})"
);

pub(super) const PAYLOADS: &str = "SELECT e.work, e.seq, e.payload FROM unnest($1::uuid[], $2::bigint[]) \
     AS k(work, seq) JOIN event e ON e.work = k.work AND e.seq = k.seq WHERE e.payload IS NOT NULL";

/// A column of a list.
fn each<'a, T, U>(rows: &'a [T], column: impl Fn(&'a T) -> U) -> Vec<U> {
    rows.iter().map(column).collect()
}

/// The mutable columns in the order of the statements above.
struct Columns<'a> {
    reason: Vec<Option<String>>,
    body: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(works: &[&'a Work]) -> Self {
        Self {
            reason: each(works, |w| w.body.reason.as_ref().map(|reason| name(&reason.code))),
            body: each(works, |w| w.body.text()),
        }
    }
}

fn owner<'a>(work: &&'a Work) -> Option<&'a str> {
    work.body.holder.as_ref().map(|holder| holder.id.as_str())
}

/// New works, sorted by identity: two groups that bring the same ones wait for each other in one order.
pub(super) fn insert_works<'a>(pipeline: &mut Pipeline<'a>, rows: &[Row<'a>]) -> Option<usize> {
    let mut works: Vec<&Work> =
        rows.iter().filter(|row| row.touch == Touch::Insert).map(|row| row.work).collect();
    if works.is_empty() {
        return None;
    }
    works.sort_by_cached_key(|work| (work.spec.identity(), work.spec.generation));
    let columns = Columns::of(&works);
    let works = &works[..];
    let lease = |w: &&'a Work| w.lease.as_ref();
    Some(pipeline.add(
        INSERT_WORK,
        params![
            each(works, |w| w.id.0),
            each(works, |w| w.spec.created_at),
            each(works, |w| w.spec.generation as i32),
            each(works, |w| w.spec.priority),
            each(works, |w| {
                w.spec.session.as_ref().map(|session| session_slot(&w.spec.tenant, session) as i16)
            }),
            each(works, |w| w.spec.parent.map(|parent| parent.0)),
            each(works, |w| w.spec.tenant.as_str()),
            each(works, |w| w.spec.source.system.as_str()),
            each(works, |w| w.spec.source.id.as_str()),
            each(works, |w| w.spec.source.run_id.as_str()),
            each(works, |w| w.spec.kind.as_str()),
            each(works, |w| w.spec.session.as_deref()),
            // The default, a work's own id, needs no column and no index.
            each(works, |w| { Some(w.spec.correlation_id.as_str()).filter(|id| *id != w.id.to_string()) }),
            each(works, |w| w.spec.workflow.as_ref().map(|workflow| workflow.id.as_str())),
            each(works, |w| json(&*w.spec)),
            each(works, |w| i16::from(w.state.code())),
            each(works, |w| w.children),
            each(works, |w| w.waiters),
            each(works, |w| w.attempt as i32),
            each(works, |w| w.open_waits as i32),
            each(works, |w| w.seq as i64),
            each(works, |w| w.fence as i64),
            each(works, |w| lease(w).map(|lease| lease.fence as i64)),
            each(works, |w| lease(w).map(|lease| lease.expires_at)),
            each(works, |w| lease(w).map(|lease| lease.renewed_at)),
            each(works, |w| lease(w).and_then(|lease| lease.lapsed_at)),
            each(works, |w| w.next_retry_at),
            each(works, |w| w.due_at),
            each(works, |w| w.updated_at),
            each(works, |w| &w.head.0[..]),
            each(works, |w| lease(w).and_then(|lease| lease.renewed_by.as_deref())),
            columns.reason,
            each(works, owner),
            each(works, |w| w.bound_to()),
            each(works, |w| w.progress.as_ref().map(|progress| progress.text())),
            columns.body,
        ],
    ))
}

/// Everything but new works and wakes. Events come first: the rows are held against them.
pub(super) fn rest<'a>(
    pipeline: &mut Pipeline<'a>,
    key: &Key,
    batch: &'a Batch,
    rows: &[Row<'a>],
    mark: Mark,
) {
    events(pipeline, batch, mark);
    let touched = |touch: &dyn Fn(Touch) -> bool| -> Vec<&'a Work> {
        rows.iter().filter(|row| touch(row.touch)).map(|row| row.work).collect()
    };
    update_works(pipeline, &touched(&|touch| touch == Touch::Event));
    renew_works(pipeline, &touched(&|touch| touch == Touch::Renewal));
    arm_works(pipeline, &touched(&|touch| touch == Touch::Due || touch == Touch::Flags));
    statuses(pipeline, rows);
    ready(pipeline, rows);
    attempt_ends(pipeline, batch);
    steps(pipeline, batch);
    waits(pipeline, batch);
    kept(pipeline, key, batch);
    command::save(pipeline, batch);
    sessions(pipeline, batch);
}

fn events<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch, mark: Mark) {
    let events = &batch.writes.events[..];
    pipeline.add_if(!events.is_empty(), INSERT_EVENT, || {
        params![
            mark.txn,
            each(events, |e| e.work.0),
            each(events, |e| e.seq as i64),
            each(events, |e| e.at),
            each(events, |e| e.fact.kind()),
            each(events, |e| e.from.map(|state| i16::from(state.code()))),
            each(events, |e| i16::from(e.to.code())),
            each(events, |e| e.actor.kind.as_str()),
            each(events, |e| &*e.actor.id),
            each(events, |e| e.attempt as i32),
            each(events, |e| e.step.as_deref()),
            each(events, |e| e.fence.map(|fence| fence as i64)),
            each(events, |e| e.data.as_str()),
            each(events, |e| e.message.as_deref()),
            each(events, |e| e.payload.as_ref().map(|payload| payload.text())),
            each(events, |e| (!e.evidence.is_empty()).then(|| json(&e.evidence))),
            each(events, |e| e.content.as_ref().map(|content| &content.digest.0[..])),
            each(events, |e| e.content.as_ref().and_then(|content| content.salt.as_ref().map(|s| &s[..]))),
            each(events, |e| &e.prev_hash.0[..]),
            each(events, |e| &e.hash.0[..]),
            each(events, request),
            each(events, |e| e.actor.name.as_deref()),
        ]
    });
}

/// The claim request that an event answers: by it, a repeat finds what it was given.
fn request(event: &Event) -> Option<i64> {
    match &event.fact {
        Fact::Claimed(claimed) => Some(claimed.request.0),
        _ => None,
    }
}

fn update_works<'a>(pipeline: &mut Pipeline<'a>, works: &[&'a Work]) {
    let lease = |w: &&'a Work| w.lease.as_ref();
    pipeline.add_if(!works.is_empty(), UPDATE_WORK, || {
        let columns = Columns::of(works);
        params![
            each(works, |w| w.id.0),
            each(works, |w| i16::from(w.state.code())),
            each(works, |w| w.seq as i64),
            each(works, |w| &w.head.0[..]),
            each(works, |w| w.attempt as i32),
            each(works, |w| w.fence as i64),
            each(works, |w| lease(w).map(|lease| lease.fence as i64)),
            each(works, |w| lease(w).map(|lease| lease.expires_at)),
            each(works, |w| lease(w).map(|lease| lease.renewed_at)),
            each(works, |w| lease(w).and_then(|lease| lease.renewed_by.as_deref())),
            each(works, |w| lease(w).and_then(|lease| lease.lapsed_at)),
            each(works, |w| w.open_waits as i32),
            each(works, |w| w.next_retry_at),
            each(works, |w| w.due_at),
            columns.reason,
            each(works, owner),
            each(works, |w| w.bound_to()),
            each(works, |w| w.progress.as_ref().map(|progress| progress.text())),
            each(works, |w| w.updated_at),
            each(works, |w| w.children),
            each(works, |w| w.waiters),
            columns.body,
        ]
    });
}

fn renew_works<'a>(pipeline: &mut Pipeline<'a>, works: &[&'a Work]) {
    let lease = |w: &&'a Work| w.lease.as_ref();
    pipeline.add_if(!works.is_empty(), RENEW_WORK, || {
        params![
            each(works, |w| w.id.0),
            each(works, |w| lease(w).map(|lease| lease.expires_at)),
            each(works, |w| lease(w).map(|lease| lease.renewed_at)),
            each(works, |w| lease(w).and_then(|lease| lease.renewed_by.as_deref())),
            each(works, |w| w.progress.as_ref().map(|progress| progress.text())),
            each(works, |w| w.due_at),
            each(works, |w| w.children),
            each(works, |w| w.waiters),
        ]
    });
}

fn arm_works<'a>(pipeline: &mut Pipeline<'a>, works: &[&'a Work]) {
    pipeline.add_if(!works.is_empty(), ARM_WORK, || {
        params![
            each(works, |w| w.id.0),
            each(works, |w| w.due_at),
            each(works, |w| w.children),
            each(works, |w| w.waiters),
        ]
    });
}

/// Those that let go of a session come before those that take it: a row each, in this order.
fn statuses<'a>(pipeline: &mut Pipeline<'a>, rows: &[Row<'a>]) {
    let (new, old): (Vec<&Row<'a>>, Vec<&Row<'a>>) =
        rows.iter().filter(|row| row.status_changed()).partition(|row| row.touch == Touch::Insert);
    let new: Vec<&'a Work> = new.into_iter().map(|row| row.work).collect();
    let mut old = old;
    old.sort_by_key(|row| row.work.state.holds_session());
    pipeline.add_if(!old.is_empty(), UPDATE_STATUS, || {
        let code = |state: State| i16::from(state.code());
        params![
            each(&old, |row| row.work.id.0),
            each(&old, |row| code(row.before.map_or(row.work.state, |before| before.state))),
            each(&old, |row| code(row.work.state)),
            each(&old, |row| row.work.due_at),
        ]
    });
    pipeline.add_if(!new.is_empty(), INSERT_STATUS, || {
        params![
            each(&new, |w| w.id.0),
            each(&new, |w| i16::from(w.state.code())),
            each(&new, |w| w.due_at),
            each(&new, |w| w.spec.tenant.as_str()),
            each(&new, |w| w.spec.session.as_deref()),
            each(&new, |w| w.spec.created_at),
        ]
    });
}

fn ready<'a>(pipeline: &mut Pipeline<'a>, rows: &[Row<'a>]) {
    let works = |wanted: &dyn Fn(&Row<'a>) -> bool| -> Vec<&'a Work> {
        rows.iter().filter(|row| wanted(row)).map(|row| row.work).collect()
    };
    // What left and came back in one group may be bound to an owner now.
    let gone = works(&|row| row.was_ready() && (!row.is_ready() || row.touch == Touch::Event));
    pipeline.add_if(!gone.is_empty(), DELETE_READY, || {
        params![
            each(&gone, |w| w.spec.tenant.as_str()),
            each(&gone, |w| w.spec.kind.as_str()),
            each(&gone, |w| w.spec.source.system.as_str()),
            each(&gone, |w| w.spec.priority),
            each(&gone, |w| w.spec.created_at),
            each(&gone, |w| w.id.0),
        ]
    });
    let come = works(&|row| row.is_ready() && (!row.was_ready() || row.touch == Touch::Event));
    pipeline.add_if(!come.is_empty(), INSERT_READY, || {
        params![
            each(&come, |w| w.spec.tenant.as_str()),
            each(&come, |w| w.spec.kind.as_str()),
            each(&come, |w| w.spec.source.system.as_str()),
            each(&come, |w| w.spec.priority),
            each(&come, |w| w.spec.created_at),
            each(&come, |w| w.id.0),
            each(&come, |w| w.bound_to()),
        ]
    });
}

/// What an attempt begins with, the event of its claim says.
fn attempt_ends<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch) {
    let ended = &batch.writes.ended[..];
    pipeline.add_if(!ended.is_empty(), INSERT_END, || {
        params![
            each(ended, |(work, _, _)| work.0),
            each(ended, |(_, fence, _)| *fence as i64),
            each(ended, |(_, _, end)| end.at),
            each(ended, |(_, _, end)| name(&end.outcome)),
            each(ended, |(_, _, end)| end.body_hash.as_ref().map(|hash| &hash.0[..])),
            each(ended, |(_, _, end)| end.ack.as_ref().map(json)),
            each(ended, |(_, _, end)| end.error.as_ref().map(json)),
            each(ended, |(_, _, end)| (!end.usage.is_empty()).then(|| json(&end.usage))),
        ]
    });
}

fn steps<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch) {
    let steps: Vec<_> = batch.writes.steps.values().collect();
    pipeline.add_if(!steps.is_empty(), SAVE_STEP, || {
        params![
            each(&steps, |s| s.work.0),
            each(&steps, |s| s.ordinal as i32),
            each(&steps, |s| s.name.as_str()),
            each(&steps, |s| &s.input_hash.0[..]),
            each(&steps, |s| s.begun_at),
            each(&steps, |s| s.completed_at),
            each(&steps, |s| s.result.map(|(work, _)| work.0)),
            each(&steps, |s| s.result.map(|(_, seq)| seq as i64)),
            each(&steps, |s| s.voided),
        ]
    });
}

fn waits<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch) {
    let waits: Vec<_> = batch.writes.waits.values().collect();
    pipeline.add_if(!waits.is_empty(), SAVE_WAIT, || {
        params![
            each(&waits, |w| w.id.0),
            each(&waits, |w| w.work.0),
            each(&waits, |w| w.tenant.as_str()),
            each(&waits, |w| w.reference.as_str()),
            each(&waits, |w| name(&w.kind)),
            each(&waits, |w| name(&w.state)),
            each(&waits, |w| w.opened_at),
            each(&waits, |w| w.deadline_at),
            each(&waits, |w| w.ended_at),
            each(&waits, |w| w.answer_seq.map(|seq| seq as i64)),
            each(&waits, |w| json(&w.detail)),
        ]
    });
}

fn kept<'a>(pipeline: &mut Pipeline<'a>, key: &Key, batch: &'a Batch) {
    let kept: Vec<_> = batch.writes.kept.values().flatten().collect();
    pipeline.add_if(!kept.is_empty(), SAVE_KEPT, || {
        params![
            each(&kept, |k| k.tenant.as_str()),
            each(&kept, |k| k.reference.as_str()),
            each(&kept, |k| k.payload.text()),
            each(&kept, |k| json(&k.actor)),
            each(&kept, |k| json(&k.evidence)),
            each(&kept, |k| k.kept_at),
            each(&kept, |k| key.row_mac(*k).0.to_vec()),
        ]
    });
    let gone: Vec<_> =
        batch.writes.kept.iter().filter(|(_, kept)| kept.is_none()).map(|(key, _)| key).collect();
    pipeline.add_if(!gone.is_empty(), DELETE_KEPT, || {
        params![each(&gone, |key| key.0.as_str()), each(&gone, |key| key.1.as_str())]
    });
}

/// Who is next in a session is known only now.
fn sessions<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch) {
    let keys: Vec<_> = batch.writes.sessions.iter().collect();
    let columns = || params![each(&keys, |key| key.0.as_str()), each(&keys, |key| key.1.as_str())];
    pipeline.add_if(!keys.is_empty(), UNREADY_SESSIONS, columns);
    pipeline.add_if(!keys.is_empty(), READY_SESSIONS, columns);
}

/// Asks which works are to be woken, and locks those that are free.
pub(super) fn find_woken<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch) -> (usize, usize) {
    let columns = || {
        let wakes = &batch.writes.wakes;
        let parents = uuids(wakes.iter().filter(|wake| wake.1).map(|wake| &wake.0));
        let waited = wakes.iter().filter(|wake| wake.2).map(|wake| wake.0);
        let tenants: std::collections::BTreeSet<&str> = waited
            .clone()
            .filter_map(|id| Some(batch.records.works.get(&id)?.spec.tenant.as_str()))
            .collect();
        params![
            parents,
            waited.map(reference_to).collect::<Vec<String>>(),
            tenants.into_iter().collect::<Vec<&str>>(),
        ]
    };
    (pipeline.add(WOKEN, columns()), pipeline.add(WOKEN_FREE, columns()))
}

/// After every row is saved. A group has one time, so one date serves all.
pub(super) fn wake(pipeline: &mut Pipeline<'_>, ids: &[WorkId], mark: Mark) {
    let at = vec![mark.now; ids.len()];
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    pipeline.add(WAKE_WORK, params![ids.clone(), at.clone()]);
    pipeline.add(WAKE_STATUS, params![ids, at]);
}
