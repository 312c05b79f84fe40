//! Commands in the world: verbs as workers, people, the relay and lookups use them, and the invariants of
//! commands after every decision.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::{
    Action, Actor, Code, Command, CommandId, CommandState, Event, Fact, Records, Refusal, Reply, State,
    WorkId,
    command::{
        Arguments, CallError, CommandAction, CommandKind, DispatchAction, Dispatcher, Effect, Evaluation,
        Executor, Finding, Idempotency, Intent, PolicyDecision, Proof, Recorded, ReplayLimits, ReserveIn,
        Risk, Sender, ToolFacts,
        budget::{Account, Budget, BudgetKey},
        due, fold,
    },
    model::{ErrorClass, ReasonCode},
    payload::Digest,
    policy::{Jitter, RetryPolicy},
    records::target_key,
    refold,
    reply::Ticked,
};
use uuid::Uuid;

use super::{Lease, World, payload};

pub const POLICY: &str = "p1";

pub fn tool(idempotency: Idempotency, risk: Risk) -> ToolFacts {
    let retry = RetryPolicy { jitter: Jitter::None, ..RetryPolicy::default() };
    ToolFacts { idempotency, risk, retry, ..ToolFacts::default() }
}

/// Low risk, looked up by its natural key.
pub fn lookup() -> ToolFacts {
    ToolFacts { consistency_delay_ms: 10_000, max_unknowns: 3, ..tool(Idempotency::Lookup, Risk::Low) }
}

pub fn native() -> ToolFacts {
    tool(Idempotency::Native, Risk::Low)
}

pub fn relay(facts: ToolFacts) -> ToolFacts {
    ToolFacts { executor: Executor::Http, ..facts }
}

pub fn evaluation(effect: Effect, tool: ToolFacts) -> Evaluation {
    Evaluation::new(PolicyDecision::new(effect, POLICY), tool)
}

pub fn error(class: ErrorClass) -> CallError {
    CallError { class, message: "the line broke".into(), retry_after_ms: None }
}

/// `mail` to bob, with these arguments and this evaluation, under the id that it gets.
pub fn intent(id: CommandId, arguments: &str, evaluation: Evaluation) -> (CommandId, Intent) {
    let arguments = Arguments::whole(payload(arguments));
    (id, Intent { kind: CommandKind::Message, ..Intent::new("mail", "bob", arguments, evaluation) })
}

/// The command of a reply. An accepted dispatch has dispatched it: no other reply may lead to a call.
pub fn command_of(reply: Reply) -> Result<Command, Refusal> {
    match reply {
        Reply::Command { command, .. } => Ok(*command),
        Reply::Dispatch { refused: Some(refusal), .. } => Err(refusal),
        Reply::Dispatch { command, refused: None } => {
            assert_eq!(command.state, CommandState::Dispatched, "{command:?}");
            Ok(*command)
        }
        other => panic!("no command: {other:?}"),
    }
}

impl World {
    pub fn command_id(&mut self) -> CommandId {
        CommandId(Uuid::from_u128(self.next()))
    }

    pub fn command(&self, id: CommandId) -> &Command {
        self.records.command(id).expect("a known command")
    }

    pub fn command_state(&self, id: CommandId) -> CommandState {
        self.command(id).state
    }

    pub fn on_command(&mut self, actor: Actor, action: CommandAction) -> Result<Command, Refusal> {
        self.submit(actor, Action::Command(Box::new(action))).and_then(command_of)
    }

    pub fn try_reserve(
        &mut self,
        lease: &Lease,
        (id, intent): (CommandId, Intent),
    ) -> Result<Command, Refusal> {
        let place = ReserveIn::Work(lease.holder());
        self.on_command(
            Actor::worker(&lease.worker),
            CommandAction::Reserve { place, id, intent: Box::new(intent) },
        )
    }

    pub fn reserve(&mut self, lease: &Lease, evaluation: Evaluation) -> CommandId {
        let id = self.command_id();
        self.try_reserve(lease, intent(id, "hi", evaluation)).expect("an acceptable command").id
    }

    pub fn try_dispatch(
        &mut self,
        lease: &Lease,
        id: CommandId,
        evaluation: Evaluation,
    ) -> Result<Command, Refusal> {
        let by = Dispatcher::Holder(lease.holder());
        let action = DispatchAction { command: id, by, evaluation, request_id: None };
        self.on_command(Actor::worker(&lease.worker), CommandAction::Dispatch(Box::new(action)))
    }

    /// A refused dispatch: the reason, and the command after it.
    pub fn not_dispatched(
        &mut self,
        lease: &Lease,
        id: CommandId,
        evaluation: Evaluation,
    ) -> (Code, Command) {
        let refusal = self.try_dispatch(lease, id, evaluation).expect_err("a refusal");
        (refusal.code, self.command(id).clone())
    }

    /// Reserves and dispatches a command that policy allows.
    pub fn dispatched(&mut self, lease: &Lease, facts: ToolFacts) -> CommandId {
        let id = self.reserve(lease, evaluation(Effect::Allow, facts.clone()));
        let command = self.try_dispatch(lease, id, evaluation(Effect::Allow, facts)).expect("allowed");
        assert_eq!(command.state, CommandState::Dispatched);
        id
    }

    pub fn relay_dispatch(&mut self, id: CommandId, evaluation: Evaluation) -> Result<Command, Refusal> {
        let action = DispatchAction { command: id, by: Dispatcher::Relay, evaluation, request_id: None };
        self.on_command(Actor::system("relay"), CommandAction::Dispatch(Box::new(action)))
    }

    /// The same by the relay.
    pub fn relay_refused(&mut self, id: CommandId, evaluation: Evaluation) -> (Code, Command) {
        let refusal = self.relay_dispatch(id, evaluation).expect_err("a refusal");
        (refusal.code, self.command(id).clone())
    }

    /// The caller that dispatched it last.
    pub fn sender(&self, id: CommandId) -> Sender {
        let command = self.command(id);
        let fence = command.body.dispatch.as_ref().map_or(0, |dispatch| dispatch.fence);
        Sender { work: command.work, fence, dispatch: Some(command.body.dispatches), genuine: true }
    }

    pub fn receipt(&mut self, id: CommandId) -> Result<Command, Refusal> {
        self.receipt_by(id, self.sender(id))
    }

    pub fn receipt_by(&mut self, id: CommandId, sender: Sender) -> Result<Command, Refusal> {
        let proof = Box::new(Proof::provider("msg-1"));
        self.on_command(Actor::worker("w1"), CommandAction::Receipt { command: id, sender, proof })
    }

    pub fn failed_by(&mut self, id: CommandId, sender: Sender, error: CallError) -> Result<Command, Refusal> {
        let action = CommandAction::Fail { command: id, sender, error, unsent: true };
        self.on_command(Actor::worker("w1"), action)
    }

    pub fn uncertain_by(
        &mut self,
        id: CommandId,
        sender: Sender,
        error: CallError,
    ) -> Result<Command, Refusal> {
        self.on_command(Actor::worker("w1"), CommandAction::Uncertain { command: id, sender, error })
    }

    pub fn call_failed(
        &mut self,
        id: CommandId,
        class: ErrorClass,
        unsent: bool,
    ) -> Result<Command, Refusal> {
        let sender = self.sender(id);
        let action = CommandAction::Fail { command: id, sender, error: error(class), unsent };
        self.on_command(Actor::worker("w1"), action)
    }

    pub fn uncertain(&mut self, id: CommandId) -> Result<Command, Refusal> {
        self.uncertain_by(id, self.sender(id), error(ErrorClass::Timeout))
    }

    pub fn approve(&mut self, id: CommandId) -> Result<Command, Refusal> {
        self.approve_as(Actor::person("ana"), id)
    }

    pub fn approve_as(&mut self, actor: Actor, id: CommandId) -> Result<Command, Refusal> {
        let known = self.records.command(id);
        let seal = known.map_or_else(Digest::default, Command::seal);
        let four_eyes = known.is_some_and(|command| command.body.tool.four_eyes);
        let reason = "it is right".to_owned();
        self.on_command(actor, CommandAction::Approve { command: id, seal, four_eyes, reason })
    }

    pub fn reject(&mut self, id: CommandId) -> Result<Command, Refusal> {
        let reason = "it is wrong".to_owned();
        self.on_command(Actor::person("ana"), CommandAction::Reject { command: id, reason })
    }

    pub fn reconcile(&mut self, id: CommandId, finding: Finding) -> Result<Command, Refusal> {
        let finding = Box::new(finding);
        let action = CommandAction::Reconcile { command: id, claim: None, finding, message: None };
        self.on_command(Actor::system("reconciler"), action)
    }

    pub fn record(&mut self, id: CommandId, outcome: Recorded) -> Result<Command, Refusal> {
        let (outcome, reason) = (Box::new(outcome), "I asked them".to_owned());
        self.on_command(Actor::person("ana"), CommandAction::Record { command: id, outcome, reason })
    }

    pub fn replay(&mut self, id: CommandId, evaluation: Evaluation) -> Result<Command, Refusal> {
        let (limits, minute) = (ReplayLimits::default(), self.now / 60_000);
        let (evaluation, reason) = (Box::new(evaluation), "it is back up".to_owned());
        let action = CommandAction::Replay { command: id, evaluation, limits, minute, reason };
        self.on_command(Actor::person("ana"), action)
    }

    pub fn cancel_command(&mut self, id: CommandId) -> Result<Command, Refusal> {
        let reason = "no longer wanted".to_owned();
        self.on_command(Actor::person("ana"), CommandAction::Cancel { command: id, holder: None, reason })
    }

    pub fn tick_command(&mut self, id: CommandId) -> Ticked {
        let action = Action::Command(Box::new(CommandAction::Tick { command: id }));
        match self.submit(Actor::system("sweeper"), action).expect("a tick of a known command") {
            Reply::Ticked(ticked) => ticked,
            other => panic!("{other:?}"),
        }
    }

    pub fn why(&self, work: WorkId) -> Option<ReasonCode> {
        self.row(work).body.reason.as_ref().map(|reason| reason.code)
    }

    /// Records that a store reads anew before each batch: earlier runs' commands, and the first of each
    /// target.
    pub(super) fn look_at_commands(&mut self) {
        let records = &mut self.records;
        records.policy_version = Some(POLICY.into());
        records.earlier.clear();
        let mut generations: Vec<_> = records.works.values().filter(|w| w.spec.rerun_of.is_some()).collect();
        generations.sort_by_key(|work| work.spec.generation);
        let keys: BTreeSet<_> = records.commands.values().flatten().map(|command| command.spec.key).collect();
        let mut earlier = Vec::new();
        for work in generations {
            for key in &keys {
                let mut before = work.spec.rerun_of;
                let mut found = None;
                while let (Some(id), None) = (before, found) {
                    let tells = |c: &&Command| c.spec.key == *key && c.is_current() && c.concerns_reruns();
                    found = records.commands_of(id).iter().find(tells);
                    before = records.works[&id].spec.rerun_of;
                }
                earlier.push(((work.id, *key), found.cloned()));
            }
        }
        records.earlier.extend(earlier);
        records.heads.clear();
        let mut ordered: Vec<&Command> = records.commands.values().flatten().collect();
        ordered.retain(|command| command.body.tool.ordered);
        ordered.sort_by_key(|command| (command.created_at, command.id));
        let mut heads = BTreeMap::new();
        for command in ordered {
            let head = heads.entry(target_key(command)).or_insert(None);
            if head.is_none() && command.state.is_open() {
                *head = Some(command.id);
            }
        }
        records.heads.extend(heads);
    }
}

/// The invariants of all commands.
pub(super) fn check(world: &World, before: &Records, touched: &BTreeSet<WorkId>) {
    let mut reserved: BTreeMap<BudgetKey, u64> = BTreeMap::new();
    for (work, commands) in &world.records.commands {
        if touched.contains(work) {
            rows_are_their_logs(world, *work, commands);
            intents_come_first(&world.log[work]);
        }
        let mut current = BTreeSet::new();
        for command in commands {
            assert!(
                !command.is_current() || current.insert(command.spec.key),
                "15: two commands with one key"
            );
            let receipt = command.body.receipt.is_some();
            assert_eq!(receipt, command.state == CommandState::Succeeded, "success is evidence: {command:?}");
            let due = due::next(command).map(|(_, at)| at);
            assert!(command.due_at.is_some() == due.is_some(), "12: {command:?}");
            if let Some(dispatch) = &command.body.dispatch {
                for part in &dispatch.reserved {
                    *reserved.entry(part.key.clone()).or_default() += part.amount;
                }
            }
        }
        for old in before.commands_of(*work) {
            let new = world.command(old.id);
            assert!(old.spec == new.spec && old.work == new.work, "an intent never changes");
            let late = old.state == CommandState::Cancelled
                && old.body.dispatches > 0
                && new.state == CommandState::Succeeded;
            if matches!(old.state, CommandState::Succeeded | CommandState::Cancelled) && !late {
                assert_eq!(old.state, new.state, "4: {} changed after its end", old.id);
            }
        }
    }
    for (key, budget) in &world.records.budgets {
        let set_aside = reserved.get(key).copied().unwrap_or(0);
        assert_eq!(Budget { reserved: set_aside, ..*budget }, *budget, "the reservation of {key:?}");
        if key.account != Account::Replays {
            let logs = world.log.values().filter_map(|log| refold::spending(log).get(key).copied());
            let spent: u64 = logs.map(|told| told.spent).sum();
            assert_eq!(budget.spent, spent, "{key:?} according to the logs");
        }
    }
}

fn rows_are_their_logs(world: &World, work: WorkId, commands: &[Command]) {
    let log = &world.log[&work];
    let row = world.row(work);
    let folded = fold::fold(log);
    assert_eq!(folded.len(), commands.len());
    for command in commands {
        assert!(fold::matches(command, &folded[&command.id]), "2: {command:#?}\n{:#?}", folded[&command.id]);
    }
    let count = |states: &[CommandState]| {
        commands.iter().filter(|c| c.is_worker() && states.contains(&c.state)).count() as u32
    };
    let tally = row.body.commands;
    assert_eq!(tally.total as usize, commands.len());
    assert_eq!(
        (tally.idle, tally.dispatched, tally.uncertain),
        (
            count(&[CommandState::Pending, CommandState::Blocked, CommandState::Approved]),
            count(&[CommandState::Dispatched]),
            count(&[CommandState::Uncertain])
        ),
        "{commands:#?}"
    );
    if row.state == State::Cancelled {
        let left = commands.iter().find(|c| c.state.is_idle() && c.body.replays == 0);
        assert!(left.is_none(), "a cancelled work would still send {left:#?}");
    }
    if row.state.is_success() {
        assert_eq!(tally.unsettled(), 0, "C17: success with a command in doubt");
    }
}

/// 13 and 14: a dispatch follows its intent, and after a doubt there is a permitted reason for it.
fn intents_come_first(log: &[Event]) {
    let mut doubt: BTreeMap<CommandId, bool> = BTreeMap::new();
    for event in log {
        let Some(moved) = event.fact.command() else { continue };
        match &event.fact {
            Fact::CommandReserved(_) => assert!(doubt.insert(moved.command, false).is_none()),
            Fact::CommandDispatched(_) => {
                assert_eq!(doubt.insert(moved.command, true), Some(false), "14: sent twice");
            }
            Fact::CommandUnsent(_) | Fact::CommandResent(_) | Fact::CommandReplayed(_) => {
                doubt.insert(moved.command, false);
            }
            Fact::CommandLookedUp(_) if moved.now != CommandState::Uncertain => {
                doubt.insert(moved.command, false);
            }
            _ => {}
        }
    }
}
