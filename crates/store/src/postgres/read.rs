//! Reads: on connections of their own, so that none of them waits for a writer.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use tenure_core::{
    Attempt, Evidence, Millis, Payload, State, Step, Wait, Work, WorkId, action::Tenants, limits,
    model::Kept, records::SessionView,
};
use tokio::sync::Mutex;
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::{
    connect::Connector,
    fault::Fault,
    load::{KEPT, PEERS, SESSIONS, uuids},
    row::{self, event_columns, get, work_columns},
    save::PAYLOADS,
    session::{Param, Session, params},
};
use crate::{Error, Position, StoredEvent, WaitFilter, WorkFilter, job::Payloads};

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
const DUE: &str = "SELECT due_at, work FROM status WHERE due_at IS NOT NULL AND due_at <= $1::bigint \
     AND (due_at, work) > ($2::bigint, $3::uuid) ORDER BY due_at, work LIMIT $4::bigint";
const NEXT_DUE: &str = "SELECT due_at FROM status WHERE due_at IS NOT NULL ORDER BY due_at, work LIMIT 1";
/// Only these two states have a lease that nobody found lapsed.
const LEASED: &str = "SELECT s.work FROM unnest('{1,9}'::smallint[]) AS k(state) CROSS JOIN LATERAL ( \
     SELECT t.work FROM status t WHERE t.state = k.state AND t.work > $1::uuid ORDER BY t.work \
     LIMIT $2::bigint) s ORDER BY s.work LIMIT $2::bigint";
const FORGET: &str = "DELETE FROM kept WHERE kept_at <= $1::bigint";
/// For statements that read whole tables: no limit of time, and whatever plan is best.
const UNHURRIED: &str = "SET statement_timeout = 0; RESET plan_cache_mode; RESET enable_seqscan; \
     RESET enable_bitmapscan; RESET enable_hashjoin; RESET enable_mergejoin";
const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A connection that everybody shares, made again when it was lost.
pub(super) struct Reader {
    connector: Arc<Connector>,
    session: Mutex<Option<Arc<Session>>>,
}

impl Reader {
    pub fn new(connector: Arc<Connector>) -> Self {
        Self { connector, session: Mutex::new(None) }
    }

    async fn session(&self) -> Result<Arc<Session>, Error> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref().filter(|session| !session.client.is_closed()) {
            return Ok(session.clone());
        }
        let new = Arc::new(self.connector.session().await?);
        *session = Some(new.clone());
        Ok(new)
    }

    /// A connection of one's own, for what takes long or needs a transaction.
    pub async fn own_session(&self) -> Result<Session, Error> {
        self.connector.session().await
    }

    pub async fn query(&self, sql: &'static str, params: Vec<Param<'_>>) -> Result<Vec<Row>, Error> {
        let session = self.session().await?;
        session.query(sql, params).await.map_err(|fault| fault.error())
    }

    /// A statement that writes, and commits by itself: without an answer, nobody knows whether it did.
    pub async fn write(&self, sql: &'static str, params: Vec<Param<'_>>) -> Result<Vec<Row>, Error> {
        let session = self.session().await?;
        session.query(sql, params).await.map_err(|fault| fault.at_commit().error())
    }

    /// A statement that is not worth preparing.
    pub async fn query_once(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        let session = self.session().await?;
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| &**param as _).collect();
        session.within(session.client.query(sql, &params)).await.map_err(|fault| fault.error())
    }

    pub async fn now(&self) -> Result<Millis, Error> {
        let rows = self.query(NOW, params![]).await?;
        get(rows.first().ok_or_else(|| Error::Unavailable("the server told no time".to_owned()))?, 0)
    }

    pub async fn works(&self, ids: &[WorkId]) -> Result<Vec<Work>, Error> {
        let rows = self.query(PEERS, params![uuids(ids)]).await?;
        let works = rows.iter().map(row::work).collect::<Result<Vec<_>, _>>()?;
        let mut by_id: BTreeMap<WorkId, Work> = works.into_iter().map(|work| (work.id, work)).collect();
        Ok(ids.iter().filter_map(|id| by_id.remove(id)).collect())
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
        limit: usize,
    ) -> Result<Vec<Work>, Error> {
        let mut list = List::default();
        list.conditions(filter, before);
        let limit = list.param(limit as i64);
        let wanted = list.wanted.join(" AND ");
        let columns = work_columns!();
        let sql = match filter.admitted() {
            None => format!("SELECT {columns} FROM work w WHERE {wanted} ORDER BY w.id DESC LIMIT {limit}"),
            Some(states) => {
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
        let rows = self.query_once(&sql, &list.params).await?;
        rows.iter().map(row::work).collect()
    }

    pub async fn counts(&self, tenants: &Tenants) -> Result<BTreeMap<State, u64>, Error> {
        let rows = self.query(COUNTS, params![listed(tenants)]).await?;
        rows.iter().map(|row| Ok((row::state(get(row, 0)?)?, get::<i64>(row, 1)? as u64))).collect()
    }

    pub async fn events(&self, work: WorkId, after: u64, limit: usize) -> Result<Vec<StoredEvent>, Error> {
        let rows = self
            .query(EVENTS, params![work.0, i64::try_from(after).unwrap_or(i64::MAX), limit as i64, BYTES])
            .await?;
        rows.iter().map(row::event).collect()
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

    pub async fn feed(&self, after: Position, limit: usize) -> Result<Vec<StoredEvent>, Error> {
        let params = params![after.epoch, after.txn, after.number, limit as i64, BYTES];
        self.query(FEED, params).await?.iter().map(row::event).collect()
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

    pub async fn waits(&self, filter: &WaitFilter, limit: usize) -> Result<Vec<Wait>, Error> {
        let mut list = List::default();
        list.wait_conditions(filter);
        let limit = list.param(limit as i64);
        let first = if filter.last_ended { "t.ended_at DESC, " } else { "" };
        let sql = format!(
            "SELECT t.id, t.work, t.tenant, t.reference, t.kind, t.state, t.opened_at, t.deadline_at, \
             t.ended_at, t.answer_seq, t.detail FROM wait t WHERE {} \
             ORDER BY {first}t.opened_at, t.id LIMIT {limit}",
            list.wanted.join(" AND ")
        );
        self.query_once(&sql, &list.params).await?.iter().map(row::wait).collect()
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
        let rows = self.query(DUE, params![at, due, work, limit as i64]).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, row::id(row, 1)?))).collect()
    }

    pub async fn next_due(&self) -> Result<Option<Millis>, Error> {
        let rows = self.query(NEXT_DUE, params![]).await?;
        rows.first().map(|row| get(row, 0)).transpose()
    }

    pub async fn leased(&self, after: Option<WorkId>, limit: usize) -> Result<Vec<WorkId>, Error> {
        let after = after.map_or(Uuid::nil(), |id| id.0);
        let rows = self.query(LEASED, params![after, limit as i64]).await?;
        rows.iter().map(|row| row::id(row, 0)).collect()
    }

    pub async fn forget_kept(&self, at: Millis) -> Result<u64, Error> {
        let session = self.session().await?;
        let mut pipeline = super::session::Pipeline::default();
        let step = pipeline.add(FORGET, params![at]);
        let results = pipeline.run(&session).await.map_err(|fault| fault.at_commit().error())?;
        Ok(results.affected(step))
    }

    /// Runs each check; a check answers with sentences. It reads everything, so it has a connection of its own
    /// and may take its time.
    pub async fn self_check(&self) -> Result<Vec<String>, Error> {
        let session = self.own_session().await?;
        let failed = |error| Fault::from(error).error();
        session.client.batch_execute(UNHURRIED).await.map_err(failed)?;
        let mut faults = Vec::new();
        for check in super::check::CHECKS {
            for row in session.client.query(*check, &[]).await.map_err(failed)? {
                faults.push(get(&row, 0)?);
            }
        }
        Ok(faults)
    }
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

    pub fn tenants(&mut self, column: &str, tenants: Option<&'a Tenants>) {
        if let Some(Tenants::Only(list)) = tenants {
            let param = self.param(list.as_slice());
            self.wanted.push(format!("{column} = ANY({param})"));
        }
    }

    fn conditions(&mut self, filter: &'a WorkFilter, before: Option<WorkId>) {
        self.wanted.push("true".to_owned());
        self.tenants("w.tenant", filter.tenants.as_ref());
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
            self.correlated(correlation);
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
    fn correlated(&mut self, correlation: &'a str) {
        let given = self.param(correlation);
        match correlation.parse::<WorkId>() {
            Ok(id) => {
                let own = self.param(id.0);
                self.wanted.push(format!(
                    "(w.correlation_id = {given} OR w.correlation_id IS NULL AND w.id = {own})"
                ));
            }
            Err(_) => self.wanted.push(format!("w.correlation_id = {given}")),
        }
    }

    fn wait_conditions(&mut self, filter: &'a WaitFilter) {
        self.wanted.push("true".to_owned());
        self.tenants("t.tenant", filter.tenants.as_ref());
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
