//! Waits, and early answers that are kept for them.

use rusqlite::{Row, params, params_from_iter, types::Value};
use tenure_core::{Millis, Wait, WaitId, model::Kept};

use super::{
    SqliteStore,
    load::KEPT,
    read::Conditions,
    row::{self, KeptRow, WaitRow},
};
use crate::{
    Listed, WaitFilter,
    columns::{names, statement},
    store::{StoreFuture, WaitStore},
};

const FORGET: &str = "DELETE FROM kept WHERE kept_at <= ?1";
const FORGET_OF: &str = "DELETE FROM kept WHERE tenant = ?1";

impl WaitStore for SqliteStore {
    fn waits<'a>(
        &'a self,
        filter: &'a WaitFilter,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Wait, (Millis, WaitId)>> {
        let filter = filter.clone();
        self.read(move |reader| {
            let lead = statement!("SELECT " { names(WaitRow::COLUMNS) } " FROM wait");
            let order = if filter.last_ended {
                "ORDER BY ended_at DESC, opened_at, id"
            } else {
                "ORDER BY opened_at, id"
            };
            let (sql, values) = Conditions::of_waits(&filter).select(lead, order, limit);
            let key = |row: &Row<'_>| Ok((row.get("opened_at")?, WaitId(row::uuid(row, 0)?)));
            reader.listed(&sql, params_from_iter(values), limit, key, |row| WaitRow::read(row, 0))
        })
    }

    fn kept<'a>(&'a self, tenant: &'a str, reference: &'a str) -> StoreFuture<'a, Option<Kept>> {
        let key = (tenant.to_owned(), reference.to_owned());
        self.read(move |reader| {
            Ok(reader.all(KEPT, params![key.0, key.1], |row| KeptRow::read(row, 0))?.pop())
        })
    }

    fn forget_kept(&self, at: Millis) -> StoreFuture<'_, u64> {
        self.write(move |conn| Ok(conn.execute(FORGET, [at])? as u64))
    }

    fn forget_kept_of<'a>(&'a self, tenant: &'a str) -> StoreFuture<'a, u64> {
        let tenant = tenant.to_owned();
        self.write(move |conn| Ok(conn.execute(FORGET_OF, [tenant])? as u64))
    }
}

impl Conditions {
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
        // A literal: the partial index of open waits is not used for a bound value.
        all.parts.extend(filter.state.map(|state| format!("state = '{}'", row::name_of(state))));
        all.parts.extend(filter.last_ended.then(|| "ended_at IS NOT NULL".to_owned()));
        all
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::action::Tenants;

    use super::*;
    use crate::sqlite::plan::{plan, tables};

    #[test]
    fn a_list_of_one_tenant_reads_no_wait_of_another() {
        let conn = tables();
        let tenants = Some(Tenants::Only(vec!["quiet".to_owned()]));
        let state = Some(tenure_core::model::WaitState::Open);
        let waits = WaitFilter { tenants, state, ..WaitFilter::default() };
        let (waits, _) =
            Conditions::of_waits(&waits).select("SELECT id FROM wait", "ORDER BY opened_at, id", 10);
        let planned = plan(&conn, &waits);
        assert!(planned.contains("INDEX wait_tenant (tenant=?)"), "{planned}");
        assert!(!planned.contains("TEMP B-TREE"), "{planned}");
    }
}
