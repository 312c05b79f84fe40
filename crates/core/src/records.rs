//! The records that a decision reads and changes. A store loads a part of them; the memory store is all of
//! them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    Millis,
    command::{
        self, Command,
        budget::{Budget, BudgetKey, Shift},
    },
    ids::{ByWork, CommandId, WaitId, WorkId},
    intake::Pause,
    model::{Attempt, AttemptEnd, Identity, Kept, RequestKey, Step, Wait, WaitState, Work},
    payload::{Digest, Payload},
};

/// A tenant with one of its references or sessions.
pub type TenantKey = (String, String);

/// Which work item occupies a session, and which is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionView {
    /// The held work item.
    pub holder: Option<WorkId>,
    /// The oldest queued or retry_scheduled one.
    pub head: Option<WorkId>,
    /// The head left, or an older one may have come back, earlier in the same batch: the next one is known
    /// only after the save.
    pub unsure: bool,
}

/// Records by id. An empty entry was looked for and does not exist.
#[derive(Clone, Debug, Default)]
pub struct Records {
    pub works: ByWork<Arc<Work>>,
    /// Work items that are only read: parents, and those that others wait for.
    pub peers: ByWork<Option<Work>>,
    /// The newest generation of an identity.
    pub identities: HashMap<Identity, Option<WorkId>>,
    /// Identities of which only a tombstone is left.
    pub pruned: HashSet<Identity>,
    pub ends: HashMap<(WorkId, u64), Option<Arc<AttemptEnd>>>,
    /// The attempts that a claim request got.
    pub requests: HashMap<RequestKey, Vec<(WorkId, u64)>>,
    pub steps: ByWork<Vec<Step>>,
    /// By (opened_at, id): events list them in this order.
    pub waits: ByWork<Vec<Wait>>,
    /// The work items that have, or had, a wait on a reference.
    pub references: HashMap<TenantKey, Vec<WorkId>>,
    pub wait_ids: HashMap<WaitId, WorkId>,
    pub kept: HashMap<TenantKey, Option<Kept>>,
    pub kept_counts: HashMap<String, usize>,
    pub sessions: HashMap<TenantKey, SessionView>,
    /// Inputs of work items that are being rerun.
    pub inputs: ByWork<Option<Payload>>,
    /// Commands by work item: all of them in memory, the loaded ones in a batch.
    pub commands: ByWork<Vec<Command>>,
    pub command_ids: HashMap<CommandId, WorkId>,
    /// Keys that were looked for already: if such a command is not in `commands`, it does not exist.
    pub looked_for: HashSet<Sought>,
    /// For reruns: the newest command of an earlier run with this key.
    pub earlier: HashMap<(WorkId, Digest), Option<Command>>,
    /// The oldest open ordered command to a target.
    pub heads: HashMap<TargetKey, Option<CommandId>>,
    pub budgets: HashMap<BudgetKey, Budget>,
    /// The policy version of this process; the evaluator must have used the same one.
    pub policy_version: Option<Arc<str>>,
    /// The pauses of the intake that this process knows; None: none.
    pub paused: Option<Arc<[Pause]>>,
    /// No fence is granted below this: another server may have granted all of them and lost the records.
    pub fence_floor: u64,
}

impl Records {
    /// The fence of a new lease or dispatch: strictly increasing, and not repeated by a restored backup or
    /// after a failover, because it is at least the time, and the floor covers what was lost.
    pub fn next_fence(&self, last: u64, now: Millis) -> u64 {
        (last + 1).max(now.max(0) as u64 * 1024).max(self.fence_floor)
    }
}

/// A tenant's tool and target.
pub type TargetKey = (String, String, String);

/// A key for looking up commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sought {
    Id(CommandId),
    /// The current command of a work item with this key.
    Key(WorkId, Digest),
    /// The worker's commands that are not settled.
    Open(WorkId),
    /// The relay's commands that are not sent yet: they are cancelled with their work item.
    Outgoing(WorkId),
}

impl Sought {
    /// Whether such a command can exist: work items count their commands.
    pub fn may_be_there(self, records: &Records) -> bool {
        let counts = |work| records.works.get(&work).map(|work| &work.body.commands);
        match self {
            Sought::Id(_) => true,
            Sought::Key(work, _) | Sought::Outgoing(work) => {
                counts(work).is_some_and(|counts| counts.total > 0)
            }
            Sought::Open(work) => counts(work).is_some_and(|counts| counts.any_open()),
        }
    }
}

/// How much of a work item's row a change touches; each value includes the lesser ones. Stores write no more
/// than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touch {
    /// `children` and `waiters`.
    Flags,
    /// `due_at`.
    Due,
    /// `expires_at`, `renewed_at`, `renewed_by`, `progress`, and a lower `due_at`.
    Renewal,
    /// The same and `progressed_at`: a renewal with progress that differs from what was stored.
    Progress,
    /// Everything that events change.
    Event,
    Insert,
}

#[derive(Clone, Debug)]
pub enum Change {
    Work {
        work: Arc<Work>,
        touch: Touch,
    },
    BeginAttempt(Arc<Attempt>),
    EndAttempt {
        work: WorkId,
        fence: u64,
        end: Arc<AttemptEnd>,
    },
    Step(Step),
    Wait(Box<Wait>),
    Command {
        command: Box<Command>,
        /// Whether the row is new, changed by an event, or changed only in the due date or a renewal.
        touch: Touch,
    },
    Budget {
        key: BudgetKey,
        by: Shift,
    },
    Keep(Kept),
    Unkeep {
        tenant: String,
        reference: String,
    },
    /// Erases the content of the events below `before`, and the texts and payloads that the records of the work item have
    /// from them.
    Erase {
        work: WorkId,
        before: u64,
    },
    /// Makes children, or work items that wait for this one, due at once: their own ticks act.
    Wake {
        work: WorkId,
        children: bool,
        waiters: bool,
        at: Millis,
    },
}

impl Records {
    /// A work item to read, whether or not it may be changed.
    pub fn peer(&self, id: WorkId) -> Option<&Work> {
        self.works.get(&id).map(Arc::as_ref).or_else(|| self.peers.get(&id)?.as_ref())
    }

    /// Makes a change visible to later decisions.
    pub fn absorb(&mut self, change: Change) {
        match change {
            Change::Work { work, touch } => self.absorb_work(work, touch),
            Change::BeginAttempt(attempt) => {
                self.requests.entry(attempt.request).or_default().push((attempt.work, attempt.fence));
            }
            Change::EndAttempt { work, fence, end } => {
                self.ends.insert((work, fence), Some(end));
            }
            Change::Step(step) => {
                let steps = self.steps.entry(step.work).or_default();
                put(steps, step, |old, new| old.ordinal == new.ordinal);
            }
            Change::Wait(wait) => {
                self.wait_ids.insert(wait.id, wait.work);
                let works = self.references.entry((wait.tenant.clone(), wait.reference.clone())).or_default();
                if !works.contains(&wait.work) {
                    works.push(wait.work);
                }
                let waits = self.waits.entry(wait.work).or_default();
                put(waits, *wait, |old, new| old.id == new.id);
                waits.sort_by_key(|wait| (wait.opened_at, wait.id));
            }
            Change::Keep(kept) => {
                let tenant = kept.tenant.clone();
                let key = (tenant.clone(), kept.reference.clone());
                if self.kept.insert(key, Some(kept)).flatten().is_none() {
                    *self.kept_counts.entry(tenant).or_default() += 1;
                }
            }
            Change::Unkeep { tenant, reference } => {
                if self.kept.insert((tenant.clone(), reference), None).flatten().is_some()
                    && let Some(count) = self.kept_counts.get_mut(&tenant)
                {
                    *count = count.saturating_sub(1);
                }
            }
            Change::Erase { work, before } => self.erase(work, before),
            Change::Wake { work, children, waiters, at } => self.wake(work, children, waiters, at),
            Change::Command { command, .. } => self.absorb_command(*command),
            Change::Budget { key, by } => self.budgets.entry(key).or_default().shift(by),
        }
    }

    fn erase(&mut self, work: WorkId, before: u64) {
        if let Some(waits) = self.waits.get_mut(&work) {
            waits.iter_mut().for_each(|wait| wait.detail.erase());
        }
        if let Some(commands) = self.commands.get_mut(&work) {
            commands.iter_mut().filter(|command| command.seq < before).for_each(command::fold::erase);
        }
        if let Some(input) = self.inputs.get_mut(&work) {
            *input = None;
        }
        let ended = self.ends.iter_mut().filter(|((owner, _), _)| *owner == work);
        for end in ended.filter_map(|(_, end)| end.as_mut()) {
            if end.error.as_ref().is_some_and(|error| error.message.is_some()) {
                Arc::make_mut(end).erase();
            }
        }
    }

    fn absorb_command(&mut self, command: Command) {
        self.command_ids.insert(command.id, command.work);
        if command.body.tool.ordered {
            let key = target_key(&command);
            let open = command.state.is_open();
            match self.heads.get(&key) {
                Some(None) if open => _ = self.heads.insert(key, Some(command.id)),
                // The next one is known only after the save.
                Some(Some(head)) if *head == command.id && !open => _ = self.heads.remove(&key),
                Some(_) | None => {}
            }
        }
        put(self.commands.entry(command.work).or_default(), command, |old, new| old.id == new.id);
    }

    /// A command that a store has read, unless it is loaded already: a version that the batch has changed
    /// takes precedence.
    pub fn take_in(&mut self, command: Command) {
        self.command_ids.insert(command.id, command.work);
        let known = self.commands.entry(command.work).or_default();
        if !known.iter().any(|there| there.id == command.id) {
            known.push(command);
        }
    }

    /// The loaded commands of a work item.
    pub fn commands_of(&self, work: WorkId) -> &[Command] {
        self.commands.get(&work).map_or(&[], Vec::as_slice)
    }

    pub fn command(&self, id: CommandId) -> Option<&Command> {
        let work = self.command_ids.get(&id)?;
        self.commands_of(*work).iter().find(|command| command.id == id)
    }

    fn absorb_work(&mut self, work: Arc<Work>, touch: Touch) {
        if touch == Touch::Insert {
            self.identities.insert(work.spec.identity(), Some(work.id));
        }
        if let Some(key) = work.spec.session_key() {
            let pending = work.state.awaits_session();
            let returned = self.works.get(&work.id).is_some_and(|old| !old.state.awaits_session());
            let view = self.sessions.entry(key).or_default();
            if work.state.holds_session() {
                view.holder = Some(work.id);
            } else if view.holder == Some(work.id) {
                view.holder = None;
            }
            if pending {
                match view.head {
                    None if !view.unsure => view.head = Some(work.id),
                    // A work item that comes back may be older than the head.
                    Some(_) if returned => {
                        view.head = None;
                        view.unsure = true;
                    }
                    None | Some(_) => {}
                }
            } else if view.head == Some(work.id) {
                view.head = None;
                view.unsure = true;
            }
        }
        if let Some(peer) = self.peers.get_mut(&work.id) {
            *peer = Some((*work).clone());
        }
        self.works.insert(work.id, work);
    }

    /// Within a batch only the loaded rows are woken; a store does the same to all of them.
    fn wake(&mut self, closed: WorkId, children: bool, waiters: bool, at: Millis) {
        let reference = reference_to(closed);
        for work in self.works.values_mut() {
            let child = children && work.spec.parent == Some(closed);
            let open = |wait: &Wait| wait.state == WaitState::Open && wait.reference == reference;
            let waits = waiters && self.waits.get(&work.id).is_some_and(|waits| waits.iter().any(open));
            if (child || waits) && !work.state.is_terminal() {
                let due_at = work.due_at.map_or(at, |due| due.min(at));
                Arc::make_mut(work).due_at = Some(due_at);
            }
        }
    }
}

fn put<T>(list: &mut Vec<T>, item: T, same: impl Fn(&T, &T) -> bool) {
    match list.iter_mut().find(|old| same(old, &item)) {
        Some(old) => *old = item,
        None => list.push(item),
    }
}

/// The reserved reference of waits for a work item.
pub fn reference_to(work: WorkId) -> String {
    format!("work:{work}")
}

/// The ordering key of ordered commands: their target.
pub fn target_key(command: &Command) -> TargetKey {
    let spec = &command.spec;
    (spec.tenant.clone(), spec.tool.clone(), spec.target.clone())
}

/// The reserved reference of waits for a command.
pub fn reference_to_command(command: CommandId) -> String {
    format!("command:{command}")
}

/// The command that a reserved reference names.
pub fn referenced_command(reference: &str) -> Option<CommandId> {
    reference.strip_prefix("command:")?.parse().ok()
}

/// Whether a reference names a record, whose end answers it.
pub fn is_reserved(reference: &str) -> bool {
    referenced_command(reference).is_some() || referenced_work(reference).is_some()
}

/// The work item that a reserved reference names.
pub fn referenced_work(reference: &str) -> Option<WorkId> {
    reference.strip_prefix("work:")?.parse().ok()
}
