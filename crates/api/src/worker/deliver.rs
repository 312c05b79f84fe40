//! Telling the ledger how a handler ended, until it is told or it is certain that it cannot be.

use std::{future::Future, time::Duration};

use super::{Job, Outcome};
use crate::{
    Error,
    wire::{
        CloseOut, Code, Disposition, End, ErrorClass, Fail, Failure, Release, Renew, RenewLease, SetWait,
        State, Usage, Wait, WaitReason,
    },
};

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

const STOPPED: &str = "its worker was asked to stop";

pub(super) enum Delivered {
    /// The attempt is over.
    Ended,
    /// Every answer was there already: the lease goes on with them.
    GoesOn(Vec<Wait>),
}

/// Each of these verbs is recognised by its lease and told its first reply.
pub(super) async fn deliver(job: &Job, outcome: &Outcome, cancelling: bool) -> Result<Delivered, Error> {
    // As it stands now: a repeat is recognised by its content.
    let usage = job.usage();
    until_answered(|| async {
        let told = once(job, outcome, cancelling, &usage).await;
        if matches!(&told, Err(error) if error.code() == Some(Code::LeaseLapsed)) {
            revive(job).await?;
        }
        told
    })
    .await
}

/// Repeats until the ledger has answered, or it is certain that asking again cannot help.
pub(super) async fn until_answered<T, F>(act: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pause = PAUSE_MIN;
    loop {
        let error = match act().await {
            Ok(told) => return Ok(told),
            Err(error) if error.is_terminal() || error.code() == Some(Code::IllegalState) => {
                return Err(error);
            }
            Err(error) => error,
        };
        tracing::debug!(%error, "not told yet");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn once(job: &Job, outcome: &Outcome, cancelling: bool, usage: &[Usage]) -> Result<Delivered, Error> {
    match outcome {
        Outcome::Ok(value) => {
            end(job, End { result: Some(value.clone()), ..End::new(State::Succeeded) }, usage).await
        }
        Outcome::End(declared) => end(job, (**declared).clone(), usage).await,
        Outcome::Stopped if cancelling => end(job, End::new(State::Cancelled), usage).await,
        // It cannot be handed back: whoever stopped it half-way says so.
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
            if waiting.work.state == State::Running {
                return Ok(Delivered::GoesOn(waiting.answers));
            }
            Ok(Delivered::Ended)
        }
    }
}

async fn end(job: &Job, mut end: End, usage: &[Usage]) -> Result<Delivered, Error> {
    end.usage.extend_from_slice(usage);
    let close = CloseOut::new(job.grant.fence, &job.grant.token, end);
    job.client.close_out(job.id(), &close).await.map(|_| Delivered::Ended)
}

async fn release(job: &Job, message: &str, usage: &[Usage]) -> Result<Delivered, Error> {
    let message = (!message.is_empty()).then(|| message.to_owned());
    let (fence, token) = (job.grant.fence, job.grant.token.clone());
    let release = Release { fence, token, message, usage: usage.to_vec() };
    job.client.release(job.id(), &release).await.map(|_| Delivered::Ended)
}

async fn fail(job: &Job, failure: &Failure, usage: &[Usage]) -> Result<Delivered, Error> {
    let (fence, token) = (job.grant.fence, job.grant.token.clone());
    let fail = Fail { fence, token, error: failure.clone(), wait: None, usage: usage.to_vec() };
    job.client.fail(job.id(), &fail).await.map(|_| Delivered::Ended)
}

/// A lapsed lease that nobody took over counts again once it is renewed.
async fn revive(job: &Job) -> Result<(), Error> {
    let lease = RenewLease {
        id: job.id().clone(),
        fence: job.grant.fence,
        token: job.grant.token.clone(),
        progress: None,
    };
    job.client.renew(&Renew { leases: vec![lease] }).await.map(drop)
}
