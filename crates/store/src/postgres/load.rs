//! Locks the records that a group uses, in one order for all processes, and reads them.
//!
//! The order: references (advisory, class 1), claim requests (class 3), sessions (class 2), work items. Records that
//! are only read come after these and need no lock, because a writer of them holds one of these locks.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use tenure_core::{
    ByWork, CommandId, Identity, LoadSet, Millis, Payload, Records, WaitId, WorkId,
    model::RequestKey,
    records::{Sought, TenantKey},
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Shared,
    cache::{Version, Written, Xid},
    command,
    connection::{PgConnection, Pipeline, Results, params},
    fault::Fault,
    row::{self, AttemptEndRow, KeptRow, StepRow, WaitRow, get},
    time::Time,
};
use crate::{
    Error,
    columns::{MAC, names, names_of, statement, text},
    states::sql,
    token::Key,
};

/// The number of advisory locks of each class. The server's lock table has room for all of them.
const SLOTS: u32 = 1_024;

const LOCK_REFERENCES: &str = "SELECT pg_advisory_xact_lock(1, k) FROM unnest($1::int[]) k";
const LOCK_REQUESTS: &str = "SELECT pg_advisory_xact_lock(3, k) FROM unnest($1::int[]) k";
pub(super) const LOCK_SESSIONS: &str = "SELECT pg_advisory_xact_lock(2, k) FROM unnest($1::int[]) k";

/// The session of a work item never changes, so it is read before anything is locked.
const LOCK_SESSIONS_OF: &str = "SELECT pg_advisory_xact_lock(2, k) FROM (SELECT DISTINCT k FROM ( \
     SELECT unnest($1::int[]) AS k \
     UNION ALL SELECT w.session_lock FROM work w WHERE w.id = ANY($2::uuid[]) AND w.session_lock IS NOT NULL \
     ) named ORDER BY k) sorted";

/// The work items that a load set leads to: by id, by waits on references, by waits, by commands.
macro_rules! reached {
    () => {
        "SELECT unnest($1::uuid[]) AS id \
         UNION SELECT t.work FROM unnest($2::text[], $3::text[]) AS k(tenant, reference) \
             JOIN wait t ON t.tenant = k.tenant AND t.reference = k.reference \
         UNION SELECT t.work FROM wait t WHERE t.id = ANY($4::uuid[]) \
         UNION SELECT c.work FROM command c WHERE c.id = ANY($5::uuid[])"
    };
}

const LOCK_SESSIONS_REACHED: &str = concat!(
    "SELECT pg_advisory_xact_lock(2, k) FROM (SELECT DISTINCT k FROM ( \
     SELECT unnest($6::int[]) AS k \
     UNION ALL SELECT w.session_lock FROM work w WHERE w.session_lock IS NOT NULL AND w.id IN (",
    reached!(),
    ")) named ORDER BY k) sorted"
);

/// Locked in the order of their ids.
const WORKS: &str = statement!(
    "SELECT " { text(row::WORK) }
    " FROM work w WHERE w.id = ANY($1::uuid[]) ORDER BY w.id FOR NO KEY UPDATE"
);
/// For work items that this process probably wrote last: their versions show whether it did.
const VERSIONS: &str =
    "SELECT w.id, w.xmin FROM work w WHERE w.id = ANY($1::uuid[]) ORDER BY w.id FOR NO KEY UPDATE";
const WORKS_REACHED: &str = statement!(
    "SELECT " { text(row::WORK) }
    " FROM work w WHERE w.id IN ("
    { text(reached!()) }
    ") ORDER BY w.id FOR NO KEY UPDATE"
);
/// For claims: only queued work items that no other transaction has locked.
const WORKS_FREE: &str = statement!(
    "SELECT " { text(row::WORK) }
    " FROM work w WHERE w.id = ANY($1::uuid[]) AND {w.state is queued} ORDER BY w.id \
     FOR NO KEY UPDATE SKIP LOCKED"
);
pub(super) const PEERS: &str =
    statement!("SELECT " { text(row::WORK) } " FROM work w WHERE w.id = ANY($1::uuid[])");

/// Read once the locks are held. `txn` is the group's position in the feed. It is not below this transaction's own id:
/// readers, who stay below every running transaction, cannot have passed it. It is not below any transaction that has
/// ended by now, so the events of one work item follow each other. It is not above all of these, or readers would wait
/// for a transaction that may never come. The floor of fences is read each time, because another process may raise it
/// at any moment after a failover.
const MARK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
     greatest(pg_current_xact_id()::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1), \
     pg_current_xact_id()::xid, \
     coalesce((SELECT value::bigint FROM meta WHERE key = 'fence_floor'), 0)";

const REFERENCES: &str = "SELECT DISTINCT t.tenant, t.reference, t.work \
     FROM unnest($1::text[], $2::text[]) AS k(tenant, reference) \
     JOIN wait t ON t.tenant = k.tenant AND t.reference = k.reference ORDER BY t.work";
const WAIT_IDS: &str = "SELECT id, work FROM wait WHERE id = ANY($1::uuid[])";
pub(super) const REQUESTS: &str = "SELECT request, work, fence FROM event \
     WHERE request = ANY($1::bigint[]) AND request IS NOT NULL ORDER BY work, fence";
pub(super) const KEPT: &str = statement!(
    "SELECT " { names_of("t", KeptRow::COLUMNS) } ", " { names_of("t", MAC) }
    " FROM unnest($1::text[], $2::text[]) AS k(tenant, reference) \
     JOIN kept t ON t.tenant = k.tenant AND t.reference = k.reference"
);
const KEPT_COUNTS: &str = "SELECT tenant, count(*) FROM kept WHERE tenant = ANY($1::text[]) GROUP BY tenant";
pub(super) const SESSIONS: &str = sql!(
    "SELECT k.tenant, k.session, \
     (SELECT s.work FROM status s WHERE s.tenant = k.tenant AND s.session = k.session \
      AND s.session IS NOT NULL AND {s.state is held} LIMIT 1), \
     (SELECT s.work FROM status s WHERE s.tenant = k.tenant AND s.session = k.session \
      AND s.session IS NOT NULL AND {s.state is pending} ORDER BY s.created_at, s.work LIMIT 1) \
     FROM unnest($1::text[], $2::text[]) AS k(tenant, session)"
);
const NEWEST: &str = "SELECT k.number, (SELECT w.id FROM work w WHERE w.tenant = k.tenant \
     AND w.system = k.system AND w.source_id = k.source_id AND w.run_id = k.run_id \
     ORDER BY w.generation DESC LIMIT 1), EXISTS (SELECT 1 FROM tombstone t WHERE t.tenant = k.tenant \
     AND t.system = k.system AND t.source_id = k.source_id AND t.run_id = k.run_id) \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[]) \
     AS k(tenant, system, source_id, run_id, number)";
const ENDS: &str = statement!(
    "SELECT a.work, a.fence, " { names_of("a", AttemptEndRow::COLUMNS) }
    " FROM unnest($1::uuid[], $2::bigint[]) AS k(work, fence) \
     JOIN attempt_end a ON a.work = k.work AND a.fence = k.fence"
);
pub(super) const STEPS: &str = statement!(
    "SELECT " { names(StepRow::COLUMNS) } " FROM step WHERE work = ANY($1::uuid[]) ORDER BY work, ordinal"
);
const WAITS: &str = statement!(
    "SELECT " { names(WaitRow::COLUMNS) }
    " FROM wait WHERE work = ANY($1::uuid[]) ORDER BY work, opened_at, id"
);
const INPUTS: &str = "SELECT work, payload FROM event WHERE work = ANY($1::uuid[]) AND seq = 1";

/// The time at which a group is decided, and the position of its events in the feed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub now: Millis,
    pub txn: i64,
    /// The lowest fence that may be granted.
    pub fence_floor: u64,
    /// The transaction of this group.
    pub by: Version,
}

/// Knowledge from earlier attempts of the same group.
#[derive(Default)]
pub(super) struct Lessons {
    /// Identities that turned out to exist.
    pub identities: BTreeSet<Identity>,
    /// Work items that its actions do not name: those to be woken that another transaction had locked, and those that a
    /// repeated claim had received.
    pub works: BTreeSet<WorkId>,
}

/// A stable hash, because every process and version must choose the same lock.
pub(super) fn slot(parts: &[&str]) -> i32 {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    (hash % SLOTS) as i32
}

pub(super) fn session_slot(tenant: &str, session: &str) -> i32 {
    slot(&[tenant, session])
}

fn request_slot(key: RequestKey) -> i32 {
    key.0.rem_euclid(i64::from(SLOTS)) as i32
}

fn sorted(slots: impl Iterator<Item = i32>) -> Vec<i32> {
    slots.collect::<BTreeSet<i32>>().into_iter().collect()
}

pub(super) fn uuids<'a>(ids: impl IntoIterator<Item = &'a WorkId>) -> Vec<Uuid> {
    let mut uuids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
    uuids.sort_unstable();
    uuids.dedup();
    uuids
}

/// Whether a name can be stored. PostgreSQL text has no NUL, so no record has such a name; the core refuses it when it
/// decides.
pub(super) fn askable(name: &str) -> bool {
    !name.contains('\0')
}

/// Two columns of a list of pairs.
fn columns(keys: &[TenantKey]) -> (Vec<&str>, Vec<&str>) {
    let askable = keys.iter().filter(|(left, right)| askable(left) && askable(right));
    askable.map(|(left, right)| (left.as_str(), right.as_str())).unzip()
}

/// The places of the results of the first round.
#[derive(Default)]
struct First {
    works: Option<usize>,
    references: Option<usize>,
    wait_ids: Option<usize>,
    requests: Option<usize>,
    rest: Rest,
}

/// BEGIN, every lock, the clock, and the records that the actions name, in one round trip.
pub(super) async fn first(
    session: &PgConnection,
    shared: &Shared,
    load_set: &LoadSet,
    lessons: &mut Lessons,
    records: &mut Records,
) -> Result<Mark, Fault> {
    let mut load_set = load_set.clone();
    load_set.works.extend(&lessons.works);
    load_set.kept.extend(load_set.references.iter().cloned());
    // Ingests are decided as new. Only identities that are known to exist, or that a rerun names, are looked up.
    let (load, assume): (Vec<_>, Vec<_>) =
        std::mem::take(&mut load_set.identities).into_iter().partition(|id| lessons.identities.contains(id));
    records.identities.extend(assume.into_iter().map(|identity| (identity, None)));
    load_set.identities = load;

    let known = if reaches(&load_set) { None } else { shared.recent.take(&load_set.works) };
    let spared = known.as_ref().map_or_else(Vec::new, |known| spare(known, &mut load_set.commands));
    let mut pipeline = Pipeline::default();
    let mut first = First::default();
    pipeline.add("BEGIN", params![]);
    lock(&mut pipeline, &mut first, known.as_ref(), &load_set);
    let mark = pipeline.add(MARK, params![]);
    let (tenants, references) = columns(&load_set.references);
    first.references = pipeline.add_if(!tenants.is_empty(), REFERENCES, || params![tenants, references]);
    let wait_ids: Vec<Uuid> = load_set.wait_ids.iter().map(|id| id.0).collect();
    first.wait_ids = pipeline.add_if(!wait_ids.is_empty(), WAIT_IDS, || params![wait_ids]);
    let requests: Vec<i64> = load_set.requests.iter().map(|key| key.0).collect();
    first.requests = pipeline.add_if(!requests.is_empty(), REQUESTS, || params![requests]);
    first.rest = rest(&mut pipeline, &load_set);

    let asked = shared.time.begin();
    let mut results = pipeline.run(session).await?;
    let mark = read_mark(session, &results.take(mark), &shared.time, asked)?;
    let works = results.maybe(first.works);
    match known {
        Some(known) => unchanged(session, &shared.key, works, known, spared, records).await?,
        None => take_works(&works, records)?,
    }
    take_references(&results.maybe(first.references), &load_set, records)?;
    for row in results.maybe(first.wait_ids) {
        records.wait_ids.insert(WaitId(get(&row, 0)?), row::id(&row, 1)?);
    }
    take_requests(&results.maybe(first.requests), &load_set.requests, records)?;
    learn_given(records, lessons)?;
    first.rest.take(&shared.key, &mut results, &load_set, records)?;
    Ok(mark)
}

fn take_works(rows: &[Row], records: &mut Records) -> Result<(), Error> {
    for row in rows {
        let work = row::work(row)?;
        records.works.insert(work.id, Arc::new(work));
    }
    Ok(())
}

/// Uses cached work items whose rows are unchanged, and reads the others. All are locked already.
async fn unchanged(
    session: &PgConnection,
    key: &Key,
    versions: Vec<Row>,
    mut known: ByWork<Written>,
    spared: Vec<Sought>,
    records: &mut Records,
) -> Result<(), Fault> {
    let mut stale = Vec::new();
    for row in versions {
        let (id, by) = (row::id(&row, 0)?, session.version(get::<Xid>(&row, 1)?));
        match known.remove(&id).filter(|written| written.by == by) {
            Some(written) => written.remembered.recall(records),
            None => stale.push(id),
        }
    }
    if !stale.is_empty() {
        take_works(&session.query(PEERS, params![uuids(&stale)]).await?, records)?;
        let commands = spared.into_iter().filter(|sought| !records.looked_for.contains(sought)).collect();
        then(session, key, &LoadSet { commands, ..LoadSet::default() }, records).await?;
    }
    Ok(())
}

/// Skips the loading of cached commands, and returns them: a work item may turn out to have changed.
fn spare(known: &ByWork<Written>, commands: &mut Vec<Sought>) -> Vec<Sought> {
    if commands.is_empty() {
        return Vec::new();
    }
    let ids: HashSet<CommandId> = known.values().flat_map(|written| written.remembered.open_ids()).collect();
    let remembered = |sought: &Sought| match sought {
        Sought::Id(id) => ids.contains(id),
        Sought::Key(work, _) | Sought::Outgoing(work) => {
            known.get(work).is_some_and(|written| written.remembered.has_none())
        }
        Sought::Open(work) => known.get(work).is_some_and(|written| written.remembered.knows_open()),
    };
    let (spared, left) = std::mem::take(commands).into_iter().partition(remembered);
    *commands = left;
    spared
}

fn read_mark(session: &PgConnection, rows: &[Row], time: &Time, asked: Millis) -> Result<Mark, Fault> {
    let row = rows.first().ok_or_else(|| Fault::Lost("the server told no time".to_owned()))?;
    let now = time.at(get(row, 0)?, asked)?;
    let fence_floor = get::<i64>(row, 3)? as u64;
    Ok(Mark { now, txn: get(row, 1)?, fence_floor, by: session.version(get(row, 2)?) })
}

/// Whether a load set leads to work items that it does not name and that may change.
fn reaches(load_set: &LoadSet) -> bool {
    !(load_set.references.is_empty() && load_set.wait_ids.is_empty() && load_set.command_ids.is_empty())
}

/// The statements that lock. If this process wrote all of these work items lately, only their versions are read.
fn lock<'a>(
    pipeline: &mut Pipeline<'a>,
    first: &mut First,
    known: Option<&ByWork<Written>>,
    load_set: &'a LoadSet,
) {
    let references = load_set.references.iter().map(|(_, reference)| reference).chain(&load_set.locks);
    let references = sorted(references.map(|reference| slot(&[reference])));
    pipeline.add_if(!references.is_empty(), LOCK_REFERENCES, || params![references]);
    let requests = sorted(load_set.requests.iter().map(|key| request_slot(*key)));
    pipeline.add_if(!requests.is_empty(), LOCK_REQUESTS, || params![requests]);

    let named = load_set.sessions.iter().map(|(tenant, session)| session_slot(tenant, session));
    let ids = uuids(&load_set.works);
    if reaches(load_set) {
        let reached = || {
            let (tenants, references) = columns(&load_set.references);
            let waits: Vec<Uuid> = load_set.wait_ids.iter().map(|id| id.0).collect();
            let commands: Vec<Uuid> = load_set.command_ids.iter().map(|id| id.0).collect();
            params![ids.clone(), tenants, references, waits, commands]
        };
        let mut with_sessions = reached();
        with_sessions.extend(params![sorted(named)]);
        pipeline.add(LOCK_SESSIONS_REACHED, with_sessions);
        first.works = Some(pipeline.add(WORKS_REACHED, reached()));
        return;
    }
    match known {
        Some(known) => {
            let theirs = known.values().filter_map(|written| {
                let spec = &written.remembered.work.spec;
                spec.session.as_ref().map(|session| session_slot(&spec.tenant, session))
            });
            let slots = sorted(named.chain(theirs));
            pipeline.add_if(!slots.is_empty(), LOCK_SESSIONS, || params![slots]);
        }
        None => {
            pipeline.add(LOCK_SESSIONS_OF, params![sorted(named), ids.clone()]);
        }
    }
    let works = if known.is_some() { VERSIONS } else { WORKS };
    first.works = pipeline.add_if(!ids.is_empty(), works, || params![ids]);
}

fn take_references(rows: &[Row], load_set: &LoadSet, records: &mut Records) -> Result<(), Error> {
    for key in &load_set.references {
        records.references.entry(key.clone()).or_default();
    }
    for row in rows {
        let work = row::id(row, 2)?;
        records.references.entry((get(row, 0)?, get(row, 1)?)).or_default().push(work);
    }
    Ok(())
}

pub(super) fn take_requests(rows: &[Row], keys: &[RequestKey], records: &mut Records) -> Result<(), Error> {
    for key in keys {
        records.requests.entry(*key).or_default();
    }
    for row in rows {
        let given = (row::id(row, 1)?, get::<i64>(row, 2)? as u64);
        records.requests.entry(RequestKey(get(row, 0)?)).or_default().push(given);
    }
    Ok(())
}

/// For claims: locks the requests, the sessions of the candidates, by their slots, and the candidates that are free. An
/// unreadable one is reported and skipped, and the others go on.
pub(super) async fn candidates(
    session: &PgConnection,
    shared: &Shared,
    requests: &[RequestKey],
    sessions: &BTreeSet<i32>,
    ids: &[WorkId],
    records: &mut Records,
) -> Result<Mark, Fault> {
    let mut pipeline = Pipeline::default();
    pipeline.add("BEGIN", params![]);
    let slots = sorted(requests.iter().map(|key| request_slot(*key)));
    pipeline.add(LOCK_REQUESTS, params![slots]);
    pipeline
        .add_if(!sessions.is_empty(), LOCK_SESSIONS, || params![Vec::from_iter(sessions.iter().copied())]);
    let works = pipeline.add(WORKS_FREE, params![uuids(ids)]);
    let given = pipeline.add(REQUESTS, params![requests.iter().map(|key| key.0).collect::<Vec<i64>>()]);
    let mark = pipeline.add(MARK, params![]);
    let asked = shared.time.begin();
    let mut results = pipeline.run(session).await?;
    let mark = read_mark(session, &results.take(mark), &shared.time, asked)?;
    for row in results.take(works) {
        match row::work(&row) {
            Ok(work) => {
                records.works.insert(work.id, Arc::new(work));
            }
            Err(error) => shared.pass_over(row::id(&row, 0)?, &error),
        }
    }
    take_requests(&results.take(given), requests, records)?;
    Ok(mark)
}

/// The work items that a repeated claim had received and that are not loaded.
fn given_unread(records: &Records) -> Vec<WorkId> {
    let given = records.requests.values().flatten().map(|(work, _)| *work);
    given.filter(|id| !records.works.contains_key(id)).collect()
}

/// Repeats are rare, so the earlier work items are loaded only when a repeat was found. Then the group starts again and
/// locks them in order, because the repeat may contain more than the claim, for example a command.
fn learn_given(records: &Records, lessons: &mut Lessons) -> Result<(), Fault> {
    let before = lessons.works.len();
    lessons.works.extend(given_unread(records));
    if lessons.works.len() == before {
        return Ok(());
    }
    Err(Fault::Again("a claim was answered before".to_owned()))
}

/// For claims only: these work items will not change, so they are read without a lock.
pub(super) async fn given_before(session: &PgConnection, records: &mut Records) -> Result<(), Fault> {
    let missing = given_unread(records);
    if missing.is_empty() {
        return Ok(());
    }
    for row in session.query(PEERS, params![uuids(&missing)]).await? {
        let work = row::work(&row)?;
        records.works.insert(work.id, Arc::new(work));
    }
    Ok(())
}

/// Reads that need no lock. Records that are absent are noted as absent.
#[derive(Default)]
struct Rest {
    peers: Option<usize>,
    identities: Option<usize>,
    sessions: Option<usize>,
    kept: Option<usize>,
    kept_counts: Option<usize>,
    ends: Option<usize>,
    steps: Option<usize>,
    waits: Option<usize>,
    inputs: Option<usize>,
    commands: command::Loading,
}

fn rest<'a>(pipeline: &mut Pipeline<'a>, load_set: &'a LoadSet) -> Rest {
    let by_work = |pipeline: &mut Pipeline<'a>, ids: &[WorkId], sql| {
        pipeline.add_if(!ids.is_empty(), sql, || params![uuids(ids)])
    };
    let by_key = |pipeline: &mut Pipeline<'a>, keys: &'a [TenantKey], sql| {
        pipeline.add_if(!keys.is_empty(), sql, || {
            let (left, right) = columns(keys);
            params![left, right]
        })
    };
    Rest {
        peers: by_work(pipeline, &load_set.peers, PEERS),
        identities: pipeline.add_if(!load_set.identities.is_empty(), NEWEST, || {
            let names = |id: &'a Identity| {
                [&id.tenant, &id.source.system, &id.source.id, &id.source.run_id].map(String::as_str)
            };
            let ids: Vec<(i32, [&str; 4])> = (0..)
                .zip(load_set.identities.iter().map(names))
                .filter(|id| id.1.into_iter().all(askable))
                .collect();
            params![
                ids.iter().map(|id| id.1[0]).collect::<Vec<_>>(),
                ids.iter().map(|id| id.1[1]).collect::<Vec<_>>(),
                ids.iter().map(|id| id.1[2]).collect::<Vec<_>>(),
                ids.iter().map(|id| id.1[3]).collect::<Vec<_>>(),
                ids.iter().map(|id| id.0).collect::<Vec<_>>(),
            ]
        }),
        sessions: by_key(pipeline, &load_set.sessions, SESSIONS),
        kept: by_key(pipeline, &load_set.kept, KEPT),
        kept_counts: pipeline.add_if(!load_set.kept_counts.is_empty(), KEPT_COUNTS, || {
            let tenants = load_set.kept_counts.iter().map(String::as_str).filter(|tenant| askable(tenant));
            params![tenants.collect::<Vec<_>>()]
        }),
        ends: pipeline.add_if(!load_set.ends.is_empty(), ENDS, || {
            let (works, fences): (Vec<Uuid>, Vec<i64>) =
                load_set.ends.iter().map(|(work, fence)| (work.0, *fence as i64)).unzip();
            params![works, fences]
        }),
        steps: by_work(pipeline, &load_set.steps, STEPS),
        waits: by_work(pipeline, &load_set.waits, WAITS),
        inputs: by_work(pipeline, &load_set.inputs, INPUTS),
        commands: command::load(pipeline, load_set),
    }
}

impl Rest {
    fn take(
        self,
        key: &Key,
        results: &mut Results,
        load_set: &LoadSet,
        records: &mut Records,
    ) -> Result<(), Error> {
        records.peers.extend(load_set.peers.iter().map(|id| (*id, None)));
        for row in results.maybe(self.peers) {
            let work = row::work(&row)?;
            records.peers.insert(work.id, Some(work));
        }
        for row in results.maybe(self.identities) {
            let number = get::<i32>(&row, 0)? as usize;
            let newest = get::<Option<Uuid>>(&row, 1)?.map(WorkId);
            let identity = load_set.identities[number].clone();
            if newest.is_none() && get(&row, 2)? {
                records.pruned.insert(identity.clone());
            }
            records.identities.insert(identity, newest);
        }
        for row in results.maybe(self.sessions) {
            records.sessions.insert((get(&row, 0)?, get(&row, 1)?), row::session(&row)?);
        }
        records.kept.extend(load_set.kept.iter().map(|key| (key.clone(), None)));
        for row in results.maybe(self.kept) {
            if let Some(kept) = key.genuine(KeptRow::read(&row, 0)?, row::mac(&row, KeptRow::COLUMNS.len())?)
            {
                records.kept.insert((kept.tenant.clone(), kept.reference.clone()), Some(kept));
            }
        }
        for tenant in &load_set.kept_counts {
            records.kept_counts.entry(tenant.clone()).or_default();
        }
        for row in results.maybe(self.kept_counts) {
            records.kept_counts.insert(get(&row, 0)?, get::<i64>(&row, 1)? as usize);
        }
        self.take_owned(results, load_set, records)
    }

    /// The records that belong to a work item.
    fn take_owned(
        self,
        results: &mut Results,
        load_set: &LoadSet,
        records: &mut Records,
    ) -> Result<(), Error> {
        records.ends.extend(load_set.ends.iter().map(|key| (*key, None)));
        for row in results.maybe(self.ends) {
            let key = (row::id(&row, 0)?, get::<i64>(&row, 1)? as u64);
            records.ends.insert(key, AttemptEndRow::read(&row, 2)?.map(Arc::new));
        }
        for id in &load_set.steps {
            records.steps.insert(*id, Vec::new());
        }
        for row in results.maybe(self.steps) {
            let step = StepRow::read(&row, 0)?;
            records.steps.entry(step.work).or_default().push(step);
        }
        for id in &load_set.waits {
            records.waits.insert(*id, Vec::new());
        }
        for row in results.maybe(self.waits) {
            let wait = WaitRow::read(&row, 0)?;
            records.waits.entry(wait.work).or_default().push(wait);
        }
        records.inputs.extend(load_set.inputs.iter().map(|id| (*id, None)));
        for row in results.maybe(self.inputs) {
            records.inputs.insert(row::id(&row, 0)?, get::<Option<String>>(&row, 1)?.map(Payload::stored));
        }
        self.commands.take(results, load_set, records)
    }
}

/// Loads the further records that the loaded rows lead to.
pub(super) async fn then(
    session: &PgConnection,
    key: &Key,
    load_set: &LoadSet,
    records: &mut Records,
) -> Result<(), Fault> {
    let mut pipeline = Pipeline::default();
    let rest = rest(&mut pipeline, load_set);
    let mut results = pipeline.run(session).await?;
    rest.take(key, &mut results, load_set, records)?;
    Ok(())
}
