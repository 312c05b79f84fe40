//! The ledger as the benchmark drives it: the same calls as any program, with the same small payloads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tenure_core::{
    Actor, CommandId, Payload, State,
    action::{ClaimFilter, Claimant, CloseOut},
    command::{Arguments, Effect, Evaluation, Intent, PolicyDecision, Proof, ToolFacts},
    liveness::Liveness,
    model::{Disposition, Worker},
    policy::{LeaseTimings, PolicyOverrides},
};
use tenure_store::{Caller, Claimed, LeaseRef, Ledger, NewWork};

use crate::{Result, cases::at_once_until};

const SOURCE: &str = "manual";

/// Longer than any run: no lease lapses between its slices.
const TTL_MS: u64 = 3_600_000;

/// Submitters that fill a queue: enough to fill the ledger's groups.
const FILLERS: usize = 1_024;

#[derive(Clone)]
pub struct Subject(Arc<Inner>);

struct Inner {
    ledger: Ledger,
    producer: Caller,
    worker: Caller,
    policy: PolicyOverrides,
    /// Allows every command.
    evaluation: Evaluation,
    /// Numbers identities and claim requests.
    next: AtomicU64,
}

impl Subject {
    pub fn new(ledger: Ledger) -> Result<Subject> {
        let lease = LeaseTimings::new(TTL_MS, TTL_MS / 3, TTL_MS)?;
        Ok(Subject(Arc::new(Inner {
            producer: ledger.caller(Actor::machine("bench")),
            worker: ledger.caller(Actor::worker("bench")),
            policy: PolicyOverrides { lease: Some(lease), ..PolicyOverrides::default() },
            evaluation: Evaluation::new(PolicyDecision::new(Effect::Allow, "bench"), ToolFacts::default()),
            next: AtomicU64::new(0),
            ledger,
        })))
    }

    fn number(&self) -> u64 {
        self.0.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Records one more work item of a kind.
    pub async fn ingest(&self, kind: &str) -> Result<()> {
        self.ingest_with(kind, json!({ "prompt": "Summarise the thread and file it.", "thread": 4711 })).await
    }

    pub async fn ingest_with(&self, kind: &str, input: Value) -> Result<()> {
        let id = format!("bench-{}", self.number());
        let mut work = NewWork::new(SOURCE, &id, kind, Disposition::Rerunnable, input);
        work.policy = self.0.policy;
        let ingested = self.0.producer.ingest(work).await?;
        if ingested.created { Ok(()) } else { Err(format!("{id} was there already").into()) }
    }

    /// Records many work items at once.
    pub async fn fill(&self, kind: &'static str, count: usize) -> Result<()> {
        let left = Arc::new(AtomicU64::new(count as u64));
        let subject = self.clone();
        at_once_until(FILLERS.min(count), move |_, _| {
            let (subject, left) = (subject.clone(), left.clone());
            async move {
                let mine =
                    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                if mine.is_ok() {
                    subject.ingest(kind).await?;
                }
                Ok(mine.is_ok())
            }
        })
        .await?;
        Ok(())
    }

    pub async fn claim(&self, kind: &str, max: usize, wait: Option<Duration>) -> Result<Vec<Claimed>> {
        let worker =
            Worker { id: "bench".to_owned(), incarnation: "first".to_owned(), liveness: Liveness::default() };
        let claimant = Claimant { worker, request_id: self.number().to_string(), defer_start: false };
        let filter = ClaimFilter {
            sources: vec![SOURCE.to_owned()],
            kinds: vec![kind.to_owned()],
            tenants: Vec::new(),
            max,
        };
        Ok(self.0.worker.claim(claimant, filter, wait).await?)
    }

    /// Records and claims work items.
    pub async fn hold(&self, kind: &'static str, count: usize) -> Result<Vec<LeaseRef>> {
        self.fill(kind, count).await?;
        let mut leases = Vec::with_capacity(count);
        while leases.len() < count {
            let claimed = self.claim(kind, (count - leases.len()).min(500), None).await?;
            if claimed.is_empty() {
                return Err(format!(
                    "of {count} works of kind {kind}, only {} could be claimed",
                    leases.len()
                )
                .into());
            }
            leases.extend(claimed.into_iter().map(|claimed| claimed.lease));
        }
        Ok(leases)
    }

    /// One row update and one event.
    pub async fn progress(&self, lease: &LeaseRef, done: usize) -> Result<()> {
        let progress = json!({ "stage": "reading", "done": done % 100, "of": 100 });
        self.0.worker.progress(lease, &progress, None).await?;
        Ok(())
    }

    pub async fn renew(&self, lease: &LeaseRef) -> Result<()> {
        for renewal in self.0.worker.renew(&[(lease.clone(), None)]).await? {
            renewal.outcome?;
        }
        Ok(())
    }

    /// Reserves one more command of a work item: the first of its three transitions.
    pub async fn reserve(&self, lease: &LeaseRef) -> Result<CommandId> {
        let arguments =
            json!({ "to": "bob@example.com", "subject": "Your order", "text": "It is on its way." });
        let arguments = Arguments::whole(Payload::new(&arguments)?);
        let mut new = Intent::new("send_email", "bob@example.com", arguments, self.0.evaluation.clone());
        new.slot = Some(self.number().to_string());
        Ok(self.0.worker.reserve(lease, new).await?.command.id)
    }

    pub async fn dispatch(&self, lease: &LeaseRef, id: CommandId) -> Result<()> {
        self.0.worker.dispatch(lease, id, self.0.evaluation.clone(), Some("go")).await?;
        Ok(())
    }

    pub async fn receipt(&self, lease: &LeaseRef, id: CommandId) -> Result<()> {
        self.0.worker.receipt(lease, id, Proof::provider("m-4711")).await?;
        Ok(())
    }

    pub async fn close_out(&self, lease: &LeaseRef) -> Result<()> {
        let close = CloseOut {
            state: State::Succeeded,
            result: Some(Payload::new(&json!({ "summary": "Filed under travel.", "pages": 3 }))?),
            result_ref: None,
            no_output: false,
            warnings: Vec::new(),
            error: None,
            evidence: Vec::new(),
            commands: Vec::new(),
            usage: Vec::new(),
        };
        self.0.worker.close_out(lease, close).await?;
        Ok(())
    }

    /// Closes out each in a write of its own, all at once.
    pub async fn close_out_all(&self, claimed: &[Claimed]) -> Result<()> {
        try_join_all(claimed.iter().map(|claimed| self.close_out(&claimed.lease))).await?;
        Ok(())
    }

    pub async fn close(&self) -> Result<()> {
        Ok(self.0.ledger.close().await?)
    }
}
