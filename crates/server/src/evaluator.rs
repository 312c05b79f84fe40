//! The evaluator: checks a command against the configuration, policies, budgets and rates before the ledger
//! decides. If the policies change in between, it is evaluated again.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;
use tenure_api::wire as w;
use tenure_core::{
    Actor, Code, Command, Millis, Refusal, Work, WorkId,
    command::{Evaluation, Intent, PolicyDecision, budget::Cost},
};
use tenure_store::{
    Caller, Error, Ledger, NewWork,
    schema::{Size, aside},
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::watch,
    task::block_in_place,
};

use crate::{
    config::{Live, limits_of},
    policy::{Ask, WorkFacts},
    rate::Rates,
    tools::Checked,
    wire,
};

/// Evaluating policies over this many values takes a few milliseconds.
const FEW_VALUES: u64 = 1_000;

/// How often a decision is evaluated again after a reload in between, before the caller gets the error.
const ASKED_AGAIN: u32 = 8;

pub(crate) struct Evaluator {
    live: watch::Receiver<Arc<Live>>,
    rates: Mutex<Rates>,
    started: Instant,
}

/// The actor, work item and time of an evaluation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub actor: &'a Actor,
    pub tenant: &'a str,
    pub work: WorkFacts<'a>,
    pub now: Millis,
    /// The configuration that the input was read for; None: the current one.
    pub live: Option<&'a Arc<Live>>,
}

/// The facts that decisions depend on besides the command, as far as the configuration needs them. They
/// belong to that configuration: another one may need more.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvaluationInput {
    live: Arc<Live>,
    /// The work item with its id as text; None if it is not recorded yet, or not needed.
    work: Option<(Box<Work>, String)>,
    /// The facts of a work item that is not recorded yet.
    tenant: String,
    kind: String,
    source: String,
    now: Millis,
}

impl EvaluationInput {
    pub fn asked<'a>(&'a self, actor: &'a Actor) -> Asked<'a> {
        let Self { live, work, tenant, kind, source, now } = self;
        let live = Some(live);
        match work {
            Some((work, id)) => Asked { live, ..Asked::of(actor, work, id, *now) },
            None => {
                let work = WorkFacts { id: "", kind, source, attempt: 1 };
                Asked { actor, tenant, work, now: *now, live }
            }
        }
    }
}

impl<'a> Asked<'a> {
    /// `id`: the work item's id as text.
    pub fn of(actor: &'a Actor, work: &'a Work, id: &'a str, now: Millis) -> Self {
        let facts =
            WorkFacts { id, kind: &work.spec.kind, source: &work.spec.source.system, attempt: work.attempt };
        Self { actor, tenant: &work.spec.tenant, work: facts, now, live: None }
    }
}

impl Evaluator {
    pub fn new(live: watch::Receiver<Arc<Live>>) -> Self {
        let rates = {
            let live = live.borrow();
            Rates::new(live.command_rate, &live.tools)
        };
        Self { live, rates: Mutex::new(rates), started: Instant::now() }
    }

    /// The current configuration.
    pub fn live(&self) -> Arc<Live> {
        self.live.borrow().clone()
    }

    /// Applies new rate limits.
    pub fn reload(&self, live: &Live) {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).reload(live.command_rate, &live.tools);
    }

    /// Reads the facts that decisions on commands of a work item depend on, if the configuration needs them.
    pub async fn input(
        &self,
        ledger: &Ledger,
        caller: &Caller,
        work: WorkId,
    ) -> Result<EvaluationInput, Error> {
        let live = self.live();
        if !asks_for_facts(&live) {
            return Ok(EvaluationInput { live, ..EvaluationInput::default() });
        }
        let work = Some((Box::new(caller.work(work).await?), work.to_string()));
        Ok(EvaluationInput { live, work, now: ledger.now().await?, ..EvaluationInput::default() })
    }

    /// The same for a work item that is not recorded yet.
    pub async fn input_of_new(&self, ledger: &Ledger, work: &NewWork) -> Result<EvaluationInput, Error> {
        let live = self.live();
        let now = if asks_for_facts(&live) { ledger.now().await? } else { 0 };
        let (tenant, kind, source) = (work.tenant.clone(), work.kind.clone(), work.source.system.clone());
        Ok(EvaluationInput { live, work: None, tenant, kind, source, now })
    }

    /// The stored arguments of a command, read only if a policy reads them.
    pub async fn arguments(
        &self,
        ledger: &Ledger,
        facts: &EvaluationInput,
        command: &Command,
    ) -> Result<Value, Error> {
        if !facts.live.policy.has_files() {
            return Ok(Value::Null);
        }
        let kept = ledger.payload(command.work, command.body.arguments).await?;
        Ok(kept.map_or(Value::Null, |kept| kept.value()))
    }

    /// Checks the arguments against the tool's schema and evaluates the policies: ready to be reserved.
    pub async fn intent(&self, asked: Asked<'_>, wanted: &w::Intent) -> Result<Intent, Refusal> {
        let live = asked.live.cloned().unwrap_or_else(|| self.live());
        let checked = checked(&live, wanted).await?;
        let tool = live.tools.get(&wanted.tool);
        let estimate = wanted.estimate.clone().map(wire::cost).unwrap_or_default().at_least(&tool.estimate);
        let ask = Ask {
            actor: asked.actor,
            tool: &wanted.tool,
            risk: tool.facts.risk,
            target: &wanted.target,
            arguments: &wanted.arguments,
            tenant: asked.tenant,
            work: asked.work,
            now: asked.now,
            estimate: &estimate,
        };
        let decision = decision(&live, &ask);
        let evaluation = Evaluation { decision, tool: tool.facts.clone(), limits: Vec::new(), estimate };
        Ok(Intent {
            step: wanted.step.clone(),
            slot: wanted.slot.clone(),
            kind: tool.kind,
            ..Intent::new(&wanted.tool, &wanted.target, checked.arguments, evaluation)
        })
    }

    /// Evaluates a recorded command before it is dispatched or replayed, with its reserving principal as the
    /// actor. `arguments` are the stored ones; without `estimate` the one of its reservation counts, and
    /// always at least the tool's own.
    pub fn evaluation(
        &self,
        asked: Asked<'_>,
        command: &Command,
        arguments: &Value,
        estimate: Option<Cost>,
    ) -> Evaluation {
        let live = asked.live.cloned().unwrap_or_else(|| self.live());
        let spec = &command.spec;
        let tool = live.tools.get(&spec.tool);
        let facts = &tool.facts;
        let estimate = estimate.unwrap_or_else(|| command.body.estimate.clone()).at_least(&tool.estimate);
        let ask = Ask {
            actor: &command.body.submitter,
            tool: &spec.tool,
            risk: facts.risk,
            target: &spec.target,
            arguments,
            tenant: asked.tenant,
            work: asked.work,
            now: asked.now,
            estimate: &estimate,
        };
        Evaluation {
            decision: decision(&live, &ask),
            tool: facts.clone(),
            limits: limits_of(&live.budgets, &spec.tool, asked.now),
            estimate,
        }
    }

    /// Takes one call of the tool's and the total rate, or returns how long to wait. For this process alone.
    pub fn take(&self, tool: &str) -> Result<(), Duration> {
        let now = self.started.elapsed();
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).take(tool, now)
    }

    /// Returns the token of a call that is not made.
    pub fn give_back(&self, tool: &str) {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).give_back(tool);
    }

    /// Acts again if a reload came in between.
    pub async fn current<T, F>(&self, act: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        for _ in 1..ASKED_AGAIN {
            match act().await {
                Err(error) if error.refusal().is_some_and(|refusal| refusal.code == Code::PolicyStale) => {
                    tokio::task::yield_now().await;
                }
                done => return done,
            }
        }
        act().await
    }
}

/// The policies' decision. Cedar has no loops and values are bounded, so it terminates; over large arguments
/// it takes tens of milliseconds, during which the other tasks of this thread run on another one.
fn decision(live: &Live, ask: &Ask<'_>) -> PolicyDecision {
    let many = live.policy.has_files() && Size::of(ask.arguments).values > FEW_VALUES;
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) if many => block_in_place(|| live.policy.ask(ask)),
        _ => live.policy.ask(ask),
    }
}

/// The arguments in canonical form, checked against the tool's schema: on another thread if that takes time.
async fn checked(live: &Arc<Live>, wanted: &w::Intent) -> Result<Checked, Refusal> {
    let tool = live.tools.get(&wanted.tool);
    if tool.schema.as_ref().is_none_or(|schema| schema.is_light(&wanted.arguments)) {
        return tool.arguments(&wanted.arguments);
    }
    let (live, name, arguments) = (live.clone(), wanted.tool.clone(), wanted.arguments.clone());
    aside(move || live.tools.get(&name).arguments(&arguments)).await?
}

/// The default policy needs only the tool, and a budget without a period needs no time.
fn asks_for_facts(live: &Live) -> bool {
    live.policy.has_files() || !live.budgets.is_empty()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;

    use super::*;
    use crate::policy::{Policies, PolicyFile};

    fn policies(text: &str) -> Arc<Policies> {
        let file = PolicyFile { name: "p.cedar".to_owned(), text: text.to_owned() };
        Arc::new(Policies::load(&[file]).unwrap())
    }

    #[tokio::test]
    async fn a_decision_that_a_reload_overtook_is_asked_for_again_and_not_for_ever() {
        let evaluator = Evaluator::new(watch::channel(Arc::new(Live::default())).1);
        let asked = AtomicU32::new(0);
        let stale = |until: u32| {
            let n = asked.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                let refusal = Refusal::new(Code::PolicyStale, "another one is in force");
                if n < until { Err(Error::Refused(refusal)) } else { Ok(n) }
            }
        };
        assert_eq!(evaluator.current(|| stale(3)).await.unwrap(), 3);
        asked.store(0, Ordering::Relaxed);
        assert!(evaluator.current(|| stale(u32::MAX)).await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), ASKED_AGAIN);
    }

    /// One thread for all tasks: the other task waits unless the decision yields the thread.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_decision_over_large_arguments_does_not_block_other_tasks() {
        let text = "permit (principal, action, resource) unless { context.arguments == {} };";
        let live = Arc::new(Live { policy: policies(text), ..Live::default() });
        let evaluator = Evaluator::new(watch::channel(live).1);
        let items: Vec<Value> = (0..20_000).map(|n| json!(format!("item {n}"))).collect();
        let asking = tokio::spawn(async move {
            let (facts, actor) = (
                EvaluationInput { live: evaluator.live(), ..EvaluationInput::default() },
                Actor::worker("a"),
            );
            let wanted = w::Intent::new("rm", "/", json!({ "items": items }));
            let (told, other) = std::sync::mpsc::channel();
            tokio::spawn(async move { told.send(std::time::Instant::now()) });
            evaluator.intent(facts.asked(&actor), &wanted).await.unwrap();
            let done = std::time::Instant::now();
            other.recv().is_ok_and(|ran| ran < done)
        });
        assert!(asking.await.unwrap(), "the other task ran meanwhile");
    }

    #[tokio::test]
    async fn facts_are_put_to_the_policies_that_they_were_read_for() {
        let (live, seen) = watch::channel(Arc::new(Live::default()));
        let evaluator = Evaluator::new(seen);
        let facts = EvaluationInput { live: evaluator.live(), ..EvaluationInput::default() };
        let strict = policies("permit (principal, action, resource) when { context.tenant == \"acme\" };");
        live.send_replace(Arc::new(Live { policy: strict.clone(), ..Live::default() }));
        let actor = Actor::worker("a");
        let wanted = w::Intent::new("rm", "/", json!({}));
        let judged = evaluator.intent(facts.asked(&actor), &wanted).await.unwrap().evaluation.decision;
        assert_ne!(
            judged.policy_version,
            strict.version(),
            "the ledger refuses this one, and it is asked again"
        );
    }
}
