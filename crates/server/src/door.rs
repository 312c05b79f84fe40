//! The door of commands: what the configuration, the policies, the budgets and the rates say of one, asked before the
//! ledger decides. A policy that changes in between is asked again.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;
use tenure_core::{
    Actor, Code, Command, Millis, Refusal, Work, WorkId,
    command::{Gate, budget::Cost},
};
use tenure_store::{Caller, Error, Ledger, NewCommand};
use tokio::sync::watch;

use crate::{
    config::{Live, limits_of},
    policy::{Ask, WorkFacts},
    rate::Rates,
};

/// How often a verdict that a reload overtook is asked for again before the caller is told.
const ASKED_AGAIN: u32 = 8;

pub(crate) struct Door {
    live: watch::Receiver<Arc<Live>>,
    rates: Mutex<Rates>,
    started: Instant,
}

/// An effect that somebody wants recorded.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub tool: String,
    pub target: String,
    pub step: Option<String>,
    pub slot: Option<String>,
    pub arguments: Value,
    pub estimate: Cost,
}

/// Who asks, for which work, when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub actor: &'a Actor,
    pub tenant: &'a str,
    pub work: WorkFacts<'a>,
    pub now: Millis,
}

/// What verdicts hang on besides the command, as it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The work with its id as it is written; none where it is about to be recorded, or nobody asks.
    pub work: Option<(Box<Work>, String)>,
    /// What is known of a work that is about to be recorded.
    pub tenant: String,
    pub kind: String,
    pub source: String,
    pub now: Millis,
}

impl Facts {
    pub fn asked<'a>(&'a self, actor: &'a Actor) -> Asked<'a> {
        let Self { work, tenant, kind, source, now } = self;
        match work {
            Some((work, id)) => Asked::of(actor, work, id, *now),
            None => Asked { actor, tenant, work: WorkFacts { id: "", kind, source, attempt: 1 }, now: *now },
        }
    }
}

impl<'a> Asked<'a> {
    /// `id`: the work's, as it is written.
    pub fn of(actor: &'a Actor, work: &'a Work, id: &'a str, now: Millis) -> Self {
        let facts =
            WorkFacts { id, kind: &work.spec.kind, source: &work.spec.source.system, attempt: work.attempt };
        Self { actor, tenant: &work.spec.tenant, work: facts, now }
    }
}

impl Door {
    pub fn new(live: watch::Receiver<Arc<Live>>) -> Self {
        let rates = {
            let live = live.borrow();
            Rates::new(live.command_rate, &live.tools)
        };
        Self { live, rates: Mutex::new(rates), started: Instant::now() }
    }

    /// What goes by the configuration as it is now.
    pub fn live(&self) -> Arc<Live> {
        self.live.borrow().clone()
    }

    /// Other limits from now on.
    pub fn reload(&self, live: &Live) {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).reload(live.command_rate, &live.tools);
    }

    /// Whether anybody asks for more than the tool's name: the default policy and no budgets do not.
    pub fn asks_for_facts(&self) -> bool {
        let live = self.live.borrow();
        live.policy.has_files() || !live.budgets.is_empty()
    }

    /// What verdicts over commands of a work hang on, read only where something asks for it.
    pub async fn facts(&self, ledger: &Ledger, caller: &Caller, work: WorkId) -> Result<Facts, Error> {
        if !self.asks_for_facts() {
            return Ok(Facts::default());
        }
        let work = Some((Box::new(caller.work(work).await?), work.to_string()));
        Ok(Facts { work, now: ledger.now().await?, ..Facts::default() })
    }

    /// What was kept of a command's arguments, read only where a policy looks at them.
    pub async fn arguments(&self, ledger: &Ledger, command: &Command) -> Result<Value, Error> {
        if !self.live.borrow().policy.has_files() {
            return Ok(Value::Null);
        }
        let kept = ledger.payload(command.work, command.body.arguments).await?;
        Ok(kept.map_or(Value::Null, |kept| kept.value()))
    }

    /// Checks the arguments against the tool's schema and asks the policies: ready to be reserved.
    pub fn reserve(&self, asked: Asked<'_>, wanted: Wanted) -> Result<NewCommand, Refusal> {
        let live = self.live();
        let tool = live.tools.get(&wanted.tool);
        let checked = tool.arguments(&wanted.arguments)?;
        let ask = Ask {
            actor: asked.actor,
            tool: &wanted.tool,
            risk: tool.facts.risk,
            target: &wanted.target,
            arguments: &wanted.arguments,
            tenant: asked.tenant,
            work: asked.work,
            now: asked.now,
            estimate: &wanted.estimate,
        };
        let verdict = live.policy.ask(&ask);
        let gate = Gate { verdict, tool: tool.facts.clone(), limits: Vec::new(), estimate: wanted.estimate };
        Ok(NewCommand {
            tool: wanted.tool,
            target: wanted.target,
            step: wanted.step,
            slot: wanted.slot,
            kind: tool.kind,
            arguments: checked.arguments,
            gate,
        })
    }

    /// What is said of a recorded command now: before it is dispatched or replayed. Policies are asked about whoever
    /// reserved it. `arguments` is what was kept of them; without `estimate` the one of its reservation counts.
    pub fn gate(
        &self,
        asked: Asked<'_>,
        command: &Command,
        arguments: &Value,
        estimate: Option<Cost>,
    ) -> Gate {
        let live = self.live();
        let spec = &command.spec;
        let facts = &live.tools.get(&spec.tool).facts;
        let estimate = estimate.unwrap_or_else(|| command.body.estimate.clone());
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
        Gate {
            verdict: live.policy.ask(&ask),
            tool: facts.clone(),
            limits: limits_of(&live.budgets, &spec.tool, asked.now),
            estimate,
        }
    }

    /// Takes one call of the tool's rate and of everybody's, or says how long to wait. Of this process alone.
    pub fn take(&self, tool: &str) -> Result<(), Duration> {
        let now = self.started.elapsed();
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).take(tool, now)
    }

    /// Asks and acts again where a reload came between the two.
    pub async fn current<T, F>(&self, act: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        for _ in 1..ASKED_AGAIN {
            match act().await {
                Err(Error::Refused(refusal)) if refusal.code == Code::PolicyStale => {
                    tokio::task::yield_now().await;
                }
                done => return done,
            }
        }
        act().await
    }
}
