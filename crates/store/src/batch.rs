//! A group of submissions while it is decided: later submissions see the changes of earlier ones, and the
//! store writes the net result once.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use tenure_core::{
    Attempt, ByWork, Change, Command, CommandId, Event, Millis, Records, Reply, Step, Submission, Wait,
    WaitId, Work, WorkId, claim_order,
    command::budget::{Budget, BudgetKey},
    decide, invariant,
    model::{AttemptEnd, Kept},
    records::{TenantKey, Touch},
    state::State,
};

use crate::{
    Error,
    job::{Payloads, payloads_of},
    ledger_settings::LedgerSettings,
};

/// What the index tables had about a work item before the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub state: State,
    pub due_at: Option<Millis>,
}

/// How much of a row changed, and its value before the batch. None: the work item is new.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub touch: Touch,
    pub before: Option<Before>,
}

/// A row to save, in its latest version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub work: &'a Work,
    pub touch: Touch,
    pub before: Option<Before>,
}

impl Row<'_> {
    /// Whether the work item was on the queue. In a session only the head is queued.
    pub fn was_ready(&self) -> bool {
        self.work.spec.session.is_none() && self.before.is_some_and(|before| before.state == State::Queued)
    }

    pub fn is_ready(&self) -> bool {
        self.work.spec.session.is_none() && self.work.state == State::Queued
    }

    /// Whether the row in the index table must be updated.
    pub fn status_changed(&self) -> bool {
        self.before.is_none_or(|before| before.state != self.work.state || before.due_at != self.work.due_at)
    }
}

/// The net result of a batch.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    pub marks: ByWork<Mark>,
    pub events: Vec<Event>,
    pub begun: Vec<Arc<Attempt>>,
    pub ended: Vec<(WorkId, u64, Arc<AttemptEnd>)>,
    pub steps: HashMap<(WorkId, u32), Step>,
    pub waits: HashMap<WaitId, Wait>,
    pub kept: HashMap<TenantKey, Option<Kept>>,
    /// (closed work item, whether to notify its children, whether to notify its waiters, when): applied after
    /// every row is saved.
    pub wakes: Vec<(WorkId, bool, bool, Millis)>,
    /// Work items whose content is erased, and the first event that is not.
    pub erased: Vec<(WorkId, u64)>,
    /// Sessions whose holder or head may have changed.
    pub sessions: BTreeSet<TenantKey>,
    /// How much of each command changed.
    pub commands: BTreeMap<CommandId, Touch>,
    pub budgets: BTreeSet<BudgetKey>,
}

impl Writes {
    #[cfg(feature = "sqlite")]
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.kept.is_empty() && self.commands.is_empty() && self.budgets.is_empty()
    }

    /// Records a change before the records are updated.
    fn note(&mut self, records: &Records, change: &Change) {
        match change {
            Change::Work { work, touch } => self.mark(records, work, *touch),
            Change::BeginAttempt(attempt) => self.begun.push(attempt.clone()),
            Change::EndAttempt { work, fence, end } => self.ended.push((*work, *fence, end.clone())),
            Change::Step(step) => {
                self.steps.insert((step.work, step.ordinal), step.clone());
            }
            Change::Wait(wait) => {
                self.waits.insert(wait.id, (**wait).clone());
            }
            Change::Command { command, touch } => {
                let mark = self.commands.entry(command.id).or_insert(*touch);
                *mark = (*mark).max(*touch);
            }
            Change::Budget { key, .. } => {
                self.budgets.insert(key.clone());
            }
            Change::Keep(kept) => {
                self.kept.insert((kept.tenant.clone(), kept.reference.clone()), Some(kept.clone()));
            }
            Change::Unkeep { tenant, reference } => {
                self.kept.insert((tenant.clone(), reference.clone()), None);
            }
            Change::Erase { work, before } => self.erased.push((*work, *before)),
            Change::Wake { work, children, waiters, at } => {
                self.wakes.push((*work, *children, *waiters, *at));
            }
        }
    }

    fn mark(&mut self, records: &Records, work: &Work, touch: Touch) {
        if touch >= Touch::Event {
            self.sessions.extend(work.spec.session_key());
        }
        let mark = self.marks.entry(work.id).or_insert_with(|| {
            let old = records.works.get(&work.id);
            Mark { touch, before: old.map(|old| Before { state: old.state, due_at: old.due_at }) }
        });
        mark.touch = mark.touch.max(touch);
    }
}

/// The records and writes of the current group.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub records: Records,
    pub writes: Writes,
    /// What dry runs would have written, as far as their replies show it.
    pub tried: Payloads,
}

impl Batch {
    /// A batch that is decided with these ledger settings.
    pub fn under(ledger_settings: &LedgerSettings) -> Self {
        let mut batch = Self::default();
        ledger_settings.apply(&mut batch.records);
        batch
    }

    /// Decides one submission. A refusal changes nothing and does not affect the others.
    pub fn decide(&mut self, submission: &Submission, now: Millis) -> Result<Reply, Error> {
        let decision = decide(&self.records, submission, now)?;
        for change in &decision.changes {
            if let Change::Work { work, .. } = change
                && let Some(fault) = invariant::fault(work)
            {
                return Err(Error::Corrupt(format!(
                    "a decision on {} violates an invariant: {fault}",
                    work.id
                )));
            }
        }
        if submission.dry_run {
            self.tried.extend(payloads_of(decision.events));
            return Ok(decision.reply);
        }
        // The marks need the records as they were before the batch.
        for change in decision.changes {
            self.writes.note(&self.records, &change);
            self.records.absorb(change);
        }
        self.writes.events.extend(decision.events);
        Ok(decision.reply)
    }

    /// The rows to save, sorted by id.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let mut rows: Vec<Row<'_>> = self
            .writes
            .marks
            .iter()
            .filter_map(|(id, mark)| {
                let work = self.records.works.get(id)?;
                Some(Row { work, touch: mark.touch, before: mark.before })
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.work.id);
        rows
    }

    /// The counters that changed, with their current values.
    pub fn budgets(&self) -> Vec<(&BudgetKey, &Budget)> {
        self.writes.budgets.iter().filter_map(|key| self.records.budgets.get_key_value(key)).collect()
    }

    /// The commands to save, in their latest versions.
    pub fn commands(&self) -> Vec<(&Command, Touch)> {
        let marks = self.writes.commands.iter();
        marks.filter_map(|(id, touch)| Some((self.records.command(*id)?, *touch))).collect()
    }

    /// Work items without a session that were queued by this batch, in claiming order.
    pub fn newly_ready(&self) -> Vec<WorkId> {
        let rows = self.rows();
        let mut works: Vec<&Work> =
            rows.iter().filter(|row| row.is_ready() && !row.was_ready()).map(|row| row.work).collect();
        works.sort_by_key(|work| claim_order(work));
        works.into_iter().map(|work| work.id).collect()
    }

    /// The specification of one work item for each queue of these work items.
    #[cfg(feature = "sqlite")]
    pub fn queues(&self, works: &[WorkId]) -> Vec<Arc<tenure_core::model::Spec>> {
        let specs = works.iter().filter_map(|id| self.records.works.get(id)).map(|work| &work.spec);
        let queues: BTreeMap<_, _> =
            specs.map(|spec| ((&spec.tenant, &spec.kind, &spec.source.system), spec)).collect();
        queues.into_values().cloned().collect()
    }
}
