//! Recovery plans: what recovery would do now, and having exactly that carried out. A plan is not stored: it is
//! computed again when it is applied, and its id is the hash of its rows.

use tenure_core::{
    Ack, Action, Command, Millis, Refusal, State, Work, WorkId,
    action::{Recover, Tenants},
    limits,
    liveness::Sighting,
    recovery::{self, Instead},
    refusal::Code,
    work::plan::{self, PlanRow},
};

use super::{Caller, reads::PAGE_MAX};
use crate::{Error, Unreadable, WorkFilter, sweeper::sighting};

/// The limit on the rows of a plan, and so on what one call applies.
pub const PLAN_MAX: usize = 500;
/// The limit on held work items that are read for a plan.
const HELD_MAX: usize = 20_000;

/// Selects the work items of a plan. A field that is None does not restrict.
#[derive(Clone, Debug, Default)]
pub struct PlanFilter {
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only those of this kind.
    pub kind: Option<String>,
    /// Only those that this worker holds or held last.
    pub worker: Option<String>,
}

/// The decisions that recovery would take now.
#[derive(Clone, Debug)]
pub struct RecoveryPlan {
    /// The hash of its rows.
    pub id: String,
    /// The store's time at which it was computed.
    pub at: Millis,
    /// Newest work item first; those that were set aside for a person come last.
    pub rows: Vec<PlannedRecovery>,
    /// False if there are more work items than a plan can have.
    pub complete: bool,
    /// Work items that cannot be read.
    pub unreadable: Vec<Unreadable>,
}

/// A row of a plan with the records around it.
#[derive(Clone, Debug)]
pub struct PlannedRecovery {
    /// The work item.
    pub work: Work,
    /// The decision of recovery on it.
    pub row: PlanRow,
    /// Its open commands.
    pub commands: Vec<Command>,
    sighting: Option<Sighting>,
}

/// Another decision than the plan's, of a person.
#[derive(Clone, Debug)]
pub struct PlanOverride {
    /// The work item, which is a row of the plan.
    pub work: WorkId,
    /// None: it is left as it is.
    pub instead: Option<Instead>,
    /// The reason.
    pub reason: String,
}

/// A plan to be carried out.
#[derive(Clone, Debug)]
pub struct ApplyPlan {
    /// The filter that the plan was computed with.
    pub filter: PlanFilter,
    /// The plan's id.
    pub plan: String,
    /// Only these of its rows; none: all of them.
    pub rows: Vec<WorkId>,
    /// Rows with another decision.
    pub overrides: Vec<PlanOverride>,
    /// The reason.
    pub reason: String,
}

/// The result of applying a plan.
#[derive(Debug)]
pub enum AppliedPlan {
    /// Nothing was done: this is the plan now.
    Stale(RecoveryPlan),
    /// Each selected row with its outcome, in the order of the plan.
    Done(Vec<(PlannedRecovery, RowOutcome)>),
}

/// The result of one row.
#[derive(Debug)]
pub enum RowOutcome {
    /// It was carried out.
    Applied(Ack),
    /// Nothing was to be done now, and why.
    Left(String),
    /// It was refused, and nothing was changed.
    Refused(Error),
}

impl Caller {
    /// Computes what recovery would do now with the work items that lost their holder. Changes nothing.
    pub async fn recovery_plan(&self, filter: &PlanFilter) -> Result<RecoveryPlan, Error> {
        let mut plan = RecoveryPlan {
            id: String::new(),
            at: self.ledger.now().await?,
            rows: Vec::new(),
            complete: true,
            unreadable: Vec::new(),
        };
        for states in [vec![State::Stalled, State::Running, State::CancelRequested], vec![State::Quarantined]]
        {
            self.add_rows(filter, states, &mut plan).await?;
        }
        plan.id = self.ledger.store().key().plan(plan.rows.iter().map(|planned| &planned.row));
        Ok(plan)
    }

    async fn add_rows(
        &self,
        filter: &PlanFilter,
        states: Vec<State>,
        plan: &mut RecoveryPlan,
    ) -> Result<(), Error> {
        let filter = WorkFilter {
            states,
            tenants: filter.tenant.clone().map(|tenant| Tenants::Only(vec![tenant])),
            owner: filter.worker.clone(),
            kind: filter.kind.clone(),
            ..WorkFilter::default()
        };
        let (mut before, mut read) = (None, 0);
        loop {
            let page = self.list(&filter, before, PAGE_MAX).await?;
            before = page.next().copied();
            read += page.rows.len();
            plan.unreadable.extend(page.unreadable);
            for work in page.rows {
                let Some(planned) = self.planned(work, plan.at).await? else { continue };
                if plan.rows.len() == PLAN_MAX {
                    plan.complete = false;
                    return Ok(());
                }
                plan.rows.push(planned);
            }
            if before.is_none() {
                return Ok(());
            }
            if read >= HELD_MAX {
                plan.complete = false;
                return Ok(());
            }
        }
    }

    async fn planned(&self, work: Work, now: Millis) -> Result<Option<PlannedRecovery>, Error> {
        let sighting = sighting(&work);
        if !plan::concerns(&work, sighting.as_ref(), now) {
            return Ok(None);
        }
        let around = self.ledger.around(&work).await?;
        let row = plan::row(&work, &around.beside(), sighting.as_ref(), now);
        Ok(row.map(|row| PlannedRecovery { work, row, commands: around.commands, sighting }))
    }

    /// Carries out a plan: exactly what it says, or nothing. Each row is decided on its own, over its records as they
    /// are then.
    pub async fn apply_plan(&self, apply: &ApplyPlan) -> Result<AppliedPlan, Error> {
        limits::reason(&apply.reason)?;
        if !apply.overrides.is_empty() {
            recovery::may_override(&self.actor)?;
        }
        let plan = self.recovery_plan(&apply.filter).await?;
        if plan.id != apply.plan {
            return Ok(AppliedPlan::Stale(plan));
        }
        apply.check(&plan)?;
        let mut done = Vec::new();
        let mut outage = false;
        for planned in plan.rows {
            let chosen = apply.rows.is_empty() || apply.rows.contains(&planned.row.work);
            let other = apply.overrides.iter().find(|other| other.work == planned.row.work);
            if !chosen && other.is_none() {
                continue;
            }
            let outcome = if outage {
                RowOutcome::Left("It was not tried: the ledger could not be reached.".to_owned())
            } else {
                self.apply_row(apply, &planned, other).await
            };
            outage |= matches!(&outcome, RowOutcome::Refused(error) if !matches!(error, Error::Refused(_)));
            done.push((planned, outcome));
        }
        Ok(AppliedPlan::Done(done))
    }

    async fn apply_row(
        &self,
        apply: &ApplyPlan,
        planned: &PlannedRecovery,
        other: Option<&PlanOverride>,
    ) -> RowOutcome {
        let row = &planned.row;
        let (instead, reason) = match (other, &row.waits_for) {
            (Some(PlanOverride { instead: None, reason, .. }), _) => {
                return RowOutcome::Left(format!("It was left out: {reason}"));
            }
            (Some(PlanOverride { instead, reason, .. }), _) => (*instead, reason),
            (None, Some(waits_for)) => return RowOutcome::Left(waits_for.clone()),
            (None, None) => (None, &apply.reason),
        };
        let action = Action::Recover(Box::new(Recover {
            work: row.work,
            plan: apply.plan.clone(),
            seq: row.seq,
            verdict: row.verdict,
            to: row.to,
            instead,
            sighting: planned.sighting.clone(),
            reason: reason.clone(),
        }));
        match self.ack(action).await {
            Ok(ack) => RowOutcome::Applied(ack),
            Err(error) => RowOutcome::Refused(error),
        }
    }
}

impl ApplyPlan {
    /// Refuses rows that are not the plan's, and two decisions on one row.
    fn check(&self, plan: &RecoveryPlan) -> Result<(), Refusal> {
        let overridden: Vec<WorkId> = self.overrides.iter().map(|other| other.work).collect();
        for other in &self.overrides {
            limits::reason(&other.reason)?;
        }
        for list in [&self.rows, &overridden] {
            for (at, id) in list.iter().enumerate() {
                let detail = if !plan.rows.iter().any(|planned| planned.row.work == *id) {
                    format!("{id} is not a row of this plan. Nothing was done.")
                } else if list[..at].contains(id) {
                    format!("{id} is given twice. Nothing was done.")
                } else {
                    continue;
                };
                return Err(Refusal::new(Code::Invalid, detail));
            }
        }
        Ok(())
    }
}
