//! The scheduler: finds due schedules, has the core decide on their runs, and ingests the runs that fire like
//! any other caller. It contains no rules.
//!
//! Any number of schedulers may run on one ledger. A pass saves its decisions before it ingests anything, and
//! only the first to save wins. If a process dies in between, the next pass of any scheduler carries out what
//! it had decided. Ingesting a run twice has no effect, because a run has an identity.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tenure_core::{
    Action, Actor, ActorKind, Millis, Refusal, Reply, Submission, WorkId,
    action::{Ingest, Tenants},
    schedule::{Act, SYSTEM, Schedule},
};

use crate::{
    Error, Ledger,
    ledger::{WeakLedger, seed},
    schedule::{Key, key, new_run},
    zone::Named,
};

/// Schedules in a page; the runs that a page fires are submitted together.
const PAGE: usize = 100;
/// Pages in a pass; the rest waits for the next pass.
const PAGES: usize = 10;
/// How many recent changes are read to find out who set a schedule.
const CHANGES: usize = 1_000;
/// The time between two passes, unless something is due earlier.
const REST_MS: Millis = 1_000;

/// The result of one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// Runs that this pass decided to skip.
    pub skipped: usize,
    /// Runs that were ingested.
    pub fired: usize,
    /// Runs that the ledger refused; each is shown on its schedule.
    pub refused: usize,
    /// How long after the pass the next schedule is due, if within a second.
    pub next_in_ms: Option<Millis>,
}

/// The scheduler of one process.
#[derive(Debug, Default)]
pub struct Scheduler;

impl Scheduler {
    /// Runs until the ledger is closed or dropped.
    pub(crate) async fn run(self, ledger: WeakLedger) {
        loop {
            let Some(open) = ledger.upgrade() else { return };
            let closed = open.closed();
            let wait = match self.run_once(&open).await {
                Ok(fired) => fired.next_in_ms.unwrap_or(REST_MS),
                Err(error) => {
                    tracing::warn!(%error, "the schedules could not be read; retrying");
                    REST_MS
                }
            };
            drop(open);
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(wait as u64)) => {}
                () = closed => return,
            }
        }
    }

    /// One pass: every due run is fired or skipped.
    pub async fn run_once(&self, ledger: &Ledger) -> Result<Fired, Error> {
        let mut fired = Fired::default();
        // Runs that are due while the intake is paused stay due, as if no process were running. How many of
        // them are caught up afterwards is decided by each schedule's settings.
        let paused = ledger.look_at_intake().await?;
        if paused.iter().any(|pause| pause.tenant.is_none()) {
            return Ok(fired);
        }
        let except: Vec<String> = paused.iter().filter_map(|pause| pause.tenant.clone()).collect();
        let now = ledger.now().await?;
        for _ in 0..PAGES {
            let mut due = ledger.store().schedules_due(now + REST_MS, &except, PAGE).await?;
            let full = due.len() == PAGE;
            due.retain(|schedule| {
                let later = schedule.due_at().map(|at| at - now).filter(|ms| *ms > 0);
                fired.next_in_ms = fired.next_in_ms.into_iter().chain(later).min();
                later.is_none()
            });
            if due.is_empty() {
                break;
            }
            self.look(ledger, due, now, &mut fired).await?;
            if !full {
                break;
            }
        }
        ledger.store().counters().scheduled(&fired);
        Ok(fired)
    }

    async fn look(
        &self,
        ledger: &Ledger,
        due: Vec<Schedule>,
        now: Millis,
        fired: &mut Fired,
    ) -> Result<(), Error> {
        // Decided by a process that died before it ingested the runs, or is ingesting them right now.
        let (mut pending, due): (Vec<_>, Vec<_>) = due.into_iter().partition(|one| !one.pending.is_empty());
        let before: HashMap<_, u64> = due.iter().map(|one| (key(one), one.skipped)).collect();
        for decided in decide(ledger, due, now).await? {
            fired.skipped += (decided.skipped - before[&key(&decided)]) as usize;
            if !decided.pending.is_empty() {
                pending.push(decided);
            }
        }
        fire(ledger, &Actor::system(SYSTEM), pending, fired).await
    }
}

/// Decides on the due runs and saves the decisions. Schedules that another process decided on in the meantime
/// are left out.
async fn decide(ledger: &Ledger, due: Vec<Schedule>, now: Millis) -> Result<Vec<Schedule>, Error> {
    let last: Vec<WorkId> = due.iter().filter_map(Schedule::last_work).collect();
    let open = open_works(ledger, &last).await?;
    let mut decided = Vec::with_capacity(due.len());
    for schedule in due {
        let is_open = schedule.last_work().is_some_and(|work| open.contains(&work));
        match Named::of(&schedule.plan.timing) {
            Ok(zone) => decided.push(schedule.looked_at(&zone, is_open, now)),
            // Set by a version with another time zone table.
            Err(error) => tracing::warn!(schedule = schedule.name, %error, "a schedule is skipped"),
        }
    }
    saved(ledger, decided).await
}

/// The work items that have not ended.
pub(crate) async fn open_works(ledger: &Ledger, works: &[WorkId]) -> Result<Vec<WorkId>, Error> {
    if works.is_empty() {
        return Ok(Vec::new());
    }
    let found = ledger.readable_works(works).await?;
    let open = found.iter().filter(|work| !work.state.is_terminal()).map(|work| work.id);
    // An unreadable work item counts as open.
    Ok(open.chain(found.unreadable.iter().filter_map(|one| one.work)).collect())
}

/// Ingests the pending runs and saves the outcomes.
pub(crate) async fn fire(
    ledger: &Ledger,
    actor: &Actor,
    schedules: Vec<Schedule>,
    fired: &mut Fired,
) -> Result<(), Error> {
    let mut sent = Vec::with_capacity(schedules.len());
    for schedule in schedules {
        let asked_by = asked_by(ledger, &schedule).await?;
        let mut runs = Vec::with_capacity(schedule.pending.len());
        for run in &schedule.pending {
            runs.push(begin(ledger, actor, &schedule, &run.run_id, &asked_by).await);
        }
        sent.push((schedule, runs));
    }
    let now = ledger.now().await?;
    let mut done = Vec::with_capacity(sent.len());
    let mut counts: HashMap<Key, (usize, usize)> = HashMap::new();
    for (schedule, runs) in sent {
        let mut outcomes = Vec::with_capacity(runs.len());
        for run in runs {
            outcomes.push(outcome(run).await);
        }
        match outcomes.into_iter().collect::<Result<Vec<_>, Error>>() {
            Ok(outcomes) => {
                let taken = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
                counts.insert(key(&schedule), (taken, outcomes.len() - taken));
                done.push(schedule.ran(outcomes, now));
            }
            Err(error @ (Error::Unavailable(_) | Error::OutcomeUnknown(_) | Error::Stopped(_))) => {
                return Err(error);
            }
            // The others are not affected, and it is retried by the next pass.
            Err(error) => tracing::warn!(schedule = schedule.name, %error, "a run stays pending"),
        }
    }
    // Another process may have done and counted the same.
    let saved = saved(ledger, done).await?;
    for (taken, refused) in saved.iter().map(|schedule| counts[&key(schedule)]) {
        fired.fired += taken;
        fired.refused += refused;
    }
    Ok(())
}

/// Submits the work item of a run. Quotas apply, regardless of who set the schedule.
async fn begin(
    ledger: &Ledger,
    actor: &Actor,
    schedule: &Schedule,
    run_id: &str,
    asked_by: &[Arc<str>],
) -> Result<impl Future<Output = Result<crate::LedgerReply, Error>> + use<>, Error> {
    let new = new_run(&schedule.tenant, &schedule.name, &schedule.plan.template, run_id);
    let ingest = Ingest { asked_by: asked_by.to_vec(), ..new.settle(&ledger.settings())? };
    let action = Action::Ingest(Box::new(ingest));
    let own = Tenants::Only(vec![schedule.tenant.clone()]);
    // Outside of the tenant's queue: the scheduler must not wait for what a tenant has queued.
    ledger.begin(Submission::new(actor.clone(), own, action, seed()?), None).await
}

/// The people behind a run: those who set the current plan, and the person who started the run by hand. They
/// count as submitters of the work item.
async fn asked_by(ledger: &Ledger, schedule: &Schedule) -> Result<Vec<Arc<str>>, Error> {
    let changes = ledger.store().schedule_changes(&schedule.tenant, &schedule.name, CHANGES).await?;
    let ran = changes.iter().find(|change| change.act == Act::Run);
    let sets = changes.iter().filter(|change| change.act == Act::Set);
    // Setting an identical plan again does not change its authors.
    let set = sets.take_while(|change| change.plan.as_ref() == Some(&schedule.plan));
    let people = set.chain(ran).map(|change| &change.actor).filter(|actor| actor.kind == ActorKind::Person);
    Ok(people.map(|actor| actor.id.clone()).collect())
}

/// A refusal is an outcome; any other error leaves the run pending.
async fn outcome(
    run: Result<impl Future<Output = Result<crate::LedgerReply, Error>>, Error>,
) -> Result<Result<WorkId, Refusal>, Error> {
    let answer = match run {
        Ok(run) => run.await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(outcome) => match outcome.reply {
            Reply::Ingested { work, .. } => Ok(Ok(work.id)),
            other => Err(Error::Corrupt(format!("the reply of an ingest is {other:?}"))),
        },
        Err(Error::Refused(refusal)) => Ok(Err(refusal)),
        Err(error) => Err(error),
    }
}

/// Saves them, and returns those that nobody else had changed.
async fn saved(ledger: &Ledger, schedules: Vec<Schedule>) -> Result<Vec<Schedule>, Error> {
    if schedules.is_empty() {
        return Ok(schedules);
    }
    let kept: HashSet<Key> = ledger.store().save_schedules(&schedules).await?.into_iter().collect();
    Ok(schedules.into_iter().filter(|one| kept.contains(&key(one))).collect())
}
