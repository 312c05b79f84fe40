//! A ledger with a manual clock, and a relay and a reconciler that run when called.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_core::{
    Actor, Command, CommandId, CommandState, Fact, Millis, Payload, State,
    action::{Claimant, CloseOut},
    command::{Arguments, Effect, Evaluation, Intent, PolicyDecision},
    model::Disposition,
};
use tenure_server::{Config, Overlay, Reconciler, Relay, config::Live, executor::Outbound};
use tenure_store::{Claimed, Ledger, ManualClock, NewWork, Options, Sweeper, new_worker};
use tokio::sync::watch;

use crate::names::Names;

pub const START: Millis = 1_790_000_000_000;

pub fn outbound(names: Arc<Names>) -> Outbound {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let tls = builder.with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    Outbound::with_tls(names, tls)
}

pub fn live(toml: &str) -> Live {
    let overlay = Overlay { db: Some(":memory:".to_owned()), ..Overlay::default() };
    Config::parse("tenure.toml", toml, overlay).unwrap().live
}

pub struct Bed {
    pub ledger: Ledger,
    pub clock: Arc<ManualClock>,
    pub live: watch::Sender<Arc<Live>>,
    pub relay: Relay,
    pub reconciler: Reconciler,
    /// The version of the policy in the evaluations.
    pub version: String,
    sweeper: Sweeper,
}

impl Bed {
    /// In memory, with lines of `tenure.toml`.
    pub async fn new(toml: &str) -> Self {
        Self::with(toml, Arc::default()).await
    }

    pub async fn with(toml: &str, names: Arc<Names>) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
        let ledger = Ledger::open_memory(options).await.unwrap();
        Self::over(ledger, clock, toml, names)
    }

    pub fn over(ledger: Ledger, clock: Arc<ManualClock>, toml: &str, names: Arc<Names>) -> Self {
        let (live, seen) = watch::channel(Arc::new(live(toml)));
        let outbound = outbound(names);
        Self {
            relay: Relay::alone(ledger.clone(), seen.clone(), outbound.clone()),
            reconciler: Reconciler::new(ledger.clone(), seen, outbound),
            version: "default".to_owned(),
            sweeper: Sweeper::new(clock.clone()),
            ledger,
            clock,
            live,
        }
    }

    pub fn reload(&self, toml: &str) {
        self.live.send_replace(Arc::new(live(toml)));
    }

    /// The evaluation of a tool's command by its configuration, allowed.
    pub fn new_command(&self, tool: &str, target: &str, arguments: &Value) -> Intent {
        let facts = self.live.borrow().tools.get(tool).facts.clone();
        let evaluation = Evaluation::new(PolicyDecision::new(Effect::Allow, &self.version), facts);
        Intent::new(tool, target, Arguments::whole(Payload::new(arguments).unwrap()), evaluation)
    }

    pub async fn held_by(&self, tenant: &str, id: &str) -> Claimed {
        let worker = self.ledger.caller(Actor::worker("w"));
        let new = NewWork::new("manual", id, "job", Disposition::Rerunnable, json!({}));
        let new = NewWork { tenant: tenant.to_owned(), ..new };
        let claim = Claimant::new(new_worker("w"), &format!("r-{id}"));
        worker.ingest(NewWork { claim: Some(claim), ..new }).await.unwrap().lease.unwrap()
    }

    /// A work item that ends with commands to send: one to each target.
    pub async fn outbox(&self, id: &str, tool: &str, targets: &[&str]) -> Vec<CommandId> {
        self.outbox_of("default", id, tool, targets).await
    }

    pub async fn outbox_of(&self, tenant: &str, id: &str, tool: &str, targets: &[&str]) -> Vec<CommandId> {
        let held = self.held_by(tenant, id).await;
        let worker = self.ledger.caller(Actor::worker("w"));
        let mut commands = Vec::new();
        for (n, target) in targets.iter().enumerate() {
            let mut new = self.new_command(tool, target, &json!({ "n": n }));
            new.slot = Some(n.to_string());
            commands.push(worker.outgoing(held.lease.work, new).await.unwrap());
        }
        let ids = commands.iter().map(|(id, _)| *id).collect();
        let close = CloseOut { commands, no_output: true, ..CloseOut::new(State::Succeeded) };
        worker.close_out(&held.lease, close).await.unwrap();
        ids
    }

    /// Time passes; the sweeper runs.
    pub async fn pass(&mut self, ms: Millis) {
        self.clock.advance(ms);
        let sweep = self.sweeper.run_once(&self.ledger).await.unwrap();
        assert_eq!(sweep.failed, 0);
    }

    pub async fn command(&self, id: CommandId) -> Command {
        self.ledger.command(id).await.unwrap()
    }

    pub async fn state(&self, id: CommandId) -> CommandState {
        self.command(id).await.state
    }

    /// The events of a command in the log, in order.
    pub async fn story(&self, id: CommandId) -> Vec<String> {
        let work = self.command(id).await.work;
        let events = self.ledger.events(work, 0, 1_000).await.unwrap();
        let of = |fact: &Fact| fact.command().is_some_and(|moved| moved.command == id);
        let told = events.iter().map(|stored| &stored.event.fact).filter(|fact| of(fact));
        told.map(|fact| fact.kind().to_owned()).collect()
    }
}
