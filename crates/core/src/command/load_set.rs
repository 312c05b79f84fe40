//! The load set of a decision about commands.

use super::{Command, CommandAction, Intent, ReserveIn, replay, settle};
use crate::{
    LoadSet, Submission,
    ids::{CommandId, WorkId},
    model::{Wait, WaitState},
    records::{Records, Sought, target_key},
};

impl LoadSet {
    pub(crate) fn first_of_command(&mut self, action: &CommandAction, submission: &Submission) {
        if let CommandAction::Reserve { place: ReserveIn::OwnWork(work), .. } = action {
            self.ingested(work, submission);
        }
        let id = action.command();
        self.commands.extend(id.map(Sought::Id));
        // An action that names the work item as well needs one round only.
        match action.work() {
            Some(work) => {
                self.works.push(work);
                self.commands.push(Sought::Open(work));
                if let CommandAction::Reserve { intent, .. } = action {
                    self.commands.push(Sought::Key(work, intent.key()));
                }
            }
            None => self.command_ids.extend(id),
        }
    }

    pub(crate) fn then_of_command(
        &mut self,
        action: &CommandAction,
        submission: &Submission,
        records: &Records,
    ) {
        match action {
            CommandAction::Reserve { place: ReserveIn::Work(holder), intent, .. } => {
                self.held(holder, records);
                self.intent(holder.work, intent, records);
            }
            CommandAction::Reserve { place: ReserveIn::OwnWork(work), intent, .. } => {
                self.ingested_then(work, submission, records);
                // Only an identical request gets the work item again: that one is loaded.
                let given =
                    work.claim.as_ref().and_then(|claimant| records.requests.get(&claimant.key(submission)));
                for (id, _) in given.into_iter().flatten() {
                    self.intent(*id, intent, records);
                }
            }
            other => {
                let Some(id) = other.command() else { return };
                let Some(work) = records.command_ids.get(&id) else { return };
                self.open_waits_of(*work, records);
                self.open_commands_of(*work, records);
                self.session_if_in_doubt(*work, records);
                if let Some(holder) = other.holder() {
                    self.held(holder, records);
                }
                if let Some(command) = records.command(id) {
                    self.counted(other, command, records);
                }
            }
        }
    }

    /// The key of an intent in its work item, and in the runs before it.
    pub(crate) fn intent(&mut self, work: WorkId, intent: &Intent, records: &Records) {
        let key = intent.key();
        self.sought(Sought::Key(work, key), records);
        let rerun = records.works.get(&work).is_some_and(|work| work.spec.rerun_of.is_some());
        if rerun && !records.earlier.contains_key(&(work, key)) {
            self.earlier.push((work, key));
        }
    }

    pub(crate) fn sought(&mut self, sought: Sought, records: &Records) {
        if sought.may_be_there(records) && !records.looked_for.contains(&sought) {
            self.commands.push(sought);
        }
    }

    pub(crate) fn open_commands_of(&mut self, work: WorkId, records: &Records) {
        self.sought(Sought::Open(work), records);
    }

    /// For decisions that may cancel the work item.
    pub(crate) fn outgoing_of(&mut self, work: WorkId, records: &Records) {
        self.sought(Sought::Outgoing(work), records);
    }

    /// For verbs of the holder: after a cancel request they may end the work item.
    pub(crate) fn outgoing_if_cancelling(&mut self, work: WorkId, records: &Records) {
        if records.works.get(&work).is_some_and(|work| work.body.cancel.is_some()) {
            self.outgoing_of(work, records);
        }
    }

    /// The commands that were handed over to a work item's open waits, and to ended ones that are `named`,
    /// with their reserved amounts.
    pub(crate) fn handed_of(&mut self, work: WorkId, records: &Records, named: impl Fn(&Wait) -> bool) {
        self.open_commands_of(work, records);
        for wait in records.waits.get(&work).map_or(&[][..], Vec::as_slice) {
            let Some(id) = wait.detail.command else { continue };
            if wait.state == WaitState::Open {
                self.set_aside_for(id, records);
            } else if named(wait) {
                self.sought(Sought::Id(id), records);
                self.set_aside_for(id, records);
            }
        }
    }

    pub(crate) fn set_aside_for(&mut self, id: CommandId, records: &Records) {
        if let Some(command) = records.command(id) {
            self.reserved(command, records);
        }
    }

    fn counted(&mut self, action: &CommandAction, command: &Command, records: &Records) {
        self.reserved(command, records);
        match action {
            CommandAction::Dispatch(dispatch) => {
                let spec = &command.spec;
                for limit in &dispatch.evaluation.limits {
                    self.budget(limit.key(&spec.tenant, command.work, &spec.tool), records);
                }
                let target = target_key(command);
                if command.body.tool.ordered && !records.heads.contains_key(&target) {
                    self.heads.push(target);
                }
            }
            CommandAction::Replay { minute, .. } => {
                self.budget(replay::counter(&command.spec.tenant, *minute), records);
            }
            _ => {}
        }
    }

    fn reserved(&mut self, command: &Command, records: &Records) {
        for reservation in settle::charged(command) {
            self.budget(reservation.key.clone(), records);
        }
    }

    fn budget(&mut self, key: super::budget::BudgetKey, records: &Records) {
        if !records.budgets.contains_key(&key) {
            self.budgets.push(key);
        }
    }
}
