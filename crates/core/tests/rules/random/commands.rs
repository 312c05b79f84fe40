//! Commands in random histories: workers, people, the relay, lookups and mistakes.

use tenure_core::{
    Actor, CommandId, CommandState, Refusal,
    action::CloseOut,
    command::{
        CommandAction, DispatchAction, Dispatcher, Duty, Effect, Evaluation, Finding, Proof, Recorded,
        ReplayLimits, ReserveIn, Risk, Sender, ToolFacts,
        budget::{Cost, Limit, Per, Unit},
        due,
    },
    model::ErrorClass,
};

use super::*;

/// A random evaluation: mostly allowing, sometimes not, sometimes with a budget.
fn door(a: u8, b: u8) -> Evaluation {
    let effect = [Effect::Allow, Effect::Allow, Effect::NeedsApproval, Effect::Deny][usize::from(a) % 4];
    let facts = [native(), lookup(), ToolFacts { risk: Risk::High, ..lookup() }, ToolFacts::default()];
    let mut evaluation = evaluation(effect, facts[usize::from(b) % 4].clone());
    evaluation.tool.approval_ms = 30_000;
    evaluation.tool.native_window_ms = 600_000;
    if a.is_multiple_of(5) {
        evaluation.limits =
            vec![Limit { per: Per::Tenant, unit: Unit::Tokens, period: String::new(), max: 300, only: None }];
        evaluation.estimate = Cost { tokens: u64::from(b), micros: Vec::new() };
    }
    evaluation
}

impl Actors {
    pub(super) fn any_command(&self, n: u8) -> Option<CommandId> {
        let mut ids: Vec<CommandId> = self.world.records.command_ids.keys().copied().collect();
        ids.sort_unstable();
        (!ids.is_empty()).then(|| ids[usize::from(n) % ids.len()])
    }

    fn in_state(&self, n: u8, state: CommandState) -> Option<CommandId> {
        let mut such: Vec<CommandId> = self
            .world
            .records
            .commands
            .values()
            .flatten()
            .filter(|command| command.state == state)
            .map(|command| command.id)
            .collect();
        such.sort_unstable();
        if such.is_empty() { self.any_command(n) } else { Some(such[usize::from(n) % such.len()]) }
    }

    pub(super) fn dispatched(&self, n: u8) -> Option<CommandId> {
        self.in_state(n, CommandState::Dispatched)
    }

    pub(super) fn command(&mut self, what: u8, a: u8, b: u8, c: u8) {
        // The world checks the result; here only that nothing fails half-way.
        let _: Option<Result<tenure_core::Command, Refusal>> = match what {
            0..=2 => self.reserves(a, b, c),
            3 | 4 => self.dispatches(a, b, c),
            5 => self.tells(a, b, c),
            6 => self.decides(a, b, c),
            7 => self.in_state(a, CommandState::Uncertain).map(|id| self.looks_up(id, b)),
            8 => self.in_state(a, CommandState::Failed).map(|id| {
                let evaluation = Box::new(door(b, c));
                let (limits, minute) = (ReplayLimits::default(), self.world.now / 60_000);
                let reason = "again".to_owned();
                let actor = if c.is_multiple_of(4) { Actor::machine("bot") } else { Actor::person("ana") };
                let replay = CommandAction::Replay { command: id, evaluation, limits, minute, reason };
                let outcome = self.world.on_command(actor.clone(), replay);
                assert!(outcome.is_err() || actor == Actor::person("ana"), "only a person replays");
                outcome
            }),
            _ => {
                self.outbox(a, b, c);
                if let Some(id) = self.any_command(a) {
                    self.world.tick_command(id);
                }
                None
            }
        };
    }

    fn reserves(&mut self, a: u8, b: u8, c: u8) -> Option<Result<tenure_core::Command, Refusal>> {
        let lease = self.leases.iter().rev().nth(usize::from(c % 3))?.clone();
        let id = self.world.command_id();
        let (id, mut wanted) = intent(id, ["hi", "hello"][usize::from(b % 2)], door(a, c));
        wanted.slot = Some(format!("s{}", b % 3));
        if a.is_multiple_of(4) {
            wanted.evaluation.tool.executor = tenure_core::command::Executor::Http;
        }
        // Sometimes a person continues with a command that a worker reserved.
        let actor = if c.is_multiple_of(5) { Actor::person("ria") } else { Actor::worker(&lease.worker) };
        let (place, intent) = (ReserveIn::Work(lease.holder()), Box::new(wanted));
        Some(self.world.on_command(actor, CommandAction::Reserve { place, id, intent }))
    }

    fn dispatches(&mut self, a: u8, b: u8, c: u8) -> Option<Result<tenure_core::Command, Refusal>> {
        let states =
            [CommandState::Pending, CommandState::Approved, CommandState::Uncertain, CommandState::Blocked];
        let id = self.in_state(a, states[usize::from(b) % 4])?;
        let command = self.world.command(id).clone();
        let lease = self.leases.iter().rev().find(|lease| lease.work == command.work);
        let by = match lease {
            Some(lease) if command.is_worker() => {
                Dispatcher::Holder(Holder { genuine: c % 16 != 7, ..lease.holder() })
            }
            Some(_) | None => Dispatcher::Relay,
        };
        let mut evaluation = door(if c.is_multiple_of(3) { a } else { 0 }, b);
        evaluation.tool = if c.is_multiple_of(2) { command.body.tool.clone() } else { evaluation.tool };
        let request_id = c.is_multiple_of(3).then(|| format!("d{}", b % 2));
        let action = DispatchAction { command: id, by, evaluation, request_id };
        Some(self.world.on_command(Actor::worker("w1"), CommandAction::Dispatch(Box::new(action))))
    }

    fn tells(&mut self, a: u8, b: u8, c: u8) -> Option<Result<tenure_core::Command, Refusal>> {
        let id = self.dispatched(a)?;
        let last = self.world.sender(id);
        // Now and then a report from the last dispatch but one, or without a number.
        let dispatch = match c % 8 {
            1 => last.dispatch.and_then(|number| number.checked_sub(1)),
            2 => None,
            _ => last.dispatch,
        };
        let fence = dispatch.and_then(|number| self.world.command(id).fence_of(number)).unwrap_or(last.fence);
        let sender = Sender { genuine: c % 16 != 7, dispatch, fence, ..last };
        let classes =
            [ErrorClass::Transport, ErrorClass::Unavailable, ErrorClass::Validation, ErrorClass::Unknown];
        let error = error(classes[usize::from(c) % 4]);
        let action = match b % 5 {
            0 | 1 => CommandAction::Receipt { command: id, sender, proof: Box::new(Proof::provider("x")) },
            2 => CommandAction::Fail { command: id, sender, error, unsent: a.is_multiple_of(2) },
            3 => CommandAction::Fail { command: id, sender, error, unsent: true },
            _ => CommandAction::Uncertain { command: id, sender, error },
        };
        let outcome = self.world.on_command(Actor::worker("w1"), action);
        assert!(sender.genuine || outcome.is_err(), "only the caller that dispatched it reports the outcome");
        Some(outcome)
    }

    fn decides(&mut self, a: u8, b: u8, c: u8) -> Option<Result<tenure_core::Command, Refusal>> {
        match b % 4 {
            0 | 1 => {
                let id = self.in_state(a, CommandState::Blocked)?;
                let actor = if c.is_multiple_of(4) { Actor::machine("bot") } else { Actor::person("ana") };
                let outcome = self.world.approve_as(actor.clone(), id);
                assert!(outcome.is_err() || actor == Actor::person("ana"), "only a person approves");
                Some(outcome)
            }
            2 if c.is_multiple_of(2) => {
                self.in_state(a, CommandState::Blocked).map(|id| self.world.reject(id))
            }
            2 => self.any_command(a).map(|id| self.world.cancel_command(id)),
            _ => {
                let id = self.in_state(a, CommandState::Uncertain)?;
                let outcome = match c % 2 {
                    0 => Recorded::DidNotHappen,
                    _ => Recorded::Happened(Proof::provider("seen")),
                };
                Some(self.world.record(id, outcome))
            }
        }
    }

    fn looks_up(&mut self, id: CommandId, b: u8) -> Result<tenure_core::Command, Refusal> {
        let finding = match b % 4 {
            0 => Finding::Found(Proof::provider("found")),
            1 => Finding::Absent,
            _ => Finding::Unknown,
        };
        self.world.reconcile(id, finding)
    }

    fn outbox(&mut self, a: u8, b: u8, c: u8) {
        let Some(lease) = self.leases.last().cloned().filter(|_| a.is_multiple_of(3)) else { return };
        let id = self.world.command_id();
        let (id, mut wanted) = intent(id, "bye", door(b, c));
        wanted.evaluation.tool.executor = tenure_core::command::Executor::Http;
        wanted.evaluation.tool.ordered = c.is_multiple_of(2);
        let close = CloseOut { commands: vec![(id, wanted)], ..close(State::Succeeded) };
        let _: Result<Reply, Refusal> =
            self.world.by(&lease, Action::CloseOut { holder: lease.holder(), close });
    }

    /// Everything that the sweeper has to do comes to an end: no tick leads nowhere twice.
    pub(super) fn sweep_out_commands(&mut self) {
        for _ in 0..120 {
            let commands = self.world.records.commands.values().flatten();
            let next = commands
                .filter_map(|command| due::next(command).map(|(duty, at)| (at, command.id, duty)))
                .filter(|(_, _, duty)| *duty == Duty::Tick)
                .min();
            let Some((at, id, _)) = next else { return };
            self.world.now = self.world.now.max(at);
            let events = self.world.events();
            self.world.tick_command(id);
            assert!(self.world.events() > events, "a due command's tick does something");
        }
    }
}
