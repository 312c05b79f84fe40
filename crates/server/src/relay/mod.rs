//! The relay: sends the commands that are its own. It asks the evaluator, dispatches, which commits, and only then calls;
//! then it tells how the call went. It decides nothing: what may go, what is tried again and when is the core's.
//!
//! Any number of relays may run on one ledger: a dispatch is given to one of them. What is under way when a relay dies
//! stays dispatched, and its deadline makes it uncertain.

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
pub(crate) use call::told;
use call::{Done, Executor};
use queue::{CALLS, Queue};

/// Commands that are read at once.
const PAGE: usize = 256;
/// Pages that are walked at once to get past what waits for its rate.
const WALK: usize = 40;
/// Between two looks where nobody said that there is something new: other replicas' commands.
const IDLE: Duration = Duration::from_secs(1);
/// How long a command that the ledger refuses to dispatch is passed over.
const PASSED_OVER: Duration = Duration::from_secs(60);

/// What the calls share.
struct Shared {
    ledger: Ledger,
    evaluator: Arc<Evaluator>,
    outbound: Outbound,
    executors: Mutex<HashMap<String, (tools::Relay, Executor)>>,
    gone: Mutex<gone::Gone>,
    /// A dispatch that took longer to be answered is not called on: somebody else may be at it.
    margin: Duration,
}

/// One call that has ended.
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
    /// The store's clock when it was last read, and when that was.
    time: (Millis, Instant),
    /// Something may be due that was not seen yet.
    look: bool,
    /// The last look ended before everything was seen.
    more: bool,
    /// Where it goes on, where so much waits for its rate that one walk did not get past it.
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

    /// With an evaluator of its own, to run one without a server.
    pub fn alone(ledger: Ledger, live: watch::Receiver<Arc<Live>>, outbound: Outbound) -> Self {
        Self::new(ledger, Arc::new(Evaluator::new(live)), outbound)
    }

    /// Calls only where the dispatch was answered within this time, which is at most the margin that a dispatch has.
    pub fn answered_within(mut self, margin: Duration) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.margin = margin.min(tools::MARGIN);
        }
        self
    }

    /// Sends what is due now and waits until it is known how it went. How many were taken up.
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

    /// Runs until told to stop; what is under way then is finished within `drain`.
    pub async fn run(mut self, woken: Arc<Notify>, stopping: CancellationToken, drain: Duration) {
        let mut look_at = Instant::now();
        loop {
            self.look |= look_at <= Instant::now();
            if self.look || (self.more && self.queue.is_low(Instant::now())) {
                look_at = Instant::now() + IDLE;
                match self.read().await {
                    Ok(()) => look_at = Instant::now() + self.pause().await,
                    Err(error) => tracing::warn!(%error, "the relay cannot read what is due; trying again"),
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
            tracing::warn!(calls = self.calls.len(), "calls are under way still; their deadlines end them");
        }
    }

    /// Reads what is due and not known here yet.
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
                // What is taken up leaves the page, so the next look begins at its beginning.
                self.more = self.after.take().is_some() || !full.is_empty();
                return Ok(());
            }
        }
        self.more = true;
        Ok(())
    }

    /// Until the next one is due, as far as anybody knows.
    async fn pause(&self) -> Duration {
        match self.shared.ledger.next_due_command(Duty::Send).await {
            Ok(Some(due)) if due > self.now() => Duration::from_millis((due - self.now()) as u64).min(IDLE),
            // What is due still is under way, waits for its rate, or was passed over.
            Ok(_) | Err(_) => IDLE,
        }
    }

    fn now(&self) -> Millis {
        let (at, seen) = self.time;
        at + seen.elapsed().as_millis() as Millis
    }

    /// Starts as many calls as may be under way.
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
                // One command that breaks its call must not cost the others their relay.
                let sent = AssertUnwindSafe(shared.send(&due, evaluation, now)).catch_unwind().await;
                let done = sent.unwrap_or_else(|_| Done::Refused("the call broke off".to_owned()));
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
        // The next of an ordered line is due now.
        self.look |= ordered;
        match done {
            Done::Told => {}
            Done::Lost => {
                self.queue.forget_ready();
                self.look = true;
            }
            Done::Refused(why) => {
                tracing::warn!(%command, why, "a command cannot be sent; passed over");
                self.queue.pass_over(command, Instant::now() + PASSED_OVER);
            }
            Done::Away(why) => {
                tracing::warn!(%command, why, "the ledger is away; looking again");
                self.queue.pass_over(command, Instant::now() + IDLE);
            }
        }
        self.look |= self.queue.done(command, &tenant, &tool);
    }
}
