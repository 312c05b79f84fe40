//! The relay sends an outbox to a sink.

use std::{sync::Arc, time::Instant};

use futures_util::future::try_join_all;
use serde_json::json;
use tenure_core::{
    Actor, CommandState, Payload, State,
    action::CloseOut,
    command::{Arguments, Effect, Evaluation, Intent, PolicyDecision},
};
use tenure_server::{Config, Overlay, Relay, executor::Outbound};
use tenure_store::Ledger;
use tokio::sync::watch;

use super::sink::Sink;
use crate::{Result, stats::Rate, subject::Subject};

/// Commands of one close-out.
const LEFT: usize = 100;

pub struct Outbox {
    ledger: Ledger,
    subject: Subject,
    relay: Relay,
    evaluation: Evaluation,
    /// Dropped together with the outbox.
    _sink: Sink,
}

impl Outbox {
    pub async fn new(ledger: Ledger) -> Result<Self> {
        let sink = Sink::start().await?;
        let toml = format!(
            "[tools.notify]\nexecutor = \"http\"\nrisk = \"low\"\nidempotency = \"native\"\n\
             [tools.notify.http]\nurl = \"http://{}/hook\"\nnetworks = [\"127.0.0.0/8\"]\nexternal_id = \"/id\"\n",
            sink.address
        );
        let overlay = Overlay { db: Some(":memory:".to_owned()), ..Overlay::default() };
        let live = Config::parse("tenure.toml", &toml, overlay)?.live;
        let facts = live.tools.get("notify").facts.clone();
        let (_, seen) = watch::channel(Arc::new(live));
        Ok(Self {
            relay: Relay::alone(ledger.clone(), seen, Outbound::of_this_machine()),
            subject: Subject::new(ledger.clone())?,
            evaluation: Evaluation::new(PolicyDecision::new(Effect::Allow, "bench"), facts),
            ledger,
            _sink: sink,
        })
    }

    /// Fills the outbox, which is not timed, and lets the relay send it.
    pub async fn run(&mut self, sends: usize) -> Result<Rate> {
        self.fill(sends).await?;
        let began = Instant::now();
        let count = self.relay.run_once().await? as u64;
        let elapsed = began.elapsed();
        let states = self.ledger.command_counts(&tenure_core::action::Tenants::All).await?;
        match states.keys().find(|state| **state != CommandState::Succeeded) {
            Some(other) => Err(format!("a webhook is {other} and should have succeeded").into()),
            None => Ok(Rate { count, elapsed }),
        }
    }

    async fn fill(&self, sends: usize) -> Result<()> {
        let leases = self.subject.hold("outbox", sends.div_ceil(LEFT)).await?;
        let worker = self.ledger.caller(Actor::worker("bench"));
        let worker = &worker;
        let closing = leases.iter().enumerate().map(|(n, lease)| async move {
            let mut close = CloseOut { no_output: true, ..CloseOut::new(State::Succeeded) };
            for number in n * LEFT..sends.min((n + 1) * LEFT) {
                close.commands.push(worker.outgoing(lease.work, self.hook(number)).await?);
            }
            worker.close_out(lease, close).await
        });
        try_join_all(closing).await?;
        Ok(())
    }

    fn hook(&self, number: usize) -> Intent {
        let arguments = json!({ "order": number, "text": "It is on its way." });
        let kept = Arguments::whole(Payload::new(&arguments).expect("small and plain"));
        Intent::new("notify", &format!("order-{number}"), kept, self.evaluation.clone())
    }
}
