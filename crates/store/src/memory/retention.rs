//! Pruning in memory.

use std::{collections::HashSet, sync::Arc};

use tenure_core::{Identity, Millis, Work, WorkId, model::WaitState, records::reference_to};

use super::Inner;
use crate::{
    Pruned,
    retention::{Before, Tombstone},
};

impl Inner {
    pub fn prunable(&self, before: Before, limit: usize) -> Vec<WorkId> {
        let works = || self.records.works.values().map(Arc::as_ref);
        let kept: HashSet<Identity> =
            works().filter(|work| self.is_needed(work, before)).map(|work| work.spec.identity()).collect();
        let mut ids: Vec<WorkId> =
            works().filter(|work| !kept.contains(&work.spec.identity())).map(|work| work.id).collect();
        ids.sort_unstable();
        let chosen: HashSet<Identity> =
            ids.iter().take(limit).map(|id| self.records.works[id].spec.identity()).collect();
        ids.retain(|id| chosen.contains(&self.records.works[id].spec.identity()));
        ids
    }

    fn is_needed(&self, work: &Work, before: Before) -> bool {
        let reference = reference_to(work.id);
        let commands = self.records.commands_of(work.id);
        let open = |other: &Work| !other.state.is_terminal();
        !work.state.is_terminal()
            || work.updated_at >= before.any
            || (work.updated_at >= before.with_commands && !commands.is_empty())
            || commands.iter().any(|command| command.state.is_open())
            || self.records.works.values().any(|child| child.spec.parent == Some(work.id) && open(child))
            || self.records.waits.values().flatten().any(|wait| {
                wait.tenant == work.spec.tenant
                    && wait.reference == reference
                    && wait.state == WaitState::Open
            })
    }

    pub fn prune(&mut self, ids: &[WorkId], before: Before, at: Millis) -> Pruned {
        let still: HashSet<WorkId> = self.prunable(before, usize::MAX).into_iter().collect();
        let mut pruned = Pruned::default();
        for id in ids.iter().filter(|id| still.contains(id)) {
            let Some(work) = self.records.works.remove(id) else { continue };
            for index in self.by_work.remove(id).unwrap_or_default() {
                self.log.remove(&index);
                pruned.events += 1;
            }
            self.attempts.retain(|(work, _), _| work != id);
            self.records.steps.remove(id);
            for command in self.records.commands.remove(id).unwrap_or_default() {
                self.records.command_ids.remove(&command.id);
            }
            for wait in self.records.waits.remove(id).unwrap_or_default() {
                self.records.wait_ids.remove(&wait.id);
                if let Some(works) = self.records.references.get_mut(&(wait.tenant, wait.reference)) {
                    works.retain(|work| work != id);
                }
            }
            self.records.requests.values_mut().for_each(|given| given.retain(|(work, _)| work != id));
            let identity = work.spec.identity();
            self.records.identities.remove(&identity);
            self.records.pruned.insert(identity.clone());
            let generation = work.spec.generation;
            self.tombstones.insert(*id, Tombstone { work: *id, identity, generation, pruned_at: at });
            pruned.works += 1;
        }
        pruned
    }
}
