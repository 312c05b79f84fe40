//! Reads: on connections of their own, so that none of them waits for a writer.

use std::{
    collections::{BTreeMap, HashMap},
    pin::pin,
    sync::Arc,
};

use futures_util::TryStreamExt;
use tenure_core::{
    Attempt, Evidence, Millis, Payload, State, Step, Wait, WaitId, Work, WorkId,
    action::{Names, Tenants},
    limits,
    model::Kept,
    records::SessionView,
};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Row, types::ToSql};
use uuid::Uuid;

use super::{
    Shared,
    around::{Look, pages},
    check,
    connection::{Param, PgConnection, params},
    fault::Fault,
    load::{KEPT, PEERS, SESSIONS, uuids},
    row::{self, event_columns, get, work_columns},
    save::PAYLOADS,
    seats::Seats,
    time::Time,
};
use crate::{
    Error, EventKey, Listed, Position, StoredEvent, WaitFilter, WorkFilter, fair,
    job::Payloads,
    query::{FEED_SCAN, weight},
    token::Key,
};

const EVENTS: &str = concat!(
    "SELECT ",
    event_columns!(),
    " FROM (SELECT e.*, sum(octet_length(e.payload)) OVER      (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before      FROM event e WHERE e.work = $1::uuid AND e.seq > $2::bigint ORDER BY e.seq LIMIT $3::bigint) e      WHERE coalesce(e.before, 0) < $4::bigint ORDER BY e.seq"
);
/// Below every transaction that still runs: nothing can appear there any more.
const FEED: &str = concat!(
    "SELECT ",
    event_columns!(),
    " FROM (SELECT e.*, sum(octet_length(e.payload)) OVER \
     (ORDER BY e.epoch, e.txn, e.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before \
     FROM event e WHERE (e.epoch, e.txn, e.number) > ($1::int, $2::bigint, $3::bigint) \
     AND (e.epoch, e.txn) < ((SELECT m.value::int FROM meta m WHERE m.key = 'epoch'), \
     pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     ORDER BY e.epoch, e.txn, e.number LIMIT $4::bigint) e \
     WHERE coalesce(e.before, 0) < $5::bigint ORDER BY e.epoch, e.txn, e.number"
);
/// How far so many events reach, and how many there are.
const FEED_PLACES: &str = "SELECT s.epoch, s.txn, s.number, s.place FROM (SELECT e.epoch, e.txn, e.number, \
     row_number() OVER (ORDER BY e.epoch, e.txn, e.number) AS place FROM event e \
     WHERE (e.epoch, e.txn, e.number) > ($1::int, $2::bigint, $3::bigint) \
     AND (e.epoch, e.txn) < ((SELECT m.value::int FROM meta m WHERE m.key = 'epoch'), \
     pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     ORDER BY e.epoch, e.txn, e.number LIMIT $4::bigint) s ORDER BY s.place DESC LIMIT 1";
/// Some tenants' events up to there. Of others' only the narrow columns are read.
const FEED_OF: &str = concat!(
    "SELECT ",
    event_columns!(),
    " FROM (SELECT e.*, sum(octet_length(e.payload)) OVER \
     (ORDER BY e.epoch, e.txn, e.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before \
     FROM event e WHERE (e.epoch, e.txn, e.number) > ($1::int, $2::bigint, $3::bigint) \
     AND (e.epoch, e.txn, e.number) <= ($4::int, $5::bigint, $6::bigint) \
     AND (SELECT w.tenant FROM work w WHERE w.id = e.work) = ANY($7::text[]) \
     ORDER BY e.epoch, e.txn, e.number LIMIT $8::bigint) e \
     WHERE coalesce(e.before, 0) < $9::bigint ORDER BY e.epoch, e.txn, e.number"
);
/// What weighs more is not even sent.
const BYTES: i64 = limits::PAGE_BYTES as i64;
const TAIL: &str = "SELECT e.epoch, e.txn, e.number FROM event e \
     WHERE (e.epoch, e.txn) < ((SELECT m.value::int FROM meta m WHERE m.key = 'epoch'), \
     pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     ORDER BY e.epoch DESC, e.txn DESC, e.number DESC LIMIT 1";
const IDS: &str = "SELECT id FROM work WHERE id < $1::uuid ORDER BY id DESC LIMIT $2::bigint";
const BETWEEN: &str = "SELECT id FROM work WHERE id >= $1::uuid AND id <= $2::uuid \
     AND ($3::text[] IS NULL OR tenant = ANY($3)) ORDER BY id LIMIT $4::bigint";
const TENANTS: &str = "SELECT id, tenant FROM work WHERE id = ANY($1::uuid[])";
const STEPS: &str = "SELECT work, ordinal, name, input_hash, begun_at, completed_at, result_work, result_seq, \
     voided FROM step WHERE work = $1::uuid ORDER BY ordinal";
const EVIDENCE: &str = "SELECT evidence FROM event WHERE work = $1::uuid AND seq > $2::bigint \
     AND evidence IS NOT NULL ORDER BY seq";
const ATTEMPTS: &str = "SELECT e.work, e.fence, e.attempt, e.at, e.type, e.data, a.ended_at, a.outcome, \
     a.body_hash, a.ack, a.error, a.usage FROM event e \
     LEFT JOIN attempt_end a ON a.work = e.work AND a.fence = e.fence \
     WHERE e.work = $1::uuid AND e.request IS NOT NULL ORDER BY e.seq";
const COUNTS: &str = "SELECT state, count(*) FROM status WHERE $1::text[] IS NULL OR tenant = ANY($1) \
     GROUP BY state";
const DUE: Look = Look {
    table: "status",
    purpose: "works that are due",
    indexed: "SELECT due_at, work FROM status WHERE due_at IS NOT NULL AND due_at <= $1::bigint \
     AND (due_at, work) > ($2::bigint, $3::uuid) ORDER BY due_at, work LIMIT $4::bigint",
    paged: concat!(
        pages!("status", "$5", "$6"),
        "SELECT due_at, work FROM part WHERE due_at <= $1::bigint \
         AND (due_at, work) > ($2::bigint, $3::uuid) ORDER BY due_at, work LIMIT $4::bigint"
    ),
};
const NEXT_DUE: Look = Look {
    table: "status",
    purpose: "the next work that is due",
    indexed: "SELECT due_at FROM status WHERE due_at IS NOT NULL ORDER BY due_at, work LIMIT 1",
    paged: concat!(
        pages!("status", "$1", "$2"),
        "SELECT due_at FROM part WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1"
    ),
};
/// Only these two states have a lease that nobody found lapsed.
const LEASED: Look = Look {
    table: "status",
    purpose: "leases",
    indexed: "SELECT s.work FROM unnest('{1,9}'::smallint[]) AS k(state) CROSS JOIN LATERAL ( \
     SELECT t.work FROM status t WHERE t.state = k.state AND t.work > $1::uuid ORDER BY t.work \
     LIMIT $2::bigint) s ORDER BY s.work LIMIT $2::bigint",
    paged: concat!(
        pages!("status", "$3", "$4"),
        "SELECT work FROM part WHERE state IN (1, 9) AND work > $1::uuid ORDER BY work LIMIT $2::bigint"
    ),
};
const FORGET: &str = "DELETE FROM kept WHERE kept_at <= $1::bigint";
/// For statements that read whole tables: no limit of time, and whatever plan is best.
const UNHURRIED: &str = "SET statement_timeout = 0; RESET plan_cache_mode; RESET enable_seqscan; \
     RESET enable_bitmapscan; RESET enable_hashjoin; RESET enable_mergejoin";
const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A connection that the daemon's own reads share, made again when it was lost, and those of tenants' reads.
pub(super) struct Reader {
    pub shared: Arc<Shared>,
    session: Mutex<Option<Arc<PgConnection>>>,
    seats: Arc<Seats>,
}

impl Reader {
    pub fn new(shared: Arc<Shared>, seats: Arc<Seats>) -> Self {
        Self { shared, session: Mutex::new(None), seats }
    }

    async fn session(&self) -> Result<Arc<PgConnection>, Error> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref().filter(|session| self.shared.connector.is_usable(session)) {
            return Ok(session.clone());
        }
        let new = Arc::new(self.shared.connector.session().await?);
        *session = Some(new.clone());
        Ok(new)
    }

    /// A connection of one's own, for what takes long or needs a transaction.
    pub async fn own_session(&self) -> Result<PgConnection, Error> {
        self.shared.connector.session().await
    }

    pub async fn query(&self, sql: &'static str, params: Vec<Param<'_>>) -> Result<Vec<Row>, Error> {
        if let Some(tenant) = fair::beneficiary() {
            let seat = self.seats.take(tenant).await?;
            let answer = seat.query(sql, params).await;
            return seat.answered(answer);
        }
        self.query_own(sql, params).await
    }

    /// The same, without a turn: for what the daemon itself must know of a request.
    pub async fn query_own(&self, sql: &'static str, params: Vec<Param<'_>>) -> Result<Vec<Row>, Error> {
        let session = self.session().await?;
        session.query(sql, params).await.map_err(|fault| fault.error())
    }

    /// A statement that writes, and commits by itself: without an answer, nobody knows whether it did.
    pub async fn write(&self, sql: &'static str, params: Vec<Param<'_>>) -> Result<Vec<Row>, Error> {
        let session = self.session().await?;
        session.query(sql, params).await.map_err(|fault| fault.at_commit().error())
    }

    /// A page of a list, up to what it may weigh, by a statement that is not worth preparing.
    pub async fn page(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        if let Some(tenant) = fair::beneficiary() {
            let seat = self.seats.take(tenant).await?;
            let answer = seat.within(until_heavy(&seat.client, sql, params)).await;
            return seat.answered(answer);
        }
        let session = self.session().await?;
        session.within(until_heavy(&session.client, sql, params)).await.map_err(|fault| fault.error())
    }

    pub async fn now(&self, time: &Time) -> Result<Millis, Error> {
        let asked = async {
            let session = self.session().await?;
            loop {
                time.beat(&session).await?;
                let from = time.begin();
                let rows = session.query(NOW, params![]).await?;
                let row = rows.first().ok_or_else(|| Fault::Lost("the server told no time".to_owned()))?;
                match time.at(get(row, 0)?, from) {
                    Err(Fault::Again(_)) => {}
                    now => return now,
                }
            }
        };
        asked.await.map_err(|fault: Fault| fault.error())
    }

    pub async fn works(&self, ids: &[WorkId]) -> Result<Listed<Work, WorkId>, Error> {
        let rows = self.query(PEERS, params![uuids(ids)]).await?;
        let mut works = row::listed(&rows, usize::MAX, |row| row::id(row, 0), row::work)?;
        let mut by_id: BTreeMap<WorkId, Work> = works.rows.into_iter().map(|work| (work.id, work)).collect();
        works.rows = ids.iter().filter_map(|id| by_id.remove(id)).collect();
        Ok(works)
    }

    pub async fn ids(&self, before: Option<WorkId>, limit: usize) -> Result<Vec<WorkId>, Error> {
        let before = before.map_or(Uuid::max(), |id| id.0);
        let rows = self.query(IDS, params![before, limit as i64]).await?;
        rows.iter().map(|row| row::id(row, 0)).collect()
    }

    pub async fn between(
        &self,
        first: WorkId,
        last: WorkId,
        tenants: &Tenants,
        limit: usize,
    ) -> Result<Vec<WorkId>, Error> {
        let params = params![first.0, last.0, listed(tenants), limit as i64];
        self.query(BETWEEN, params).await?.iter().map(|row| row::id(row, 0)).collect()
    }

    pub async fn tenants_of(&self, ids: &[WorkId]) -> Result<HashMap<WorkId, String>, Error> {
        let rows = self.query(TENANTS, params![uuids(ids)]).await?;
        rows.iter().map(|row| Ok((row::id(row, 0)?, get(row, 1)?))).collect()
    }

    pub async fn list(
        &self,
        filter: &WorkFilter,
        before: Option<WorkId>,
        at_most: usize,
    ) -> Result<Listed<Work, WorkId>, Error> {
        let mut list = List::default();
        list.conditions(filter, before);
        let limit = list.param(at_most as i64);
        let wanted = list.wanted.join(" AND ");
        let columns = work_columns!();
        let narrow = filter.parent.is_some() || filter.correlation_id.is_some() || filter.workflow.is_some();
        let sql = match (filter.admitted(), &filter.tenants) {
            // By tenant and state: however many works others have, they are not read.
            (states, Some(Tenants::Only(tenants))) if !narrow && filter.source_id.is_none() => {
                let states = states.unwrap_or(State::ALL.to_vec());
                let codes: Vec<i16> = states.iter().map(|state| i16::from(state.code())).collect();
                let (codes, tenants) = (list.param(codes), list.param(tenants.as_slice()));
                let before = list.param(before.map_or(Uuid::max(), |id| id.0));
                format!(
                    "SELECT {columns} FROM unnest({codes}::smallint[]) AS k(state) \
                     CROSS JOIN unnest({tenants}::text[]) AS o(tenant) CROSS JOIN LATERAL ( \
                     SELECT w.* FROM status s JOIN work w ON w.id = s.work \
                     WHERE s.tenant = o.tenant AND s.state = k.state AND s.work <= {before}::uuid \
                     AND w.state = s.state AND {wanted} \
                     ORDER BY s.work DESC LIMIT {limit}) w ORDER BY w.id DESC LIMIT {limit}"
                )
            }
            // By what few works share, and then by tenant.
            (states, Some(Tenants::Only(tenants))) if narrow => {
                let codes: Option<Vec<i16>> =
                    states.map(|states| states.iter().map(|state| i16::from(state.code())).collect());
                let (codes, tenants) = (list.param(codes), list.param(tenants.as_slice()));
                format!(
                    "SELECT {columns} FROM (SELECT DISTINCT unnest({tenants}::text[]) AS tenant) o CROSS JOIN LATERAL ( \
                     SELECT w.* FROM work w WHERE w.tenant = o.tenant AND {wanted} \
                     AND ({codes}::smallint[] IS NULL OR w.state = ANY({codes}::smallint[])) \
                     ORDER BY w.id DESC LIMIT {limit}) w ORDER BY w.id DESC LIMIT {limit}"
                )
            }
            (None, _) => {
                format!("SELECT {columns} FROM work w WHERE {wanted} ORDER BY w.id DESC LIMIT {limit}")
            }
            (Some(states), _) => {
                let codes: Vec<i16> = states.iter().map(|state| i16::from(state.code())).collect();
                let codes = list.param(codes);
                format!(
                    "SELECT {columns} FROM unnest({codes}::smallint[]) AS k(state) CROSS JOIN LATERAL ( \
                     SELECT w.* FROM status s JOIN work w ON w.id = s.work \
                     WHERE s.state = k.state AND w.state = s.state AND {wanted} \
                     ORDER BY s.work DESC LIMIT {limit}) w ORDER BY w.id DESC LIMIT {limit}"
                )
            }
        };
        let rows = self.page(&sql, &list.params).await?;
        row::listed(&rows, at_most, |row| row::id(row, 0), row::work)
    }

    pub async fn counts(&self, tenants: &Tenants) -> Result<BTreeMap<State, u64>, Error> {
        let rows = self.query(COUNTS, params![listed(tenants)]).await?;
        rows.iter().map(|row| Ok((row::state(get(row, 0)?)?, get::<i64>(row, 1)? as u64))).collect()
    }

    pub async fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> Result<Listed<StoredEvent, EventKey>, Error> {
        let rows = self
            .query(EVENTS, params![work.0, i64::try_from(after).unwrap_or(i64::MAX), limit as i64, BYTES])
            .await?;
        page(&rows, limit)
    }

    pub async fn evidence(&self, work: WorkId, after: u64) -> Result<Vec<Evidence>, Error> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let rows = self.query(EVIDENCE, params![work.0, after]).await?;
        let mut evidence = Vec::new();
        for row in &rows {
            evidence.extend(row::parse::<Vec<Evidence>>(get(row, 0)?)?);
        }
        Ok(evidence)
    }

    pub async fn feed(&self, after: Position, limit: usize) -> Result<Listed<StoredEvent, EventKey>, Error> {
        let params = params![after.epoch, after.txn, after.number, limit as i64, BYTES];
        page(&self.query(FEED, params).await?, limit)
    }

    pub async fn feed_of(
        &self,
        tenants: &[String],
        after: Position,
        limit: usize,
    ) -> Result<(Listed<StoredEvent, EventKey>, Position), Error> {
        let Position { epoch, txn, number } = after;
        let rows = self.query(FEED_PLACES, params![epoch, txn, number, FEED_SCAN as i64]).await?;
        let Some(end) = rows.first() else { return Ok((Listed::default(), after)) };
        let upto = Position { epoch: get(end, 0)?, txn: get(end, 1)?, number: get(end, 2)? };
        let params =
            params![epoch, txn, number, upto.epoch, upto.txn, upto.number, tenants, limit as i64, BYTES];
        let own = page(&self.query(FEED_OF, params).await?, limit)?;
        match own.next().map(|last| last.position) {
            Some(next) => Ok((own, next)),
            None => Ok((Listed { full: get::<i64>(end, 3)? == FEED_SCAN as i64, ..own }, upto)),
        }
    }

    pub async fn tail(&self) -> Result<Position, Error> {
        let rows = self.query(TAIL, params![]).await?;
        let position = |row| Ok(Position { epoch: get(row, 0)?, txn: get(row, 1)?, number: get(row, 2)? });
        rows.first().map_or(Ok(Position::default()), position)
    }

    pub async fn payloads(&self, keys: &[(WorkId, u64)]) -> Result<Payloads, Error> {
        let (works, seqs): (Vec<Uuid>, Vec<i64>) =
            keys.iter().map(|(work, seq)| (work.0, *seq as i64)).unzip();
        let rows = self.query(PAYLOADS, params![works, seqs]).await?;
        rows.iter()
            .map(|row| {
                let key = (row::id(row, 0)?, get::<i64>(row, 1)? as u64);
                Ok((key, Payload::stored(get(row, 2)?)))
            })
            .collect()
    }

    pub async fn steps(&self, work: WorkId) -> Result<Vec<Step>, Error> {
        self.query(STEPS, params![work.0]).await?.iter().map(row::step).collect()
    }

    pub async fn attempts(&self, work: WorkId) -> Result<Vec<Attempt>, Error> {
        self.query(ATTEMPTS, params![work.0]).await?.iter().map(row::attempt).collect()
    }

    pub async fn waits(
        &self,
        filter: &WaitFilter,
        at_most: usize,
    ) -> Result<Listed<Wait, (Millis, WaitId)>, Error> {
        let mut list = List::default();
        list.wait_conditions(filter);
        let limit = list.param(at_most as i64);
        let first = if filter.last_ended { "t.ended_at DESC, " } else { "" };
        let sql = format!(
            "SELECT t.id, t.work, t.tenant, t.reference, t.kind, t.state, t.opened_at, t.deadline_at, \
             t.ended_at, t.answer_seq, t.detail FROM wait t WHERE {} \
             ORDER BY {first}t.opened_at, t.id LIMIT {limit}",
            list.wanted.join(" AND ")
        );
        let key = |row: &Row| Ok((get(row, 6)?, WaitId(get(row, 0)?)));
        row::listed(&self.page(&sql, &list.params).await?, at_most, key, row::wait)
    }

    pub async fn session_view(&self, tenant: &str, session: &str) -> Result<SessionView, Error> {
        let rows = self.query(SESSIONS, params![vec![tenant], vec![session]]).await?;
        Ok(rows.first().map(row::session).transpose()?.unwrap_or_default())
    }

    pub async fn kept(&self, tenant: &str, reference: &str) -> Result<Option<Kept>, Error> {
        let rows = self.query(KEPT, params![vec![tenant], vec![reference]]).await?;
        rows.first().map(row::kept).transpose()
    }

    pub async fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> Result<Vec<(Millis, WorkId)>, Error> {
        let (due, work) = after.map_or((i64::MIN, Uuid::nil()), |(due, work)| (due, work.0));
        let params = || params![at, due, work, limit as i64];
        let rows = self.look(&DUE, after.is_none(), params).await?;
        let due: Result<Vec<_>, Error> =
            rows.iter().map(|row| Ok((get(row, 0)?, row::id(row, 1)?))).collect();
        Ok(first(due?, limit))
    }

    pub async fn next_due(&self) -> Result<Option<Millis>, Error> {
        let rows = self.look(&NEXT_DUE, true, Vec::new).await?;
        let due: Result<Vec<Millis>, Error> = rows.iter().map(|row| get(row, 0)).collect();
        Ok(due?.into_iter().min())
    }

    pub async fn leased(&self, after: Option<WorkId>, limit: usize) -> Result<Vec<WorkId>, Error> {
        let last = after.map_or(Uuid::nil(), |id| id.0);
        let rows = self.look(&LEASED, after.is_none(), || params![last, limit as i64]).await?;
        let ids: Result<Vec<WorkId>, Error> = rows.iter().map(|row| row::id(row, 0)).collect();
        Ok(first(ids?, limit))
    }

    pub async fn forget_kept(&self, at: Millis) -> Result<u64, Error> {
        let session = self.session().await?;
        let mut pipeline = super::connection::Pipeline::default();
        let step = pipeline.add(FORGET, params![at]);
        let results = pipeline.run(&session).await.map_err(|fault| fault.at_commit().error())?;
        Ok(results.affected(step))
    }

    /// Runs each check; a check answers with sentences. It reads everything, so it has a connection of its own
    /// and may take its time.
    pub async fn self_check(&self, key: &Key) -> Result<Vec<String>, Error> {
        let session = self.own_session().await?;
        let failed = |error| Fault::from(error).error();
        session.client.batch_execute(UNHURRIED).await.map_err(failed)?;
        check::faults(&session.client, key).await
    }
}

/// Rows, up to what a page may weigh: those that the server sends after it are dropped as they come.
async fn until_heavy(
    client: &Client,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let params = params.iter().map(|param| &**param as &(dyn ToSql + Sync));
    let mut sent = pin!(client.query_raw(sql, params).await?);
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(row) = sent.try_next().await? {
        bytes += row.raw_size_bytes();
        rows.push(row);
        if bytes >= limits::PAGE_BYTES {
            break;
        }
    }
    Ok(rows)
}

/// Events; the database ended the page where it became too heavy.
fn page(rows: &[Row], limit: usize) -> Result<Listed<StoredEvent, EventKey>, Error> {
    let page = row::listed(rows, limit, row::event_key, row::event)?;
    let heavy = page.rows.iter().map(weight).sum::<usize>() >= limits::PAGE_BYTES;
    Ok(Listed { full: page.full || heavy, ..page })
}

/// The first rows of what was read in pieces.
pub(super) fn first<T: Ord>(mut rows: Vec<T>, limit: usize) -> Vec<T> {
    rows.sort_unstable();
    rows.truncate(limit);
    rows
}

/// None: all.
pub(super) fn listed(tenants: &Tenants) -> Option<&[String]> {
    match tenants {
        Tenants::All => None,
        Tenants::Only(list) => Some(list),
    }
}

/// A list's conditions with their parameters.
#[derive(Default)]
pub(super) struct List<'a> {
    pub wanted: Vec<String>,
    pub params: Vec<Param<'a>>,
}

impl<'a> List<'a> {
    pub fn param(&mut self, value: impl ToSql + Sync + Send + 'a) -> String {
        self.params.push(Box::new(value));
        format!("${}", self.params.len())
    }

    pub fn want(&mut self, left: &str, value: impl ToSql + Sync + Send + 'a) {
        let param = self.param(value);
        self.wanted.push(format!("{left} {param}"));
    }

    pub fn names(&mut self, column: &str, names: Option<&'a Names>) {
        // One name leads an index; several only restrict it.
        if let Some(Names::Only(list)) = names
            && let [only] = list.as_slice()
        {
            self.want(&format!("{column} ="), only.as_str());
        } else if let Some(Names::Only(list)) = names {
            let param = self.param(list.as_slice());
            self.wanted.push(format!("{column} = ANY({param})"));
        }
    }

    fn conditions(&mut self, filter: &'a WorkFilter, before: Option<WorkId>) {
        self.wanted.push("true".to_owned());
        self.names("w.tenant", filter.tenants.as_ref());
        self.names("w.kind", Some(&filter.kinds));
        for (column, value) in [
            ("w.system =", &filter.system),
            ("w.source_id =", &filter.source_id),
            ("w.kind =", &filter.kind),
            ("w.workflow_id =", &filter.workflow),
            ("w.session =", &filter.session),
            ("w.owner =", &filter.owner),
        ] {
            if let Some(value) = value {
                self.want(column, value.as_str());
            }
        }
        if let Some(parent) = filter.parent {
            self.want("w.parent =", parent.0);
        }
        if let Some(correlation) = &filter.correlation_id {
            self.correlated(correlation, filter.tenants.as_ref());
        }
        if let Some(at) = filter.created_after {
            self.want("w.created_at >", at);
        }
        if let Some(at) = filter.created_before {
            self.want("w.created_at <", at);
        }
        if let Some(at) = filter.due_before {
            self.want("w.due_at <", at);
        }
        if let Some(before) = before {
            self.want("w.id <", before.0);
        }
    }

    /// By default a work is correlated with itself; such a one has no entry in the column.
    fn correlated(&mut self, correlation: &'a str, tenants: Option<&'a Names>) {
        match correlation.parse::<WorkId>() {
            // As one list of ids: an OR would be answered by reading every work.
            Ok(id) => {
                let own = self.param(id.0);
                let mut also = Self { wanted: Vec::new(), params: std::mem::take(&mut self.params) };
                also.want("c.correlation_id =", correlation);
                also.names("c.tenant", tenants);
                self.params = also.params;
                self.wanted.push(format!(
                    "w.id = ANY(ARRAY(SELECT c.id FROM work c WHERE {} UNION ALL \
                     SELECT c.id FROM work c WHERE c.id = {own} AND c.correlation_id IS NULL))",
                    also.wanted.join(" AND ")
                ));
            }
            Err(_) => self.want("w.correlation_id =", correlation),
        }
    }

    fn wait_conditions(&mut self, filter: &'a WaitFilter) {
        self.wanted.push("true".to_owned());
        self.names("t.tenant", filter.tenants.as_ref());
        if let Some(id) = filter.id {
            self.want("t.id =", id.0);
        }
        if let Some(work) = filter.work {
            self.want("t.work =", work.0);
        }
        if !filter.works.is_empty() {
            let works = self.param(uuids(&filter.works));
            self.wanted.push(format!("t.work = ANY({works}::uuid[])"));
        }
        if let Some((at, id)) = filter.after {
            let (at, id) = (self.param(at), self.param(id.0));
            self.wanted.push(format!("(t.opened_at, t.id) > ({at}, {id})"));
        }
        if let Some(reference) = &filter.reference {
            self.want("t.reference =", reference.as_str());
        }
        if let Some(kind) = &filter.kind {
            self.want("t.kind =", row::name(kind));
        }
        // In words: a bound value could not use the index of the open ones.
        self.wanted.extend(filter.state.map(|state| format!("t.state = '{}'", row::name(&state))));
        self.wanted.extend(filter.last_ended.then(|| "t.ended_at IS NOT NULL".to_owned()));
        if let Some(session) = &filter.session {
            let param = self.param(session.as_str());
            self.wanted.push(format!("t.work IN (SELECT w.id FROM work w WHERE w.session = {param})"));
        }
    }
}
