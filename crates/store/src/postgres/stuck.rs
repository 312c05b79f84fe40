//! Work items that may not progress: the oldest of each state that may, by the narrow table.

use tenure_core::{State, Work, WorkId, action::Tenants};

use super::{
    Postgres,
    connection::params,
    read::{List, listed},
    row::{self, get},
};
use crate::{
    Listed,
    states::sql,
    store::{Lane, SUSPECT_STATES, Signs, StoreFuture, StuckStore},
};

/// [`Signs::suspect`] in SQL, but for the states.
const SUSPICIOUS: &str = sql!(
    "(NOT {s.state is leased} OR w.expires_at < $1::bigint OR w.updated_at <= $2::bigint) \
     AND (NOT {s.state is retry_scheduled} OR w.next_retry_at < $3::bigint)"
);
/// A work item that can be claimed has a row of its own.
const UNCLAIMED: &str = sql!(
    "{w.state is queued} AND EXISTS (SELECT 1 FROM ready r WHERE r.tenant = w.tenant AND r.kind = w.kind \
     AND r.system = w.system AND r.priority = w.priority AND r.created_at = w.created_at AND r.work = w.id)"
);
const BUSY_LANES: &str = sql!(
    "SELECT DISTINCT w.tenant, w.system, w.kind FROM status s JOIN work w ON w.id = s.work \
     WHERE {s.state is leased} AND {w.state is leased} AND ($1::text[] IS NULL OR s.tenant = ANY($1))"
);

/// The states, and each named tenant: however much others have is not read.
fn ways<'a>(list: &mut List<'a>, states: &[State], tenants: &'a Tenants) -> (String, &'static str) {
    let codes: Vec<i16> = states.iter().map(|state| i16::from(state.code())).collect();
    let codes = list.param(codes);
    let states = format!("unnest({codes}::smallint[]) AS k(state)");
    match tenants {
        Tenants::All => (states, "s.state = k.state"),
        Tenants::Only(own) => {
            let own = list.param(own.as_slice());
            let both = format!("{states} CROSS JOIN (SELECT DISTINCT unnest({own}::text[])) AS o(tenant)");
            (both, "s.state = k.state AND s.tenant = o.tenant")
        }
    }
}

impl StuckStore for Postgres {
    fn suspects<'a>(
        &'a self,
        tenants: &'a Tenants,
        signs: Signs,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        Box::pin(async move {
            let mut list = List::default();
            list.param(signs.expired);
            list.param(signs.quiet);
            list.param(signs.retry);
            let (ways, here) = ways(&mut list, &SUSPECT_STATES, tenants);
            let (columns, most) = (row::WORK, list.param(limit as i64));
            let sql = format!(
                "SELECT {columns} FROM {ways} CROSS JOIN LATERAL (SELECT w.* FROM status s JOIN work w ON w.id = s.work \
                 WHERE {here} AND w.state = s.state AND {SUSPICIOUS} ORDER BY s.work LIMIT {most}::bigint) w ORDER BY w.id"
            );
            let rows = self.lists.page(&sql, &list.params).await?;
            row::listed(&rows, usize::MAX, |row| row::id(row, 0), row::work)
        })
    }

    fn unclaimed<'a>(
        &'a self,
        tenants: &'a Tenants,
        signs: Signs,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        Box::pin(async move {
            let mut list = List::default();
            let (ways, here) = ways(&mut list, &[State::Queued], tenants);
            let before = list.param(signs.queued);
            let (columns, most) = (row::WORK, list.param(limit as i64));
            let sql = format!(
                "SELECT {columns} FROM {ways} CROSS JOIN LATERAL (SELECT s.work FROM status s WHERE {here} \
                 ORDER BY s.work LIMIT {most}::bigint) q JOIN work w ON w.id = q.work \
                 WHERE w.created_at < {before}::bigint AND {UNCLAIMED} ORDER BY w.id"
            );
            let rows = self.lists.page(&sql, &list.params).await?;
            row::listed(&rows, usize::MAX, |row| row::id(row, 0), row::work)
        })
    }

    fn busy_lanes<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, Vec<Lane>> {
        Box::pin(async move {
            let rows = self.lists.query(BUSY_LANES, params![listed(tenants)]).await?;
            rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?))).collect()
        })
    }
}
