//! The holder's verbs. Each is idempotent by its lease.

use super::{
    Client, Error,
    call::{Call, segment},
    work::path,
};
use crate::wire::{
    Accept, Ack, CloseOut, Complete, Fail, Failed, Progress, PutStep, Release, Renew, Renewals, SetWait,
    StepReply, Waiting, WorkId,
};

impl Client {
    /// Renews many leases in one request; each has its own result, and `lost` lists the work items to stop
    /// working on.
    pub async fn renew(&self, renew: &Renew) -> Result<Renewals, Error> {
        self.call(Call::post("/v1/work/renew", renew)).await
    }

    /// Records how firmly the work item was handed over to the agent.
    pub async fn accept(&self, id: &WorkId, accept: &Accept) -> Result<Ack, Error> {
        self.call(Call::post(path(id, "/accept"), accept)).await
    }

    /// Records progress as an event. Retried automatically only if it has a `request_id`.
    pub async fn progress(&self, id: &WorkId, progress: &Progress) -> Result<Ack, Error> {
        let call = Call::post(path(id, "/progress"), progress);
        self.call(call.once_if(progress.request_id.is_none())).await
    }

    /// Begins or completes a checkpoint. A restart is not retried automatically: it would void the step that
    /// the first one began.
    pub async fn put_step(&self, id: &WorkId, step: &str, put: &PutStep) -> Result<StepReply, Error> {
        let call = Call::put(path(id, &format!("/steps/{}", segment(step))), put);
        self.call(call.once_if(put.restart)).await
    }

    /// Pauses the work item durably. The lease ends, unless every answer exists already.
    pub async fn wait(&self, id: &WorkId, wait: &SetWait) -> Result<Waiting, Error> {
        self.call(Call::post(path(id, "/wait"), wait)).await
    }

    /// Reports a failure: the retry policy decides whether the work item is retried.
    pub async fn fail(&self, id: &WorkId, fail: &Fail) -> Result<Failed, Error> {
        self.call(Call::post(path(id, "/fail"), fail)).await
    }

    /// Returns the work item to the queue, to be claimed again.
    pub async fn release(&self, id: &WorkId, release: &Release) -> Result<Ack, Error> {
        self.call(Call::post(path(id, "/release"), release)).await
    }

    /// Closes out the work item.
    pub async fn close_out(&self, id: &WorkId, close: &CloseOut) -> Result<Ack, Error> {
        self.call(Call::post(path(id, "/close-out"), close)).await
    }

    /// Closes out externally owned work, with its completion token.
    pub async fn complete(&self, id: &WorkId, complete: &Complete) -> Result<Ack, Error> {
        self.call(Call::post(path(id, "/complete"), complete)).await
    }
}
