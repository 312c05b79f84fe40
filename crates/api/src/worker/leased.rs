//! Leased work items for a program that has a loop of its own: no handler, no worker loop. The handle renews
//! its lease in the background.

use std::{future::Future, ops::Deref, pin::pin, time::Duration};

use serde::Serialize;
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep_until, timeout},
};
use uuid::Uuid;

use super::{
    Attempt, Job, Outcome,
    deliver::deliver,
    job::to_json,
    lease::{LeaseTimer, NOTES_BYTES},
};
use crate::{
    Client, Error,
    wire::{
        Ack, Claim, Claimant, End, Failure, Grant, Ingest, NewWait, Renew, Renewal, State, WaitReason, Work,
        WorkId, Worker,
    },
};

/// This process as the holder of work items. Created once at each start, by [`Client::holder`]; cheap to
/// clone.
#[derive(Clone)]
pub struct Holder {
    client: Client,
    worker: Worker,
}

/// Which work item to claim, and how long to wait for one.
#[derive(Clone, Debug, Default)]
pub struct ClaimOptions {
    /// Only work items of these sources; empty means any.
    pub sources: Vec<String>,
    /// Only work items of these kinds; empty means any.
    pub kinds: Vec<String>,
    /// Only work items of these tenants; empty means any.
    pub tenants: Vec<String>,
    /// Exactly this work item: refused as `busy` if another worker holds it.
    pub work: Option<WorkId>,
    /// How long to wait for work when the queue is empty.
    pub wait: Duration,
    /// Owner-bound work is started by the holder's first verb instead of the claim.
    pub defer_start: bool,
}

/// A recorded work item, and its lease if it could be claimed in the same transaction.
pub struct Recorded {
    /// The work item as it is now.
    pub work: Work,
    /// False if the work item existed already.
    pub created: bool,
    /// None if the work item has ended or waits, or if another worker holds it or its session.
    pub leased: Option<LeasedWork>,
}

/// A work item whose lease this process holds. The lease is renewed in the background until the handle is
/// dropped, the attempt has ended, or the lease is lost.
///
/// Its verbs carry the lease automatically; it also has those of [`Job`]. If it is dropped without an end,
/// the lease expires and recovery does what the work item declares.
pub struct LeasedWork {
    job: Job,
    renewing: AbortHandle,
}

impl Client {
    /// This process as a worker with this id, for a loop of its own.
    pub fn holder(&self, id: &str) -> Holder {
        Holder { client: self.clone(), worker: Worker::of_this_process(id) }
    }
}

impl Holder {
    /// The worker id, incarnation and liveness of this process.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Claims one work item. None if there is none to claim.
    pub async fn claim(&self, options: ClaimOptions) -> Result<Option<LeasedWork>, Error> {
        let ClaimOptions { sources, kinds, tenants, work, wait, defer_start } = options;
        let claim = Claim {
            sources,
            kinds,
            tenants,
            ids: work.into_iter().collect(),
            wait_ms: (!wait.is_zero()).then(|| wait.as_millis().try_into().unwrap_or(u64::MAX)),
            defer_start,
            ..Claim::new(self.worker.clone(), &request_id())
        };
        let sent = Instant::now();
        match self.client.claim(&claim).await?.leases.pop() {
            Some(grant) => self.hold(grant, sent).await.map(Some),
            None => Ok(None),
        }
    }

    /// Records a work item and claims it in the same transaction. Delivered twice, it is recorded once.
    pub async fn ingest(&self, new: Ingest) -> Result<Recorded, Error> {
        let claim = Claimant { worker: self.worker.clone(), request_id: request_id(), defer_start: false };
        let sent = Instant::now();
        let ingested = self.client.ingest(&Ingest { claim: Some(claim), ..new }).await?;
        let leased = match ingested.lease {
            Some(grant) => Some(self.hold(grant, sent).await?),
            None => None,
        };
        Ok(Recorded { work: ingested.work, created: ingested.created, leased })
    }

    /// Takes over a lease from a call that was sent at `sent`. If the response took long, the lease is
    /// confirmed by a renewal first.
    async fn hold(&self, grant: Grant, sent: Instant) -> Result<LeasedWork, Error> {
        let now = Instant::now();
        let mut timer = LeaseTimer::new(&grant, sent, now);
        let job = Job::new(self.client.clone(), grant);
        if !timer.is_fresh(now) {
            renew(&self.client, &job).await?;
            timer.renewed(now);
            timer.renew_at = now + timer.renew;
        }
        let renewing = tokio::spawn(keep(job.clone(), timer)).abort_handle();
        Ok(LeasedWork { job, renewing })
    }
}

impl LeasedWork {
    /// Closes out the work item as succeeded, with its result.
    pub async fn succeed(&mut self, result: &(impl Serialize + ?Sized)) -> Result<Ack, Error> {
        let result = Some(to_json("the result", result)?);
        self.close_out(End { result, ..End::new(State::Succeeded) }).await
    }

    /// Declares any end. A refused one leaves the lease as it is.
    pub async fn close_out(&mut self, end: End) -> Result<Ack, Error> {
        self.finish(Outcome::End(Box::new(end))).await.map(Attempt::into_ack)
    }

    /// Reports that the attempt failed: the retry policy decides whether the work item is retried.
    pub async fn fail(&mut self, failure: Failure) -> Result<Ack, Error> {
        self.finish(failure).await.map(Attempt::into_ack)
    }

    /// Releases the work item, with a reason.
    pub async fn release(&mut self, why: &str) -> Result<Ack, Error> {
        self.finish(Outcome::Release(why.to_owned())).await.map(Attempt::into_ack)
    }

    /// Pauses the work item until these waits are answered, without a holder meanwhile. If all are answered
    /// already, the attempt continues, and [`Job::answer`] has the answers.
    pub async fn wait(&mut self, waits: impl Into<Vec<NewWait>>) -> Result<Attempt, Error> {
        self.finish(Outcome::Wait(waits.into(), WaitReason::default())).await
    }

    /// Delivers the outcome as the worker loop does for a handler: retries until the ledger has responded,
    /// and renews the lease meanwhile.
    pub async fn finish(&mut self, outcome: impl Into<Outcome>) -> Result<Attempt, Error> {
        let attempt = deliver(&self.job, &outcome.into()).await?;
        match &attempt {
            Attempt::GoesOn(waiting) => self.job.answered(&waiting.answers),
            Attempt::Ended(_) | Attempt::Waiting(_) => self.renewing.abort(),
        }
        Ok(attempt)
    }
}

impl Deref for LeasedWork {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

impl Drop for LeasedWork {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Renews until the lease is lost. Asks the holder to stop once no renewal was confirmed in time, but keeps
/// renewing: only the ledger knows whether somebody else has claimed the work item.
async fn keep(job: Job, mut timer: LeaseTimer) {
    // This loop retries itself, so that each renewal counts from the moment when it was really sent.
    let client = job.client.clone().without_retries();
    loop {
        stopping_at(timer.valid_until, &job, sleep_until(timer.renew_at)).await;
        let sent = Instant::now();
        timer.renew_at = sent + timer.renew;
        let renewal = timeout(timer.renew, renew(&client, &job));
        match stopping_at(timer.valid_until, &job, renewal).await {
            Ok(Ok(())) => timer.renewed(sent),
            Ok(Err(_)) if job.is_lost() => return,
            Ok(Err(error)) => {
                tracing::warn!(work = %job.id(), %error, "the lease could not be renewed; trying again");
                timer.renew_soon();
            }
            Err(_late) => timer.renew_soon(),
        }
    }
}

/// Waits for an event. If the lease stops being valid before that, its holder is asked to stop.
async fn stopping_at<T>(valid_until: Instant, job: &Job, event: impl Future<Output = T>) -> T {
    let mut event = pin!(event);
    tokio::select! {
        biased;
        happened = &mut event => return happened,
        () = sleep_until(valid_until), if !job.is_cancelled() => job.cancel.cancel(),
    }
    event.await
}

/// Renews once, and applies the result.
async fn renew(client: &Client, job: &Job) -> Result<(), Error> {
    let mut room = NOTES_BYTES;
    let lease = job.renewal(&mut room);
    let answered = client.renew(&Renew { leases: vec![lease] }).await?;
    match answered.leases.into_iter().next() {
        Some(Renewal::Renewed { cancel_requested, release_requested, .. }) => {
            job.renewed(cancel_requested, release_requested);
            Ok(())
        }
        Some(Renewal::Refused { problem, .. }) => {
            let problem = Box::new(problem);
            if problem.retryable == Some(false) {
                tracing::warn!(work = %job.id(), %problem, "the lease is lost");
                job.lose(problem.clone());
            }
            Err(Error::Problem(problem))
        }
        None => Err(Error::protocol("a renewal got no response")),
    }
}

fn request_id() -> String {
    Uuid::now_v7().simple().to_string()
}
