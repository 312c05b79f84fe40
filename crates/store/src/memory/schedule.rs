//! Schedules in memory.

use tenure_core::{
    Millis,
    action::Tenants,
    schedule::{Act, Schedule},
};

use super::{Inner, Memory};
use crate::{
    Listed, ScheduleChange,
    schedule::{Key, SCHEDULES_MAX, key},
    store::{ScheduleStore, StoreFuture},
};

impl Inner {
    /// Whether nobody changed it since it was read; a new one is the next of none.
    fn is_next(&self, schedule: &Schedule) -> bool {
        self.schedules.get(&key(schedule)).map_or(0, |one| one.revision) + 1 == schedule.revision
    }
}

impl ScheduleStore for Memory {
    fn schedule<'a>(&'a self, tenant: &'a str, name: &'a str) -> StoreFuture<'a, Option<Schedule>> {
        self.ready(|inner| inner.schedules.get(&(tenant.to_owned(), name.to_owned())).cloned())
    }

    fn schedules<'a>(
        &'a self,
        tenants: &'a Tenants,
        after: (&'a str, &'a str),
        limit: usize,
    ) -> StoreFuture<'a, Listed<Schedule, Key>> {
        let after = (after.0.to_owned(), after.1.to_owned());
        self.ready(|inner| {
            let later = inner.schedules.values().filter(|one| key(one) > after && tenants.allow(&one.tenant));
            Listed::of(later.take(limit).cloned().collect(), limit, key)
        })
    }

    fn schedules_due<'a>(
        &'a self,
        at: Millis,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<Schedule>> {
        self.ready(|inner| {
            let due = inner
                .schedules
                .values()
                .filter(|one| one.due_at().is_some_and(|due| due <= at) && !except.contains(&one.tenant));
            let mut due: Vec<Schedule> = due.cloned().collect();
            due.sort_by_key(Schedule::due_at);
            due.truncate(limit);
            due
        })
    }

    fn save_schedules<'a>(&'a self, schedules: &'a [Schedule]) -> StoreFuture<'a, Vec<Key>> {
        self.change(|inner| {
            let mut kept = Vec::new();
            for schedule in schedules.iter().filter(|one| one.revision > 1) {
                if inner.is_next(schedule) {
                    inner.schedules.insert(key(schedule), schedule.clone());
                    kept.push(key(schedule));
                }
            }
            kept
        })
    }

    fn change_schedule<'a>(
        &'a self,
        schedule: &'a Schedule,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, bool> {
        self.change(|inner| {
            let room = schedule.revision > 1 || inner.schedules.len() < SCHEDULES_MAX;
            let changed = room && inner.is_next(schedule);
            if changed {
                match change.act {
                    Act::Delete => _ = inner.schedules.remove(&key(schedule)),
                    Act::Set | Act::Pause | Act::Resume | Act::Run => {
                        inner.schedules.insert(key(schedule), schedule.clone());
                    }
                }
                inner.schedule_changes.push((key(schedule), change.clone()));
            }
            changed
        })
    }

    fn schedule_changes<'a>(
        &'a self,
        tenant: &'a str,
        name: &'a str,
        limit: usize,
    ) -> StoreFuture<'a, Vec<ScheduleChange>> {
        let of = (tenant.to_owned(), name.to_owned());
        self.ready(|inner| {
            let newest = inner.schedule_changes.iter().rev().filter(|(key, _)| *key == of);
            newest.take(limit).map(|(_, change)| change.clone()).collect()
        })
    }
}
