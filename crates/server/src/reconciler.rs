//! The reconciler asks providers about commands in doubt and reports their findings to the ledger. It decides
//! nothing: the core decides how often to ask, when absence counts and when a person must decide. Lookups by
//! workers are not its task.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tenure_core::{
    Actor, Code, CommandId, Millis,
    command::{Duty, Finding},
};
use tenure_store::{Due, Error, Ledger, fair};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Live,
    executor::Outbound,
    lookup::{Asker, Found, Lookup},
    relay::call_of,
};

/// Concurrent lookups: in total, and of one tenant.
const LOOKUPS: usize = 32;
const LOOKUPS_OF_A_TENANT: usize = LOOKUPS / 2;
const PAGE: usize = 100;
/// The pause between two looks without a notification.
const IDLE: Duration = Duration::from_secs(1);
/// How long a lookup by a worker, or an impossible one, is skipped here: the configuration may change.
const PASSED_OVER: Duration = Duration::from_secs(60);
/// Other processes skip a lookup in progress for its timeout and this margin.
const MARGIN: Duration = Duration::from_secs(10);

struct Shared {
    ledger: Ledger,
    live: watch::Receiver<Arc<Live>>,
    outbound: Outbound,
    askers: Mutex<HashMap<String, (Lookup, Asker)>>,
}

/// A lookup that has ended.
struct Ended {
    command: CommandId,
    tenant: String,
    recorded: Result<(), Error>,
}

/// The reconciler of one process. Any number may run on one ledger.
pub struct Reconciler {
    shared: Arc<Shared>,
    lookups: JoinSet<Ended>,
    /// Lookups in progress of each tenant.
    of_tenants: HashMap<String, usize>,
    passed_over: HashMap<CommandId, Instant>,
}

impl Reconciler {
    pub fn new(ledger: Ledger, live: watch::Receiver<Arc<Live>>, outbound: Outbound) -> Self {
        let shared = Shared { ledger, live, outbound, askers: Mutex::default() };
        let (of_tenants, passed_over) = Default::default();
        Self { shared: Arc::new(shared), lookups: JoinSet::new(), of_tenants, passed_over }
    }

    /// Looks up the commands that are due now and waits for the findings. Returns how many were looked up.
    pub async fn run_once(&mut self) -> Result<usize, Error> {
        let asked = self.start().await?;
        while let Some(ended) = self.lookups.join_next().await {
            self.ended(ended.ok());
        }
        Ok(asked)
    }

    /// Runs until shutdown. An interrupted lookup is made again by another process: looking up twice is
    /// harmless.
    pub async fn run(mut self, woken: Arc<Notify>, stopping: CancellationToken) {
        loop {
            if self.lookups.len() < LOOKUPS
                && let Err(error) = self.start().await
            {
                tracing::warn!(%error, "the reconciler cannot read due lookups; retrying");
            }
            let pause = self.pause().await;
            tokio::select! {
                () = stopping.cancelled() => return,
                Some(ended) = self.lookups.join_next() => self.ended(ended.ok()),
                () = woken.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn pause(&self) -> Duration {
        let shared = &self.shared;
        match (shared.ledger.next_due_command(Duty::Lookup).await, shared.ledger.now().await) {
            (Ok(Some(due)), Ok(now)) if due > now => Duration::from_millis((due - now) as u64).min(IDLE),
            _ => IDLE,
        }
    }

    /// Starts due lookups, up to the limit.
    async fn start(&mut self) -> Result<usize, Error> {
        let now = Instant::now();
        self.passed_over.retain(|_, until| *until > now);
        let (mut after, mut asked) = (None, 0);
        loop {
            let (ledger, known, full) = (&self.shared.ledger, &self.passed_over, self.full_tenants());
            let page =
                ledger.due_page(Duty::Lookup, after, &full, PAGE, |id| known.contains_key(&id)).await?;
            for due in page.items {
                if self.lookups.len() >= LOOKUPS {
                    return Ok(asked);
                }
                let tenant = due.command.spec.tenant.clone();
                if self.is_full(&tenant) {
                    continue;
                }
                self.passed_over.insert(due.command.id, now + PASSED_OVER);
                let lookup = self.shared.lookup(&due);
                if lookup.as_ref().is_ok_and(|lookup| matches!(lookup, Lookup::Worker)) {
                    continue;
                }
                asked += 1;
                *self.of_tenants.entry(tenant.clone()).or_default() += 1;
                let shared = self.shared.clone();
                let whose = tenant.as_str().into();
                let asking = async move {
                    let command = due.command.id;
                    let asked = AssertUnwindSafe(shared.reconcile(due, lookup)).catch_unwind().await;
                    let recorded =
                        asked.unwrap_or_else(|_| Err(Error::Corrupt("the lookup panicked".to_owned())));
                    Ended { command, tenant, recorded }
                };
                self.lookups.spawn(fair::on_behalf_of(whose, asking));
            }
            after = page.next;
            if after.is_none() {
                return Ok(asked);
            }
        }
    }

    fn is_full(&self, tenant: &str) -> bool {
        self.of_tenants.get(tenant).is_some_and(|lookups| *lookups >= LOOKUPS_OF_A_TENANT)
    }

    /// Tenants at their limit: more of their due lookups need not be read now.
    fn full_tenants(&self) -> Vec<String> {
        self.of_tenants.keys().filter(|tenant| self.is_full(tenant)).cloned().collect()
    }

    fn ended(&mut self, ended: Option<Ended>) {
        let Some(Ended { command, tenant, recorded }) = ended else { return };
        if let Some(lookups) = self.of_tenants.get_mut(&tenant) {
            *lookups -= 1;
            if *lookups == 0 {
                self.of_tenants.remove(&tenant);
            }
        }
        match recorded {
            Ok(()) => _ = self.passed_over.remove(&command),
            Err(error) => tracing::warn!(%command, %error, "a finding could not be recorded; skipped"),
        }
    }
}

impl Shared {
    /// How the command is looked up, or why it cannot be.
    fn lookup(&self, due: &Due) -> Result<Lookup, String> {
        let (live, tool) = (self.live.borrow().clone(), &due.command.spec.tool);
        live.tools.get(tool).lookup.clone().ok_or_else(|| {
            let declared =
                if live.tools.is_declared(tool) { "no longer has a lookup" } else { "is no longer declared" };
            format!("`{tool}` {declared}: declare its lookup, or find out its outcome and record it")
        })
    }

    async fn reconcile(&self, due: Due, lookup: Result<Lookup, String>) -> Result<(), Error> {
        let caller = self.ledger.caller(Actor::system("reconciler"));
        let id = due.command.id;
        let timeout = lookup.as_ref().map_or(Duration::ZERO, |lookup| lookup.timeout());
        match caller.take_lookup(id, (timeout + MARGIN).as_millis() as u64).await {
            Ok(_) => {}
            // Another process looks it up, or it is no longer in doubt.
            Err(Error::Refused(refusal)) if refusal.code == Code::NotDue => return Ok(()),
            Err(error) => return Err(error),
        }
        let found = match &lookup {
            Ok(lookup) => self.ask(&due, lookup).await?,
            Err(why) => Found { finding: Finding::Unknown, message: Some(why.clone()) },
        };
        match caller.reconcile(id, found.finding, found.message.as_deref()).await {
            Ok(_) => Ok(()),
            // Its sender was faster, or absence does not count yet: it is looked up again at that time.
            Err(Error::Refused(refusal)) if matches!(refusal.code, Code::IllegalState | Code::NotDue) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn ask(&self, due: &Due, lookup: &Lookup) -> Result<Found, Error> {
        let unknown = |why: &str| Found { finding: Finding::Unknown, message: Some(why.to_owned()) };
        let Some(arguments) = due.arguments.clone() else {
            return Ok(unknown("its arguments were erased, so it cannot be looked up"));
        };
        let Some(asker) = self.asker(&due.command.spec.tool, lookup) else {
            return Ok(unknown("a worker looks it up"));
        };
        let now: Millis = self.ledger.now().await?;
        Ok(asker.ask(&call_of(due, arguments), now).await)
    }

    fn asker(&self, tool: &str, lookup: &Lookup) -> Option<Asker> {
        let mut known = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, asker)) = known.get(tool).filter(|(declared, _)| declared == lookup) {
            return Some(asker.clone());
        }
        let asker = Asker::new(lookup, &self.outbound)?;
        known.insert(tool.to_owned(), (lookup.clone(), asker.clone()));
        Some(asker)
    }
}
