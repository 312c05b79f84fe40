//! Waits, and early answers that are kept for them.

use tenure_core::{Millis, Wait, WaitId, model::Kept};
use tokio_postgres::Row;

use super::{
    Postgres,
    connection::{Pipeline, params},
    load::{KEPT, uuids},
    read::List,
    row::{self, KeptRow, WaitRow, get},
};
use crate::{
    Listed, WaitFilter,
    columns::{names_of, statement},
    store::{StoreFuture, WaitStore},
};

const FORGET: &str = "DELETE FROM kept WHERE kept_at <= $1::bigint";
const FORGET_OF: &str = "DELETE FROM kept WHERE tenant = $1::text";

impl WaitStore for Postgres {
    fn waits<'a>(
        &'a self,
        filter: &'a WaitFilter,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Wait, (Millis, WaitId)>> {
        Box::pin(async move {
            let mut list = List::default();
            list.wait_conditions(filter);
            let at_most = list.param(limit as i64);
            let first = if filter.last_ended { "t.ended_at DESC, " } else { "" };
            let columns = statement!({ names_of("t", WaitRow::COLUMNS) });
            let sql = format!(
                "SELECT {columns} FROM wait t WHERE {} \
                 ORDER BY {first}t.opened_at, t.id LIMIT {at_most}",
                list.wanted.join(" AND ")
            );
            let key = |row: &Row| Ok((row::get_named(row, "opened_at")?, WaitId(get(row, 0)?)));
            row::listed(&self.lists.page(&sql, &list.params).await?, limit, key, |row| WaitRow::read(row, 0))
        })
    }

    fn kept<'a>(&'a self, tenant: &'a str, reference: &'a str) -> StoreFuture<'a, Option<Kept>> {
        Box::pin(async move {
            let rows = self.points.query(KEPT, params![vec![tenant], vec![reference]]).await?;
            rows.first().map(|row| KeptRow::read(row, 0)).transpose()
        })
    }

    fn forget_kept(&self, at: Millis) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let session = self.points.session().await?;
            let mut pipeline = Pipeline::default();
            let step = pipeline.add(FORGET, params![at]);
            let results = pipeline.run(&session).await.map_err(|fault| fault.at_commit().error())?;
            Ok(results.affected(step))
        })
    }

    fn forget_kept_of<'a>(&'a self, tenant: &'a str) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            let session = self.points.session().await?;
            let mut pipeline = Pipeline::default();
            let step = pipeline.add(FORGET_OF, params![tenant]);
            let results = pipeline.run(&session).await.map_err(|fault| fault.at_commit().error())?;
            Ok(results.affected(step))
        })
    }
}

impl<'a> List<'a> {
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
        // A literal: the partial index of open waits is not used for a bound value.
        self.wanted.extend(filter.state.map(|state| format!("t.state = '{}'", row::name(&state))));
        self.wanted.extend(filter.last_ended.then(|| "t.ended_at IS NOT NULL".to_owned()));
        if let Some(session) = &filter.session {
            let param = self.param(session.as_str());
            self.wanted.push(format!("t.work IN (SELECT w.id FROM work w WHERE w.session = {param})"));
        }
    }
}
