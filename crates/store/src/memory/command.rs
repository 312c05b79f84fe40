//! Commands in memory: what a database would read anew, and the lists.

use std::{collections::BTreeMap, sync::Arc};

use tenure_core::{
    Command, CommandId, CommandState, LoadSet, Millis, Submission, Work,
    action::Tenants,
    command::{Duty, due},
    payload::Digest,
    records::{TargetKey, target_key},
};

use super::{Inner, Memory};
use crate::{
    CommandFilter, Listed,
    store::{CommandStore, StoreFuture},
};

impl Inner {
    /// What is derived: the commands of earlier runs, and the first of each target.
    pub fn refresh_commands(&mut self, submission: &Submission) {
        self.records.earlier.clear();
        self.records.heads.clear();
        let mut load_set = LoadSet::default();
        load_set.first(submission);
        load_set.then(submission, &self.records);
        for (work, key) in load_set.earlier {
            let found = self.records.works.get(&work).and_then(|work| self.earlier(work, key)).cloned();
            self.records.earlier.insert((work, key), found);
        }
        for key in load_set.heads {
            let head = self.head(&key);
            self.records.heads.insert(key, head);
        }
    }

    /// The first open command of a line.
    pub fn head(&self, line: &TargetKey) -> Option<CommandId> {
        let open = |command: &&Command| {
            command.body.tool.ordered && command.state.is_open() && target_key(command) == *line
        };
        self.records.commands.values().flatten().filter(open).map(|command| command.id).min()
    }

    /// Whether nothing of its line comes before it.
    fn is_first(&self, id: CommandId) -> bool {
        let Some(command) = self.records.command(id).filter(|command| command.body.tool.ordered) else {
            return true;
        };
        let earlier = |other: &Command| {
            other.id < id
                && other.body.tool.ordered
                && other.state.is_open()
                && target_key(other) == target_key(command)
        };
        !self.records.commands.values().flatten().any(earlier)
    }

    /// The newest that tells, of all earlier generations.
    fn earlier(&self, work: &Work, key: Digest) -> Option<&Command> {
        let identity = work.spec.identity();
        let mut runs: Vec<&Work> = self
            .records
            .works
            .values()
            .map(Arc::as_ref)
            .filter(|run| run.spec.identity() == identity && run.spec.generation < work.spec.generation)
            .collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.spec.generation));
        let tells =
            |command: &&Command| command.spec.key == key && command.is_current() && command.concerns_reruns();
        runs.into_iter().find_map(|run| self.records.commands_of(run.id).iter().find(tells))
    }

    pub fn next_due_command(&self, duty: Duty) -> Option<Millis> {
        let all = self.records.commands.values().flatten();
        all.filter(|command| due::duty(command) == Some(duty)).filter_map(|command| command.due_at).min()
    }

    pub fn due_commands(
        &self,
        duty: Duty,
        at: Millis,
        after: Option<(Millis, CommandId)>,
        whose: impl Fn(&String) -> bool,
        limit: usize,
    ) -> Vec<(Millis, CommandId)> {
        let mut due: Vec<(Millis, CommandId)> = self
            .records
            .commands
            .values()
            .flatten()
            .filter(|command| due::duty(command) == Some(duty) && whose(&command.spec.tenant))
            .filter_map(|command| Some((command.due_at?, command.id)))
            .filter(|row| row.0 <= at && after.is_none_or(|after| *row > after))
            .filter(|(_, id)| duty != Duty::Send || self.is_first(*id))
            .collect();
        due.sort_unstable();
        due.truncate(limit);
        due
    }
}

impl CommandStore for Memory {
    fn commands<'a>(&'a self, ids: &'a [CommandId]) -> StoreFuture<'a, Listed<Command, CommandId>> {
        self.ready(|inner| {
            let commands = ids.iter().filter_map(|id| inner.records.command(*id).cloned());
            Listed::of(commands.collect(), usize::MAX, |command| command.id)
        })
    }

    fn list_commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Command, CommandId>> {
        self.ready(|inner| {
            let here =
                |command: &&Command| before.is_none_or(|id| command.id < id) && filter.matches(command);
            let mut found: Vec<&Command> = inner.records.commands.values().flatten().filter(here).collect();
            found.sort_by_key(|command| std::cmp::Reverse(command.id));
            Listed::of(found.into_iter().take(limit).cloned().collect(), limit, |one| one.id)
        })
    }

    fn command_counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<CommandState, u64>> {
        self.ready(|inner| {
            let mut counts = BTreeMap::new();
            let own = |command: &&Command| tenants.allow(&command.spec.tenant);
            for command in inner.records.commands.values().flatten().filter(own) {
                *counts.entry(command.state).or_default() += 1;
            }
            counts
        })
    }

    fn heads<'a>(&'a self, lines: &'a [TargetKey]) -> StoreFuture<'a, Vec<Option<CommandId>>> {
        self.ready(|inner| lines.iter().map(|line| inner.head(line)).collect())
    }

    fn due_commands<'a>(
        &'a self,
        duty: Duty,
        at: Millis,
        after: Option<(Millis, CommandId)>,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>> {
        self.ready(|inner| inner.due_commands(duty, at, after, |tenant| !except.contains(tenant), limit))
    }

    fn due_lookups<'a>(
        &'a self,
        tenants: &'a [String],
        at: Millis,
        after: Option<(Millis, CommandId)>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>> {
        self.ready(|inner| inner.due_commands(Duty::Lookup, at, after, |one| tenants.contains(one), limit))
    }

    fn next_due_command(&self, duty: Duty) -> StoreFuture<'_, Option<Millis>> {
        self.ready(|inner| inner.next_due_command(duty))
    }
}
