//! Pruning in memory.

use std::{collections::HashSet, sync::Arc};

use tenure_core::{Identity, Millis, Work, WorkId, model::WaitState, records::reference_to};

use super::{Inner, Memory};
use crate::{
    Pruned, Pruning,
    retention::{Before, Tombstone},
    store::{RetentionStore, StoreFuture},
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
}

impl RetentionStore for Memory {
    fn prunable(&self, before: Before, limit: usize) -> StoreFuture<'_, Vec<WorkId>> {
        self.ready(|inner| inner.prunable(before, limit))
    }

    fn add_pruning<'a>(&'a self, pruning: &'a Pruning) -> StoreFuture<'a, ()> {
        self.change(|inner| inner.prunings.push(pruning.clone()))
    }

    fn prunings(&self, limit: usize) -> StoreFuture<'_, Vec<Pruning>> {
        self.ready(|inner| inner.prunings.iter().rev().take(limit).cloned().collect())
    }

    fn prune<'a>(&'a self, works: &'a [WorkId], before: Before, at: Millis) -> StoreFuture<'a, Pruned> {
        self.change(|inner| {
            let still: HashSet<WorkId> = inner.prunable(before, usize::MAX).into_iter().collect();
            let mut pruned = Pruned::default();
            for id in works.iter().filter(|id| still.contains(id)) {
                let Some(work) = inner.records.works.remove(id) else { continue };
                for index in inner.by_work.remove(id).unwrap_or_default() {
                    inner.log.remove(&index);
                    pruned.events += 1;
                }
                inner.attempts.retain(|(work, _), _| work != id);
                inner.records.steps.remove(id);
                for command in inner.records.commands.remove(id).unwrap_or_default() {
                    inner.records.command_ids.remove(&command.id);
                }
                for wait in inner.records.waits.remove(id).unwrap_or_default() {
                    inner.records.wait_ids.remove(&wait.id);
                    if let Some(works) = inner.records.references.get_mut(&(wait.tenant, wait.reference)) {
                        works.retain(|work| work != id);
                    }
                }
                inner.records.requests.values_mut().for_each(|given| given.retain(|(work, _)| work != id));
                let identity = work.spec.identity();
                inner.records.identities.remove(&identity);
                inner.records.pruned.insert(identity.clone());
                let generation = work.spec.generation;
                inner.tombstones.insert(*id, Tombstone { work: *id, identity, generation, pruned_at: at });
                pruned.works += 1;
            }
            pruned
        })
    }

    fn tombstone(&self, work: WorkId) -> StoreFuture<'_, Option<Tombstone>> {
        self.ready(|inner| inner.tombstones.get(&work).cloned())
    }

    fn overwrite_erased(&self) -> StoreFuture<'_, bool> {
        self.ready(|_| true)
    }

    fn any_pruned(&self) -> StoreFuture<'_, bool> {
        self.ready(|inner| !inner.tombstones.is_empty())
    }
}
