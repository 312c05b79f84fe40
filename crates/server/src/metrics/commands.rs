//! Metrics of commands. Changes are counted from the feed; numbers of open commands are read when the metrics
//! are collected.

use std::{
    collections::{BTreeSet, HashSet},
    sync::atomic::AtomicU64,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use tenure_core::{
    Command, CommandId, CommandState, Event, Fact, Millis, WorkId,
    command::{
        BlockCode, EvidenceKind,
        budget::{Account, BudgetKey, Unit as Counted},
        event::Miss,
    },
    model::ErrorClass,
    recent::Recent,
};
use tenure_store::{Error, Gauges, Ledger};
use uuid::Uuid;

use super::seconds;
use crate::{
    config::{Live, limits_of},
    feed::EventNews,
};

/// Commands remembered between their events; the previous generation holds about as many again.
const REMEMBERED: usize = 50_000;
/// Tools with a label of their own; the others are `other`, since anybody may name an undeclared tool.
const TOOLS: usize = 200;
/// Budgets shown: the ones most recently spent from.
const BUDGETS: usize = 500;
/// Seconds: from a quick call to a tool that takes a day to respond.
const LATENCY: [f64; 12] = [0.005, 0.02, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Move {
    tool: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTool {
    tool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFinding {
    finding: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    class: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCode {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfBudget {
    tenant: String,
    of: String,
    /// The only tool that the budget counts; empty: all tools.
    tool: String,
    unit: String,
    period: String,
}

#[derive(Clone)]
struct Known {
    tool: String,
    dispatched_at: Option<Millis>,
}

pub(super) struct Memory {
    known: Recent<CommandId, Known>,
    tools: HashSet<String>,
    /// The most recently spent last.
    budgets: Vec<BudgetKey>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { known: Recent::new(REMEMBERED), tools: HashSet::new(), budgets: Vec::new() }
    }
}

pub(super) struct CommandMetrics {
    moves: Family<Move, Counter>,
    lookups: Family<OfFinding, Counter>,
    failures: Family<Failure, Counter>,
    blocked: Family<OfCode, Counter>,
    replays: Counter,
    latency: Family<OfTool, Histogram>,
    open: Family<OfState, Gauge>,
    standing: Family<Move, Gauge>,
    uncertain_age: Gauge,
    needs_person: Gauge,
    approvals: Gauge,
    approval_age: Gauge,
    outbox_lag: Gauge,
    budgets: Family<OfBudget, Gauge<f64, AtomicU64>>,
}

impl Default for CommandMetrics {
    fn default() -> Self {
        Self {
            moves: Family::default(),
            lookups: Family::default(),
            failures: Family::default(),
            blocked: Family::default(),
            replays: Counter::default(),
            latency: Family::new_with_constructor(|| Histogram::new(LATENCY)),
            open: Family::default(),
            standing: Family::default(),
            uncertain_age: Gauge::default(),
            needs_person: Gauge::default(),
            approvals: Gauge::default(),
            approval_age: Gauge::default(),
            outbox_lag: Gauge::default(),
            budgets: Family::default(),
        }
    }
}

impl CommandMetrics {
    pub fn register(&self, r: &mut Registry) {
        r.register("command_moves", "Commands that entered a state, by tool", self.moves.clone());
        r.register("command_lookups", "Lookups, by what they found", self.lookups.clone());
        r.register("command_failures", "Failed calls of commands, by class", self.failures.clone());
        r.register("command_blocks", "Commands that were blocked, by reason", self.blocked.clone());
        r.register("command_replays", "Failed commands that people replayed", self.replays.clone());
        r.register_with_unit(
            "receipt_latency",
            "Time from a dispatch to its receipt, for dispatches seen by this process",
            Unit::Seconds,
            self.latency.clone(),
        );
        r.register("commands", "Open commands by state", self.open.clone());
        r.register(
            "commands_standing",
            "Commands that are blocked, dispatched or in doubt, by tool",
            self.standing.clone(),
        );
        r.register_with_unit(
            "uncertain_age",
            "Age of the oldest command in doubt",
            Unit::Seconds,
            self.uncertain_age.clone(),
        );
        r.register(
            "commands_need_person",
            "Commands in doubt that only a person can end",
            self.needs_person.clone(),
        );
        r.register("approvals_waiting", "Commands that wait for an approval", self.approvals.clone());
        r.register_with_unit(
            "approval_age",
            "Age of the oldest waiting approval",
            Unit::Seconds,
            self.approval_age.clone(),
        );
        r.register_with_unit(
            "outbox_lag",
            "Time since the oldest unsent command of the relay was due",
            Unit::Seconds,
            self.outbox_lag.clone(),
        );
        r.register(
            "budget_used",
            "Spent and reserved part of a configured budget, where 1 is all of it; budgets that were spent from since the start",
            self.budgets.clone(),
        );
    }

    /// The commands of these events that must be read from the ledger.
    pub fn unknown(&self, memory: &Memory, events: &[EventNews]) -> Vec<CommandId> {
        let mut unknown = BTreeSet::new();
        for event in events.iter().map(|news| &news.stored.event) {
            let Some(moved) = event.fact.command() else { continue };
            if moved.was.is_some() && !memory.known.contains(moved.command) {
                unknown.insert(moved.command);
            }
        }
        unknown.into_iter().collect()
    }

    pub fn count(&self, memory: &mut Memory, event: &Event) {
        let Some(moved) = event.fact.command() else { return };
        if let Fact::CommandReserved(reserved) = &event.fact {
            memory.learn(moved.command, &reserved.spec.tool, None);
        }
        let Some(known) = memory.known.get(moved.command) else { return };
        let tool = known.tool.clone();
        if let Fact::CommandDispatched(_) = &event.fact {
            known.dispatched_at = Some(event.at);
        }
        let dispatched_at = known.dispatched_at;
        if moved.was != Some(moved.now) {
            self.moves.get_or_create(&Move { tool: tool.clone(), state: moved.now.as_str() }).inc();
        }
        self.tell(&event.fact, memory);
        if let (Fact::CommandSucceeded(_), Some(at)) = (&event.fact, dispatched_at) {
            let took = (event.at - at).max(0) as f64 / 1_000.0;
            self.latency.get_or_create(&OfTool { tool }).observe(took);
        }
        if matches!(moved.now, CommandState::Succeeded | CommandState::Cancelled) {
            memory.known.take(moved.command);
        }
    }

    fn tell(&self, fact: &Fact, memory: &mut Memory) {
        let found = |finding| _ = self.lookups.get_or_create(&OfFinding { finding }).inc();
        let blocked = |code| _ = self.blocked.get_or_create(&OfCode { code: name(code) }).inc();
        let failed = |class: ErrorClass, outcome| {
            let class = crate::wire::ToWire::to_wire(class).to_string();
            self.failures.get_or_create(&Failure { class, outcome }).inc();
        };
        match fact {
            Fact::CommandReserved(reserved) => reserved.blocked.into_iter().for_each(blocked),
            Fact::CommandBlocked(stopped) => blocked(stopped.code),
            Fact::CommandDispatched(sent) => memory.spent_from(sent.reserved.iter().map(|one| &one.key)),
            Fact::CommandFailed(bad) => failed(bad.class, "failed"),
            Fact::CommandUnsent(bad) => failed(bad.class, "unsent"),
            Fact::CommandUncertain(bad) => bad.class.into_iter().for_each(|class| failed(class, "uncertain")),
            Fact::CommandSucceeded(done) if done.receipt.evidence == EvidenceKind::Lookup => found("found"),
            Fact::CommandLookedUp(looked) => found(match looked.finding {
                Miss::Absent => "absent",
                Miss::Unknown => "unknown",
            }),
            Fact::CommandReplayed(_) => _ = self.replays.inc(),
            _ => {}
        }
    }

    /// Sets the gauges to the current values.
    pub async fn show(
        &self,
        facts: &Gauges,
        spent_from: Vec<BudgetKey>,
        live: &Live,
        ledger: &Ledger,
    ) -> Result<(), Error> {
        let commands = &facts.commands;
        self.open.clear();
        for (state, count) in &commands.states {
            self.open.get_or_create(&OfState { state: state.as_str() }).set(*count as i64);
        }
        self.standing.clear();
        for place in &commands.places {
            let labels = Move { tool: place.tool.clone(), state: place.state.as_str() };
            self.standing.get_or_create(&labels).inc_by(place.commands as i64);
        }
        let age = |since: Option<Millis>| since.map_or(0, |since| seconds(facts.at - since));
        self.uncertain_age.set(age(commands.uncertain().1));
        self.needs_person.set(commands.needs_person().0 as i64);
        self.approvals.set(commands.approvals().0 as i64);
        self.approval_age.set(age(commands.approvals().1));
        self.outbox_lag.set(age(commands.unsent_since));
        self.budgets.clear();
        for (key, budget) in ledger.budgets(&spent_from).await? {
            let Some((of, max)) = bound(&key, live, facts.at) else { continue };
            let unit = unit(&key.unit);
            let tool = key.only.unwrap_or_default();
            let labels = OfBudget { tenant: key.tenant, of, tool, unit, period: key.period };
            let used = budget.spent.saturating_add(budget.reserved) as f64 / max.max(1) as f64;
            self.budgets.get_or_create(&labels).set(used);
        }
        Ok(())
    }
}

/// The unit of a counter, and the tightest configured limit on it in the current period.
fn bound(key: &BudgetKey, live: &Live, now: Millis) -> Option<(String, u64)> {
    let (of, tool) = match &key.account {
        Account::Tenant => ("tenant".to_owned(), key.only.as_deref().unwrap_or_default()),
        Account::Tool(tool) => (tool.clone(), tool.as_str()),
        // Per-work budgets and replays have too many accounts for a metric.
        Account::Work(_) | Account::Replays => return None,
    };
    let limits = limits_of(&live.budgets, tool, now);
    let mine = limits.iter().filter(|limit| limit.key(&key.tenant, WorkId(Uuid::nil()), tool) == *key);
    mine.map(|limit| limit.max).min().map(|max| (of, max))
}

fn unit(unit: &Counted) -> String {
    match unit {
        Counted::Calls => "calls".to_owned(),
        Counted::Tokens => "tokens".to_owned(),
        Counted::Micros(currency) => format!("micros:{currency}"),
    }
}

fn name(code: BlockCode) -> &'static str {
    match code {
        BlockCode::ApprovalRequired => "approval_required",
        BlockCode::PolicyDenied => "policy_denied",
        BlockCode::Budget => "budget",
    }
}

impl Memory {
    pub fn learn_all(&mut self, commands: &[Command]) {
        for command in commands {
            let at = command.body.dispatch.as_ref().map(|dispatch| dispatch.at);
            self.learn(command.id, &command.spec.tool, at);
        }
    }

    fn learn(&mut self, id: CommandId, tool: &str, dispatched_at: Option<Millis>) {
        let tool = self.tool(tool);
        self.known.put(id, Known { tool, dispatched_at });
    }

    fn tool(&mut self, tool: &str) -> String {
        if !self.tools.contains(tool) {
            if self.tools.len() >= TOOLS {
                return "other".to_owned();
            }
            self.tools.insert(tool.to_owned());
        }
        tool.to_owned()
    }

    fn spent_from<'k>(&mut self, keys: impl Iterator<Item = &'k BudgetKey>) {
        for key in keys.filter(|key| matches!(key.account, Account::Tenant | Account::Tool(_))) {
            self.budgets.retain(|known| known != key);
            self.budgets.push(key.clone());
        }
        let over = self.budgets.len().saturating_sub(BUDGETS);
        self.budgets.drain(..over);
    }

    pub fn spent(&self) -> Vec<BudgetKey> {
        self.budgets.clone()
    }
}
