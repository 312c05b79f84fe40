//! The holder's verbs, and waiting for an end from outside.

use std::time::{Duration, Instant};

use tenure_api::wire::{
    Claim as ClaimRequest, CloseOut as CloseOutRequest, End, Fail as FailRequest, Failure as WorkFailure,
    Liveness, NewWait, PutStep, Release as ReleaseRequest, Renew as RenewRequest, RenewLease, Renewal,
    SetWait, StepVerb, Worker,
};
use uuid::Uuid;

use super::{Context, find, read::end as end_of};
use crate::{
    args::{Claim, CloseOut, Fail, HoldVerb, Release, Renew, Step, Wait},
    exit::{Exit, Failure},
    render::{self, say},
};

/// The longest long poll; a longer wait takes several.
const POLL: Duration = Duration::from_secs(60);

fn new_id() -> String {
    Uuid::now_v7().simple().to_string()
}

fn ms(period: Duration) -> u64 {
    u64::try_from(period.as_millis()).unwrap_or(u64::MAX)
}

pub async fn hold(cx: &Context, verb: HoldVerb) -> Result<Exit, Failure> {
    match verb {
        HoldVerb::CloseOut(args) => close_out(cx, args).await,
        HoldVerb::Fail(args) => fail(cx, args).await,
        HoldVerb::Release(args) => release(cx, args).await,
        HoldVerb::Step(args) => step(cx, args).await,
    }
}

pub async fn claim(cx: &Context, args: Claim) -> Result<Exit, Failure> {
    let worker = Worker {
        id: args.worker,
        incarnation: args.incarnation.unwrap_or_else(new_id),
        // This process ends at once: it proves nothing about the worker.
        liveness: Liveness::Opaque,
    };
    let mut ids = Vec::new();
    for id in &args.ids {
        ids.push(find(cx, id).await?.id);
    }
    let claim = ClaimRequest {
        sources: args.source,
        kinds: args.kind,
        tenants: args.tenant,
        max: ids.is_empty().then_some(args.max),
        ids,
        wait_ms: args.wait.map(ms),
        defer_start: args.defer_start,
        ..ClaimRequest::new(worker, &args.request_id.unwrap_or_else(new_id))
    };
    let grants = cx.client.claim(&claim).await?.leases;
    cx.out.list(&grants, render::leases)?;
    let waited = claim.wait_ms.is_some() && grants.is_empty();
    Ok(if waited { Exit::WaitTimedOut } else { Exit::Ok })
}

pub async fn renew(cx: &Context, args: Renew) -> Result<Exit, Failure> {
    let id = find(cx, &args.id).await?.id;
    let lease = RenewLease { id, fence: args.lease.fence, token: args.lease.lease, progress: args.progress };
    let renewals = cx.client.renew(&RenewRequest { leases: vec![lease] }).await?.leases;
    for renewal in renewals {
        match &renewal {
            Renewal::Renewed { expires_at, cancel_requested, release_requested, .. } => {
                if *cancel_requested {
                    say("Stop: a cancel was requested. Close it out as cancelled, or release it.");
                }
                if *release_requested {
                    say("Stop: this worker is draining. Release it, so that another one continues.");
                }
                cx.out.one(&renewal, |_, _| format!("expires {expires_at}\n"))?;
            }
            Renewal::Refused { problem, .. } => return Err(Failure::new(Exit::Refused, problem.to_string())),
        }
    }
    Ok(Exit::Ok)
}

pub async fn wait(cx: &Context, args: Wait) -> Result<Exit, Failure> {
    if args.until.is_some() {
        return until_ended(cx, &args).await;
    }
    let (Some(kind), Some(reference), Some(fence), Some(token)) =
        (args.kind, args.reference, args.fence, args.lease)
    else {
        return Err(Failure::usage(
            "Give --for=terminal to wait for its end; or, as its holder, --kind, --ref, --fence and --lease.",
        ));
    };
    let id = find(cx, &args.id).await?.id;
    let wait = NewWait {
        prompt: args.prompt,
        assignee: args.assignee,
        timeout_ms: args.timeout.map(ms),
        endless: args.endless,
        on_timeout: args.on_timeout,
        default: args.default,
        schema: args.schema,
        ..NewWait::new(kind, &reference)
    };
    let wait = SetWait { fence, token, waits: vec![wait], reason: None, usage: args.usage };
    let waiting = cx.client.wait(&id, &wait).await?;
    cx.out.one(&waiting, |waiting, _| {
        let mut text = format!("{} {}\n", waiting.work.id, waiting.work.state);
        for wait in &waiting.waits {
            text.push_str(&format!("{} token {}\n", wait.id, wait.token));
        }
        for answer in &waiting.answers {
            let payload = answer.answer.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
            text.push_str(&format!("answered already: {}\n", render::safe(&payload)));
        }
        text
    })?;
    Ok(Exit::Ok)
}

async fn until_ended(cx: &Context, args: &Wait) -> Result<Exit, Failure> {
    let id = find(cx, &args.id).await?.id;
    let end = args.timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let left = end.map_or(POLL, |end| end.saturating_duration_since(Instant::now()).min(POLL));
        let work = cx.client.work_at_end(&id, left).await?;
        if let Some(exit) = work.state.known().and_then(end_of) {
            cx.out.one(&work, |work, _| format!("{} {}\n", work.id, work.state))?;
            return Ok(exit);
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            say(&format!("{} is still {}. `tenure explain {}` shows why.", work.id, work.state, work.id));
            return Ok(Exit::WaitTimedOut);
        }
    }
}

async fn close_out(cx: &Context, args: CloseOut) -> Result<Exit, Failure> {
    let id = find(cx, &args.id).await?.id;
    let end = End {
        result: args.result,
        result_ref: args.result_ref,
        no_output: args.no_output,
        warnings: args.warnings,
        error: args.class.map(|class| WorkFailure::new(class, args.message.unwrap_or_default())),
        usage: args.usage,
        ..End::new(args.state)
    };
    let ack =
        cx.client.close_out(&id, &CloseOutRequest::new(args.lease.fence, &args.lease.lease, end)).await?;
    cx.out.one(&ack, |ack, _| format!("{} {}\n", ack.id, ack.state))?;
    Ok(Exit::Ok)
}

async fn fail(cx: &Context, args: Fail) -> Result<Exit, Failure> {
    let id = find(cx, &args.id).await?.id;
    let error = WorkFailure {
        retry_after_ms: args.retry_after.map(ms),
        fingerprint: args.fingerprint,
        ..WorkFailure::new(args.class, args.message)
    };
    let (fence, token) = (args.lease.fence, args.lease.lease);
    let fail = FailRequest { fence, token, error, wait: None, usage: args.usage };
    let failed = cx.client.fail(&id, &fail).await?;
    cx.out.one(&failed, |failed, _| format!("{} {}\n", failed.work.id, failed.work.state))?;
    Ok(Exit::Ok)
}

async fn release(cx: &Context, args: Release) -> Result<Exit, Failure> {
    let id = find(cx, &args.id).await?.id;
    let (fence, token) = (args.lease.fence, args.lease.lease);
    let release = ReleaseRequest { fence, token, message: args.message, usage: args.usage };
    let ack = cx.client.release(&id, &release).await?;
    cx.out.one(&ack, |ack, _| format!("{} {}\n", ack.id, ack.state))?;
    Ok(Exit::Ok)
}

async fn step(cx: &Context, args: Step) -> Result<Exit, Failure> {
    let id = find(cx, &args.id).await?.id;
    let put = PutStep {
        fence: args.lease.fence,
        token: args.lease.lease,
        verb: if args.result.is_some() { StepVerb::Complete } else { StepVerb::Begin },
        input: args.input,
        restart: args.restart,
        result: args.result,
    };
    let reply = cx.client.put_step(&id, &args.step, &put).await?;
    if reply.reused {
        say("It was completed before: use its result instead of running it again.");
    }
    cx.out.one(&reply, |reply, _| match (&reply.step.completed_at, &reply.step.result) {
        (Some(_), Some(result)) => format!("{}\n", render::safe(&result.to_string())),
        (Some(_), None) => format!("{} completed\n", render::safe(&reply.step.name)),
        (None, _) => format!("{} begun\n", render::safe(&reply.step.name)),
    })?;
    Ok(Exit::Ok)
}
