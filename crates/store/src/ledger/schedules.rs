//! Schedules of the ledger: set, paused, run and deleted by people, with a recorded reason.

use tenure_core::{
    Code, Millis, Refusal,
    action::Tenants,
    limits,
    schedule::{Act, Overlap, Plan, Schedule},
};

use super::{Caller, Ledger, reads::PAGE_MAX};
use crate::{
    Error, Listed, NewSchedule, ScheduleChange,
    query::check_tenants,
    schedule::{Key, SCHEDULES_MAX},
    scheduler::{Fired, fire, open_works},
    zone::Named,
};

/// The number of attempts to change a schedule that others change at the same time.
const TRIES: usize = 10;

impl Ledger {
    /// The next due times of a schedule; none while it is paused.
    pub fn upcoming(&self, schedule: &Schedule, count: usize) -> Result<Vec<Millis>, Error> {
        let zone = Named::of(&schedule.plan.timing)?;
        let later = |at: &Millis| schedule.plan.timing.after(&zone, *at);
        Ok(std::iter::successors(schedule.next_at, later).take(count).collect())
    }
}

impl Caller {
    /// Reads a schedule.
    pub async fn schedule(&self, tenant: &str, name: &str) -> Result<Schedule, Error> {
        self.find_schedule(tenant, name).await?.ok_or_else(|| {
            let detail =
                format!("There is no schedule `{name}` in tenant {tenant}. Check the name, or set it first.");
            Refusal::new(Code::NotFound, detail).into()
        })
    }

    async fn find_schedule(&self, tenant: &str, name: &str) -> Result<Option<Schedule>, Error> {
        if !self.may_have(tenant, name) {
            return Ok(None);
        }
        self.ledger.store().schedule(tenant, name).await
    }

    /// False if the caller cannot access the tenant, or the name is invalid.
    fn may_have(&self, tenant: &str, name: &str) -> bool {
        let named = limits::name("tenant", tenant).is_ok() && limits::name("name", name).is_ok();
        named && self.tenants.allow(tenant)
    }

    /// Sorted by tenant and name. Pass the key `next` of a page to read the next one.
    pub async fn schedules(
        &self,
        tenants: Option<&Tenants>,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Listed<Schedule, Key>, Error> {
        check_tenants(tenants)?;
        let tenants = self.tenants.narrowed(tenants);
        let after = after.unwrap_or_default();
        limits::text("cursor", after.0).and_then(|()| limits::text("cursor", after.1))?;
        self.ledger.store().schedules(&tenants, after, limit.min(PAGE_MAX)).await
    }

    /// The changes of a schedule, newest first; also of a deleted one.
    pub async fn schedule_changes(
        &self,
        tenant: &str,
        name: &str,
        limit: usize,
    ) -> Result<Vec<ScheduleChange>, Error> {
        if !self.may_have(tenant, name) {
            return Ok(Vec::new());
        }
        self.ledger.store().schedule_changes(tenant, name, limit.min(PAGE_MAX)).await
    }

    /// Creates a schedule, or replaces its plan. Idempotent. True: it is new.
    pub async fn set_schedule(&self, new: NewSchedule, reason: &str) -> Result<(Schedule, bool), Error> {
        limits::reason(reason)?;
        let (new, zone) = new.settle(&self.ledger.settings())?;
        if !self.tenants.allow(&new.tenant) {
            let detail =
                format!("Tenant {} is not one of yours. Use a tenant of your credential.", new.tenant);
            return Err(Refusal::new(Code::NotFound, detail).into());
        }
        for _ in 0..TRIES {
            let now = self.ledger.now().await?;
            let there = self.idle(&new.tenant, &new.name).await?;
            let mut wanted = match &there {
                None => Schedule::new(&new.tenant, &new.name, new.plan.clone(), &zone, now),
                Some(there) if there.plan != new.plan => there.with_plan(new.plan.clone(), &zone, now),
                Some(there) => there.clone(),
            };
            if let Some(paused) = new.paused.filter(|paused| *paused != wanted.paused) {
                let revision = there.as_ref().map_or(1, |there| there.revision + 1);
                wanted = Schedule { revision, ..wanted.with_paused(paused, &zone, now) };
            }
            if there.as_ref() == Some(&wanted) {
                return Ok((wanted, false));
            }
            self.urgency(new.plan.template.priority)?;
            if self.changed(&wanted, Act::Set, reason, Some(&new.plan), now).await? {
                return Ok((wanted, there.is_none()));
            }
            if there.is_none() && self.find_schedule(&new.tenant, &new.name).await?.is_none() {
                let detail = format!("There are {SCHEDULES_MAX} schedules already. Delete the unused ones.");
                return Err(Refusal::new(Code::LimitReached, detail).into());
            }
        }
        Err(contended(&new.name))
    }

    /// Pauses a schedule. Runs that are due while it is paused are not caught up later.
    pub async fn pause_schedule(&self, tenant: &str, name: &str, reason: &str) -> Result<Schedule, Error> {
        self.set_paused(tenant, name, reason, true).await
    }

    /// Resumes a paused schedule.
    pub async fn resume_schedule(&self, tenant: &str, name: &str, reason: &str) -> Result<Schedule, Error> {
        self.set_paused(tenant, name, reason, false).await
    }

    async fn set_paused(
        &self,
        tenant: &str,
        name: &str,
        reason: &str,
        paused: bool,
    ) -> Result<Schedule, Error> {
        limits::reason(reason)?;
        let act = if paused { Act::Pause } else { Act::Resume };
        for _ in 0..TRIES {
            let there = self.schedule(tenant, name).await?;
            if there.paused == paused {
                return Ok(there);
            }
            let now = self.ledger.now().await?;
            let wanted = there.with_paused(paused, &Named::of(&there.plan.timing)?, now);
            if self.changed(&wanted, act, reason, None, now).await? {
                return Ok(wanted);
            }
        }
        Err(contended(name))
    }

    /// Runs a schedule now, in addition to its due times, paused or not. The same `request_id` returns the
    /// same run.
    pub async fn run_schedule(
        &self,
        tenant: &str,
        name: &str,
        request_id: &str,
        reason: &str,
    ) -> Result<Schedule, Error> {
        limits::reason(reason)?;
        limits::name("request_id", request_id)?;
        let run_id = format!("request:{request_id}");
        for _ in 0..TRIES {
            let Some(there) = self.idle(tenant, name).await? else {
                return self.schedule(tenant, name).await;
            };
            if there.last_run.as_ref().is_some_and(|last| last.run_id == run_id) {
                return Ok(there);
            }
            self.refuse_while_paused(tenant)?;
            self.ledger.refuse_without_room(tenant).await?;
            self.refuse_overlap(&there).await?;
            let now = self.ledger.now().await?;
            let wanted = there.with_run(run_id.clone(), now);
            if !self.changed(&wanted, Act::Run, reason, None, now).await? {
                continue;
            }
            if self.dry_run {
                return Ok(wanted);
            }
            let mut fired = Fired::default();
            fire(&self.ledger, &self.actor, vec![wanted], &mut fired).await?;
            self.ledger.store().counters().scheduled(&fired);
            return self.schedule(tenant, name).await;
        }
        Err(contended(name))
    }

    async fn refuse_overlap(&self, schedule: &Schedule) -> Result<(), Error> {
        let Some(last) = schedule.last_work().filter(|_| schedule.plan.overlap == Overlap::Skip) else {
            return Ok(());
        };
        if open_works(&self.ledger, &[last]).await?.is_empty() {
            return Ok(());
        }
        let detail = format!(
            "The work item of its last run, {last}, is still open, and runs of `{}` do not overlap. \
             Wait for it, cancel it, or set `overlap` to allow.",
            schedule.name
        );
        Err(Refusal::new(Code::Busy, detail).into())
    }

    /// Deletes a schedule; its work items and the record of its changes are kept.
    pub async fn delete_schedule(&self, tenant: &str, name: &str, reason: &str) -> Result<Schedule, Error> {
        limits::reason(reason)?;
        for _ in 0..TRIES {
            let Some(there) = self.idle(tenant, name).await? else {
                return self.schedule(tenant, name).await;
            };
            let now = self.ledger.now().await?;
            let gone = Schedule { revision: there.revision + 1, ..there.clone() };
            if self.changed(&gone, Act::Delete, reason, None, now).await? {
                return Ok(there);
            }
        }
        Err(contended(name))
    }

    /// A schedule without pending runs: runs that were decided under the current plan are completed first.
    async fn idle(&self, tenant: &str, name: &str) -> Result<Option<Schedule>, Error> {
        for _ in 0..TRIES {
            match self.find_schedule(tenant, name).await? {
                Some(busy) if !busy.pending.is_empty() && !self.dry_run => {
                    let scheduler = tenure_core::Actor::system(tenure_core::schedule::SYSTEM);
                    let mut fired = Fired::default();
                    fire(&self.ledger, &scheduler, vec![busy], &mut fired).await?;
                    self.ledger.store().counters().scheduled(&fired);
                }
                found => return Ok(found),
            }
        }
        Err(contended(name))
    }

    /// Whether a change could be written: a new schedule must not exceed the limit.
    async fn has_room(&self, schedule: &Schedule) -> Result<bool, Error> {
        let new = schedule.revision == 1;
        let all = || self.ledger.store().schedules(&Tenants::All, ("", ""), SCHEDULES_MAX);
        Ok(!new || all().await?.count() < SCHEDULES_MAX)
    }

    /// False if another change came first, or the limit is reached. A dry run writes nothing.
    async fn changed(
        &self,
        schedule: &Schedule,
        act: Act,
        reason: &str,
        plan: Option<&Plan>,
        at: Millis,
    ) -> Result<bool, Error> {
        if self.dry_run {
            return self.has_room(schedule).await;
        }
        let (actor, reason, plan) = (self.actor.clone(), reason.to_owned(), plan.cloned());
        self.ledger.store().change_schedule(schedule, &ScheduleChange { at, actor, act, reason, plan }).await
    }
}

fn contended(name: &str) -> Error {
    let detail = format!("Schedule `{name}` is being changed by others. Retry the request.");
    Refusal::new(Code::Busy, detail).into()
}
