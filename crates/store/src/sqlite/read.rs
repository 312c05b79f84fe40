//! Everything that can be asked. Each read sees one state of the file and never blocks the writer.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, Params, Row, params, params_from_iter, types::Value};
use tenure_core::{
    Attempt, Evidence, Millis, Payload, State, Step, Wait, Work, WorkId,
    action::Tenants,
    model::Kept,
    records::{SessionView, TenantKey},
};

use super::{
    load::{KEPT, SESSION_HEAD, SESSION_HOLDER},
    log::{self, SPEC},
    row::{self, Read, Specs, attempt_columns, event_columns, step_columns, wait_columns},
    tables::WORK,
};
use crate::{Position, StoredEvent, WaitFilter, WorkFilter, job::Payloads, query::page};

const FEED: &str =
    concat!("SELECT ", event_columns!(), " FROM event WHERE position > ?1 ORDER BY position LIMIT ?2");
const TAIL: &str = "SELECT position FROM event ORDER BY position DESC LIMIT 1";
const TENANT: &str = "SELECT tenant FROM status WHERE work = ?1";
const STEPS: &str = concat!("SELECT ", step_columns!(), " FROM step WHERE work = ?1 ORDER BY ordinal");
const ATTEMPTS: &str = concat!("SELECT ", attempt_columns!(), " FROM attempt WHERE work = ?1 ORDER BY fence");
const DUE: &str = "SELECT due_at, work FROM status INDEXED BY status_due \
     WHERE due_at <= ?1 AND (due_at, work) > (?2, ?3) ORDER BY due_at, work LIMIT ?4";
const NEXT_DUE: &str = "SELECT due_at FROM status INDEXED BY status_due \
     WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1";
/// running and cancel_requested: a lease that nobody found lapsed.
const LEASED: &str = "SELECT work FROM (\
     SELECT work FROM status WHERE state = 1 AND work > ?1 UNION ALL \
     SELECT work FROM status WHERE state = 9 AND work > ?1) ORDER BY work LIMIT ?2";

pub(super) struct Reader {
    conn: Connection,
    specs: Specs,
}

impl Reader {
    pub fn new(conn: Connection) -> Self {
        Self { conn, specs: row::specs() }
    }

    pub fn works(&mut self, ids: &[WorkId]) -> Read<Vec<Work>> {
        let mut statement = self.conn.prepare_cached(WORK)?;
        let mut created = self.conn.prepare_cached(SPEC)?;
        let mut works = Vec::with_capacity(ids.len());
        for id in ids {
            let mut rows = statement.query([id.0.as_bytes()])?;
            if let Some(found) = rows.next()? {
                works.push(row::work(found, &mut self.specs, &mut created)?);
            }
        }
        Ok(works)
    }

    pub fn all_ids(&mut self, before: Option<WorkId>, limit: usize) -> Read<Vec<WorkId>> {
        let before = before.map_or(vec![0xff; 17], |id| id.0.as_bytes().to_vec());
        let here = Conditions::default().and("w.id < ?", before);
        self.ids("SELECT w.id FROM work w", here, "ORDER BY w.id DESC", limit)
    }

    pub fn between(
        &mut self,
        first: WorkId,
        last: WorkId,
        tenants: &Tenants,
        limit: usize,
    ) -> Read<Vec<WorkId>> {
        let here = Conditions::default()
            .and("work >= ?", first.0.as_bytes().to_vec())
            .and("work <= ?", last.0.as_bytes().to_vec())
            .and_tenants("tenant", Some(tenants));
        self.ids("SELECT work FROM status", here, "ORDER BY work", limit)
    }

    pub fn tenants_of(&mut self, ids: &[WorkId]) -> Read<HashMap<WorkId, String>> {
        let mut tenants = HashMap::with_capacity(ids.len());
        for id in ids {
            let found = self.all(TENANT, [id.0.as_bytes()], |row| Ok(row.get(0)?))?;
            tenants.extend(found.into_iter().map(|tenant| (*id, tenant)));
        }
        Ok(tenants)
    }

    pub fn list(&mut self, filter: &WorkFilter, before: Option<WorkId>, limit: usize) -> Read<Vec<Work>> {
        let before = before.map_or(vec![0xff; 17], |id| id.0.as_bytes().to_vec());
        let conditions = Conditions::of_works(filter);
        // Few works share a parent, a correlation or a workflow: then those indexes lead.
        let narrow = filter.parent.is_some() || filter.correlation_id.is_some() || filter.workflow.is_some();
        let mut ids: Vec<WorkId> = Vec::new();
        match filter.admitted().filter(|_| !narrow) {
            Some(states) => {
                for state in states {
                    let lead = "SELECT w.id FROM status s CROSS JOIN work w ON w.id = s.work";
                    let order = "ORDER BY s.work DESC";
                    let here =
                        conditions.clone().and_state("s.state", state).and("s.work < ?", before.clone());
                    ids.extend(self.ids(lead, here, order, limit)?);
                }
                ids.sort_unstable_by(|a, b| b.cmp(a));
                ids.truncate(limit);
            }
            None => {
                let here = conditions.and_states(filter).and("w.id < ?", before);
                ids = self.ids("SELECT w.id FROM work w", here, "ORDER BY w.id DESC", limit)?;
            }
        }
        self.works(&ids)
    }

    fn ids(&self, lead: &str, conditions: Conditions, order: &str, limit: usize) -> Read<Vec<WorkId>> {
        let (sql, values) = conditions.select(lead, order, limit);
        self.all(&sql, params_from_iter(values), |row| Ok(WorkId(row::uuid(row, 0)?)))
    }

    pub fn counts(&mut self, tenants: &Tenants) -> Read<BTreeMap<State, u64>> {
        let conditions = Conditions::default().and_tenants("tenant", Some(tenants));
        let (sql, values) =
            conditions.select("SELECT state, count(*) FROM status", "GROUP BY state", usize::MAX);
        let counts = self.all(&sql, params_from_iter(values), |row| {
            Ok((row::state(row, 0)?, row.get::<_, i64>(1)? as u64))
        })?;
        Ok(counts.into_iter().collect())
    }

    pub fn events(&mut self, work: WorkId, after: u64, limit: usize) -> Read<Vec<StoredEvent>> {
        let (after, last) = log::after(after, limit);
        self.page(log::EVENTS, params![work.0.as_bytes(), after, last], row::event)
    }

    pub fn evidence(&mut self, work: WorkId, after: u64) -> Read<Vec<Evidence>> {
        let (after, last) = log::after(after, usize::MAX);
        let lists =
            self.all(log::EVIDENCE, params![work.0.as_bytes(), after, last], |row| row::json(row, 0))?;
        Ok(lists.into_iter().flat_map(|list: Vec<Evidence>| list).collect())
    }

    /// One writer at a time gives positions in the order of commits, so every reader sees a prefix.
    pub fn feed(&mut self, after: Position, limit: usize) -> Read<Vec<StoredEvent>> {
        self.page(FEED, params![after.number, bound(limit)], row::event)
    }

    pub fn tail(&mut self) -> Read<Position> {
        let last = self.all(TAIL, [], |row| Ok(row.get(0)?))?.pop();
        Ok(last.map_or(Position::default(), |number| Position { number, ..Position::default() }))
    }

    pub fn payloads(&mut self, keys: &[(WorkId, u64)]) -> Read<Payloads> {
        let mut payloads = Payloads::with_capacity(keys.len());
        for (work, seq) in keys {
            let (before, number) = log::only(*seq);
            let found = self.all(log::PAYLOAD, params![work.0.as_bytes(), before, number], |row| {
                Ok(row.get::<_, Option<String>>(0)?)
            })?;
            let payload = found.into_iter().flatten().next();
            payloads.extend(payload.map(|text| ((*work, *seq), Payload::stored(text))));
        }
        Ok(payloads)
    }

    pub fn steps(&mut self, work: WorkId) -> Read<Vec<Step>> {
        self.all(STEPS, [work.0.as_bytes()], row::step)
    }

    pub fn attempts(&mut self, work: WorkId) -> Read<Vec<Attempt>> {
        self.all(ATTEMPTS, [work.0.as_bytes()], row::attempt)
    }

    pub fn waits(&mut self, filter: &WaitFilter, limit: usize) -> Read<Vec<Wait>> {
        let lead = concat!("SELECT ", wait_columns!(), " FROM wait");
        let order = if filter.last_ended {
            "ORDER BY ended_at DESC, opened_at, id"
        } else {
            "ORDER BY opened_at, id"
        };
        let (sql, values) = Conditions::of_waits(filter).select(lead, order, limit);
        self.all(&sql, params_from_iter(values), row::wait)
    }

    pub fn session(&mut self, key: &TenantKey) -> Read<SessionView> {
        let id = |row: &Row<'_>| Ok(WorkId(row::uuid(row, 0)?));
        let holder = self.all(SESSION_HOLDER, params![key.0, key.1], id)?.pop();
        let head = self.all(SESSION_HEAD, params![key.0, key.1], id)?.pop();
        Ok(SessionView { holder, head, unsure: false })
    }

    pub fn kept(&mut self, key: &TenantKey) -> Read<Option<Kept>> {
        Ok(self.all(KEPT, params![key.0, key.1], row::kept)?.pop())
    }

    pub fn due(
        &mut self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> Read<Vec<(Millis, WorkId)>> {
        let (due, work) = match &after {
            Some((due, work)) => (*due, &work.0.as_bytes()[..]),
            None => (Millis::MIN, &[][..]),
        };
        self.all(DUE, params![at, due, work, bound(limit)], |row| {
            Ok((row.get(0)?, WorkId(row::uuid(row, 1)?)))
        })
    }

    pub fn next_due(&mut self) -> Read<Option<Millis>> {
        Ok(self.all(NEXT_DUE, [], |row| Ok(row.get(0)?))?.into_iter().next())
    }

    pub fn leased(&mut self, after: Option<WorkId>, limit: usize) -> Read<Vec<WorkId>> {
        let after = after.map_or(Vec::new(), |id| id.0.as_bytes().to_vec());
        self.all(LEASED, params![after, bound(limit)], |row| Ok(WorkId(row::uuid(row, 0)?)))
    }

    /// Like all of them, up to what a page may weigh: the rest is not read.
    fn page(
        &self,
        sql: &str,
        key: impl Params,
        read: impl Fn(&Row<'_>) -> Read<StoredEvent>,
    ) -> Read<Vec<StoredEvent>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(key)?;
        page(std::iter::from_fn(|| match rows.next() {
            Ok(found) => found.map(&read),
            Err(error) => Some(Err(error.into())),
        }))
    }

    pub fn all<T>(&self, sql: &str, key: impl Params, read: impl Fn(&Row<'_>) -> Read<T>) -> Read<Vec<T>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(key)?;
        let mut all = Vec::new();
        while let Some(found) = rows.next()? {
            all.push(read(found)?);
        }
        Ok(all)
    }
}

pub(super) fn bound(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A WHERE clause being written, with its values. Only names from this file enter its text.
#[derive(Clone, Default)]
pub(super) struct Conditions {
    parts: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    /// [`WorkFilter::matches`] in SQL, but for the states.
    fn of_works(filter: &WorkFilter) -> Self {
        let mut all = Self::default().and_tenants("w.tenant", filter.tenants.as_ref());
        for (part, value) in [
            ("w.system = ?", &filter.system),
            ("w.source_id = ?", &filter.source_id),
            ("w.kind = ?", &filter.kind),
            ("w.workflow_id = ?", &filter.workflow),
            ("w.session = ?", &filter.session),
            ("w.owner = ?", &filter.owner),
        ] {
            if let Some(value) = value {
                all = all.and(part, value.clone());
            }
        }
        if let Some(parent) = filter.parent {
            all = all.and("w.parent = ?", parent.0.as_bytes().to_vec());
        }
        for (part, at) in [
            ("w.created_at > ?", filter.created_after),
            ("w.created_at < ?", filter.created_before),
            ("w.due_at < ?", filter.due_before),
        ] {
            if let Some(at) = at {
                all = all.and(part, at);
            }
        }
        match &filter.correlation_id {
            Some(given) => all.and_correlation(given),
            None => all,
        }
    }

    fn of_waits(filter: &WaitFilter) -> Self {
        let mut all = Self::default().and_tenants("tenant", filter.tenants.as_ref());
        if let Some(id) = filter.id {
            all = all.and("id = ?", id.0.as_bytes().to_vec());
        }
        if let Some(work) = filter.work {
            all = all.and("work = ?", work.0.as_bytes().to_vec());
        }
        if !filter.works.is_empty() {
            all.parts.push(format!("work IN ({})", vec!["?"; filter.works.len()].join(", ")));
            all.values.extend(filter.works.iter().map(|work| Value::from(work.0.as_bytes().to_vec())));
        }
        if let Some((at, id)) = filter.after {
            all = all.and("(opened_at, id) > (?, ?)", at);
            all.values.push(id.0.as_bytes().to_vec().into());
        }
        for (part, value) in [
            (
                "EXISTS (SELECT 1 FROM status s WHERE s.work = wait.work AND s.session = ?)",
                filter.session.clone(),
            ),
            ("reference = ?", filter.reference.clone()),
            ("kind = ?", filter.kind.map(row::name_of)),
        ] {
            if let Some(value) = value {
                all = all.and(part, value);
            }
        }
        // In words: a bound value could not use the index of the open ones.
        all.parts.extend(filter.state.map(|state| format!("state = '{}'", row::name_of(state))));
        all.parts.extend(filter.last_ended.then(|| "ended_at IS NOT NULL".to_owned()));
        all
    }

    /// A condition without a value.
    pub fn plain(mut self, part: String) -> Self {
        self.parts.push(part);
        self
    }

    pub fn and(mut self, part: &str, value: impl Into<Value>) -> Self {
        self.parts.push(part.to_owned());
        self.values.push(value.into());
        self
    }

    pub fn and_tenants(mut self, column: &str, tenants: Option<&Tenants>) -> Self {
        if let Some(Tenants::Only(list)) = tenants {
            let marks = vec!["?"; list.len()].join(", ");
            self.parts.push(format!("{column} IN ({marks})"));
            self.values.extend(list.iter().map(|tenant| Value::from(tenant.clone())));
        }
        self
    }

    /// The column is empty where the correlation is the work's own id.
    fn and_correlation(mut self, given: &str) -> Self {
        match given.parse::<WorkId>() {
            Ok(own) => {
                self.parts.push("(w.correlation_id = ? OR (w.id = ? AND w.correlation_id IS NULL))".into());
                self.values.extend([given.to_owned().into(), own.0.as_bytes().to_vec().into()]);
                self
            }
            Err(_) => self.and("w.correlation_id = ?", given.to_owned()),
        }
    }

    fn and_state(self, column: &str, state: State) -> Self {
        self.and(&format!("{column} = ?"), i64::from(state.code()))
    }

    fn and_states(mut self, filter: &WorkFilter) -> Self {
        if let Some(states) = filter.admitted() {
            let marks = vec!["?"; states.len()].join(", ");
            self.parts.push(format!("w.state IN ({marks})"));
            self.values.extend(states.iter().map(|state| Value::from(i64::from(state.code()))));
        }
        self
    }

    pub fn select(mut self, lead: &str, order: &str, limit: usize) -> (String, Vec<Value>) {
        if self.parts.is_empty() {
            self.parts.push("TRUE".into());
        }
        self.values.push(bound(limit).into());
        (format!("{lead} WHERE {} {order} LIMIT ?", self.parts.join(" AND ")), self.values)
    }
}
