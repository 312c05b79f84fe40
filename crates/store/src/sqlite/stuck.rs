//! Work items that may not progress: the oldest of each state that may, by the narrow table.

use rusqlite::{params, params_from_iter};
use tenure_core::{State, Work, WorkId, action::Tenants, limits};

use super::{
    SqliteStore,
    read::{Conditions, Reader},
    row::Read,
};
use crate::{
    Listed,
    states::sql,
    store::{Lane, SUSPECT_STATES, Signs, StoreFuture, StuckStore},
};

const OF_STATE: &str = "SELECT w.id FROM status s CROSS JOIN work w ON w.id = s.work";
const QUEUED: &str = "SELECT s.work FROM status s";
/// A work item that can be claimed has a row of its own.
const UNCLAIMED: &str = sql!(
    "SELECT w.id FROM work w WHERE w.id = ?1 AND w.created_at < ?2 AND {w.state is queued} AND EXISTS (SELECT 1 FROM ready r \
     WHERE r.tenant = w.tenant AND r.kind = w.kind AND r.system = w.system AND r.priority = w.priority \
     AND r.created_at = w.created_at AND r.work = w.id)"
);
const BUSY_LANES: &str =
    "SELECT DISTINCT w.tenant, w.system, w.kind FROM status s CROSS JOIN work w ON w.id = s.work";

/// Of a state and, if tenants are named, of one of them: however much others have is not read.
fn ways(states: &[State], tenants: &Tenants) -> Vec<Conditions> {
    let of_state = |state: &State| Conditions::default().and("s.state = ?", i64::from(state.code()));
    match tenants {
        Tenants::All => states.iter().map(of_state).collect(),
        Tenants::Only(list) => {
            let mut list: Vec<&String> = list.iter().collect();
            list.sort_unstable();
            list.dedup();
            let of = |state| list.iter().map(move |own| of_state(state).and("s.tenant = ?", (*own).clone()));
            states.iter().flat_map(of).collect()
        }
    }
}

/// [`Signs::suspect`] in SQL for one state.
fn suspicious(here: Conditions, state: State, signs: Signs) -> Conditions {
    match (state, signs.quiet) {
        (State::Running | State::CancelRequested, None) => here.and("w.expires_at < ?", signs.expired),
        (State::Running | State::CancelRequested, Some(quiet)) => {
            let mut here = here.plain("(w.expires_at < ? OR w.updated_at <= ?)".to_owned());
            here.values.extend([signs.expired.into(), quiet.into()]);
            here
        }
        (State::RetryScheduled, _) => here.and("w.next_retry_at < ?", signs.retry),
        _ => here,
    }
}

impl Reader {
    fn stuck_ids(&self, lead: &str, here: Conditions, limit: usize) -> Read<Vec<WorkId>> {
        self.ids(lead, here, "ORDER BY s.work", limit)
    }
}

impl StuckStore for SqliteStore {
    fn suspects<'a>(
        &'a self,
        tenants: &'a Tenants,
        signs: Signs,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        let tenants = tenants.clone();
        self.read(move |reader| {
            let mut ids = Vec::new();
            for state in SUSPECT_STATES {
                for here in ways(&[state], &tenants) {
                    ids.extend(reader.stuck_ids(OF_STATE, suspicious(here, state, signs), limit)?);
                }
            }
            ids.sort_unstable();
            reader.works_up_to(&ids, limits::PAGE_BYTES)
        })
    }

    fn unclaimed<'a>(
        &'a self,
        tenants: &'a Tenants,
        signs: Signs,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Work, WorkId>> {
        let tenants = tenants.clone();
        self.read(move |reader| {
            let mut ids = Vec::new();
            for here in ways(&[State::Queued], &tenants) {
                ids.extend(reader.stuck_ids(QUEUED, here, limit)?);
            }
            ids.sort_unstable();
            let mut ready = Vec::new();
            for id in ids {
                let found = reader.all(UNCLAIMED, params![id.0.as_bytes(), signs.queued], |_| Ok(id))?;
                ready.extend(found);
            }
            reader.works_up_to(&ready, limits::PAGE_BYTES)
        })
    }

    fn busy_lanes<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, Vec<Lane>> {
        let tenants = tenants.clone();
        self.read(move |reader| {
            let mut lanes = Vec::new();
            for here in ways(&[State::Running, State::CancelRequested], &tenants) {
                let (sql, values) = here.select(BUSY_LANES, "", usize::MAX);
                lanes.extend(reader.all(&sql, params_from_iter(values), |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })?);
            }
            lanes.sort_unstable();
            lanes.dedup();
            Ok(lanes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::plan::{plan, tables};

    #[test]
    fn suspects_are_found_by_state_and_tenant_in_order() {
        let conn = tables();
        let signs = Signs { expired: 1, quiet: Some(1), retry: 1, queued: 1 };
        for (tenants, by) in [
            (Tenants::All, "INDEX status_state (state=?"),
            (Tenants::Only(vec!["red".to_owned()]), "INDEX status_tenant (tenant=? AND state=?"),
        ] {
            for state in SUSPECT_STATES {
                let here = ways(&[state], &tenants).remove(0);
                let (sql, _) = suspicious(here, state, signs).select(OF_STATE, "ORDER BY s.work", 10);
                let planned = plan(&conn, &sql);
                assert!(planned.contains(by) && !planned.contains("TEMP B-TREE"), "{planned}");
            }
            let here = ways(&[State::Queued], &tenants).remove(0);
            let planned = plan(&conn, &here.select(QUEUED, "ORDER BY s.work", 10).0);
            assert!(planned.contains(by) && !planned.contains("TEMP B-TREE"), "{planned}");
        }
        assert!(!plan(&conn, UNCLAIMED).contains("SCAN"), "{}", plan(&conn, UNCLAIMED));
    }
}
