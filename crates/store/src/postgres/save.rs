//! Saves the net result of a group, set-based, and of each row only the changed part. Columns are sent as arrays. If
//! there are many, they are unnested in the select list: in FROM, each array would first be stored and then read back.

use tenure_core::{
    Event, Fact, State, Step, Wait, Work, WorkId,
    model::Kept,
    records::{Touch, reference_to},
};
use uuid::Uuid;

use super::{
    command,
    connection::{Param, Pipeline, params},
    load::{Mark, uuids},
    row::{AttemptEndRow, EventRow, KeptRow, StepRow, WaitRow, WorkKeys, WorkRow, WorkSpec},
};
use crate::{
    batch::{Batch, Row},
    columns::{Column, Columns, MAC, names, sets_from, statement, unnested},
    states::sql,
    token::Key,
};

pub(super) const INSERT_WORK: &str = statement!(
    "INSERT INTO work (" { names(WorkSpec::COLUMNS) } ", " { names(WorkRow::COLUMNS) }
    ", " { names(WorkKeys::COLUMNS) } ") SELECT * FROM (SELECT " { unnested(WorkSpec::COLUMNS, 1) }
    ", " { unnested(WorkRow::COLUMNS, 1 + WorkSpec::COLUMNS.len()) }
    ", " { unnested(WorkKeys::COLUMNS, 1 + WorkSpec::COLUMNS.len() + WorkRow::COLUMNS.len()) }
    ") AS v(" { names(WorkSpec::COLUMNS) } ", " { names(WorkRow::COLUMNS) } ", " { names(WorkKeys::COLUMNS) }
    ") WHERE NOT EXISTS (SELECT 1 FROM tombstone t WHERE t.tenant = v.tenant \
     AND t.system = v.system AND t.source_id = v.source_id AND t.run_id = v.run_id \
     AND t.generation >= v.generation) ON CONFLICT ON CONSTRAINT work_identity DO NOTHING RETURNING id"
);
/// The new values of rows that events changed.
pub const UPDATE_WORK: &str = statement!(
    "UPDATE work w SET " { sets_from("v", WorkRow::COLUMNS) } ", " { sets_from("v", WorkKeys::COLUMNS) }
    " FROM (SELECT unnest($1::uuid[]), " { unnested(WorkRow::COLUMNS, 2) }
    ", " { unnested(WorkKeys::COLUMNS, 2 + WorkRow::COLUMNS.len()) }
    ") AS v(id, " { names(WorkRow::COLUMNS) } ", " { names(WorkKeys::COLUMNS) } ") WHERE w.id = v.id"
);
/// New events, in order. `$1` is the transaction's position in the feed. The epoch is read by the inserting statement:
/// starting an epoch waits for running inserts, and later inserts see it.
pub const INSERT_EVENT: &str = statement!(
    "INSERT INTO event (txn, " { names(EventRow::COLUMNS) } ", " { names(REQUEST) }
    ", epoch) SELECT $1::bigint, " { unnested(EventRow::COLUMNS, 2) }
    ", " { unnested(REQUEST, 2 + EventRow::COLUMNS.len()) }
    ", (SELECT value::int FROM meta WHERE key = 'epoch')"
);
/// The claim request of an event.
const REQUEST: Columns = &[Column { name: "request", kind: "bigint" }];
/// Includes `children` and `waiters`: a renewed work item may have got its first child in the same group.
const RENEW_WORK: &str = "UPDATE work w SET expires_at = v.expires_at, renewed_at = v.renewed_at, \
     renewed_by = v.renewed_by, progress = v.progress, due_at = v.due_at, children = v.children, \
     waiters = v.waiters FROM (SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::bigint[]), \
     unnest($4::text[]), unnest($5::text[]), unnest($6::bigint[]), unnest($7::boolean[]), \
     unnest($8::boolean[])) AS v(id, expires_at, renewed_at, renewed_by, progress, due_at, children, waiters) \
     WHERE w.id = v.id";
/// The same as a renewal, which is sent far more often, and when it brought new progress.
const RENEW_WITH_PROGRESS: &str = "UPDATE work w SET expires_at = v.expires_at, renewed_at = v.renewed_at, \
     renewed_by = v.renewed_by, progress = v.progress, due_at = v.due_at, children = v.children, \
     waiters = v.waiters, progressed_at = v.progressed_at FROM (SELECT unnest($1::uuid[]), \
     unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::text[]), unnest($5::text[]), unnest($6::bigint[]), \
     unnest($7::boolean[]), unnest($8::boolean[]), unnest($9::bigint[])) AS v(id, expires_at, renewed_at, \
     renewed_by, progress, due_at, children, waiters, progressed_at) WHERE w.id = v.id";
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

/// The oldest queued work item of each session without a holder.
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
const SAVE_END: &str = statement!(
    "INSERT INTO attempt_end (work, fence, " { names(AttemptEndRow::COLUMNS) }
    ") SELECT unnest($1::uuid[]), unnest($2::bigint[]), " { unnested(AttemptEndRow::COLUMNS, 3) }
);
const SAVE_STEP: &str = statement!(
    "INSERT INTO step (" { names(StepRow::COLUMNS) } ") SELECT " { unnested(StepRow::COLUMNS, 1) }
    " ON CONFLICT (work, ordinal) DO UPDATE SET " { sets_from("excluded", StepRow::CHANGING) }
);
const SAVE_WAIT: &str = statement!(
    "INSERT INTO wait (" { names(WaitRow::COLUMNS) } ") SELECT " { unnested(WaitRow::COLUMNS, 1) }
    " ON CONFLICT (id) DO UPDATE SET " { sets_from("excluded", WaitRow::CHANGING) }
);
const SAVE_KEPT: &str = statement!(
    "INSERT INTO kept (" { names(KeptRow::COLUMNS) } ", " { names(MAC) }
    ") SELECT " { unnested(KeptRow::COLUMNS, 1) } ", " { unnested(MAC, 1 + KeptRow::COLUMNS.len()) }
    " ON CONFLICT (tenant, reference) DO UPDATE SET " { sets_from("excluded", KeptRow::CHANGING) }
    ", " { sets_from("excluded", MAC) }
);
const DELETE_KEPT: &str = "DELETE FROM kept t USING unnest($1::text[], $2::text[]) AS v(tenant, reference) \
     WHERE t.tenant = v.tenant AND t.reference = v.reference";

/// The record of an erasure keeps its reason.
const ERASE_EVENTS: &str = "UPDATE event e SET message = NULL, payload = NULL, evidence = NULL, salt = NULL \
     FROM (SELECT unnest($1::uuid[]), unnest($2::bigint[])) AS v(work, before) \
     WHERE e.work = v.work AND e.seq < v.before AND e.type <> 'content_erased'";
/// The contents that the records of these work items have from their erased events.
const ERASE_ATTEMPTS: &str = "UPDATE attempt_end SET error = (error::jsonb - 'message')::text \
     WHERE work = ANY($1::uuid[]) AND error IS NOT NULL";
const ERASE_WAITS: &str = "UPDATE wait SET detail = (detail::jsonb - '{prompt,schema,default}'::text[])::text \
     WHERE work = ANY($1::uuid[])";
/// A command may have an event that is not erased.
const ERASE_COMMANDS: &str = "UPDATE command c SET body = ((c.body::jsonb - 'message') #- '{error,message}')::text \
     FROM (SELECT unnest($1::uuid[]), unnest($2::bigint[])) AS v(work, before) \
     WHERE c.work = v.work AND c.seq < v.before";

/// The open work items that ended ones wake: children, and those that wait for them.
macro_rules! woken {
    () => {
        "SELECT w.id FROM work w WHERE w.parent = ANY($1::uuid[]) AND {w.state is open} \
         UNION SELECT t.work FROM unnest($2::text[]) AS k(reference) JOIN wait t \
         ON t.tenant = ANY($3::text[]) AND t.reference = k.reference AND t.state = 'open'"
    };
}
pub(super) const WOKEN: &str = sql!(woken!());
/// Does not wait for locks: a group that holds work items must not wait for more.
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

/// One column of a list.
fn each<'a, T, U>(rows: &'a [T], column: impl Fn(&'a T) -> U) -> Vec<U> {
    rows.iter().map(column).collect()
}

/// New work items, sorted by identity, so that two groups that insert the same ones lock in the same order.
pub(super) fn insert_works<'a>(pipeline: &mut Pipeline<'a>, rows: &[Row<'a>]) -> Option<usize> {
    let mut works: Vec<&Work> =
        rows.iter().filter(|row| row.touch == Touch::Insert).map(|row| row.work).collect();
    if works.is_empty() {
        return None;
    }
    works.sort_by_cached_key(|work| (work.spec.identity(), work.spec.generation));
    let mut params = Vec::new();
    WorkSpec::bind(&works, &mut params);
    WorkRow::bind(&works, &mut params);
    WorkKeys::bind(&works, &mut params);
    Some(pipeline.add(INSERT_WORK, params))
}

/// Everything except new work items and wake-ups. Events come first, because rows are compared with them.
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
    renew_with_progress(pipeline, &touched(&|touch| touch == Touch::Progress));
    arm_works(pipeline, &touched(&|touch| touch == Touch::Due || touch == Touch::Flags));
    statuses(pipeline, rows);
    ready(pipeline, rows);
    attempt_ends(pipeline, batch);
    steps(pipeline, batch);
    waits(pipeline, batch);
    kept(pipeline, key, batch);
    command::save(pipeline, batch);
    erased(pipeline, batch);
    sessions(pipeline, batch);
}

fn erased<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch) {
    let erased = &batch.writes.erased[..];
    if erased.is_empty() {
        return;
    }
    let works = || params![each(erased, |(work, _)| work.0)];
    let bounds = || params![each(erased, |(work, _)| work.0), each(erased, |(_, before)| *before as i64)];
    pipeline.add(ERASE_EVENTS, bounds());
    pipeline.add(ERASE_ATTEMPTS, works());
    pipeline.add(ERASE_WAITS, works());
    pipeline.add(ERASE_COMMANDS, bounds());
}

fn events<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch, mark: Mark) {
    let events: Vec<&Event> = batch.writes.events.iter().collect();
    pipeline.add_if(!events.is_empty(), INSERT_EVENT, || {
        let mut params = params![mark.txn];
        EventRow::bind(&events, &mut params);
        params.extend(params![each(&events, |event| request(event))]);
        params
    });
}

/// The claim request of an event: a repeated claim finds its work items by it.
fn request(event: &Event) -> Option<i64> {
    match &event.fact {
        Fact::Claimed(claimed) => Some(claimed.request.0),
        _ => None,
    }
}

fn update_works<'a>(pipeline: &mut Pipeline<'a>, works: &[&'a Work]) {
    pipeline.add_if(!works.is_empty(), UPDATE_WORK, || {
        let mut params = params![each(works, |work| work.id.0)];
        WorkRow::bind(works, &mut params);
        WorkKeys::bind(works, &mut params);
        params
    });
}

fn renew_works<'a>(pipeline: &mut Pipeline<'a>, works: &[&'a Work]) {
    pipeline.add_if(!works.is_empty(), RENEW_WORK, || renewal(works));
}

fn renew_with_progress<'a>(pipeline: &mut Pipeline<'a>, works: &[&'a Work]) {
    pipeline.add_if(!works.is_empty(), RENEW_WITH_PROGRESS, || {
        let mut params = renewal(works);
        params.extend(params![each(works, |w| w.lease.as_ref().and_then(|lease| lease.progressed_at))]);
        params
    });
}

fn renewal<'a>(works: &[&'a Work]) -> Vec<Param<'a>> {
    let lease = |w: &&'a Work| w.lease.as_ref();
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

/// Work items that give up a session come before those that take it: one row each, in this order.
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
    // A work item that left the queue and came back in one group may have another owner now.
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

/// The beginning of an attempt is in the event of its claim.
fn attempt_ends<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch) {
    let ended = &batch.writes.ended[..];
    pipeline.add_if(!ended.is_empty(), SAVE_END, || {
        let mut params =
            params![each(ended, |(work, _, _)| work.0), each(ended, |(_, fence, _)| *fence as i64)];
        AttemptEndRow::bind(&each(ended, |(_, _, end)| &**end), &mut params);
        params
    });
}

fn steps<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch) {
    let steps: Vec<&Step> = batch.writes.steps.values().collect();
    pipeline.add_if(!steps.is_empty(), SAVE_STEP, || {
        let mut params = Vec::new();
        StepRow::bind(&steps, &mut params);
        params
    });
}

fn waits<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch) {
    let waits: Vec<&Wait> = batch.writes.waits.values().collect();
    pipeline.add_if(!waits.is_empty(), SAVE_WAIT, || {
        let mut params = Vec::new();
        WaitRow::bind(&waits, &mut params);
        params
    });
}

fn kept<'a>(pipeline: &mut Pipeline<'a>, key: &Key, batch: &'a Batch) {
    let kept: Vec<&Kept> = batch.writes.kept.values().flatten().collect();
    pipeline.add_if(!kept.is_empty(), SAVE_KEPT, || {
        let mut params = Vec::new();
        KeptRow::bind(&kept, &mut params);
        params.extend(params![each(&kept, |kept| key.row_mac(*kept).0.to_vec())]);
        params
    });
    let gone: Vec<_> =
        batch.writes.kept.iter().filter(|(_, kept)| kept.is_none()).map(|(key, _)| key).collect();
    pipeline.add_if(!gone.is_empty(), DELETE_KEPT, || {
        params![each(&gone, |key| key.0.as_str()), each(&gone, |key| key.1.as_str())]
    });
}

/// The next work item of a session is known only now.
fn sessions<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch) {
    let keys: Vec<_> = batch.writes.sessions.iter().collect();
    let columns = || params![each(&keys, |key| key.0.as_str()), each(&keys, |key| key.1.as_str())];
    pipeline.add_if(!keys.is_empty(), UNREADY_SESSIONS, columns);
    pipeline.add_if(!keys.is_empty(), READY_SESSIONS, columns);
}

/// Finds the work items to be woken, and locks those that are free.
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

/// Runs after every row is saved. A group has one time, so one due date is enough.
pub(super) fn wake(pipeline: &mut Pipeline<'_>, ids: &[WorkId], mark: Mark) {
    let at = vec![mark.now; ids.len()];
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    pipeline.add(WAKE_WORK, params![ids.clone(), at.clone()]);
    pipeline.add(WAKE_STATUS, params![ids, at]);
}
