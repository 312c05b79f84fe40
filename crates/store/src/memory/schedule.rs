//! Schedules and the intake in memory.

use std::collections::BTreeMap;

use tenure_core::{
    Millis,
    action::Tenants,
    schedule::{Act, Schedule},
};

use super::Inner;
use crate::{
    IntakeChange, ScheduleChange,
    schedule::{Key, SCHEDULES_MAX, key},
};

impl Inner {
    pub fn schedules(&self, tenants: &Tenants, after: &Key, limit: usize) -> Vec<Schedule> {
        let later = self.schedules.values().filter(|one| key(one) > *after && tenants.allow(&one.tenant));
        later.take(limit).cloned().collect()
    }

    /// The last change of each tenant, where it is a pause.
    pub fn pauses(&self) -> Vec<IntakeChange> {
        let last: BTreeMap<&Option<String>, &IntakeChange> =
            self.intake.iter().map(|change| (&change.tenant, change)).collect();
        last.into_values().filter(|change| change.paused).cloned().collect()
    }

    pub fn schedules_due(&self, at: Millis, except: &[String], limit: usize) -> Vec<Schedule> {
        let due = self
            .schedules
            .values()
            .filter(|one| one.due_at().is_some_and(|due| due <= at) && !except.contains(&one.tenant));
        let mut due: Vec<Schedule> = due.cloned().collect();
        due.sort_by_key(Schedule::due_at);
        due.truncate(limit);
        due
    }

    pub fn save_schedules(&mut self, schedules: &[Schedule]) -> Vec<Key> {
        let mut kept = Vec::new();
        for schedule in schedules.iter().filter(|one| one.revision > 1) {
            if self.is_next(schedule) {
                self.schedules.insert(key(schedule), schedule.clone());
                kept.push(key(schedule));
            }
        }
        kept
    }

    pub fn change_schedule(&mut self, schedule: &Schedule, change: &ScheduleChange) -> bool {
        let room = schedule.revision > 1 || self.schedules.len() < SCHEDULES_MAX;
        let changed = room && self.is_next(schedule);
        if changed {
            match change.act {
                Act::Delete => _ = self.schedules.remove(&key(schedule)),
                Act::Set | Act::Pause | Act::Resume | Act::Run => {
                    self.schedules.insert(key(schedule), schedule.clone());
                }
            }
            self.schedule_changes.push((key(schedule), change.clone()));
        }
        changed
    }

    pub fn schedule_changes(&self, of: &Key, limit: usize) -> Vec<ScheduleChange> {
        let newest = self.schedule_changes.iter().rev().filter(|(key, _)| key == of);
        newest.take(limit).map(|(_, change)| change.clone()).collect()
    }

    /// Whether nobody changed it since it was read; a new one is the next of none.
    fn is_next(&self, schedule: &Schedule) -> bool {
        self.schedules.get(&key(schedule)).map_or(0, |one| one.revision) + 1 == schedule.revision
    }
}
