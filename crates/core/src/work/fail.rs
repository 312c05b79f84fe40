//! Fail: the holder reports a failure; the retry policy decides whether the work item is retried.

use crate::{
    action::{Fail, WaitAction},
    command,
    decide::{Context, Decision},
    event::{AttemptFailed, Fact},
    limits,
    liveness::Grade,
    model::{AttemptOutcome, ErrorClass, ReasonCode, WaitKind},
    payload::Digest,
    recovery::POISON,
    refusal::{Code, Refusal},
    reply::Reply,
    retry,
    state::State,
    usage,
    work::{
        HolderCheck, IfLapsed,
        draft::{Draft, Said},
        hold,
        tick::recover,
        wait,
    },
};

pub(crate) fn decide(cx: Context<'_>, fail: &Fail) -> Result<Decision, Refusal> {
    limits::text("error.message", &fail.error.message)?;
    if let Some(fingerprint) = &fail.error.fingerprint {
        limits::reference("error.fingerprint", fingerprint)?;
    }
    if let Some(ms) = fail.error.retry_after_ms {
        limits::duration("error.retry_after_ms", ms)?;
    }
    usage::check(&fail.usage)?;
    if let Some(spec) = &fail.wait {
        wait::check_spec(spec)?;
        if fail.error.class != ErrorClass::Auth || spec.kind != WaitKind::Auth {
            return Err(Refusal::new(
                Code::Invalid,
                "Only an `auth` failure may wait, and only with kind `auth`. Leave `wait` out.",
            ));
        }
    }
    match hold(cx, &fail.holder, IfLapsed::Revive)? {
        HolderCheck::Repeat(ack) if ack.state.is_waiting() => Ok(wait::again(cx, ack)),
        HolderCheck::Repeat(ack) => Ok(Decision::again(ack)),
        HolderCheck::Current(draft) => match &fail.wait {
            Some(spec) if draft.work.state == State::Running => {
                let action = WaitAction {
                    holder: fail.holder.clone(),
                    waits: vec![spec.clone()],
                    message: Some(fail.error.message.clone()),
                    tool: None,
                    usage: fail.usage.clone(),
                };
                wait::open(cx, *draft, &action)
            }
            Some(_) | None => failed(cx, *draft, fail),
        },
    }
}

fn failed(cx: Context<'_>, mut draft: Draft, fail: &Fail) -> Result<Decision, Refusal> {
    let error = &fail.error;
    let work = &draft.work;
    let failures = work.body.failures + 1;
    let fingerprint = error.fingerprint.clone().unwrap_or_else(|| {
        Digest::of(format!("{:?}\u{0}{}", error.class, error.message)).hex()[..16].to_owned()
    });
    let same = work.body.fingerprint.as_ref().filter(|last| last.text == fingerprint);
    // Only failures that cannot be classified count towards poison.
    let fingerprint_count = match error.class {
        ErrorClass::Unknown => same.map_or(1, |last| last.count + 1),
        _ => 0,
    };
    let poison = fingerprint_count >= POISON;
    let next = retry::next_at(
        &work.spec.policy.retry,
        error.class,
        failures,
        error.retry_after_ms,
        cx.random(),
        cx.now,
    )
    // Work that only its owner could continue ends with its owner's failure.
    .filter(|_| !work.owner_bound_started());
    let doubt = command::doubt(&draft.commands, cx.now);
    let (to, next_retry_at, reason) = match (work.state, next) {
        (State::CancelRequested, _) => (State::Failed, None, None),
        _ if poison && !work.owner_bound_started() => {
            (State::Quarantined, None, Some(ReasonCode::PoisonFingerprint))
        }
        // Commands in doubt are settled before anything is run again.
        (_, Some(_)) if doubt.blocks_a_rerun() => (State::Stalled, None, Some(ReasonCode::InDoubt)),
        (_, Some(at)) => (State::RetryScheduled, Some(at), Some(ReasonCode::RetryBackoff)),
        (_, None) => (State::Failed, None, None),
    };
    let fact = AttemptFailed {
        class: error.class,
        fingerprint,
        fingerprint_count,
        failures,
        next_retry_at,
        reason,
        usage: fail.usage.clone(),
    };
    draft.say(to, Fact::AttemptFailed(fact), Said { message: Some(&error.message), ..Said::default() });
    if to == State::Stalled {
        recover(cx, &mut draft, Grade::Silent, &[]);
    }
    let ack = draft.ack();
    draft.ended(AttemptOutcome::Failed, ack.clone()).finish(|_| Reply::Ack(ack))
}
