//! A ledger with workers, a relay that may be killed at any moment, a reconciler, a sweeper, a person, and a
//! provider.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::json;
use tenure_core::{
    Actor, Command, CommandId, CommandState, State,
    action::{Claimant, CloseOut},
    command::{BlockCode, CallError, Intent, Proof},
    model::{Disposition, ErrorClass},
    policy::{LeaseTimings, PolicyOverrides, RetryPolicy},
};
use tenure_store::{LeaseRef, Ledger, ManualClock, NewWork, new_worker};
use tenure_testkit::Provider;
use tokio::task::JoinSet;

use super::{
    actors::{Scenario, Stage, Told},
    dice::Dice,
    truth::Truth,
};
use crate::bed::Bed;

/// The lookups that a provider supports, and its caller.
const TOOLS: [(&str, &str); 8] = [
    ("native_hook", "risk = \"low\"\nidempotency = \"native\""),
    ("lookup_hook", "risk = \"low\"\nconsistency_delay = \"1s\""),
    ("risky_hook", "risk = \"high\"\nconsistency_delay = \"1s\""),
    ("plain_hook", "risk = \"low\""),
    ("ordered_hook", "risk = \"low\"\nordered = true"),
    ("native_task", "risk = \"low\"\nidempotency = \"native\""),
    ("lookup_task", "risk = \"low\"\nconsistency_delay = \"1s\""),
    ("plain_task", "risk = \"low\""),
];

fn toml(provider: &Provider, finder: &Provider) -> String {
    let mut text = String::new();
    for (tool, said) in TOOLS {
        text += &format!(
            "[tools.{tool}]\n{said}\nretry = {{ max_attempts = 4, initial = \"1s\", max = \"4s\" }}\n"
        );
        if tool.ends_with("hook") {
            text += &format!(
                "executor = \"http\"\nhttp = {{ url = \"{}\", networks = [\"127.0.0.0/8\"], timeout = \"500ms\", \
                 external_id = \"/id\" }}\n",
                provider.url(&format!("/{tool}"))
            );
        }
        if said.contains("delay") {
            text += &format!(
                "lookup = {{ by = \"http\", interval = \"1s\", max_unknowns = 3, \
                 http = {{ url = \"{}\", networks = [\"127.0.0.0/8\"] }} }}\n",
                finder.url("/find")
            );
        }
    }
    text
}

pub struct World {
    pub ledger: Ledger,
    pub truth: Arc<Truth>,
    provider: Provider,
    finder: Provider,
    bed: Bed,
    stage: Arc<Stage>,
    scenarios: Vec<Scenario>,
    dice: Dice,
    kills: usize,
}

impl World {
    pub async fn new(ledger: Ledger, clock: Arc<ManualClock>, seed: u64) -> Self {
        let truth = Truth::new(ledger.clone(), seed);
        let (calls, finds) = (truth.clone(), truth.clone());
        let provider = Provider::start(move |call| calls.over_http(call));
        let finder = Provider::start(move |call| finds.look_up(call));
        let bed = Bed::over(ledger.clone(), clock, &toml(&provider, &finder), Arc::default());
        let stage = Stage {
            ledger: ledger.clone(),
            truth: truth.clone(),
            told: Mutex::default(),
            requests: AtomicU64::new(0),
        };
        let (stage, scenarios, dice) = (Arc::new(stage), Vec::new(), Dice(seed));
        Self { ledger, truth, provider, finder, bed, stage, scenarios, dice, kills: 0 }
    }

    fn wanted(&self, tool: &str, n: usize) -> Intent {
        // Ordered commands share a few targets, all others have their own.
        let target = if tool == "ordered_hook" { n % 40 } else { n };
        self.bed.new_command(tool, &format!("t{target}"), &json!({ "n": n }))
    }

    async fn held(ledger: Ledger, n: usize) -> LeaseRef {
        let worker = ledger.caller(Actor::worker("w"));
        let new = NewWork::new("manual", &n.to_string(), "job", Disposition::Rerunnable, json!({}));
        let policy = PolicyOverrides {
            lease: Some(LeaseTimings { ttl_ms: 6_000, renew_ms: 2_000, grace_ms: 3_000 }),
            retry: Some(RetryPolicy { max_attempts: 100, ..RetryPolicy::default() }),
            ..PolicyOverrides::default()
        };
        let claim = Some(Claimant::new(new_worker("w"), &format!("first-{n}")));
        worker.ingest(NewWork { claim, policy, ..new }).await.unwrap().lease.unwrap().lease
    }

    /// Records this many intents: half in outboxes, half by workers that are about to execute them.
    pub async fn begin(&mut self, scenarios: usize) {
        let mut held = JoinSet::new();
        for n in 0..scenarios {
            let (tool, _) = TOOLS[self.dice.below(TOOLS.len() as u64) as usize];
            let (wanted, ledger) = (self.wanted(tool, n), self.ledger.clone());
            held.spawn(async move { (tool, wanted, Self::held(ledger, n).await) });
        }
        let mut closing = JoinSet::new();
        for (tool, wanted, lease) in held.join_all().await {
            let mut scenario = Scenario {
                work: lease.work,
                command: None,
                wanted: None,
                lease: None,
                dice: Dice(self.dice.next()),
                // Commands queued behind it would wait with it.
                copy: None,
                left_to_a_person: self.dice.one_in(10) && tool != "ordered_hook",
                evaluation: wanted.evaluation.clone(),
            };
            if tool.ends_with("hook") {
                let worker = self.ledger.caller(Actor::worker("w"));
                let (id, intent) = worker.outgoing(lease.work, wanted).await.unwrap();
                scenario.command = Some(id);
                let mut close = CloseOut { no_output: true, ..CloseOut::new(State::Succeeded) };
                close.commands = vec![(id, intent)];
                closing.spawn(async move { worker.close_out(&lease, close).await.unwrap() });
            } else {
                (scenario.wanted, scenario.lease) = (Some(wanted), Some(lease));
            }
            self.scenarios.push(scenario);
        }
        closing.join_all().await;
    }

    /// Every actor acts once, and time passes.
    pub async fn round(&mut self, chaos: bool) {
        self.workers(chaos).await;
        self.relays(chaos).await;
        self.bed.reconciler.run_once().await.unwrap();
        self.people(chaos).await;
        for _ in 0..2 + self.dice.below(12) {
            self.bed.pass(1_000).await;
        }
        if chaos && self.dice.one_in(3) {
            // The relay's deadlines pass.
            self.bed.pass(60_000).await;
        }
    }

    async fn workers(&mut self, chaos: bool) {
        let mut all = JoinSet::new();
        for mut scenario in std::mem::take(&mut self.scenarios) {
            let stage = self.stage.clone();
            all.spawn(async move {
                scenario.step(&stage, chaos).await;
                scenario
            });
        }
        self.scenarios = all.join_all().await;
        self.scenarios.sort_by_key(|scenario| scenario.work);
    }

    /// Two relays at once; sometimes both die between a dispatch and its receipt.
    async fn relays(&mut self, chaos: bool) {
        let toml = toml(&self.provider, &self.finder);
        let new = || Bed::over(self.ledger.clone(), self.bed.clock.clone(), &toml, Arc::default()).relay;
        let (mut one, mut two) = (new(), new());
        let both = async { tokio::join!(one.run_once(), two.run_once()) };
        if !chaos || self.dice.one_in(3) {
            let (one, two) = both.await;
            one.unwrap();
            two.unwrap();
            return;
        }
        self.kills += 1;
        let early = self.dice.one_in(3).then(|| self.dice.below(40));
        self.truth
            .kill_in
            .store(if early.is_some() { u64::MAX } else { 1 + self.dice.below(60) }, Ordering::SeqCst);
        let death = async {
            match early {
                Some(turns) => {
                    for _ in 0..turns {
                        tokio::task::yield_now().await;
                    }
                }
                None => self.truth.killed.notified().await,
            }
        };
        tokio::select! {
            _ = both => {}
            () = death => {}
        }
        drop((one, two));
        self.truth.kill_in.store(u64::MAX, Ordering::SeqCst);
        tokio::task::block_in_place(|| self.provider.settle());
    }

    async fn people(&mut self, chaos: bool) {
        let mut all = JoinSet::new();
        for mut scenario in std::mem::take(&mut self.scenarios) {
            let stage = self.stage.clone();
            all.spawn(async move {
                scenario.person(&stage, chaos).await;
                if !chaos {
                    scenario.give_up(&stage).await;
                }
                scenario
            });
        }
        self.scenarios = all.join_all().await;
        self.scenarios.sort_by_key(|scenario| scenario.work);
    }

    /// The provider recovers, crashes end, and every command comes to its end.
    pub async fn end(&mut self) {
        self.truth.healthy.store(true, Ordering::SeqCst);
        for _ in 0..60 {
            self.round(false).await;
            let mut open = 0;
            for id in self.commands() {
                open += usize::from(!ended(&self.ledger.command(id).await.unwrap()));
            }
            if open == 0 {
                return;
            }
        }
    }

    pub fn commands(&self) -> Vec<CommandId> {
        self.scenarios.iter().filter_map(|scenario| scenario.command).collect()
    }

    pub fn told(&self, id: CommandId) -> Vec<Told> {
        self.stage.told.lock().unwrap().iter().filter(|told| told.command == id).cloned().collect()
    }

    /// The number of trials.
    pub async fn covered(&self) -> Covered {
        let mut seen: HashMap<CommandId, u32> = HashMap::new();
        self.truth.calls().iter().for_each(|call| *seen.entry(call.command).or_default() += 1);
        let mut covered =
            Covered { calls: seen.values().sum(), kills: self.kills as u32, ..Covered::default() };
        for id in self.commands() {
            let command = self.ledger.command(id).await.unwrap();
            covered.again += u32::from(command.body.dispatches > 1);
            covered.person += u32::from(command.body.needs_person);
            covered.lost += u32::from(command.body.dispatches > seen.get(&id).copied().unwrap_or(0));
        }
        covered
    }

    /// One command with a contradiction.
    pub async fn plant(&mut self, bug: &str) {
        let worker = self.ledger.caller(Actor::worker("w"));
        let lease = Self::held(self.ledger.clone(), 0).await;
        let wanted = self.wanted("plain_task", 0);
        let evaluation = wanted.evaluation.clone();
        let command = worker.reserve(&lease, wanted).await.unwrap().command;
        let (id, key) = (command.id, command.idempotency_key());
        let work = lease.work;
        self.scenarios.push(Scenario {
            work,
            command: Some(id),
            wanted: None,
            lease: None,
            dice: Dice(0),
            copy: None,
            left_to_a_person: false,
            evaluation: evaluation.clone(),
        });
        self.truth.healthy.store(true, Ordering::SeqCst);
        if bug == "left_open" {
            return;
        }
        if bug == "call_before_dispatch" {
            self.truth.call(&key, id, 0, false);
        }
        worker.dispatch(&lease, id, evaluation, None).await.unwrap();
        let refused = CallError { class: ErrorClass::Validation, message: "no".into(), retry_after_ms: None };
        match bug {
            "blind_retry" => (0..2).for_each(|_| _ = self.truth.call(&key, id, 1, true)),
            "second_effect" => (0..2).for_each(|_| self.truth.happen(&key, false)),
            "false_failure" => {
                self.truth.happen(&key, false);
                worker.fail_command(&lease, id, refused.clone(), false).await.unwrap();
            }
            "client_told_otherwise" => {
                let state = CommandState::Succeeded;
                let told = Told { command: id, state, external_id: Some("m-1".into()) };
                self.stage.told.lock().unwrap().push(told);
                worker.fail_command(&lease, id, refused, false).await.unwrap();
            }
            "forged_receipt" => drop(worker.receipt(&lease, id, Proof::provider(&key)).await.unwrap()),
            _ => {}
        }
    }
}

/// How often each relevant situation occurred.
#[derive(Clone, Copy, Debug, Default)]
pub struct Covered {
    calls: u32,
    kills: u32,
    /// Sent more than once.
    again: u32,
    /// Left to a person.
    person: u32,
    /// Dispatched, but not called.
    lost: u32,
}

impl Covered {
    pub fn and(self, other: Covered) -> Self {
        Self {
            calls: self.calls + other.calls,
            kills: self.kills + other.kills,
            again: self.again + other.again,
            person: self.person + other.person,
            lost: self.lost + other.lost,
        }
    }

    /// All scenarios together covered the relevant situations.
    pub fn check(self) {
        let Covered { calls, kills, again, person, lost } = self;
        assert!(calls > 1_000 && kills > 5 && again > 200 && person > 12 && lost > 40, "{self:?}");
    }
}

/// By evidence, without an effect, or left to a person.
fn ended(command: &Command) -> bool {
    match command.state {
        CommandState::Succeeded | CommandState::Failed | CommandState::Cancelled => true,
        CommandState::Uncertain => command.body.needs_person,
        CommandState::Blocked => command.body.blocked == Some(BlockCode::ApprovalRequired),
        CommandState::Pending | CommandState::Approved | CommandState::Dispatched => false,
    }
}
