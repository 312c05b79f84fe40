//! A seeded actor: it does sensible and foolish things to a few works of its own tenant.

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::json;
use tenure_core::{
    Action, Actor, Command, CommandId, CommandState, Evidence, Payload, Reply, Submission, Usage, WaitId,
    WorkId,
    action::{
        Claim, ClaimBy, ClaimFilter, Claimant, CloseOut, Decide, Fail, Failure, Holder, Ingest, Renew,
        Resolve, StepAction, StepVerb, Target, Tenants, TokenCheck, WaitAction, WaitSpec,
    },
    command::budget::{Account, BudgetKey, Unit},
    liveness::{Liveness, Seen, Sighting},
    model::{
        AcceptStrength, Disposition, ErrorClass, OnParentClose, OnTimeout, Source, WaitKind, Worker, Workflow,
    },
    policy::{Jitter, LeaseTimings, OnExpiry, OnSpinning, RetryPolicy, Spinning, Timeouts, WorkPolicy},
    state::State,
};
use uuid::Uuid;

mod commands;

pub struct Script {
    pub seed: u64,
    dice: StdRng,
    works: Vec<WorkId>,
    leases: Vec<(WorkId, u64)>,
    waits: Vec<WaitId>,
    commands: Vec<Command>,
    /// Sent before: repeating it must be harmless.
    last: Option<Action>,
}

const STATES: [State; 7] = [
    State::Succeeded,
    State::CompletedWithWarnings,
    State::Failed,
    State::TimedOut,
    State::Cancelled,
    State::Abandoned,
    State::Running,
];
const CLASSES: [ErrorClass; 6] = [
    ErrorClass::Transport,
    ErrorClass::RateLimited,
    ErrorClass::Unavailable,
    ErrorClass::Unknown,
    ErrorClass::Auth,
    ErrorClass::Validation,
];
const ON_TIMEOUT: [OnTimeout; 6] = [
    OnTimeout::TimeOut,
    OnTimeout::Fail,
    OnTimeout::Warn,
    OnTimeout::Cancel,
    OnTimeout::Escalate,
    OnTimeout::Default,
];

/// The time between two rounds: mostly seconds, now and then past every deadline.
pub fn pause(group: u64, round: usize) -> i64 {
    match (group + round as u64) % 7 {
        0 => 40_000,
        3 => 90_000,
        5 if round.is_multiple_of(3) => 3 * 3_600_000,
        _ => 700,
    }
}

/// The payloads that a reply may refer to.
pub fn payload_keys(reply: &Reply) -> Vec<(WorkId, u64)> {
    let grants: Vec<&tenure_core::Grant> = match reply {
        Reply::Claimed(grants) => grants.iter().collect(),
        Reply::Ingested { grant: Some(grant), .. } => vec![&**grant],
        Reply::Resolved { grant: Some(grant), .. } => vec![&**grant],
        Reply::Command { grant: Some(grant), .. } => vec![&**grant],
        _ => Vec::new(),
    };
    let mut keys: Vec<(WorkId, u64)> = grants.iter().map(|grant| (grant.work.id, 1)).collect();
    keys.extend(grants.iter().flat_map(|grant| grant.steps.iter().filter_map(|step| step.result)));
    if let Reply::Resolved { answers, .. } = reply {
        keys.extend(answers.iter().filter_map(|answer| Some((answer.work, answer.seq?))));
    }
    if let Reply::Command { command, .. } | Reply::Dispatch { command, .. } = reply {
        keys.push((command.work, command.body.arguments));
        keys.extend(command.body.receipt.as_ref().and_then(|receipt| receipt.response));
    }
    keys
}

/// The budgets that a tenant's commands count on.
pub fn budgets(tenant: &str) -> Vec<BudgetKey> {
    let key = |account, unit, period: &str| BudgetKey {
        tenant: tenant.to_owned(),
        account,
        unit,
        period: period.to_owned(),
        only: None,
    };
    vec![
        key(Account::Tenant, Unit::Tokens, "today"),
        key(Account::Tool("tool-0".into()), Unit::Calls, ""),
        key(Account::Tool("tool-1".into()), Unit::Calls, ""),
        key(Account::Replays, Unit::Calls, "7"),
    ]
}

impl Script {
    pub fn new(seed: u64) -> Self {
        let dice = StdRng::seed_from_u64(seed);
        Self {
            seed,
            dice,
            works: Vec::new(),
            leases: Vec::new(),
            waits: Vec::new(),
            commands: Vec::new(),
            last: None,
        }
    }

    pub fn tenant(&self) -> String {
        format!("tenant-{}", self.seed)
    }

    /// Remembers what a reply gave, to use and abuse it later.
    pub fn learn(&mut self, reply: &Reply) {
        let mut lease = |grant: &tenure_core::Grant| self.leases.push((grant.work.id, grant.work.fence));
        match reply {
            Reply::Ingested { work, grant, .. } => {
                grant.iter().for_each(|grant| lease(grant));
                if !self.works.contains(&work.id) {
                    self.works.push(work.id);
                }
            }
            Reply::Claimed(grants) => grants.iter().for_each(lease),
            Reply::Resolved { grant: Some(grant), .. } => lease(grant),
            Reply::Waiting { ack, .. } => self.waits.extend(&ack.waits),
            Reply::Command { command, grant, .. } => {
                grant.iter().for_each(|grant| lease(grant));
                self.learn_command(command);
            }
            Reply::Dispatch { command, .. } => self.learn_command(command),
            _ => {}
        }
    }

    pub fn next(&mut self) -> Submission {
        let again = self.dice.random_bool(0.06).then(|| self.last.clone()).flatten();
        let action = again.unwrap_or_else(|| self.action());
        self.last = Some(action.clone());
        let actor = match self.dice.random_range(0..3) {
            0 => Actor::person("ana"),
            1 => Actor::worker("worker-0"),
            _ => Actor::machine("bridge"),
        };
        let tenants = match self.dice.random_range(0..25) {
            0 => Tenants::Only(vec!["somebody-else".to_owned()]),
            1..=5 => Tenants::All,
            _ => Tenants::Only(vec![self.tenant()]),
        };
        Submission::new(actor, tenants, action, self.dice.random())
    }

    fn action(&mut self) -> Action {
        if self.works.is_empty() {
            return self.ingest();
        }
        if !self.leases.is_empty() && self.dice.random_bool(0.3) {
            return self.command();
        }
        match self.dice.random_range(0..100) {
            0..12 => self.ingest(),
            12..28 => self.claim(),
            28..34 => self.renew(),
            34..38 => {
                let strength =
                    *[AcceptStrength::Weak, AcceptStrength::Strong].choose(&mut self.dice).unwrap();
                Action::Accept { holder: self.holder(), strength }
            }
            38..43 => Action::Progress {
                holder: self.holder(),
                progress: self.payload(),
                request_id: self.dice.random_bool(0.5).then(|| "p1".to_owned()),
            },
            43..51 => self.step(),
            51..58 => self.wait(),
            58..64 => self.resolve(),
            64..68 => self.fail(),
            68..70 => Action::Release { holder: self.holder(), message: None, usage: self.usage() },
            70..77 => Action::CloseOut { holder: self.holder(), close: self.close() },
            77..79 => Action::Cancel {
                work: self.work(),
                reason: "enough".to_owned(),
                deadline_ms: self.dice.random_bool(0.5).then_some(5_000),
            },
            79 if self.dice.random_bool(0.5) => {
                Action::RequestRelease { work: self.work(), reason: "the host goes".to_owned() }
            }
            79 => Action::RequestAbandon { work: self.work(), reason: "nobody knows".to_owned() },
            80 if self.dice.random_bool(0.5) => {
                Action::Erase { work: self.work(), reason: "their wish".to_owned() }
            }
            80 => Action::RetryNow { work: self.work(), reason: "now".to_owned() },
            81 => Action::Quarantine { work: self.work(), reason: "odd".to_owned() },
            82..85 => self.decide(),
            85 => self.rerun(),
            86 => Action::RevokeWaits { work: self.work(), reason: "no longer".to_owned() },
            87 => Action::Complete { work: self.work(), genuine: self.mostly(), close: self.close() },
            88 => Action::AbandonOwn {
                holder: self.holder(),
                reason: "draining".to_owned(),
                usage: self.usage(),
            },
            _ => self.tick(),
        }
    }

    fn mostly(&mut self) -> bool {
        self.dice.random_bool(0.9)
    }

    fn uuid(&mut self) -> Uuid {
        // The seed leads, so that ids of different seeds never meet.
        Uuid::from_u128(u128::from(self.seed) << 64 | u128::from(self.dice.random::<u64>()))
    }

    fn work(&mut self) -> WorkId {
        if self.dice.random_bool(0.02) {
            return WorkId(self.uuid());
        }
        *self.works.choose(&mut self.dice).unwrap()
    }

    fn holder(&mut self) -> Holder {
        let newest = self.leases.len().saturating_sub(4);
        let recent = self.dice.random_bool(0.8);
        let among = if recent { &self.leases[newest..] } else { &self.leases[..] };
        let (work, fence) = among.choose(&mut self.dice).copied().unwrap_or((self.works[0], 1));
        Holder { work, fence, genuine: self.mostly() }
    }

    fn payload(&mut self) -> Payload {
        Payload::new(&json!({ "n": self.dice.random_range(0..4), "text": "ä\u{1F980}\"\\" })).unwrap()
    }

    fn claimant(&mut self) -> Claimant {
        let worker = self.dice.random_range(0..2);
        let liveness = if self.dice.random_bool(0.3) {
            Liveness::LocalProcess { boot_id: "b".into(), pid_namespace: 1, pid: 2, start_time: 3 }
        } else {
            Liveness::Opaque
        };
        Claimant {
            worker: Worker {
                id: format!("worker-{}-{worker}", self.seed),
                // Both may call theirs the same: an incarnation is its worker's own.
                incarnation: format!("boot-{}", self.dice.random_range(0..2)),
                liveness,
            },
            request_id: format!("r{}", self.dice.random_range(0..40)),
            defer_start: self.dice.random_bool(0.3),
        }
    }

    fn policy(&mut self) -> WorkPolicy {
        let some = |dice: &mut StdRng, ms: u64| dice.random_bool(0.2).then_some(ms);
        WorkPolicy {
            lease: LeaseTimings::new(45_000, 15_000, if self.mostly() { 30_000 } else { 0 }).unwrap(),
            on_expiry: if self.mostly() { OnExpiry::Leave } else { OnExpiry::Timeout },
            retry: RetryPolicy {
                jitter: *[Jitter::Full, Jitter::Equal, Jitter::None].choose(&mut self.dice).unwrap(),
                ..RetryPolicy::default()
            },
            timeouts: Timeouts {
                start_ms: some(&mut self.dice, 60_000),
                execution_ms: some(&mut self.dice, 120_000),
                overall_ms: some(&mut self.dice, 4 * 3_600_000),
            },
            spinning: some(&mut self.dice, 60_000).map(|after_ms| Spinning {
                after_ms,
                then: if self.mostly() { OnSpinning::StopRenewing } else { OnSpinning::Mark },
            }),
            ..WorkPolicy::default()
        }
    }

    fn ingest(&mut self) -> Action {
        let number = self.dice.random_range(0..12);
        let system = *["conversation", "control", "scheduler", "manual"].choose(&mut self.dice).unwrap();
        let disposition = *[
            Disposition::Rerunnable,
            Disposition::Rerunnable,
            Disposition::OwnerBound,
            Disposition::ExternallyOwned,
        ]
        .choose(&mut self.dice)
        .unwrap();
        let external = disposition == Disposition::ExternallyOwned;
        Action::Ingest(Box::new(Ingest {
            id: WorkId(self.uuid()),
            tenant: self.tenant(),
            source: Source {
                system: system.to_owned(),
                id: format!("m{number}"),
                run_id: if system == "scheduler" && self.mostly() { "run".to_owned() } else { String::new() },
            },
            kind: format!("kind-{}-{}", self.seed, number % 2),
            title: None,
            disposition,
            input: Payload::new(&json!({ "n": number })).unwrap(),
            priority: self.dice.random_range(1..4),
            session: (!external && self.dice.random_bool(0.4)).then(|| format!("s{}", number % 2)),
            correlation_id: self.dice.random_bool(0.3).then(|| "thread-9".to_owned()),
            workflow: self
                .dice
                .random_bool(0.2)
                .then(|| Workflow { id: "wf".to_owned(), version: "1".to_owned() }),
            parent: (!self.works.is_empty() && self.dice.random_bool(0.2)).then(|| self.work()),
            on_parent_close: if self.dice.random_bool(0.6) {
                OnParentClose::Cancel
            } else {
                OnParentClose::Leave
            },
            policy: self.policy(),
            evidence: vec![Evidence { kind: "trace".to_owned(), reference: "t/1".to_owned() }],
            asked_by: Vec::new(),
            claim: (!external && self.dice.random_bool(0.3)).then(|| self.claimant()),
            born: (external && self.dice.random_bool(0.2)).then(|| CloseOut {
                no_output: true,
                result: None,
                result_ref: None,
                warnings: Vec::new(),
                state: State::Succeeded,
                error: None,
                evidence: Vec::new(),
                commands: Vec::new(),
                usage: self.usage(),
            }),
        }))
    }

    fn claim(&mut self) -> Action {
        let by = if self.dice.random_bool(0.3) {
            let count = self.dice.random_range(1..3);
            ClaimBy::Ids((0..count).map(|_| self.work()).collect())
        } else {
            ClaimBy::Filter(ClaimFilter {
                sources: if self.dice.random_bool(0.3) {
                    vec!["conversation".to_owned()]
                } else {
                    Vec::new()
                },
                kinds: vec![format!("kind-{}-0", self.seed), format!("kind-{}-1", self.seed)],
                tenants: vec![self.tenant()],
                max: self.dice.random_range(0..4),
            })
        };
        Action::Claim(Claim { claimant: self.claimant(), by })
    }

    fn renew(&mut self) -> Action {
        let count = self.dice.random_range(1..4);
        let renewals = (0..count)
            .map(|_| Renew {
                holder: self.holder(),
                progress: self.dice.random_bool(0.3).then(|| self.payload()),
            })
            .collect();
        Action::Renew(renewals)
    }

    fn step(&mut self) -> Action {
        let step = format!("step-{}", self.dice.random_range(0..4));
        let input_hash = self.payload().hash();
        let verb = if self.dice.random_bool(0.5) {
            StepVerb::Begin { restart: self.dice.random_bool(0.2) }
        } else {
            StepVerb::Complete { result: self.payload() }
        };
        Action::Step(StepAction { holder: self.holder(), step, input_hash, verb })
    }

    fn reference(&mut self) -> String {
        match self.dice.random_range(0..8) {
            0 => format!("work:{}", self.work()),
            1 if !self.commands.is_empty() => {
                format!("command:{}", self.commands.choose(&mut self.dice).unwrap().id)
            }
            n => format!("ref-{}", n % 4),
        }
    }

    fn wait_spec(&mut self) -> WaitSpec {
        let on_timeout = *ON_TIMEOUT.choose(&mut self.dice).unwrap();
        WaitSpec {
            id: WaitId(self.uuid()),
            kind: *WaitKind::ALL.choose(&mut self.dice).unwrap(),
            reference: self.reference(),
            prompt: Some("may I?".to_owned()),
            assignee: self.dice.random_bool(0.5).then(|| "ana".to_owned()),
            timeout_ms: self.dice.random_bool(0.4).then_some(60_000),
            endless: self.dice.random_bool(0.2),
            on_timeout,
            default: (on_timeout == OnTimeout::Default).then(|| self.payload()),
            schema: None,
            command: self.handed(),
            judged: None,
        }
    }

    /// A dispatched command, now and then, to be handed to a wait.
    fn handed(&mut self) -> Option<tenure_core::CommandId> {
        let sent: Vec<_> = self.commands.iter().filter(|c| c.state == CommandState::Dispatched).collect();
        let one = sent.choose(&mut self.dice).map(|command| command.id);
        one.filter(|_| self.dice.random_bool(0.5))
    }

    fn wait(&mut self) -> Action {
        let count = self.dice.random_range(1..3);
        Action::Wait(WaitAction {
            holder: self.holder(),
            waits: (0..count).map(|_| self.wait_spec()).collect(),
            message: Some("needs an answer".to_owned()),
            tool: self.dice.random_bool(0.3).then(|| "mail".to_owned()),
            usage: self.usage(),
        })
    }

    fn resolve(&mut self) -> Action {
        let target = match self.waits.choose(&mut self.dice).copied() {
            Some(id) if self.dice.random_bool(0.4) => {
                let token = if self.mostly() { TokenCheck::Genuine } else { TokenCheck::Absent };
                Target::Wait { id, token, seal: None }
            }
            _ => Target::Reference { tenant: self.tenant(), reference: self.reference() },
        };
        Action::Resolve(Resolve {
            target,
            payload: self.payload(),
            claim: self.dice.random_bool(0.3).then(|| self.claimant()),
        })
    }

    fn fail(&mut self) -> Action {
        let class = *CLASSES.choose(&mut self.dice).unwrap();
        let wait = (class == ErrorClass::Auth && self.dice.random_bool(0.5))
            .then(|| WaitSpec { kind: WaitKind::Auth, ..self.wait_spec() });
        Action::Fail(Fail {
            holder: self.holder(),
            error: Failure {
                class,
                message: "it broke".to_owned(),
                retry_after_ms: self.dice.random_bool(0.2).then_some(2_500),
                fingerprint: self.dice.random_bool(0.5).then(|| "same".to_owned()),
            },
            wait,
            usage: self.usage(),
        })
    }

    fn usage(&self) -> Vec<Usage> {
        let number = self.leases.len() + self.waits.len();
        let one = |n: usize| Usage {
            source: (n == 0).then(|| "provider".to_owned()),
            model: Some(format!("model-{n}")),
            input_tokens: number as u64,
            ..Usage::default()
        };
        (0..number % 3).map(one).collect()
    }

    fn close(&mut self) -> CloseOut {
        let state = *STATES.choose(&mut self.dice).unwrap();
        let output = self.dice.random_range(0..4);
        CloseOut {
            state,
            result: (output == 0).then(|| self.payload()),
            result_ref: (output == 1).then(|| "s3://bucket/key".to_owned()),
            no_output: output == 2,
            warnings: if self.dice.random_bool(0.3) { vec!["slow".to_owned()] } else { Vec::new() },
            error: self.dice.random_bool(0.3).then(|| (ErrorClass::Unknown, "why".to_owned())),
            evidence: Vec::new(),
            commands: if self.dice.random_bool(0.2) { vec![self.outgoing()] } else { Vec::new() },
            usage: self.usage(),
        }
    }

    fn outgoing(&mut self) -> (CommandId, tenure_core::command::Intent) {
        let mut intent = self.intent();
        if self.mostly() {
            intent.evaluation.tool.executor = tenure_core::command::Executor::Http;
        }
        (CommandId(self.uuid()), intent)
    }

    fn decide(&mut self) -> Action {
        let decision =
            if self.dice.random_bool(0.5) { Decide::Requeue } else { Decide::Close(Box::new(self.close())) };
        Action::Decide { work: self.work(), reason: "looked at it".to_owned(), decision }
    }

    fn rerun(&mut self) -> Action {
        let from_step = self.dice.random_bool(0.5).then(|| format!("step-{}", self.dice.random_range(0..4)));
        Action::Rerun {
            of: self.work(),
            id: WorkId(self.uuid()),
            from_step,
            execute: self.commands.choose(&mut self.dice).map(|c| c.spec.key).into_iter().collect(),
            reason: "again".to_owned(),
        }
    }

    fn tick(&mut self) -> Action {
        let work = self.work();
        let fence = self.leases.iter().rev().find(|(id, _)| *id == work).map_or(0, |(_, fence)| *fence);
        let seen = *[Seen::Running, Seen::Stopped, Seen::Gone].choose(&mut self.dice).unwrap();
        let sighting =
            self.dice.random_bool(0.2).then(|| Sighting { fence, seen, detail: "pid 2".to_owned() });
        let watched_ms = if self.dice.random_bool(0.8) { 100_000 } else { 10 };
        Action::Tick { work, looked_at: i64::MAX, watched_ms, sighting }
    }
}
