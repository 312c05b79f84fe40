//! What is due and not yet under way: in line by tool, so that a tool that is slow, or may not go faster, keeps no
//! other one waiting. Time is given; it reads and calls nothing.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use tenure_core::{CommandId, command::Executor};
use tenure_store::Due;

/// Calls that are under way at once: of everybody, of one tool, and programs of one tool.
pub(super) const CALLS: usize = 256;
const CALLS_OF_A_TOOL: usize = 128;
const PROGRAMS_OF_A_TOOL: usize = 16;
/// What is at hand of one tool; the rest is read when these have gone.
const AT_HAND: usize = 256;
const AT_HAND_BYTES: usize = 4 * 1024 * 1024;

#[derive(Default)]
struct Line {
    ready: VecDeque<Due>,
    bytes: usize,
    under_way: usize,
    /// Its rate allows the next one then.
    not_before: Option<Instant>,
}

impl Line {
    fn is_full(&self) -> bool {
        self.ready.len() >= AT_HAND || self.bytes >= AT_HAND_BYTES
    }

    fn may_go(&self, now: Instant) -> bool {
        let bound = match self.ready.front().map(|due| due.command.spec.executor) {
            Some(Executor::Exec) => PROGRAMS_OF_A_TOOL,
            Some(Executor::Http | Executor::Worker) => CALLS_OF_A_TOOL,
            None => 0,
        };
        self.under_way < bound && self.not_before.is_none_or(|at| at <= now)
    }

    fn next(&mut self, now: Instant) -> Option<Due> {
        if !self.may_go(now) {
            return None;
        }
        self.not_before = None;
        let due = self.ready.pop_front()?;
        self.bytes -= weight(&due);
        self.under_way += 1;
        Some(due)
    }
}

fn weight(due: &Due) -> usize {
    due.arguments.as_ref().map_or(0, |arguments| arguments.text().len())
}

#[derive(Default)]
pub(super) struct Queue {
    lines: BTreeMap<String, Line>,
    /// At hand or under way.
    taken: HashSet<CommandId>,
    /// Of full lines, with their tool.
    beyond: HashMap<CommandId, String>,
    passed_over: HashMap<CommandId, Instant>,
    /// The tool whose turn was last.
    last: String,
    /// Other relays on this ledger read the same page: each goes through it in an order of its own.
    order: RandomState,
}

impl Queue {
    pub fn knows(&self, id: CommandId) -> bool {
        self.taken.contains(&id) || self.beyond.contains_key(&id) || self.passed_over.contains_key(&id)
    }

    /// Takes a page in; how many of it are at hand now.
    pub fn add(&mut self, mut page: Vec<Due>) -> usize {
        page.sort_by_cached_key(|due| self.order.hash_one(due.command.id));
        let mut added = 0;
        for due in page {
            let (id, tool) = (due.command.id, due.command.spec.tool.clone());
            let line = self.lines.entry(tool.clone()).or_default();
            if line.is_full() {
                self.beyond.insert(id, tool);
            } else if self.taken.insert(id) {
                line.bytes += weight(&due);
                line.ready.push_back(due);
                added += 1;
            }
        }
        added
    }

    /// The next that may go, tools in turns. Whoever takes it says when it is [`Queue::done`].
    pub fn next(&mut self, now: Instant) -> Option<Due> {
        let after: Vec<&String> = self.lines.keys().skip_while(|tool| **tool <= self.last).collect();
        let turns: Vec<String> =
            after.into_iter().chain(self.lines.keys()).take(self.lines.len()).cloned().collect();
        for tool in turns {
            if let Some(due) = self.lines.get_mut(&tool).and_then(|line| line.next(now)) {
                self.last = tool;
                return Some(due);
            }
        }
        None
    }

    /// It may not go yet: first again when the time has come.
    pub fn put_back(&mut self, due: Due, not_before: Instant) {
        let Some(line) = self.lines.get_mut(&due.command.spec.tool) else { return };
        line.under_way -= 1;
        line.bytes += weight(&due);
        line.ready.push_front(due);
        line.not_before = Some(not_before);
    }

    /// It is under way no longer. True where its line has run out and there was more of it.
    pub fn done(&mut self, id: CommandId, tool: &str) -> bool {
        self.taken.remove(&id);
        let Some(line) = self.lines.get_mut(tool) else { return false };
        line.under_way -= 1;
        if !line.ready.is_empty() {
            return false;
        }
        if line.under_way == 0 {
            self.lines.remove(tool);
        }
        let known = self.beyond.len();
        self.beyond.retain(|_, of| of != tool);
        known > self.beyond.len()
    }

    /// Nobody here looks at it again before then.
    pub fn pass_over(&mut self, id: CommandId, until: Instant) {
        self.passed_over.insert(id, until);
    }

    pub fn remember(&mut self, now: Instant) {
        self.passed_over.retain(|_, until| *until > now);
    }

    /// Another relay is at the same page: what is not under way is read anew.
    pub fn forget_ready(&mut self) {
        for line in self.lines.values_mut() {
            for due in line.ready.drain(..) {
                self.taken.remove(&due.command.id);
            }
            line.bytes = 0;
        }
        self.lines.retain(|_, line| line.under_way > 0 || line.not_before.is_some());
        self.beyond.clear();
    }

    /// Whether little is at hand that may go.
    pub fn is_low(&self, now: Instant) -> bool {
        let going = self.lines.values().filter(|line| line.may_go(now));
        going.map(|line| line.ready.len()).sum::<usize>() < CALLS / 2
    }

    /// How long until some rate allows the next one.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let waiting = self.lines.values().filter(|line| !line.ready.is_empty());
        waiting.filter_map(|line| line.not_before).min().map(|at| at.saturating_duration_since(now))
    }
}
