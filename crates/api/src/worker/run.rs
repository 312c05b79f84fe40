//! The loop: one task owns every lease; claims, renewals, handlers and deliveries report to it.

use std::{
    collections::BTreeMap, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use uuid::Uuid;

use super::{
    Job, Options, Outcome,
    deliver::{Attempt, deliver},
    lease::{Handled, NOTES_BYTES, Stage},
};
use crate::{
    Client, Error,
    wire::{
        Claim, DrainReport, ErrorClass, Failure, Grant, Grants, Renew, Renewal, Renewals, WorkId, Worker,
    },
};

/// After a failed claim the next one is delayed, longer each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The maximum number of leases in one renewal.
const LEASES: usize = 1_000;

type Handler = Arc<dyn Fn(Job) -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send + Sync>;

/// The reports of the loop's tasks. The fence distinguishes a lease from a later one of the same work item.
pub(super) enum Report {
    Claimed { sent: Instant, answer: Result<Grants, Error> },
    Renewed { sent: Instant, fences: BTreeMap<WorkId, u64>, answer: Result<Renewals, Error> },
    Finished { id: WorkId, fence: u64, outcome: Outcome },
    Delivered { id: WorkId, fence: u64, answer: Result<Attempt, Error> },
}

/// Runs until `stop` completes, then drains, and returns the drain's report.
pub async fn run<H, F, O>(
    client: Client,
    options: Options,
    handler: H,
    stop: impl Future<Output = ()>,
) -> DrainReport
where
    H: Fn(Job) -> F + Send + Sync + 'static,
    F: Future<Output = O> + Send + 'static,
    O: Into<Outcome> + 'static,
{
    let handler: Handler = Arc::new(move |job| handler(job).map(Into::into).boxed());
    let mut this = Loop::new(client, options, handler);
    let mut stop = std::pin::pin!(stop);
    loop {
        this.claim_if_free();
        tokio::select! {
            () = &mut stop => return this.drain().await,
            () = this.turn() => {}
        }
    }
}

pub(super) struct Loop {
    pub client: Client,
    pub options: Options,
    handler: Handler,
    pub handled: BTreeMap<WorkId, Handled>,
    tasks: JoinSet<Report>,
    /// The claim in progress.
    pub claiming: Option<Claiming>,
    claim_at: Instant,
    pause: Duration,
    renewing: bool,
    /// While draining: outcomes that could not be delivered, and why.
    pub undelivered: Option<BTreeMap<WorkId, String>>,
}

pub(super) struct Claiming {
    pub claim: Claim,
    pub task: tokio::task::AbortHandle,
}

impl Loop {
    fn new(client: Client, options: Options, handler: Handler) -> Self {
        Self {
            client,
            options,
            handler,
            handled: BTreeMap::new(),
            tasks: JoinSet::new(),
            claiming: None,
            claim_at: Instant::now(),
            pause: PAUSE_MIN,
            renewing: false,
            undelivered: None,
        }
    }

    /// Handles one report, or does what is due. Cancel-safe.
    pub async fn turn(&mut self) {
        let due = self.next_due();
        tokio::select! {
            Some(joined) = self.tasks.join_next() => {
                // An aborted task has nothing to report.
                if let Ok(report) = joined {
                    self.take(report);
                }
            }
            () = sleep_until(due) => self.act_on_time(),
        }
    }

    fn next_due(&self) -> Instant {
        let claim = (self.claiming.is_none() && self.free() > 0).then_some(self.claim_at);
        let renewal =
            self.handled.values().map(|handled| handled.timer.renew_at).min().filter(|_| !self.renewing);
        let end = self.handled.values().filter_map(Handled::stops_at).min();
        let far = Instant::now() + Duration::from_secs(3_600);
        [claim.filter(|at| *at > Instant::now()), renewal, end].into_iter().flatten().min().unwrap_or(far)
    }

    fn act_on_time(&mut self) {
        let now = Instant::now();
        let over: Vec<WorkId> = self
            .handled
            .iter()
            .filter(|(_, handled)| handled.stops_at().is_some_and(|at| at <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in over {
            self.lose(&id, "no renewal was confirmed in time");
        }
        if !self.renewing && self.handled.values().any(|handled| handled.timer.renew_at <= now) {
            self.renew_all(now);
        }
    }

    /// Another worker may hold the work item now: its handler must not go on.
    fn lose(&mut self, id: &WorkId, why: &str) {
        if let Some(handled) = self.handled.remove(id) {
            tracing::warn!(work = %id, why, "the lease is lost; its handler is stopped");
            self.note_undelivered(id, why);
            handled.job.cancel.cancel();
            if let Stage::Running(task) = handled.stage {
                task.abort();
            }
        }
    }

    fn note_undelivered(&mut self, id: &WorkId, why: &str) {
        if let Some(undelivered) = &mut self.undelivered {
            undelivered.insert(id.clone(), why.to_owned());
        }
    }

    fn free(&self) -> usize {
        self.options.capacity.min(LEASES).saturating_sub(self.handled.len())
    }

    fn claim_if_free(&mut self) {
        let now = Instant::now();
        if self.claiming.is_some() || self.free() == 0 || now < self.claim_at {
            return;
        }
        let claim = Claim {
            sources: self.options.sources.clone(),
            kinds: self.options.kinds.clone(),
            tenants: self.options.tenants.clone(),
            max: Some(self.free() as u32),
            wait_ms: Some(self.options.poll.as_millis() as u64),
            defer_start: self.options.defer_start,
            ..Claim::new(self.worker(), &Uuid::now_v7().simple().to_string())
        };
        let (client, sent) = (self.client.clone(), claim.clone());
        let task = self.tasks.spawn(async move {
            let answer = client.claim(&sent).await;
            Report::Claimed { sent: now, answer }
        });
        self.claiming = Some(Claiming { claim, task });
    }

    fn worker(&self) -> Worker {
        Worker {
            id: self.options.id.clone(),
            incarnation: self.options.incarnation.clone(),
            liveness: self.options.liveness.clone(),
        }
    }

    fn renew_all(&mut self, now: Instant) {
        let mut room = NOTES_BYTES;
        let leases: Vec<_> = self.handled.values().map(|handled| handled.job.renewal(&mut room)).collect();
        let fences = leases.iter().map(|lease| (lease.id.clone(), lease.fence)).collect();
        let within = self.handled.values().map(|handled| handled.timer.renew).min().unwrap_or(PAUSE_MAX);
        for handled in self.handled.values_mut() {
            handled.timer.renew_at = now + handled.timer.renew;
        }
        self.renewing = true;
        // The loop retries renewals itself, so that each counts from the moment when it was really sent.
        let client = self.client.clone().without_retries();
        self.tasks.spawn(async move {
            let answer = timeout(within, client.renew(&Renew { leases }))
                .await
                .unwrap_or_else(|_| Err(Error::no_response("the daemon", "a renewal took too long")));
            Report::Renewed { sent: now, fences, answer }
        });
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Claimed { sent, answer } => self.claimed(sent, answer),
            Report::Renewed { sent, fences, answer } => self.renewed(sent, &fences, answer),
            Report::Finished { id, fence, outcome } => self.finished(&id, fence, outcome),
            Report::Delivered { id, fence, answer } => self.delivered(&id, fence, answer),
        }
    }

    fn claimed(&mut self, sent: Instant, answer: Result<Grants, Error>) {
        self.claiming = None;
        match answer {
            Ok(grants) => {
                self.pause = PAUSE_MIN;
                self.claim_at = Instant::now();
                grants.leases.into_iter().for_each(|grant| self.hold(grant, sent));
            }
            Err(error) => {
                tracing::warn!(%error, "nothing could be claimed; retrying");
                self.claim_at = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }

    fn hold(&mut self, grant: Grant, sent: Instant) {
        let (id, fresh) = self.keep(grant, sent);
        if fresh {
            self.start(&id);
        }
    }

    /// Takes over a lease without starting its handler, and returns whether it may be started.
    pub fn keep(&mut self, grant: Grant, sent: Instant) -> (WorkId, bool) {
        let id = grant.work.id.clone();
        let now = Instant::now();
        let handled = Handled::new(Job::new(self.client.clone(), grant), sent, now);
        let fresh = handled.timer.is_fresh(now);
        self.handled.insert(id.clone(), handled);
        (id, fresh)
    }

    fn start(&mut self, id: &WorkId) {
        let Some(handled) = self.handled.get_mut(id) else { return };
        let (id, fence) = (id.clone(), handled.job.grant.fence);
        let handling = AssertUnwindSafe((self.handler)(handled.job.clone())).catch_unwind();
        let task = self.tasks.spawn(async move {
            let outcome = handling.await.unwrap_or_else(|panic| Outcome::Err(panicked(&*panic)));
            Report::Finished { id, fence, outcome }
        });
        handled.stage = Stage::Running(task);
    }

    fn renewed(&mut self, sent: Instant, fences: &BTreeMap<WorkId, u64>, answer: Result<Renewals, Error>) {
        self.renewing = false;
        let renewals = match answer {
            Ok(renewals) => renewals.leases,
            Err(error) => {
                tracing::warn!(%error, "the leases could not be renewed; retrying");
                self.handled.values_mut().for_each(|handled| handled.timer.renew_soon());
                return;
            }
        };
        for renewal in renewals {
            let id = renewal.id().clone();
            let Some(handled) = self.handled.get_mut(&id) else { continue };
            if fences.get(&id) != Some(&handled.job.grant.fence) {
                continue;
            }
            match renewal {
                Renewal::Renewed { cancel_requested, release_requested, .. } => {
                    handled.timer.renewed(sent);
                    handled.job.renewed(cancel_requested, release_requested);
                    if matches!(handled.stage, Stage::Unconfirmed) {
                        self.start(&id);
                    }
                }
                // An attempt whose end was just delivered has no lease to renew.
                Renewal::Refused { .. } if matches!(handled.stage, Stage::Delivering) => {}
                Renewal::Refused { problem, .. } if problem.retryable == Some(false) => {
                    self.lose(&id, &problem.detail);
                }
                Renewal::Refused { .. } => {}
            }
        }
    }

    fn finished(&mut self, id: &WorkId, fence: u64, outcome: Outcome) {
        if self.handled.get(id).is_some_and(|handled| handled.job.grant.fence == fence) {
            self.send(id, outcome);
        }
    }

    /// Starts delivering the outcome of a handler. The lease is renewed meanwhile.
    pub fn send(&mut self, id: &WorkId, outcome: Outcome) {
        let Some(handled) = self.handled.get_mut(id) else { return };
        if let Stage::Running(task) = std::mem::replace(&mut handled.stage, Stage::Delivering) {
            task.abort();
        }
        let job = handled.job.clone();
        self.tasks.spawn(async move {
            let answer = deliver(&job, &outcome).await;
            Report::Delivered { id: job.id().clone(), fence: job.grant.fence, answer }
        });
    }

    fn delivered(&mut self, id: &WorkId, fence: u64, answer: Result<Attempt, Error>) {
        if self.handled.get(id).is_none_or(|handled| handled.job.grant.fence != fence) {
            return;
        }
        match answer {
            // The handler runs again, with the answers.
            Ok(Attempt::GoesOn(waiting)) => {
                if let Some(handled) = self.handled.get_mut(id) {
                    handled.job.answered(&waiting.answers);
                }
                return self.start(id);
            }
            Ok(Attempt::Ended(_) | Attempt::Waiting(_)) => {}
            Err(error) => {
                tracing::warn!(work = %id, %error, "the handler's outcome was refused");
                self.note_undelivered(id, &error.to_string());
            }
        }
        self.handled.remove(id);
        self.claim_at = self.claim_at.min(Instant::now());
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Failure::new(ErrorClass::Unknown, format!("the handler panicked: {said}"))
}
