//! The relay's queue: due commands that are not in progress yet, by tenant and tool, so that a busy tenant,
//! or a tool that is slow or at its rate limit, does not delay the others. The time is a parameter; the queue
//! reads and calls nothing.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use tenure_core::{CommandId, command::Executor};
use tenure_store::Due;

/// Concurrent calls: in total, and of one tenant.
pub(super) const CALLS: usize = 512;
const CALLS_OF_A_TENANT: usize = CALLS / 2;
/// Concurrent calls of one tool, and programs of one tool; one tenant has at most half of them.
const CALLS_OF_A_TOOL: usize = 256;
const PROGRAMS_OF_A_TOOL: usize = 32;
/// With fewer ready commands than this, more are read.
const LOW: usize = 128;
/// Commands buffered of one tenant's tool; the rest is read when these are done.
const AT_HAND: usize = 256;
const AT_HAND_BYTES: usize = 4 * 1024 * 1024;
/// Commands buffered of one tenant, and bytes of all: the relay's share of the daemon's memory.
const AT_HAND_OF_A_TENANT: usize = 2 * AT_HAND;
const AT_HAND_OF_A_TENANT_BYTES: usize = 2 * AT_HAND_BYTES;
const AT_HAND_IN_ALL_BYTES: usize = 32 * 1024 * 1024;

#[derive(Default)]
struct ToolQueue {
    ready: VecDeque<Due>,
    bytes: usize,
    under_way: usize,
    /// The tool's rate allows the next one then.
    not_before: Option<Instant>,
}

impl ToolQueue {
    /// `of_tool`: calls of the same tool by all tenants.
    fn may_go(&self, now: Instant, of_tool: usize) -> bool {
        let bound = match self.ready.front().map(|due| due.command.spec.executor) {
            Some(Executor::Exec) => PROGRAMS_OF_A_TOOL,
            Some(Executor::Http | Executor::Worker) => CALLS_OF_A_TOOL,
            None => 0,
        };
        of_tool < bound && self.under_way < bound.div_ceil(2) && self.not_before.is_none_or(|at| at <= now)
    }

    fn take(&mut self) -> Option<Due> {
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

/// The queues of one tenant, by tool.
#[derive(Default)]
struct Tenant {
    lines: BTreeMap<String, ToolQueue>,
    under_way: usize,
    /// The tool whose turn was last.
    last: String,
}

impl Tenant {
    fn next(&mut self, now: Instant, of_tools: &HashMap<String, usize>) -> Option<Due> {
        if self.under_way >= CALLS_OF_A_TENANT {
            return None;
        }
        let may_go =
            |tool: &String, line: &ToolQueue| line.may_go(now, of_tools.get(tool).copied().unwrap_or(0));
        let tool = in_turn(&self.lines, &self.last, may_go)?;
        let due = self.lines.get_mut(&tool)?.take()?;
        self.under_way += 1;
        self.last = tool;
        Some(due)
    }

    fn at_hand(&self) -> usize {
        self.lines.values().map(|line| line.ready.len()).sum()
    }

    fn bytes(&self) -> usize {
        self.lines.values().map(|line| line.bytes).sum()
    }

    fn is_full(&self) -> bool {
        self.at_hand() >= AT_HAND_OF_A_TENANT || self.bytes() >= AT_HAND_OF_A_TENANT_BYTES
    }
}

/// The first ready key after the last one, wrapping around.
fn in_turn<V>(all: &BTreeMap<String, V>, last: &str, may_go: impl Fn(&String, &V) -> bool) -> Option<String> {
    let after = all.iter().skip_while(|(key, _)| key.as_str() <= last);
    let found = after.chain(all).take(all.len()).find(|(key, value)| may_go(key, value));
    found.map(|(key, _)| key.clone())
}

#[derive(Default)]
pub(super) struct Queue {
    tenants: BTreeMap<String, Tenant>,
    /// Calls in progress of each tool.
    of_tools: HashMap<String, usize>,
    /// Buffered or in progress.
    taken: HashSet<CommandId>,
    /// Commands beyond full queues, with their tenant and tool.
    beyond: HashMap<CommandId, (String, String)>,
    passed_over: HashMap<CommandId, Instant>,
    /// The tenant whose turn was last.
    last: String,
    /// Other relays on this ledger read the same page: each processes it in a different order.
    order: RandomState,
}

impl Queue {
    pub fn knows(&self, id: CommandId) -> bool {
        self.taken.contains(&id) || self.beyond.contains_key(&id) || self.passed_over.contains_key(&id)
    }

    /// Tenants with a full buffer: more of their due commands need not be read now.
    pub fn full_tenants(&self) -> Vec<String> {
        let full = self.tenants.iter().filter(|(_, tenant)| tenant.is_full());
        full.map(|(name, _)| name.clone()).collect()
    }

    /// Adds a page; returns how many of its commands are buffered now.
    pub fn add(&mut self, mut page: Vec<Due>) -> usize {
        page.sort_by_cached_key(|due| self.order.hash_one(due.command.id));
        let mut added = 0;
        let mut bytes: usize = self.tenants.values().map(Tenant::bytes).sum();
        for due in page {
            let (id, spec) = (due.command.id, due.command.spec.clone());
            let tenant = self.tenants.entry(spec.tenant.clone()).or_default();
            let line_is_full = tenant
                .lines
                .get(&spec.tool)
                .is_some_and(|line| line.ready.len() >= AT_HAND || line.bytes >= AT_HAND_BYTES);
            // Every tenant can buffer at least one, so no tenant waits for the buffers of others.
            let no_room = bytes >= AT_HAND_IN_ALL_BYTES && tenant.at_hand() > 0;
            if line_is_full || tenant.is_full() || no_room {
                self.beyond.insert(id, (spec.tenant.clone(), spec.tool.clone()));
            } else if self.taken.insert(id) {
                let line = tenant.lines.entry(spec.tool.clone()).or_default();
                bytes += weight(&due);
                line.bytes += weight(&due);
                line.ready.push_back(due);
                added += 1;
            }
        }
        added
    }

    /// The next ready command: tenants in turns, and each tenant's tools. The caller reports it with
    /// [`Queue::done`].
    pub fn next(&mut self, now: Instant) -> Option<Due> {
        let of_tools = &self.of_tools;
        let mut turns: Vec<&String> = self.tenants.keys().collect();
        let first = turns.partition_point(|tenant| **tenant <= self.last);
        turns.rotate_left(first);
        let turns: Vec<String> = turns.into_iter().cloned().collect();
        for name in turns {
            if let Some(due) = self.tenants.get_mut(&name).and_then(|tenant| tenant.next(now, of_tools)) {
                *self.of_tools.entry(due.command.spec.tool.clone()).or_default() += 1;
                self.last = name;
                return Some(due);
            }
        }
        None
    }

    /// Not ready yet: it is the first again at that time.
    pub fn put_back(&mut self, due: Due, not_before: Instant) {
        let spec = due.command.spec.clone();
        self.ended(&spec.tenant, &spec.tool);
        let line = self.tenants.get_mut(&spec.tenant).and_then(|tenant| tenant.lines.get_mut(&spec.tool));
        let Some(line) = line else { return };
        line.bytes += weight(&due);
        line.ready.push_front(due);
        line.not_before = Some(not_before);
    }

    fn ended(&mut self, tenant: &str, tool: &str) {
        if let Some(calls) = self.of_tools.get_mut(tool) {
            *calls -= 1;
            if *calls == 0 {
                self.of_tools.remove(tool);
            }
        }
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.under_way -= 1;
            if let Some(line) = tenant.lines.get_mut(tool) {
                line.under_way -= 1;
            }
        }
    }

    /// The call has ended. True if its queue is empty and more of it was left in the ledger.
    pub fn done(&mut self, id: CommandId, tenant: &str, tool: &str) -> bool {
        self.taken.remove(&id);
        self.ended(tenant, tool);
        let Some(of_tenant) = self.tenants.get_mut(tenant) else { return false };
        let is_busy = of_tenant.under_way > 0 || of_tenant.at_hand() > 0;
        let Some(line) = of_tenant.lines.get(tool) else { return false };
        if !line.ready.is_empty() {
            return false;
        }
        if line.under_way == 0 {
            of_tenant.lines.remove(tool);
        }
        if !is_busy {
            self.tenants.remove(tenant);
        }
        let known = self.beyond.len();
        self.beyond.retain(|_, (of, line)| of != tenant || line != tool);
        known > self.beyond.len()
    }

    /// Skips a command until then.
    pub fn pass_over(&mut self, id: CommandId, until: Instant) {
        self.passed_over.insert(id, until);
    }

    pub fn remember(&mut self, now: Instant) {
        self.passed_over.retain(|_, until| *until > now);
    }

    /// Another relay processes the same page: everything that is not in progress is read again.
    pub fn forget_ready(&mut self) {
        for tenant in self.tenants.values_mut() {
            for line in tenant.lines.values_mut() {
                for due in line.ready.drain(..) {
                    self.taken.remove(&due.command.id);
                }
                line.bytes = 0;
            }
            tenant.lines.retain(|_, line| line.under_way > 0 || line.not_before.is_some());
        }
        self.tenants.retain(|_, tenant| !tenant.lines.is_empty());
        self.beyond.clear();
    }

    /// Whether few commands are ready.
    pub fn is_low(&self, now: Instant) -> bool {
        let going =
            self.tenants.values().filter(|tenant| tenant.under_way < CALLS_OF_A_TENANT).flat_map(|tenant| {
                let of_tool = |tool: &String| self.of_tools.get(tool).copied().unwrap_or(0);
                tenant.lines.iter().filter(move |(tool, line)| line.may_go(now, of_tool(tool)))
            });
        going.map(|(_, line)| line.ready.len()).sum::<usize>() < LOW
    }

    /// The time until a rate allows the next one.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let lines = self.tenants.values().flat_map(|tenant| tenant.lines.values());
        let waiting = lines.filter(|line| !line.ready.is_empty());
        waiting.filter_map(|line| line.not_before).min().map(|at| at.saturating_duration_since(now))
    }
}
