//! What a handler gets: the work, and the verbs of its holder.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    Client, Error,
    wire::{Accept, AcceptStrength, Ack, Grant, Progress, PutStep, StepVerb, Usage, WorkId},
};

/// A work in the hands of a handler. Cheap to clone.
#[derive(Clone)]
pub struct Job {
    pub grant: Arc<Grant>,
    pub client: Client,
    pub(super) cancel: CancellationToken,
    pub(super) note: Arc<Mutex<Option<Value>>>,
    usage: Arc<Mutex<Vec<Usage>>>,
}

impl Job {
    pub(super) fn new(client: Client, grant: Arc<Grant>) -> Self {
        Self { grant, client, cancel: CancellationToken::new(), note: Arc::default(), usage: Arc::default() }
    }

    pub fn id(&self) -> &WorkId {
        &self.grant.work.id
    }

    pub fn input(&self) -> &Value {
        &self.grant.input
    }

    /// The answer to a wait that has ended.
    pub fn answer(&self, reference: &str) -> Option<&Value> {
        let answers = self.grant.answers.iter().rev();
        answers.into_iter().find(|wait| wait.reference == reference)?.answer.as_ref()
    }

    /// Ends once the handler is asked to stop: by a cancel, or by a drain.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    pub async fn accept(&self, strength: AcceptStrength) -> Result<Ack, Error> {
        let accept = Accept { fence: self.grant.fence, token: self.grant.token.clone(), strength };
        self.client.accept(self.id(), &accept).await
    }

    /// Shows progress: it rides on the next renewal and leaves no event.
    pub fn note(&self, progress: Value) {
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }

    /// Adds to what this attempt used: it is told with its end, however that comes.
    pub fn used(&self, usage: &Usage) {
        let mut sum = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        Usage::add(&mut sum, usage);
    }

    pub(super) fn usage(&self) -> Vec<Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records progress as an event. The same `request_id` again writes nothing.
    pub async fn progress(&self, progress: Value, request_id: &str) -> Result<Ack, Error> {
        let progress = Progress {
            fence: self.grant.fence,
            token: self.grant.token.clone(),
            progress,
            request_id: Some(request_id.to_owned()),
        };
        self.client.progress(self.id(), &progress).await
    }

    /// A checkpoint: its result is reused if it was completed with the same input, and made by `make` otherwise.
    pub async fn step<F, E>(&self, name: &str, input: Value, make: impl FnOnce() -> F) -> Result<Value, E>
    where
        F: Future<Output = Result<Value, E>>,
        E: From<Error>,
    {
        let mut put = PutStep {
            fence: self.grant.fence,
            token: self.grant.token.clone(),
            verb: StepVerb::Begin,
            input,
            restart: false,
            result: None,
        };
        let begun = self.client.put_step(self.id(), name, &put).await?;
        if begun.reused {
            return Ok(begun.step.result.unwrap_or(Value::Null));
        }
        let result = make().await?;
        put.verb = StepVerb::Complete;
        put.result = Some(result.clone());
        self.client.put_step(self.id(), name, &put).await?;
        Ok(result)
    }
}
