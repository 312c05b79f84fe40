//! Schedules: small tables that the write path does not use.

use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};
use tenure_core::{
    Millis,
    action::Tenants,
    schedule::{Act, Schedule},
};

use super::{
    SqliteStore,
    read::bound,
    row::{self, Read, name_of, to_json},
    table::table,
};
use crate::{
    Listed, ScheduleChange,
    columns::{marks, names, statement},
    schedule::{Key, SCHEDULES_MAX, key, readable},
    store::{ScheduleStore, StoreFuture},
};

const ONE: &str = "SELECT body FROM schedule WHERE tenant = ?1 AND name = ?2";
const LIST: &str = "SELECT body, tenant, name FROM schedule WHERE (tenant, name) > (?1, ?2) \
     AND (?3 IS NULL OR tenant IN (SELECT value FROM json_each(?3))) ORDER BY tenant, name LIMIT ?4";
const DUE: &str = "SELECT body FROM schedule WHERE due_at IS NOT NULL AND due_at <= ?1 \
     AND tenant NOT IN (SELECT value FROM json_each(?2)) ORDER BY due_at LIMIT ?3";
const ADD: &str = "INSERT INTO schedule (tenant, name, revision, due_at, body) SELECT ?1, ?2, ?3, ?4, ?5 \
     WHERE (SELECT count(*) FROM schedule) < ?6 ON CONFLICT (tenant, name) DO NOTHING";
const UPDATE: &str = "UPDATE schedule SET revision = ?3, due_at = ?4, body = ?5 \
     WHERE tenant = ?1 AND name = ?2 AND revision = ?3 - 1";
const DELETE: &str = "DELETE FROM schedule WHERE tenant = ?1 AND name = ?2 AND revision = ?3 - 1";
const CHANGE: &str = statement!(
    "INSERT INTO schedule_change (tenant, name, " { names(ChangeRow::COLUMNS) }
    ") VALUES (?1, ?2, " { marks(ChangeRow::COLUMNS, 3) } ")"
);
const CHANGES: &str = statement!(
    "SELECT " { names(ChangeRow::COLUMNS) } " FROM schedule_change \
     WHERE tenant = ?1 AND name = ?2 ORDER BY number DESC LIMIT ?3"
);

table! {
    /// A change of a schedule by a person.
    ChangeRow(change: &ScheduleChange) {
        at = change.at,
        actor = to_json(&change.actor)?,
        act = name_of(change.act),
        reason = change.reason,
        plan = change.plan.as_ref().map(to_json).transpose()?,
    }
    read(row) -> ScheduleChange {
        Ok(ScheduleChange {
            at: row.get(at)?,
            actor: row::json(row, actor)?,
            act: row::named(row::text(row, act)?)?,
            reason: row.get(reason)?,
            plan: row::optional_json(row, plan)?,
        })
    }
}

fn save(conn: &Connection, schedules: &[Schedule]) -> Read<Vec<Key>> {
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let mut kept = Vec::new();
    for schedule in schedules {
        if update(&transaction, schedule)? {
            kept.push(key(schedule));
        }
    }
    transaction.commit()?;
    Ok(kept)
}

fn record(conn: &Connection, schedule: &Schedule, change: &ScheduleChange) -> Read<bool> {
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let Schedule { tenant, name, revision, .. } = schedule;
    let changed = match change.act {
        Act::Delete => {
            transaction.prepare_cached(DELETE)?.execute(params![tenant, name, *revision as i64])? > 0
        }
        Act::Set if *revision == 1 => {
            let (due_at, body) = (schedule.due_at(), to_json(schedule)?);
            let values = params![tenant, name, 1, due_at, body, bound(SCHEDULES_MAX)];
            transaction.prepare_cached(ADD)?.execute(values)? > 0
        }
        Act::Set | Act::Pause | Act::Resume | Act::Run => update(&transaction, schedule)?,
    };
    if changed {
        let mut statement = transaction.prepare_cached(CHANGE)?;
        statement.raw_bind_parameter(1, tenant)?;
        statement.raw_bind_parameter(2, name)?;
        ChangeRow::bind(&mut statement, 3, change)?;
        statement.raw_execute()?;
    }
    transaction.commit()?;
    Ok(changed)
}

fn update(conn: &Connection, schedule: &Schedule) -> Read<bool> {
    let Schedule { tenant, name, revision, .. } = schedule;
    let values = params![tenant, name, *revision as i64, schedule.due_at(), to_json(schedule)?];
    Ok(conn.prepare_cached(UPDATE)?.execute(values)? > 0)
}

impl ScheduleStore for SqliteStore {
    fn schedule<'a>(&'a self, tenant: &'a str, name: &'a str) -> StoreFuture<'a, Option<Schedule>> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.read(move |reader| Ok(reader.all(ONE, [tenant, name], schedule)?.into_iter().next()))
    }

    fn schedules<'a>(
        &'a self,
        tenants: &'a Tenants,
        after: (&'a str, &'a str),
        limit: usize,
    ) -> StoreFuture<'a, Listed<Schedule, Key>> {
        let (tenants, after) = (tenants.clone(), (after.0.to_owned(), after.1.to_owned()));
        self.read(move |reader| {
            let tenants = match tenants {
                Tenants::All => None,
                Tenants::Only(list) => Some(to_json(&list)?),
            };
            let key = |row: &Row<'_>| Ok((row.get(1)?, row.get(2)?));
            reader.listed(LIST, params![after.0, after.1, tenants, bound(limit)], limit, key, schedule)
        })
    }

    fn schedules_due<'a>(
        &'a self,
        at: Millis,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<Schedule>> {
        let except = except.to_vec();
        self.read(move |reader| {
            let found =
                reader.all(DUE, params![at, to_json(&except)?, bound(limit)], |row| Ok(schedule(row)))?;
            Ok(readable(found))
        })
    }

    fn save_schedules<'a>(&'a self, schedules: &'a [Schedule]) -> StoreFuture<'a, Vec<Key>> {
        let schedules = schedules.to_vec();
        self.write(move |conn| save(conn, &schedules))
    }

    fn change_schedule<'a>(
        &'a self,
        schedule: &'a Schedule,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, bool> {
        let (schedule, change) = (schedule.clone(), change.clone());
        self.write(move |conn| record(conn, &schedule, &change))
    }

    fn schedule_changes<'a>(
        &'a self,
        tenant: &'a str,
        name: &'a str,
        limit: usize,
    ) -> StoreFuture<'a, Vec<ScheduleChange>> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        self.read(move |reader| {
            reader.all(CHANGES, params![tenant, name, bound(limit)], |row| ChangeRow::read(row, 0))
        })
    }
}

fn schedule(row: &Row<'_>) -> Read<Schedule> {
    row::json(row, 0)
}
