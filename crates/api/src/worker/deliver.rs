//! Delivers the outcome of a handler to the ledger: retries until the ledger has responded, or certainly will
//! not accept it.

use std::{future::Future, time::Duration};

use super::{Job, Outcome};
use crate::{
    Error,
    wire::{
        Ack, CloseOut, Code, Disposition, End, ErrorClass, Fail, Failure, Release, Renew, SetWait, State,
        Usage, WaitReason, Waiting,
    },
};

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

const STOPPED: &str = "its worker was asked to stop";

/// The result of delivering an attempt's outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Attempt {
    /// The attempt is over.
    Ended(Ack),
    /// The attempt is over, and the work item waits. The tokens that answer its waits are returned here only.
    Waiting(Waiting),
    /// Every answer existed already: the attempt continues with them, under the same lease.
    GoesOn(Waiting),
}

impl Attempt {
    /// The work item after the call.
    pub fn into_ack(self) -> Ack {
        match self {
            Attempt::Ended(ack) => ack,
            Attempt::Waiting(waiting) | Attempt::GoesOn(waiting) => waiting.work,
        }
    }
}

/// Each of these verbs is idempotent by its lease: a repeat gets the first response.
pub(super) async fn deliver(job: &Job, outcome: &Outcome) -> Result<Attempt, Error> {
    // Taken once, because a repeat is recognized by its content.
    let usage = job.usage();
    until_answered(|| async {
        let delivered = once(job, outcome, &usage).await;
        if matches!(&delivered, Err(error) if error.code() == Some(Code::LeaseLapsed)) {
            revive(job).await?;
        }
        delivered
    })
    .await
}

/// Retries until the ledger has responded, or a retry certainly cannot help.
pub(super) async fn until_answered<T, F>(act: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pause = PAUSE_MIN;
    loop {
        let error = match act().await {
            Ok(delivered) => return Ok(delivered),
            Err(error) if error.is_terminal() || error.code() == Some(Code::IllegalState) => {
                return Err(error);
            }
            Err(error) => error,
        };
        tracing::debug!(%error, "not delivered yet");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn once(job: &Job, outcome: &Outcome, usage: &[Usage]) -> Result<Attempt, Error> {
    match outcome {
        Outcome::Ok(value) => {
            end(job, End { result: Some(value.clone()), ..End::new(State::Succeeded) }, usage).await
        }
        Outcome::End(declared) => end(job, (**declared).clone(), usage).await,
        Outcome::Stopped if job.is_cancel_requested() => end(job, End::new(State::Cancelled), usage).await,
        // It cannot be released: the failure says that the handler was stopped half-way.
        Outcome::Stopped if job.grant.work.disposition == Disposition::OwnerBound => {
            fail(job, &Failure::new(ErrorClass::Unavailable, STOPPED), usage).await
        }
        Outcome::Stopped => release(job, STOPPED, usage).await,
        Outcome::Release(message) => release(job, message, usage).await,
        Outcome::Err(failure) => fail(job, failure, usage).await,
        Outcome::Wait(waits, reason) => {
            let wait = SetWait {
                fence: job.grant.fence,
                token: job.grant.token.clone(),
                waits: waits.clone(),
                reason: (*reason != WaitReason::default()).then(|| reason.clone()),
                usage: usage.to_vec(),
            };
            let waiting = job.client.wait(job.id(), &wait).await?;
            Ok(match waiting.work.state == State::Running {
                true => Attempt::GoesOn(waiting),
                false => Attempt::Waiting(waiting),
            })
        }
    }
}

async fn end(job: &Job, mut end: End, usage: &[Usage]) -> Result<Attempt, Error> {
    end.usage.extend_from_slice(usage);
    let close = CloseOut::new(job.grant.fence, &job.grant.token, end);
    job.client.close_out(job.id(), &close).await.map(Attempt::Ended)
}

async fn release(job: &Job, message: &str, usage: &[Usage]) -> Result<Attempt, Error> {
    let message = (!message.is_empty()).then(|| message.to_owned());
    let (fence, token) = (job.grant.fence, job.grant.token.clone());
    let release = Release { fence, token, message, usage: usage.to_vec() };
    job.client.release(job.id(), &release).await.map(Attempt::Ended)
}

async fn fail(job: &Job, failure: &Failure, usage: &[Usage]) -> Result<Attempt, Error> {
    let (fence, token) = (job.grant.fence, job.grant.token.clone());
    let fail = Fail { fence, token, error: failure.clone(), wait: None, usage: usage.to_vec() };
    job.client.fail(job.id(), &fail).await.map(|failed| Attempt::Ended(failed.work))
}

/// A lapsed lease is valid again once it is renewed, if nobody else has claimed the work item.
async fn revive(job: &Job) -> Result<(), Error> {
    job.client.renew(&Renew { leases: vec![job.renewal(&mut 0)] }).await.map(drop)
}
