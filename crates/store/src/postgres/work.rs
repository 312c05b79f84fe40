//! Work items, with their steps and attempts.

use std::collections::{BTreeMap, HashMap};

use tenure_core::{
    Attempt, Millis, State, Step, Work, WorkId,
    action::{Names, Tenants},
};
use uuid::Uuid;

use super::{
    Postgres,
    around::{Look, pages},
    connection::params,
    load::{PEERS, STEPS, uuids},
    read::{List, first, listed},
    row::{self, AttemptEndRow, StepRow, get},
};
use crate::{
    Error, Listed, WorkFilter,
    columns::{names_of, statement},
    query::{Condition, Wanted},
    states::sql,
    store::{StoreFuture, WorkStore},
};

const IDS: &str = "SELECT id FROM work WHERE id < $1::uuid ORDER BY id DESC LIMIT $2::bigint";
const BETWEEN: &str = "SELECT id FROM work WHERE id >= $1::uuid AND id <= $2::uuid \
     AND ($3::text[] IS NULL OR tenant = ANY($3)) ORDER BY id LIMIT $4::bigint";
const TENANTS: &str = "SELECT id, tenant FROM work WHERE id = ANY($1::uuid[])";
const ATTEMPTS: &str = statement!(
    "SELECT e.work, e.fence, e.attempt, e.at, e.type, e.data, " { names_of("a", AttemptEndRow::COLUMNS) }
    " FROM event e LEFT JOIN attempt_end a ON a.work = e.work AND a.fence = e.fence \
     WHERE e.work = $1::uuid AND e.request IS NOT NULL ORDER BY e.seq"
);
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
/// The states with a lease that was not found lapsed.
const LEASED: Look = Look {
    table: "status",
    purpose: "leases",
    indexed: sql!(
        "SELECT s.work FROM unnest({array of leased}) AS k(state) CROSS JOIN LATERAL ( \
     SELECT t.work FROM status t WHERE t.state = k.state AND t.work > $1::uuid ORDER BY t.work \
     LIMIT $2::bigint) s ORDER BY s.work LIMIT $2::bigint"
    ),
    paged: sql!(
        pages!("status", "$3", "$4"),
        "SELECT work FROM part WHERE {state is leased} AND work > $1::uuid ORDER BY work LIMIT $2::bigint"
    ),
};

impl WorkStore for Postgres {
    fn works<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, Listed<Work, WorkId>> {
        Box::pin(async move {
            let rows = self.points.query(PEERS, params![uuids(ids)]).await?;
            let mut works = row::listed(&rows, usize::MAX, |row| row::id(row, 0), row::work)?;
            let mut by_id: BTreeMap<WorkId, Work> =
                works.rows.into_iter().map(|work| (work.id, work)).collect();
            works.rows = ids.iter().filter_map(|id| by_id.remove(id)).collect();
            Ok(works)
        })
    }

    fn ids(&self, before: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        Box::pin(async move {
            let before = before.map_or(Uuid::max(), |id| id.0);
            let rows = self.lists.query(IDS, params![before, limit as i64]).await?;
            rows.iter().map(|row| row::id(row, 0)).collect()
        })
    }

    fn between<'a>(
        &'a self,
        first: WorkId,
        last: WorkId,
        tenants: &'a Tenants,
        limit: usize,
    ) -> StoreFuture<'a, Vec<WorkId>> {
        Box::pin(async move {
            let params = params![first.0, last.0, listed(tenants), limit as i64];
            self.lists.query(BETWEEN, params).await?.iter().map(|row| row::id(row, 0)).collect()
        })
    }

    fn tenants_of<'a>(&'a self, ids: &'a [WorkId]) -> StoreFuture<'a, HashMap<WorkId, String>> {
        Box::pin(async move {
            let rows = self.points.query(TENANTS, params![uuids(ids)]).await?;
            rows.iter().map(|row| Ok((row::id(row, 0)?, get(row, 1)?))).collect()
        })
    }

    fn list<'a>(
        &'a self,
        filter: &'a WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        Box::pin(async move {
            let mut list = List::default();
            list.conditions(filter, before);
            let at_most = list.param(limit as i64);
            let wanted = list.wanted.join(" AND ");
            let columns = row::WORK;
            let narrow =
                filter.parent.is_some() || filter.correlation_id.is_some() || filter.workflow.is_some();
            let sql = match (filter.admitted(), &filter.tenants) {
                // By tenant and state: the rows of other tenants are not read.
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
                         ORDER BY s.work DESC LIMIT {at_most}) w ORDER BY w.id DESC LIMIT {at_most}"
                    )
                }
                // By a column that few work items share, and then by tenant.
                (states, Some(Tenants::Only(tenants))) if narrow => {
                    let codes: Option<Vec<i16>> =
                        states.map(|states| states.iter().map(|state| i16::from(state.code())).collect());
                    let (codes, tenants) = (list.param(codes), list.param(tenants.as_slice()));
                    format!(
                        "SELECT {columns} FROM (SELECT DISTINCT unnest({tenants}::text[]) AS tenant) o CROSS JOIN LATERAL ( \
                         SELECT w.* FROM work w WHERE w.tenant = o.tenant AND {wanted} \
                         AND ({codes}::smallint[] IS NULL OR w.state = ANY({codes}::smallint[])) \
                         ORDER BY w.id DESC LIMIT {at_most}) w ORDER BY w.id DESC LIMIT {at_most}"
                    )
                }
                (None, _) => {
                    format!("SELECT {columns} FROM work w WHERE {wanted} ORDER BY w.id DESC LIMIT {at_most}")
                }
                (Some(states), _) => {
                    let codes: Vec<i16> = states.iter().map(|state| i16::from(state.code())).collect();
                    let codes = list.param(codes);
                    format!(
                        "SELECT {columns} FROM unnest({codes}::smallint[]) AS k(state) CROSS JOIN LATERAL ( \
                         SELECT w.* FROM status s JOIN work w ON w.id = s.work \
                         WHERE s.state = k.state AND w.state = s.state AND {wanted} \
                         ORDER BY s.work DESC LIMIT {at_most}) w ORDER BY w.id DESC LIMIT {at_most}"
                    )
                }
            };
            let rows = self.lists.page(&sql, &list.params).await?;
            row::listed(&rows, limit, |row| row::id(row, 0), row::work)
        })
    }

    fn counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<State, u64>> {
        Box::pin(async move {
            let rows = self.lists.query(COUNTS, params![listed(tenants)]).await?;
            rows.iter().map(|row| Ok((row::state(get(row, 0)?)?, get::<i64>(row, 1)? as u64))).collect()
        })
    }

    fn steps(&self, work: WorkId) -> StoreFuture<'_, Vec<Step>> {
        Box::pin(async move {
            let rows = self.points.query(STEPS, params![vec![work.0]]).await?;
            rows.iter().map(|row| StepRow::read(row, 0)).collect()
        })
    }

    fn attempts(&self, work: WorkId) -> StoreFuture<'_, Vec<Attempt>> {
        Box::pin(async move {
            self.points.query(ATTEMPTS, params![work.0]).await?.iter().map(row::attempt).collect()
        })
    }

    fn due(
        &self,
        at: Millis,
        after: Option<(Millis, WorkId)>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Millis, WorkId)>> {
        Box::pin(async move {
            let (due, work) = after.map_or((i64::MIN, Uuid::nil()), |(due, work)| (due, work.0));
            let params = || params![at, due, work, limit as i64];
            let rows = self.points.look(&DUE, after.is_none(), params).await?;
            let due: Result<Vec<_>, Error> =
                rows.iter().map(|row| Ok((get(row, 0)?, row::id(row, 1)?))).collect();
            Ok(first(due?, limit))
        })
    }

    fn next_due(&self) -> StoreFuture<'_, Option<Millis>> {
        Box::pin(async move {
            let rows = self.points.look(&NEXT_DUE, true, Vec::new).await?;
            let due: Result<Vec<Millis>, Error> = rows.iter().map(|row| get(row, 0)).collect();
            Ok(due?.into_iter().min())
        })
    }

    fn leased(&self, after: Option<WorkId>, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        Box::pin(async move {
            let last = after.map_or(Uuid::nil(), |id| id.0);
            let rows = self.points.look(&LEASED, after.is_none(), || params![last, limit as i64]).await?;
            let ids: Result<Vec<WorkId>, Error> = rows.iter().map(|row| row::id(row, 0)).collect();
            Ok(first(ids?, limit))
        })
    }
}

impl<'a> List<'a> {
    fn conditions(&mut self, filter: &'a WorkFilter, before: Option<WorkId>) {
        self.wanted.push("true".to_owned());
        self.names("w.tenant", filter.tenants.as_ref());
        self.names("w.kind", Some(&filter.kinds));
        for Condition { column, is, wanted } in filter.conditions() {
            let left = format!("w.{column} {is}");
            match wanted {
                Wanted::Text(text) => self.want(&left, text),
                Wanted::Time(at) => self.want(&left, at),
                Wanted::Work(id) => self.want(&left, id.0),
            }
        }
        if let Some(correlation) = &filter.correlation_id {
            self.correlated(correlation, filter.tenants.as_ref());
        }
        if let Some(before) = before {
            self.want("w.id <", before.0);
        }
    }

    /// By default the correlation id is the work item's own id, which is not stored in the column.
    fn correlated(&mut self, correlation: &'a str, tenants: Option<&'a Names>) {
        match correlation.parse::<WorkId>() {
            // One list of ids, because an OR would be executed by reading every work item.
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
}
