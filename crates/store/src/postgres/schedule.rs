//! Schedules: small tables that the write path does not use.

use tenure_core::{
    Millis,
    action::Tenants,
    schedule::{Act, Schedule},
};
use tokio_postgres::Row;

use super::{
    Postgres,
    connection::params,
    row::{self, get},
    table::table,
};
use crate::{
    Error, Listed, ScheduleChange,
    columns::{names, statement, values},
    schedule::{Key, SCHEDULES_MAX, readable},
    store::{ScheduleStore, StoreFuture},
};

const ONE: &str = "SELECT body FROM schedule WHERE tenant = $1::text AND name = $2::text";
const LIST: &str = "SELECT body, tenant, name FROM schedule WHERE (tenant, name) > ($1::text, $2::text) \
     AND ($3::text[] IS NULL OR tenant = ANY($3)) ORDER BY tenant, name LIMIT $4::bigint";
const DUE: &str = "SELECT body FROM schedule WHERE due_at IS NOT NULL AND due_at <= $1::bigint \
     AND tenant <> ALL($2::text[]) ORDER BY due_at LIMIT $3::bigint";
/// Locks in one order first: a concurrent save of the same schedules waits, and then finds them changed.
const SAVE: &str = "WITH new AS ( \
         SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[]) \
         AS n(tenant, name, revision, due_at, body)), \
     held AS ( \
         SELECT s.tenant, s.name, n.revision, n.due_at, n.body FROM new n \
         JOIN schedule s ON s.tenant = n.tenant AND s.name = n.name AND s.revision = n.revision - 1 \
         ORDER BY s.tenant, s.name FOR UPDATE OF s) \
     UPDATE schedule s SET revision = h.revision, due_at = h.due_at, body = h.body FROM held h \
     WHERE s.tenant = h.tenant AND s.name = h.name AND s.revision = h.revision - 1 \
     RETURNING s.tenant, s.name";
/// The record is inserted only if the schedule was saved. The parameters of the schedule come after those of its
/// change.
macro_rules! with_change {
    ($changed:literal) => {
        statement!(
            "WITH changed AS (" $changed " RETURNING 1) \
             INSERT INTO schedule_change (tenant, name, " { names(ChangeRow::COLUMNS) }
            ") SELECT $1::text, $2::text, " { values(ChangeRow::COLUMNS, 3) } " FROM changed RETURNING number"
        )
    };
}

const ADD: &str = with_change!(
    "INSERT INTO schedule (tenant, name, revision, due_at, body) \
     SELECT $1::text, $2::text, $8::bigint, $9::bigint, $10::text \
     WHERE (SELECT count(*) FROM schedule c) < $11::bigint ON CONFLICT (tenant, name) DO NOTHING"
);
const UPDATE: &str = with_change!(
    "UPDATE schedule SET revision = $8::bigint, due_at = $9::bigint, body = $10::text \
     WHERE tenant = $1::text AND name = $2::text AND revision = $8::bigint - 1"
);
const DELETE: &str = with_change!(
    "DELETE FROM schedule WHERE tenant = $1::text AND name = $2::text AND revision = $8::bigint - 1"
);
const CHANGES: &str = statement!(
    "SELECT " { names(ChangeRow::COLUMNS) } " FROM schedule_change \
     WHERE tenant = $1::text AND name = $2::text ORDER BY number DESC LIMIT $3::bigint"
);

impl ScheduleStore for Postgres {
    fn schedule<'a>(&'a self, tenant: &'a str, name: &'a str) -> StoreFuture<'a, Option<Schedule>> {
        Box::pin(async move {
            self.points.query(ONE, params![tenant, name]).await?.first().map(schedule).transpose()
        })
    }

    fn schedules<'a>(
        &'a self,
        tenants: &'a Tenants,
        after: (&'a str, &'a str),
        limit: usize,
    ) -> StoreFuture<'a, Listed<Schedule, Key>> {
        Box::pin(async move {
            let tenants = match tenants {
                Tenants::All => None,
                Tenants::Only(list) => Some(list),
            };
            let rows = self.lists.query(LIST, params![after.0, after.1, tenants, limit as i64]).await?;
            row::listed(&rows, limit, |row| Ok((get(row, 1)?, get(row, 2)?)), schedule)
        })
    }

    fn schedules_due<'a>(
        &'a self,
        at: Millis,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<Schedule>> {
        Box::pin(async move {
            let rows = self.points.query(DUE, params![at, except, limit as i64]).await?;
            Ok(readable(rows.iter().map(schedule).collect()))
        })
    }

    fn save_schedules<'a>(&'a self, schedules: &'a [Schedule]) -> StoreFuture<'a, Vec<Key>> {
        Box::pin(async move {
            let tenants: Vec<&str> = schedules.iter().map(|one| one.tenant.as_str()).collect();
            let names: Vec<&str> = schedules.iter().map(|one| one.name.as_str()).collect();
            let revisions: Vec<i64> = schedules.iter().map(|one| one.revision as i64).collect();
            let due: Vec<Option<Millis>> = schedules.iter().map(Schedule::due_at).collect();
            let bodies: Vec<String> = schedules.iter().map(row::json).collect();
            let rows = self.points.write(SAVE, params![tenants, names, revisions, due, bodies]).await?;
            rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
        })
    }

    fn change_schedule<'a>(
        &'a self,
        schedule: &'a Schedule,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let (sql, used) = match change.act {
                Act::Delete => (DELETE, 8),
                Act::Set if schedule.revision == 1 => (ADD, 11),
                Act::Set | Act::Pause | Act::Resume | Act::Run => (UPDATE, 10),
            };
            let mut params = params![&schedule.tenant, &schedule.name];
            ChangeRow::bind(change, &mut params);
            params.extend(params![
                schedule.revision as i64,
                schedule.due_at(),
                row::json(schedule),
                SCHEDULES_MAX as i64,
            ]);
            params.truncate(used);
            Ok(!self.points.write(sql, params).await?.is_empty())
        })
    }

    fn schedule_changes<'a>(
        &'a self,
        tenant: &'a str,
        name: &'a str,
        limit: usize,
    ) -> StoreFuture<'a, Vec<ScheduleChange>> {
        Box::pin(async move {
            let rows = self.lists.query(CHANGES, params![tenant, name, limit as i64]).await?;
            rows.iter().map(|row| ChangeRow::read(row, 0)).collect()
        })
    }
}

fn schedule(row: &Row) -> Result<Schedule, Error> {
    row::parse(get(row, 0)?)
}

table! {
    /// A change of a schedule by a person.
    one ChangeRow(change: ScheduleChange) {
        at: "bigint" = change.at,
        actor: "text" = row::json(&change.actor),
        act: "text" = row::name(&change.act),
        reason: "text" = &change.reason,
        plan: "text" = change.plan.as_ref().map(row::json),
    }
    read(row) -> ScheduleChange {
        let plan: Option<&str> = get(row, plan)?;
        Ok(ScheduleChange {
            at: get(row, at)?,
            actor: row::parse(get(row, actor)?)?,
            act: row::parse_name(get(row, act)?)?,
            reason: get(row, reason)?,
            plan: plan.map(row::parse).transpose()?,
        })
    }
}
