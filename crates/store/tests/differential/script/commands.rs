//! Commands in a script: reserved, dispatched, told of, looked up, approved, replayed; rightly and wrongly.

use rand::{Rng, seq::IndexedRandom};
use tenure_core::{
    Action, CommandId, CommandState, WorkId,
    command::{
        Arguments, CallError, Command, CommandAction, CommandKind, DispatchAction, Dispatcher, Effect,
        Evaluation, Executor, Finding, Idempotency, Intent, LookupClaim, PolicyDecision, Proof, Recorded,
        ReplayLimits, ReserveIn, Risk, Sender, ToolFacts,
        budget::{Cost, Limit, Per, Unit},
    },
    payload::Digest,
};

use super::{CLASSES, Script};

impl Script {
    /// Remembers a command as it was last seen.
    pub(super) fn learn_command(&mut self, command: &Command) {
        self.commands.retain(|known| known.id != command.id);
        self.commands.push(command.clone());
        if !self.works.contains(&command.work) {
            self.works.push(command.work);
        }
    }

    fn known(&mut self, states: &[CommandState]) -> Option<Command> {
        let such: Vec<&Command> = self.commands.iter().filter(|c| states.contains(&c.state)).collect();
        let any = such.is_empty() || self.dice.random_bool(0.15);
        if any {
            self.commands.choose(&mut self.dice).cloned()
        } else {
            such.choose(&mut self.dice).copied().cloned()
        }
    }

    fn evaluation(&mut self) -> Evaluation {
        let effect = *[Effect::Allow, Effect::Allow, Effect::Allow, Effect::NeedsApproval, Effect::Deny]
            .choose(&mut self.dice)
            .unwrap();
        let idempotency =
            *[Idempotency::Native, Idempotency::Lookup, Idempotency::None].choose(&mut self.dice).unwrap();
        let tool = ToolFacts {
            idempotency,
            risk: if self.dice.random_bool(0.7) { Risk::Low } else { Risk::High },
            executor: if self.dice.random_bool(0.7) { Executor::Worker } else { Executor::Http },
            consistency_delay_ms: if self.dice.random_bool(0.5) { 0 } else { 30_000 },
            ordered: self.dice.random_bool(0.3),
            max_unknowns: 2,
            approval_ms: 60_000,
            native_window_ms: 600_000,
            ..ToolFacts::default()
        };
        let limits = match self.dice.random_range(0..3) {
            0 => vec![
                Limit { per: Per::Tenant, unit: Unit::Tokens, period: "today".into(), max: 900, only: None },
                Limit { per: Per::Tool, unit: Unit::Calls, period: String::new(), max: 6, only: None },
            ],
            1 => vec![Limit {
                per: Per::Work,
                unit: Unit::Micros("EUR".into()),
                period: String::new(),
                max: 70,
                only: None,
            }],
            _ => Vec::new(),
        };
        let estimate = Cost {
            tokens: self.dice.random_range(0..400),
            micros: vec![("EUR".to_owned(), self.dice.random_range(0..40))],
        };
        Evaluation { decision: PolicyDecision::new(effect, "p1"), tool, limits, estimate }
    }

    pub(super) fn intent(&mut self) -> Intent {
        Intent {
            tool: format!("tool-{}", self.dice.random_range(0..2)),
            target: "bob".to_owned(),
            step: self.dice.random_bool(0.2).then(|| "step-1".to_owned()),
            slot: self.dice.random_bool(0.5).then(|| format!("slot-{}", self.dice.random_range(0..3))),
            kind: CommandKind::Message,
            arguments: Arguments::whole(self.payload()),
            evaluation: self.evaluation(),
        }
    }

    pub(super) fn command(&mut self) -> Action {
        Action::Command(Box::new(self.command_action()))
    }

    fn command_action(&mut self) -> CommandAction {
        use CommandState::{Approved, Blocked, Dispatched, Failed, Pending, Uncertain};
        if self.commands.is_empty() || self.dice.random_bool(0.3) {
            return self.reserve();
        }
        match self.dice.random_range(0..20) {
            0..6 => self.dispatch(),
            6..11 => self.tell(),
            11..13 => match self.known(&[Blocked]) {
                Some(c) if self.dice.random_bool(0.8) => {
                    let seal = if self.mostly() { c.seal() } else { Digest::default() };
                    let four_eyes = self.dice.random_bool(0.3);
                    CommandAction::Approve { command: c.id, seal, four_eyes, reason: "fine".into() }
                }
                Some(c) => CommandAction::Reject { command: c.id, reason: "no".into() },
                None => self.reserve(),
            },
            13..15 => match self.known(&[Uncertain]) {
                Some(c) => {
                    let finding = match self.dice.random_range(0..4) {
                        0 => Finding::Found(Proof::provider("m-1")),
                        1 => Finding::Absent,
                        _ => Finding::Unknown,
                    };
                    let claim =
                        c.due_at.filter(|_| self.mostly()).map(|until| LookupClaim { until, genuine: true });
                    let finding = Box::new(finding);
                    CommandAction::Reconcile { command: c.id, claim, finding, message: None }
                }
                None => self.reserve(),
            },
            15 => match self.known(&[Failed]) {
                Some(c) => CommandAction::Replay {
                    command: c.id,
                    evaluation: Box::new(self.evaluation()),
                    limits: ReplayLimits::default(),
                    minute: 7,
                    reason: "again".into(),
                },
                None => self.reserve(),
            },
            16 => match self.known(&[Uncertain]) {
                Some(c) => {
                    let outcome = if self.mostly() {
                        Recorded::Happened(Proof::provider("seen"))
                    } else {
                        Recorded::DidNotHappen
                    };
                    CommandAction::Record {
                        command: c.id,
                        outcome: Box::new(outcome),
                        reason: "I asked".into(),
                    }
                }
                None => self.reserve(),
            },
            17 => match self.known(&[Pending, Blocked, Approved]) {
                Some(c) => CommandAction::Cancel { command: c.id, holder: None, reason: "no longer".into() },
                None => self.reserve(),
            },
            18 => match self.known(&[Uncertain]) {
                Some(c) => CommandAction::TakeLookup { command: c.id, for_ms: 30_000 },
                None => self.reserve(),
            },
            _ => match self.known(&[Approved, Dispatched, Uncertain]) {
                Some(c) => CommandAction::Tick { command: c.id },
                None => self.reserve(),
            },
        }
    }

    fn reserve(&mut self) -> CommandAction {
        let (id, intent) = (CommandId(self.uuid()), Box::new(self.intent()));
        if self.dice.random_bool(0.1)
            && let Action::Ingest(mut work) = self.ingest()
        {
            work.claim = Some(self.claimant());
            return CommandAction::Reserve { place: ReserveIn::OwnWork(work), id, intent };
        }
        CommandAction::Reserve { place: ReserveIn::Work(self.holder()), id, intent }
    }

    fn dispatch(&mut self) -> CommandAction {
        use CommandState::{Approved, Blocked, Pending, Uncertain};
        let Some(c) = self.known(&[Pending, Approved, Blocked, Uncertain]) else { return self.reserve() };
        let lease = self.leases.iter().rev().find(|(work, _)| *work == c.work).copied();
        let by = match lease {
            Some(_) if c.is_worker() => {
                let fence = self.fence_of(c.work);
                Dispatcher::Holder(tenure_core::action::Holder {
                    work: c.work,
                    fence,
                    genuine: self.mostly(),
                })
            }
            _ => Dispatcher::Relay,
        };
        let mut evaluation = self.evaluation();
        if self.mostly() {
            evaluation.tool = c.body.tool.clone();
        }
        let request_id = self.dice.random_bool(0.5).then(|| "d1".to_owned());
        CommandAction::Dispatch(Box::new(DispatchAction { command: c.id, by, evaluation, request_id }))
    }

    fn fence_of(&self, work: WorkId) -> u64 {
        self.leases.iter().rev().find(|(id, _)| *id == work).map_or(1, |(_, fence)| *fence)
    }

    fn tell(&mut self) -> CommandAction {
        use CommandState::{Dispatched, Uncertain};
        let Some(c) = self.known(&[Dispatched, Dispatched, Uncertain]) else { return self.reserve() };
        let number = c.body.dispatches.saturating_sub(u32::from(!self.mostly()));
        let fence = c.fence_of(number).unwrap_or(1);
        let dispatch = self.mostly().then_some(number);
        let sender = Sender { work: c.work, fence, dispatch, genuine: self.mostly() };
        let class = *CLASSES.choose(&mut self.dice).unwrap();
        let error = CallError { class, message: "the line broke".into(), retry_after_ms: None };
        match self.dice.random_range(0..4) {
            0 | 1 => {
                let mut proof = Proof::provider("msg-1");
                proof.response = self.dice.random_bool(0.5).then(|| self.payload());
                proof.cost = self.dice.random_bool(0.3).then(|| Cost { tokens: 11, micros: Vec::new() });
                CommandAction::Receipt { command: c.id, sender, proof: Box::new(proof) }
            }
            2 => CommandAction::Fail { command: c.id, sender, error, unsent: self.dice.random_bool(0.6) },
            _ => CommandAction::Uncertain { command: c.id, sender, error },
        }
    }
}
