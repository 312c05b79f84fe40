//! Everything that can be asked. Each read sees one state of the file and never blocks the writer.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, Params, Row, params, params_from_iter, types::Value};
use tenure_core::{
    Attempt, Evidence, Millis, Payload, State, Step, Wait, WaitId, Work, WorkId,
    action::{Names, Tenants},
    limits,
    model::Kept,
    records::{SessionView, TenantKey},
};

use super::{
    fault::Fault,
    load::{KEPT, SESSION_HEAD, SESSION_HOLDER},
    log::{self, SPEC},
    row::{self, Read, Specs, attempt_columns, event_columns, step_columns, wait_columns},
    tables::WORK,
};
use crate::{
    EventKey, Listed, Position, StoredEvent, WaitFilter, WorkFilter,
    job::Payloads,
    listed::RowKey,
    query::{FEED_SCAN, weight},
};

const FEED: &str =
    concat!("SELECT ", event_columns!(), " FROM event WHERE position > ?1 ORDER BY position LIMIT ?2");
const FEED_PLACES: &str = "SELECT position, work FROM event WHERE position > ?1 ORDER BY position LIMIT ?2";
const FEED_ONE: &str = concat!("SELECT ", event_columns!(), " FROM event WHERE position = ?1");
const TAIL: &str = "SELECT position FROM event ORDER BY position DESC LIMIT 1";
const TENANT: &str = "SELECT tenant FROM status WHERE work = ?1";
const STEPS: &str = concat!("SELECT ", step_columns!(), " FROM step WHERE work = ?1 ORDER BY ordinal");
const ATTEMPTS: &str = concat!("SELECT ", attempt_columns!(), " FROM attempt WHERE work = ?1 ORDER BY fence");
const DUE: &str = "SELECT due_at, work FROM status INDEXED BY status_due \
     WHERE due_at <= ?1 AND (due_at, work) > (?2, ?3) ORDER BY due_at, work LIMIT ?4";
const NEXT_DUE: &str = "SELECT due_at FROM status INDEXED BY status_due \
     WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1";
/// The same from the table itself: where a page of an index is damaged, it still has every row.
const DUE_FROM_TABLE: &str = "SELECT due_at, work FROM status INDEXED BY sqlite_autoindex_status_1 \
     WHERE due_at <= ?1 AND (due_at, work) > (?2, ?3) ORDER BY due_at, work LIMIT ?4";
const NEXT_DUE_FROM_TABLE: &str = "SELECT min(due_at) FROM status INDEXED BY sqlite_autoindex_status_1";
const LEASED_FROM_TABLE: &str = "SELECT work FROM status INDEXED BY sqlite_autoindex_status_1 \
     WHERE (state = 1 OR state = 9) AND work > ?1 ORDER BY work LIMIT ?2";
/// running and cancel_requested: a lease that nobody found lapsed.
const LEASED: &str = "SELECT work FROM (\
     SELECT work FROM status WHERE state = 1 AND work > ?1 UNION ALL \
     SELECT work FROM status WHERE state = 9 AND work > ?1) ORDER BY work LIMIT ?2";

/// What an index says or, where it is damaged, what the table says.
pub(super) fn undamaged<T>(indexed: Read<T>, unindexed: impl FnOnce() -> Read<T>) -> Read<T> {
    match indexed {
        Err(Fault::Data(_)) => unindexed(),
        read => read,
    }
}

pub(super) struct Reader {
    conn: Connection,
    specs: Specs,
}

impl Reader {
    pub fn new(conn: Connection) -> Self {
        Self { conn, specs: row::specs() }
    }

    pub fn conn(&mut self) -> &mut Connection {
        &mut self.conn
    }

    pub fn works(&mut self, ids: &[WorkId]) -> Read<Listed<Work, WorkId>> {
        self.works_up_to(ids, usize::MAX)
    }

    /// The first of these works: as many as weigh so much together.
    fn works_up_to(&mut self, ids: &[WorkId], most: usize) -> Read<Listed<Work, WorkId>> {
        let mut statement = self.conn.prepare_cached(WORK)?;
        let mut created = self.conn.prepare_cached(SPEC)?;
        let (mut works, mut bytes) = (Listed::default(), 0);
        for id in ids {
            let mut rows = statement.query([id.0.as_bytes()])?;
            match rows.next() {
                Ok(None) => {}
                Ok(Some(found)) => {
                    take(&mut works, *id, row::work(found, &mut self.specs, &mut created))?;
                    bytes += row::bytes(found)?;
                }
                Err(error) => take(&mut works, *id, Err(error.into()))?,
            }
            if bytes >= most {
                return Ok(Listed { full: true, ..works });
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
            .and_names("tenant", Some(tenants));
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

    pub fn list(
        &mut self,
        filter: &WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> Read<Listed<Work, WorkId>> {
        let before = before.map_or(vec![0xff; 17], |id| id.0.as_bytes().to_vec());
        let conditions = Conditions::of_works(filter);
        // Few works share a parent, a correlation or a workflow: then those indexes lead.
        let narrow = filter.parent.is_some() || filter.correlation_id.is_some() || filter.workflow.is_some();
        let mut ids: Vec<WorkId> = Vec::new();
        match ways(filter).filter(|_| !narrow) {
            Some(ways) => {
                for (state, tenant) in ways {
                    let lead = "SELECT w.id FROM status s CROSS JOIN work w ON w.id = s.work";
                    let order = "ORDER BY s.work DESC";
                    let mut here =
                        conditions.clone().and_state("s.state", state).and("s.work < ?", before.clone());
                    if let Some(tenant) = tenant {
                        here = here.and("s.tenant = ?", tenant.clone());
                    }
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
        let works = self.works_up_to(&ids, limits::PAGE_BYTES)?;
        if works.full {
            return Ok(works);
        }
        Ok(Listed { last: ids.last().copied(), full: ids.len() >= limit, ..works })
    }

    fn ids(&self, lead: &str, conditions: Conditions, order: &str, limit: usize) -> Read<Vec<WorkId>> {
        let (sql, values) = conditions.select(lead, order, limit);
        self.all(&sql, params_from_iter(values), |row| Ok(WorkId(row::uuid(row, 0)?)))
    }

    pub fn counts(&mut self, tenants: &Tenants) -> Read<BTreeMap<State, u64>> {
        let conditions = Conditions::default().and_names("tenant", Some(tenants));
        let (sql, values) =
            conditions.select("SELECT state, count(*) FROM status", "GROUP BY state", usize::MAX);
        let counts = self.all(&sql, params_from_iter(values), |row| {
            Ok((row::state(row, 0)?, row.get::<_, i64>(1)? as u64))
        })?;
        Ok(counts.into_iter().collect())
    }

    pub fn events(&mut self, work: WorkId, after: u64, limit: usize) -> Read<Listed<StoredEvent, EventKey>> {
        let (after, last) = log::after(after, limit);
        self.page(log::EVENTS, params![work.0.as_bytes(), after, last], limit)
    }

    pub fn evidence(&mut self, work: WorkId, after: u64) -> Read<Vec<Evidence>> {
        let (after, last) = log::after(after, usize::MAX);
        let lists =
            self.all(log::EVIDENCE, params![work.0.as_bytes(), after, last], |row| row::json(row, 0))?;
        Ok(lists.into_iter().flat_map(|list: Vec<Evidence>| list).collect())
    }

    /// One writer at a time gives positions in the order of commits, so every reader sees a prefix.
    pub fn feed(&mut self, after: Position, limit: usize) -> Read<Listed<StoredEvent, EventKey>> {
        self.page(FEED, params![after.number, bound(limit)], limit)
    }

    pub fn feed_of(
        &mut self,
        tenants: &[String],
        after: Position,
        limit: usize,
    ) -> Read<(Listed<StoredEvent, EventKey>, Position)> {
        let mut places = self.conn.prepare_cached(FEED_PLACES)?;
        let mut places = places.query(params![after.number, bound(FEED_SCAN)])?;
        let mut own: HashMap<WorkId, bool> = HashMap::new();
        let (mut page, mut next) = (Listed::default(), after);
        let (mut passed, mut bytes) = (0, 0);
        while page.count() < limit && bytes < limits::PAGE_BYTES {
            let Some(place) = places.next()? else { break };
            (passed, next.number) = (passed + 1, place.get(0)?);
            let work = WorkId(row::uuid(place, 1)?);
            let is_own = match own.get(&work) {
                Some(known) => *known,
                None => {
                    let tenant = self.all(TENANT, [work.0.as_bytes()], |row| Ok(row.get::<_, String>(0)?))?;
                    let is_own = tenant.first().is_some_and(|tenant| tenants.contains(tenant));
                    own.insert(work, is_own);
                    is_own
                }
            };
            if is_own {
                let one = self.page(FEED_ONE, [next.number], 1)?;
                bytes += one.rows.iter().map(weight).sum::<usize>();
                page.rows.extend(one.rows);
                page.unreadable.extend(one.unreadable);
                page.last = one.last;
            }
        }
        page.full = page.count() >= limit || bytes >= limits::PAGE_BYTES || passed == FEED_SCAN;
        Ok((page, next))
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

    pub fn waits(&mut self, filter: &WaitFilter, limit: usize) -> Read<Listed<Wait, (Millis, WaitId)>> {
        let lead = concat!("SELECT ", wait_columns!(), " FROM wait");
        let order = if filter.last_ended {
            "ORDER BY ended_at DESC, opened_at, id"
        } else {
            "ORDER BY opened_at, id"
        };
        let (sql, values) = Conditions::of_waits(filter).select(lead, order, limit);
        let key = |row: &Row<'_>| Ok((row.get(6)?, WaitId(row::uuid(row, 0)?)));
        self.listed(&sql, params_from_iter(values), limit, key, row::wait)
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
        let read = |sql| {
            self.all(sql, params![at, due, work, bound(limit)], |row| {
                Ok((row.get(0)?, WorkId(row::uuid(row, 1)?)))
            })
        };
        undamaged(read(DUE), || read(DUE_FROM_TABLE))
    }

    pub fn next_due(&mut self) -> Read<Option<Millis>> {
        let read = |sql| self.all(sql, [], |row| Ok(row.get::<_, Option<Millis>>(0)?));
        Ok(undamaged(read(NEXT_DUE), || read(NEXT_DUE_FROM_TABLE))?.into_iter().flatten().next())
    }

    pub fn leased(&mut self, after: Option<WorkId>, limit: usize) -> Read<Vec<WorkId>> {
        let after = after.map_or(Vec::new(), |id| id.0.as_bytes().to_vec());
        let read = |sql| self.all(sql, params![after, bound(limit)], |row| Ok(WorkId(row::uuid(row, 0)?)));
        undamaged(read(LEASED), || read(LEASED_FROM_TABLE))
    }

    /// Events, up to what a page may weigh: the rest is not read.
    fn page(&self, sql: &str, key: impl Params, limit: usize) -> Read<Listed<StoredEvent, EventKey>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(key)?;
        let (mut page, mut bytes) = (Listed::default(), 0);
        while let Some(found) = rows.next()? {
            let event = row::event(found);
            bytes += event.as_ref().map_or(0, weight);
            take(&mut page, row::event_key(found)?, event)?;
            if bytes >= limits::PAGE_BYTES {
                return Ok(Listed { full: true, ..page });
            }
        }
        Ok(page.up_to(limit))
    }

    /// A page of rows, each with its key, up to what a page may weigh.
    pub fn listed<T, K: RowKey>(
        &self,
        sql: &str,
        params: impl Params,
        limit: usize,
        key: impl Fn(&Row<'_>) -> Read<K>,
        read: impl Fn(&Row<'_>) -> Read<T>,
    ) -> Read<Listed<T, K>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut listed = Listed::default();
        let mut bytes = 0;
        while let Some(found) = rows.next()? {
            take(&mut listed, key(found)?, read(found))?;
            bytes += row::bytes(found)?;
            if bytes >= limits::PAGE_BYTES {
                return Ok(Listed { full: true, ..listed });
            }
        }
        Ok(listed.up_to(limit))
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

/// Adds a row to a page, or why it cannot be read. Fails where nothing can be read any more.
pub(super) fn take<T, K: RowKey>(listed: &mut Listed<T, K>, key: K, row: Read<T>) -> Read<()> {
    let row = match row {
        Ok(row) => Ok(row),
        Err(fault) => Err(fault.of_row()?),
    };
    listed.take(key, row);
    Ok(())
}

/// The parts of the narrow table's indexes that lead to what a filter admits: by state, and first by tenant where it names
/// tenants. None where the ids of all works, or the source, lead there.
fn ways(filter: &WorkFilter) -> Option<Vec<(State, Option<&String>)>> {
    let tenants: Vec<Option<&String>> = match &filter.tenants {
        Some(Tenants::Only(_)) if filter.source_id.is_some() => return None,
        Some(Tenants::Only(list)) => list.iter().map(Some).collect(),
        Some(Tenants::All) | None => vec![None],
    };
    let states = match filter.admitted() {
        Some(states) => states,
        None if tenants == [None] => return None,
        None => State::ALL.to_vec(),
    };
    Some(states.iter().flat_map(|state| tenants.iter().map(|tenant| (*state, *tenant))).collect())
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
        let mut all = Self::default()
            .and_names("w.tenant", filter.tenants.as_ref())
            .and_names("w.kind", Some(&filter.kinds));
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
        let mut all = Self::default().and_names("tenant", filter.tenants.as_ref());
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

    pub fn and_names(mut self, column: &str, names: Option<&Names>) -> Self {
        // One name leads an index; several only restrict it.
        if let Some(Names::Only(list)) = names
            && let [only] = list.as_slice()
        {
            return self.and(&format!("{column} = ?"), only.clone());
        }
        if let Some(Names::Only(list)) = names {
            let marks = vec!["?"; list.len()].join(", ");
            self.parts.push(format!("{column} IN ({marks})"));
            self.values.extend(list.iter().map(|name| Value::from(name.clone())));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        WaitFilter,
        sqlite::plan::{plan, tables},
    };

    fn of_one_tenant() -> Option<Tenants> {
        Some(Tenants::Only(vec!["quiet".to_owned()]))
    }

    #[test]
    fn a_tenants_feed_reads_whose_events_are_in_order_and_only_its_own_whole() {
        let conn = tables();
        assert_eq!(plan(&conn, FEED_PLACES), "SEARCH event USING INTEGER PRIMARY KEY (rowid>?)");
        assert_eq!(plan(&conn, FEED_ONE), "SEARCH event USING INTEGER PRIMARY KEY (rowid=?)");
    }

    #[test]
    fn a_list_of_one_tenant_reads_no_row_of_another() {
        let conn = tables();
        let works = WorkFilter { tenants: of_one_tenant(), ..WorkFilter::default() };
        let every_state: Vec<_> = ways(&works).unwrap();
        assert_eq!(every_state.len(), State::ALL.len());
        let here = Conditions::of_works(&works)
            .and_state("s.state", State::Queued)
            .and("s.work < ?", vec![0xff])
            .and("s.tenant = ?", "quiet".to_owned());
        let lead = "SELECT w.id FROM status s CROSS JOIN work w ON w.id = s.work";
        let planned = plan(&conn, &here.select(lead, "ORDER BY s.work DESC", 10).0);
        assert!(planned.contains("INDEX status_tenant (tenant=? AND state=? AND work<?)"), "{planned}");
        assert!(!planned.contains("TEMP B-TREE"), "{planned}");
        let state = Some(tenure_core::model::WaitState::Open);
        let waits = WaitFilter { tenants: of_one_tenant(), state, ..WaitFilter::default() };
        let (waits, _) =
            Conditions::of_waits(&waits).select("SELECT id FROM wait", "ORDER BY opened_at, id", 10);
        let planned = plan(&conn, &waits);
        assert!(planned.contains("INDEX wait_tenant (tenant=?)"), "{planned}");
        assert!(!planned.contains("TEMP B-TREE"), "{planned}");
        let shared = || Some("shared".to_owned());
        for (filter, by) in [
            (
                WorkFilter { correlation_id: shared(), ..WorkFilter::default() },
                "work_correlation (correlation_id=?",
            ),
            (WorkFilter { workflow: shared(), ..WorkFilter::default() }, "work_workflow (workflow_id=?"),
        ] {
            let here = Conditions::of_works(&WorkFilter { tenants: of_one_tenant(), ..filter });
            let here = here.and("w.id < ?", vec![0xff]);
            let planned = plan(&conn, &here.select("SELECT w.id FROM work w", "ORDER BY w.id DESC", 10).0);
            assert!(planned.contains(&format!("{by} AND tenant=? AND id<?)")), "{planned}");
            assert!(!planned.contains("TEMP B-TREE"), "{planned}");
        }
    }
}
