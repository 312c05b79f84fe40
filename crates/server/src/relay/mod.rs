//! The relay sends the commands that no worker executes. It evaluates a command, dispatches it, which
//! commits, and only then calls; afterwards it records the outcome. It decides nothing: the core decides what
//! may be sent, what is retried and when.
//!
//! Any number of relays may run on one ledger: a dispatch is given to one of them. Calls in progress when a
//! relay dies stay dispatched, and their deadline makes them uncertain.

mod call;
mod gone;
mod queue;

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tenure_core::{CommandId, Millis, command::Duty};
use tenure_store::{DueCursor, Error, Ledger, fair};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{config::Live, evaluator::Evaluator, executor::Outbound, tools};
pub(crate) use call::call_of;
use call::{Done, Executor};
use queue::{CALLS, Queue};

/// Commands read at once.
const PAGE: usize = 256;
/// Pages read at once to get past commands that wait for their rate.
const WALK: usize = 40;
/// The pause between two looks without a notification: for commands of other replicas.
const IDLE: Duration = Duration::from_secs(1);
/// How long a command that the ledger refuses to dispatch is skipped.
const PASSED_OVER: Duration = Duration::from_secs(60);

/// State shared by the calls.
struct Shared {
    ledger: Ledger,
    evaluator: Arc<Evaluator>,
    outbound: Outbound,
    executors: Mutex<HashMap<String, (tools::Relay, Executor)>>,
    gone: Mutex<gone::Gone>,
    /// A call is not made after a dispatch that took longer than this: another process may be sending it.
    margin: Duration,
}

/// A call that has ended.
struct Ended {
    command: CommandId,
    tenant: String,
    tool: String,
    ordered: bool,
    done: Done,
}

/// The relay of one process.
pub struct Relay {
    shared: Arc<Shared>,
    queue: Queue,
    calls: JoinSet<Ended>,
    /// The store's clock at its last reading, and when that was.
    time: (Millis, Instant),
    /// There may be due commands that were not read yet.
    look: bool,
    /// The last look ended before everything was read.
    more: bool,
    /// Where the next look continues, if one walk did not get past the commands that wait for their rate.
    after: Option<DueCursor>,
}

impl Relay {
    pub(crate) fn new(ledger: Ledger, evaluator: Arc<Evaluator>, outbound: Outbound) -> Self {
        let (executors, gone) = Default::default();
        Self {
            shared: Arc::new(Shared { ledger, evaluator, outbound, executors, gone, margin: tools::MARGIN }),
            queue: Queue::default(),
            calls: JoinSet::new(),
            time: (0, Instant::now()),
            look: true,
            more: false,
            after: None,
        }
    }

    /// With an evaluator of its own, to run a relay without a server.
    pub fn alone(ledger: Ledger, live: watch::Receiver<Arc<Live>>, outbound: Outbound) -> Self {
        Self::new(ledger, Arc::new(Evaluator::new(live)), outbound)
    }

    /// Makes a call only if its dispatch was confirmed within this time, at most the margin of a dispatch.
    pub fn answered_within(mut self, margin: Duration) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.margin = margin.min(tools::MARGIN);
        }
        self
    }

    /// Sends the commands that are due now and waits for their outcomes. Returns how many were taken.
    pub async fn run_once(&mut self) -> Result<usize, Error> {
        let mut taken = 0;
        self.look = true;
        while self.look || self.more {
            self.read().await?;
            loop {
                taken += self.start();
                let Some(ended) = self.calls.join_next().await else { break };
                self.ended(ended.ok());
            }
        }
        Ok(taken)
    }

    /// Runs until shutdown; calls in progress then have `drain` to finish.
    pub async fn run(mut self, woken: Arc<Notify>, stopping: CancellationToken, drain: Duration) {
        let mut look_at = Instant::now();
        loop {
            self.look |= look_at <= Instant::now();
            if self.look || (self.more && self.queue.is_low(Instant::now())) {
                look_at = Instant::now() + IDLE;
                match self.read().await {
                    Ok(()) => look_at = Instant::now() + self.pause().await,
                    Err(error) => tracing::warn!(%error, "the relay cannot read due commands; retrying"),
                }
            }
            self.start();
            let pause = look_at.saturating_duration_since(Instant::now());
            let wait = self.queue.wait(Instant::now()).map_or(pause, |rate| rate.min(pause));
            tokio::select! {
                () = stopping.cancelled() => break,
                Some(ended) = self.calls.join_next() => {
                    self.ended(ended.ok());
                    while let Some(ended) = self.calls.try_join_next() {
                        self.ended(ended.ok());
                    }
                }
                () = woken.notified() => self.look = true,
                () = tokio::time::sleep(wait.max(Duration::from_millis(1))) => {}
            }
        }
        let all = async { while self.calls.join_next().await.is_some() {} };
        if tokio::time::timeout(drain, all).await.is_err() {
            tracing::warn!(calls = self.calls.len(), "calls are still in progress; their deadlines end them");
        }
    }

    /// Reads due commands that are not in the queue yet.
    async fn read(&mut self) -> Result<(), Error> {
        (self.look, self.more) = (false, false);
        self.time = (self.shared.ledger.now().await?, Instant::now());
        self.queue.remember(Instant::now());
        let mut added = 0;
        for _ in 0..WALK {
            let (ledger, queue) = (&self.shared.ledger, &self.queue);
            let full = queue.full_tenants();
            let page = ledger.due_page(Duty::Send, self.after, &full, PAGE, |id| queue.knows(id)).await?;
            self.after = page.next;
            added += self.queue.add(page.items);
            let enough = added > 0 && !self.queue.is_low(Instant::now());
            if self.after.is_none() || enough {
                // Commands that are taken leave the page, so the next look starts at its beginning.
                self.more = self.after.take().is_some() || !full.is_empty();
                return Ok(());
            }
        }
        self.more = true;
        Ok(())
    }

    /// The time until the next command is due.
    async fn pause(&self) -> Duration {
        match self.shared.ledger.next_due_command(Duty::Send).await {
            Ok(Some(due)) if due > self.now() => Duration::from_millis((due - self.now()) as u64).min(IDLE),
            // The due commands are in progress, wait for their rate, or are skipped.
            Ok(_) | Err(_) => IDLE,
        }
    }

    fn now(&self) -> Millis {
        let (at, seen) = self.time;
        at + seen.elapsed().as_millis() as Millis
    }

    /// Starts as many calls as allowed.
    fn start(&mut self) -> usize {
        let mut started = 0;
        while self.calls.len() < CALLS
            && let Some(due) = self.queue.next(Instant::now())
        {
            let now = self.now();
            let evaluation = self.shared.evaluation(&due, now);
            if let Some(wait) = self.shared.rate(&due, &evaluation) {
                self.queue.put_back(due, Instant::now() + wait);
                continue;
            }
            started += 1;
            let shared = self.shared.clone();
            let tenant = due.command.spec.tenant.as_str().into();
            let call = async move {
                // A panic in one call must not stop the relay.
                let sent = AssertUnwindSafe(shared.send(&due, evaluation, now)).catch_unwind().await;
                let done = sent.unwrap_or_else(|_| Done::Refused("the call panicked".to_owned()));
                let (command, spec) = (&due.command, &due.command.spec);
                let ordered = command.body.tool.ordered;
                let (tenant, tool) = (spec.tenant.clone(), spec.tool.clone());
                Ended { command: command.id, tenant, tool, ordered, done }
            };
            self.calls.spawn(fair::on_behalf_of(tenant, call));
        }
        started
    }

    fn ended(&mut self, ended: Option<Ended>) {
        let Some(Ended { command, tenant, tool, ordered, done }) = ended else { return };
        // The next command of an ordered queue is due now.
        self.look |= ordered;
        match done {
            Done::Told => {}
            Done::Lost => {
                self.queue.forget_ready();
                self.look = true;
            }
            Done::Refused(why) => {
                tracing::warn!(%command, why, "a command cannot be sent; skipped");
                self.queue.pass_over(command, Instant::now() + PASSED_OVER);
            }
            Done::Away(why) => {
                tracing::warn!(%command, why, "the ledger is unavailable; retrying");
                self.queue.pass_over(command, Instant::now() + IDLE);
            }
        }
        self.look |= self.queue.done(command, &tenant, &tool);
    }
}
