//! The argument of a handler: the work item, and the verbs of its holder.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Client, Error,
    wire::{
        Accept, AcceptStrength, Ack, Grant, Problem, Progress, PutStep, RenewLease, StepVerb, Usage, Wait,
        WorkId,
    },
};

/// A work item that a handler works on. Cheap to clone.
#[derive(Clone)]
pub struct Job {
    /// The lease with everything that came with it: the work item, its input, checkpoints and answers.
    pub grant: Arc<Grant>,
    /// The worker's client.
    pub client: Client,
    pub(super) cancel: CancellationToken,
    cancel_requested: Arc<AtomicBool>,
    lost: Arc<OnceLock<Box<Problem>>>,
    note: Arc<Mutex<Option<Value>>>,
    usage: Arc<Mutex<Vec<Usage>>>,
}

impl Job {
    pub(super) fn new(client: Client, grant: Grant) -> Self {
        Self {
            grant: Arc::new(grant),
            client,
            cancel: CancellationToken::new(),
            cancel_requested: Arc::default(),
            lost: Arc::default(),
            note: Arc::default(),
            usage: Arc::default(),
        }
    }

    /// The work item's id.
    pub fn id(&self) -> &WorkId {
        &self.grant.work.id
    }

    /// The input as a value of this program. The JSON itself is `grant.input`.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let what = || format!("the input of {} does not have the type that its handler reads", self.id());
        T::deserialize(&self.grant.input).map_err(|cause| Error::json(what(), cause))
    }

    /// The answer to a wait that has ended; none while it is not answered.
    pub fn answer<T: DeserializeOwned>(&self, reference: &str) -> Result<Option<T>, Error> {
        let mut answers = self.grant.answers.iter().rev();
        let wait = answers.find(|wait| wait.reference == reference);
        let Some(answer) = wait.and_then(|wait| wait.answer.as_ref()) else { return Ok(None) };
        let what = || format!("the answer to `{reference}` does not have the type that its handler reads");
        T::deserialize(answer).map(Some).map_err(|cause| Error::json(what(), cause))
    }

    /// Completes once the handler is asked to stop: by a cancel, by a drain, or because the lease is lost or
    /// no renewal was confirmed in time.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Whether the handler is asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Records how firmly the work item was handed over.
    pub async fn accept(&self, strength: AcceptStrength) -> Result<Ack, Error> {
        let accept = Accept { fence: self.grant.fence, token: self.grant.token.clone(), strength };
        self.client.accept(self.id(), &accept).await
    }

    /// Shows progress: it is sent with the next renewal and not recorded as an event. Only the last note
    /// before a renewal counts.
    pub fn note(&self, progress: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        if let Some(problem) = self.lost.get() {
            return Err(Error::Problem(problem.clone()));
        }
        let progress = to_json("the progress", progress)?;
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
        Ok(())
    }

    /// Adds to the usage of this attempt, which is reported with its end, however that comes.
    pub fn used(&self, usage: &Usage) {
        let mut sum = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        Usage::add(&mut sum, usage);
    }

    pub(super) fn usage(&self) -> Vec<Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records progress as an event.
    pub async fn progress(&self, progress: &(impl Serialize + ?Sized)) -> Result<Ack, Error> {
        let progress = Progress {
            fence: self.grant.fence,
            token: self.grant.token.clone(),
            progress: to_json("the progress", progress)?,
            request_id: Some(Uuid::now_v7().simple().to_string()),
        };
        self.client.progress(self.id(), &progress).await
    }

    /// A checkpoint: its result is reused if it was completed with the same input; otherwise `make` is run.
    pub async fn step<T, E, F>(
        &self,
        name: &str,
        input: &(impl Serialize + ?Sized),
        make: impl FnOnce() -> F,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error>,
        F: Future<Output = Result<T, E>>,
    {
        let mut put = PutStep {
            fence: self.grant.fence,
            token: self.grant.token.clone(),
            verb: StepVerb::Begin,
            input: to_json(&format!("the input of step `{name}`"), input)?,
            restart: false,
            result: None,
        };
        let begun = self.client.put_step(self.id(), name, &put).await?;
        if begun.reused {
            let what = || {
                format!(
                    "the stored result of step `{name}` does not have the type that its \
             handler reads"
                )
            };
            let stored = begun.step.result.unwrap_or(Value::Null);
            return T::deserialize(stored).map_err(|cause| Error::json(what(), cause).into());
        }
        let result = make().await?;
        put.verb = StepVerb::Complete;
        put.result = Some(to_json(&format!("the result of step `{name}`"), &result)?);
        self.client.put_step(self.id(), name, &put).await?;
        Ok(result)
    }

    /// The request that renews its lease, with the pending progress if it fits into `room`.
    pub(super) fn renewal(&self, room: &mut usize) -> RenewLease {
        let mut note = self.note.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = note.as_ref().map_or(0, |note| note.to_string().len());
        let progress = if bytes <= *room { note.take() } else { None };
        *room -= progress.as_ref().map_or(0, |_| bytes);
        RenewLease {
            id: self.id().clone(),
            fence: self.grant.fence,
            token: self.grant.token.clone(),
            progress,
        }
    }

    /// Applies the result of a confirmed renewal.
    pub(super) fn renewed(&self, cancel_requested: bool, release_requested: bool) {
        self.cancel_requested.fetch_or(cancel_requested, Relaxed);
        // A handler that stops without a cancel has its work item released.
        if cancel_requested || release_requested {
            self.cancel.cancel();
        }
    }

    /// Whether the ledger requested a cancel, as opposed to a drain.
    pub(super) fn is_cancel_requested(&self) -> bool {
        self.cancel_requested.load(Relaxed)
    }

    /// The ledger has refused to renew the lease.
    pub(super) fn lose(&self, problem: Box<Problem>) {
        let _first = self.lost.set(problem);
        self.cancel.cancel();
    }

    /// Whether the ledger has refused to renew the lease: every verb is refused from then on.
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Adds answers that existed already when their waits were set.
    pub(super) fn answered(&mut self, answers: &[Wait]) {
        let grant = Arc::make_mut(&mut self.grant);
        grant.answers.retain(|old| answers.iter().all(|new| new.id != old.id));
        grant.answers.extend_from_slice(answers);
    }
}

pub(super) fn to_json(what: &str, value: &(impl Serialize + ?Sized)) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|cause| Error::json(format!("{what} is not JSON"), cause))
}
