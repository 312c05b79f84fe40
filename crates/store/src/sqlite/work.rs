//! Work items, with their steps and attempts.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{params, params_from_iter, types::Value};
use tenure_core::{Attempt, Millis, State, Step, Work, WorkId, action::Tenants, limits};

use super::{
    SqliteStore,
    load::STEPS,
    log::SPEC,
    read::{Conditions, Reader, bound, take, undamaged},
    row::{self, AttemptEndRow, AttemptRow, Read, StepRow},
    tables::WORK,
};
use crate::{
    Listed, WorkFilter,
    columns::{names, statement},
    query::{Condition, Wanted},
    states::sql,
    store::{StoreFuture, WorkStore},
};

pub(super) const TENANTS: &str = "SELECT tenant FROM status WHERE work = ?1";
const ATTEMPTS: &str = statement!(
    "SELECT " { names(AttemptRow::COLUMNS) } ", " { names(AttemptEndRow::COLUMNS) }
    " FROM attempt WHERE work = ?1 ORDER BY fence"
);
const DUE: &str = "SELECT due_at, work FROM status INDEXED BY status_due \
     WHERE due_at <= ?1 AND (due_at, work) > (?2, ?3) ORDER BY due_at, work LIMIT ?4";
const NEXT_DUE: &str = "SELECT due_at FROM status INDEXED BY status_due \
     WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1";
/// Reads the table itself: if a page of an index is damaged, the table still has every row.
const DUE_FROM_TABLE: &str = "SELECT due_at, work FROM status INDEXED BY sqlite_autoindex_status_1 \
     WHERE due_at <= ?1 AND (due_at, work) > (?2, ?3) ORDER BY due_at, work LIMIT ?4";
const NEXT_DUE_FROM_TABLE: &str = "SELECT min(due_at) FROM status INDEXED BY sqlite_autoindex_status_1";
const LEASED_FROM_TABLE: &str = sql!(
    "SELECT work FROM status INDEXED BY sqlite_autoindex_status_1 \
     WHERE {state is leased} AND work > ?1 ORDER BY work LIMIT ?2"
);
/// running and cancel_requested: the states with a lease that was not found lapsed.
const LEASED: &str = sql!(
    "SELECT work FROM (\
     SELECT work FROM status WHERE {state is running} AND work > ?1 UNION ALL \
     SELECT work FROM status WHERE {state is cancel_requested} AND work > ?1) ORDER BY work LIMIT ?2"
);

impl WorkStore for SqliteStore {
    fn works<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, Listed<Work, WorkId>> {
        let ids = ids.to_vec();
        self.read(move |reader| reader.works_up_to(&ids, usize::MAX))
    }

    fn ids(&self, before: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        self.read(move |reader| {
            let before = before.map_or(vec![0xff; 17], |id| id.0.as_bytes().to_vec());
            let here = Conditions::default().and("w.id < ?", before);
            reader.ids("SELECT w.id FROM work w", here, "ORDER BY w.id DESC", limit)
        })
    }

    fn between<'a>(
        &'a self,
        first: WorkId,
        last: WorkId,
        tenants: &'a Tenants,
        limit: usize,
    ) -> StoreFuture<'a, Vec<WorkId>> {
        let tenants = tenants.clone();
        self.read(move |reader| {
            let here = Conditions::default()
                .and("work >= ?", first.0.as_bytes().to_vec())
                .and("work <= ?", last.0.as_bytes().to_vec())
                .and_names("tenant", Some(&tenants));
            reader.ids("SELECT work FROM status", here, "ORDER BY work", limit)
        })
    }

    fn tenants_of<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, HashMap<WorkId, String>> {
        let ids = ids.to_vec();
        self.read(move |reader| {
            let mut tenants = HashMap::with_capacity(ids.len());
            for id in ids {
                let found = reader.all(TENANTS, [id.0.as_bytes()], |row| Ok(row.get(0)?))?;
                tenants.extend(found.into_iter().map(|tenant| (id, tenant)));
            }
            Ok(tenants)
        })
    }

    fn list<'a>(
        &'a self,
        filter: &'a WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        let filter = filter.clone();
        self.read(move |reader| {
            let before = before.map_or(vec![0xff; 17], |id| id.0.as_bytes().to_vec());
            let conditions = Conditions::of_works(&filter);
            // Few work items share a parent, a correlation or a workflow, so those indexes are the best.
            let narrow =
                filter.parent.is_some() || filter.correlation_id.is_some() || filter.workflow.is_some();
            let mut ids: Vec<WorkId> = Vec::new();
            match ways(&filter).filter(|_| !narrow) {
                Some(ways) => {
                    for (state, tenant) in ways {
                        let lead = "SELECT w.id FROM status s CROSS JOIN work w ON w.id = s.work";
                        let order = "ORDER BY s.work DESC";
                        let mut here =
                            conditions.clone().and_state("s.state", state).and("s.work < ?", before.clone());
                        if let Some(tenant) = tenant {
                            here = here.and("s.tenant = ?", tenant.clone());
                        }
                        ids.extend(reader.ids(lead, here, order, limit)?);
                    }
                    ids.sort_unstable_by(|a, b| b.cmp(a));
                    ids.truncate(limit);
                }
                None => {
                    let here = conditions.and_states(&filter).and("w.id < ?", before);
                    ids = reader.ids("SELECT w.id FROM work w", here, "ORDER BY w.id DESC", limit)?;
                }
            }
            let works = reader.works_up_to(&ids, limits::PAGE_BYTES)?;
            if works.full {
                return Ok(works);
            }
            Ok(Listed { last: ids.last().copied(), full: ids.len() >= limit, ..works })
        })
    }

    fn counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<State, u64>> {
        let tenants = tenants.clone();
        self.read(move |reader| {
            let conditions = Conditions::default().and_names("tenant", Some(&tenants));
            let (sql, values) =
                conditions.select("SELECT state, count(*) FROM status", "GROUP BY state", usize::MAX);
            let counts = reader.all(&sql, params_from_iter(values), |row| {
                Ok((row::state(row, 0)?, row.get::<_, i64>(1)? as u64))
            })?;
            Ok(counts.into_iter().collect())
        })
    }

    fn steps(&self, work: WorkId) -> StoreFuture<'_, Vec<Step>> {
        self.read(move |reader| reader.all(STEPS, [work.0.as_bytes()], |row| StepRow::read(row, 0)))
    }

    fn attempts(&self, work: WorkId) -> StoreFuture<'_, Vec<Attempt>> {
        self.read(move |reader| reader.all(ATTEMPTS, [work.0.as_bytes()], |row| AttemptRow::read(row, 0)))
    }

    fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Millis, WorkId)>> {
        self.read(move |reader| {
            let (due, work) = match &after {
                Some((due, work)) => (*due, &work.0.as_bytes()[..]),
                None => (Millis::MIN, &[][..]),
            };
            let read = |sql| {
                reader.all(sql, params![at, due, work, bound(limit)], |row| {
                    Ok((row.get(0)?, WorkId(row::uuid(row, 1)?)))
                })
            };
            undamaged(read(DUE), || read(DUE_FROM_TABLE))
        })
    }

    fn next_due(&self) -> StoreFuture<'_, Option<Millis>> {
        self.read(move |reader| {
            let read = |sql| reader.all(sql, [], |row| Ok(row.get::<_, Option<Millis>>(0)?));
            Ok(undamaged(read(NEXT_DUE), || read(NEXT_DUE_FROM_TABLE))?.into_iter().flatten().next())
        })
    }

    fn leased(&self, after: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        self.read(move |reader| {
            let after = after.map_or(Vec::new(), |id| id.0.as_bytes().to_vec());
            let read =
                |sql| reader.all(sql, params![after, bound(limit)], |row| Ok(WorkId(row::uuid(row, 0)?)));
            undamaged(read(LEASED), || read(LEASED_FROM_TABLE))
        })
    }
}

impl Reader {
    /// The first of these work items, up to a total size.
    pub(super) fn works_up_to(&mut self, ids: &[WorkId], most: usize) -> Read<Listed<Work, WorkId>> {
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

    pub(super) fn ids(
        &self,
        lead: &str,
        conditions: Conditions,
        order: &str,
        limit: usize,
    ) -> Read<Vec<WorkId>> {
        let (sql, values) = conditions.select(lead, order, limit);
        self.all(&sql, params_from_iter(values), |row| Ok(WorkId(row::uuid(row, 0)?)))
    }
}

/// The access paths through the narrow table's indexes: by state, and by tenant first if the filter names tenants. None
/// if the ids of all work items, or the source, are the access path.
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

impl Conditions {
    /// [`WorkFilter::matches`] in SQL, without the states.
    fn of_works(filter: &WorkFilter) -> Self {
        let mut all = Self::default()
            .and_names("w.tenant", filter.tenants.as_ref())
            .and_names("w.kind", Some(&filter.kinds));
        for Condition { column, is, wanted } in filter.conditions() {
            let wanted: Value = match wanted {
                Wanted::Text(text) => text.to_owned().into(),
                Wanted::Time(at) => at.into(),
                Wanted::Work(id) => id.0.as_bytes().to_vec().into(),
            };
            all = all.and(&format!("w.{column} {is} ?"), wanted);
        }
        match &filter.correlation_id {
            Some(given) => all.and_correlation(given),
            None => all,
        }
    }

    /// The column is empty if the correlation id is the work item's own id.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::plan::{plan, tables};

    fn of_one_tenant() -> Option<Tenants> {
        Some(Tenants::Only(vec!["quiet".to_owned()]))
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
