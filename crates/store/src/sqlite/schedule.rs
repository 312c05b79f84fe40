//! Schedules: small tables of their own, away from the hot path.

use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};
use tenure_core::{
    Millis,
    action::Tenants,
    schedule::{Act, Schedule},
};

use super::{
    read::{Reader, bound},
    row::{self, Read, name_of, to_json},
};
use crate::{
    Listed, ScheduleChange,
    schedule::{Key, SCHEDULES_MAX, key, readable},
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
const CHANGE: &str = "INSERT INTO schedule_change (tenant, name, at, actor, act, reason, plan) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const CHANGES: &str = "SELECT at, actor, act, reason, plan FROM schedule_change \
     WHERE tenant = ?1 AND name = ?2 ORDER BY number DESC LIMIT ?3";

pub(super) fn save(conn: &Connection, schedules: &[Schedule]) -> Read<Vec<Key>> {
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

pub(super) fn change(conn: &Connection, schedule: &Schedule, change: &ScheduleChange) -> Read<bool> {
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
        let plan = change.plan.as_ref().map(to_json).transpose()?;
        let (actor, act) = (to_json(&change.actor)?, name_of(change.act));
        let values = params![tenant, name, change.at, actor, act, change.reason, plan];
        transaction.prepare_cached(CHANGE)?.execute(values)?;
    }
    transaction.commit()?;
    Ok(changed)
}

fn update(conn: &Connection, schedule: &Schedule) -> Read<bool> {
    let Schedule { tenant, name, revision, .. } = schedule;
    let values = params![tenant, name, *revision as i64, schedule.due_at(), to_json(schedule)?];
    Ok(conn.prepare_cached(UPDATE)?.execute(values)? > 0)
}

impl Reader {
    pub fn schedule(&mut self, (tenant, name): &Key) -> Read<Option<Schedule>> {
        Ok(self.all(ONE, [tenant, name], schedule)?.into_iter().next())
    }

    pub fn schedules(&mut self, tenants: &Tenants, after: &Key, limit: usize) -> Read<Listed<Schedule, Key>> {
        let tenants = match tenants {
            Tenants::All => None,
            Tenants::Only(list) => Some(to_json(list)?),
        };
        let key = |row: &Row<'_>| Ok((row.get(1)?, row.get(2)?));
        self.listed(LIST, params![after.0, after.1, tenants, bound(limit)], limit, key, schedule)
    }

    pub fn schedules_due(&mut self, at: Millis, except: &[String], limit: usize) -> Read<Vec<Schedule>> {
        let found = self.all(DUE, params![at, to_json(&except)?, bound(limit)], |row| Ok(schedule(row)))?;
        Ok(readable(found))
    }

    pub fn schedule_changes(&mut self, (tenant, name): &Key, limit: usize) -> Read<Vec<ScheduleChange>> {
        self.all(CHANGES, params![tenant, name, bound(limit)], |row| {
            Ok(ScheduleChange {
                at: row.get(0)?,
                actor: row::json(row, 1)?,
                act: row::named(row::text(row, 2)?)?,
                reason: row.get(3)?,
                plan: row::optional_json(row, 4)?,
            })
        })
    }
}

fn schedule(row: &Row<'_>) -> Read<Schedule> {
    row::json(row, 0)
}
