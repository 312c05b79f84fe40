//! Renew: the holder is alive. Updates the row, appends no event, and notifies the holder of a cancel.

use std::sync::Arc;

use crate::{
    Millis,
    action::Renew,
    activity,
    decide::{Context, Decision},
    event::{ActorKind, Fact, Plain},
    limits,
    model::Work,
    records::{Change, Touch},
    refusal::{Code, Refusal},
    reply::{Renewal, Renewed, Reply},
    state::State,
    work::{HolderCheck, IfLapsed, hold},
};

/// Each lease has its own result: a lost lease does not affect the others.
pub(crate) fn decide(cx: Context<'_>, renewals: &[Renew]) -> Result<Decision, Refusal> {
    limits::count("leases", renewals.len(), limits::RENEW_MAX)?;
    let mut decision = Decision::unchanged(Reply::Renewed(Vec::new()));
    let mut replies = Vec::with_capacity(renewals.len());
    for (i, renewal) in renewals.iter().enumerate() {
        let id = renewal.holder.work;
        let twice = renewals[..i].iter().any(|earlier| earlier.holder.work == id);
        let outcome = if twice {
            Err(Refusal::new(Code::Invalid, format!("{id} is named twice in one call. Name it once.")))
        } else {
            one(cx, renewal, &mut decision)
        };
        replies.push(Renewal { work: id, outcome });
    }
    decision.reply = Reply::Renewed(replies);
    Ok(decision)
}

fn one(cx: Context<'_>, renewal: &Renew, decision: &mut Decision) -> Result<Renewed, Refusal> {
    if let Some(progress) = &renewal.progress {
        super::progress::check(progress)?;
    }
    // The common case appends no event: check before a draft is made.
    let work = cx.work(renewal.holder.work)?;
    let progressed = brings_progress(work, renewal);
    let of_holder = work.lease.as_ref().is_some_and(|lease| lease.fence == renewal.holder.fence);
    if renewal.holder.genuine && of_holder && !progressed {
        activity::may_renew(work, cx.now)?;
    }
    let current = work.held_lease().is_some_and(|lease| lease.fence == renewal.holder.fence);
    let quiet = renewal.holder.genuine && current && work.state == State::Running;
    if quiet {
        let mut work = work.clone();
        extend(cx, &mut work, renewal);
        let (expires_at, release_requested) = (expiry(&work), work.body.release_requested);
        let touch = if progressed { Touch::Progress } else { Touch::Renewal };
        decision.changes.push(Change::Work { work: Arc::new(work), touch });
        return Ok(Renewed { expires_at, cancel_requested: false, release_requested });
    }
    let HolderCheck::Current(mut draft) = hold(cx, &renewal.holder, IfLapsed::Revive)? else {
        return Err(Refusal::new(
            Code::LeaseLost,
            "This attempt has ended. Claim the work item again to \
         continue.",
        ));
    };
    let cancel = draft.work.body.cancel.clone().filter(|_| draft.work.state == State::CancelRequested);
    if let Some(cancel) = &cancel {
        if cx.now >= cancel.deadline_at {
            return Err(Refusal::new(
                Code::CancelDeadline,
                "A cancel of the work item was requested and its deadline has passed: stop now, and release \
                 or close it out.",
            ));
        }
        if cancel.acknowledged_at.is_none() {
            draft.emit(State::CancelRequested, Fact::CancelAcknowledged(Plain {}));
        }
    }
    extend(cx, &mut draft.work, renewal);
    let (expires_at, release_requested) = (expiry(&draft.work), draft.work.body.release_requested);
    let one = draft.finish(|draft| Reply::Ack(draft.ack()))?;
    decision.changes.extend(one.changes);
    decision.events.extend(one.events);
    Ok(Renewed { expires_at, cancel_requested: cancel.is_some(), release_requested })
}

/// The same progress again is no sign that the holder does something.
fn brings_progress(work: &Work, renewal: &Renew) -> bool {
    renewal.progress.is_some() && renewal.progress != work.progress
}

fn extend(cx: Context<'_>, work: &mut Work, renewal: &Renew) {
    let actor = &cx.submission.actor;
    let progressed = brings_progress(work, renewal);
    let delegated = work.body.holder.as_ref().is_some_and(|holder| holder.id != actor.label())
        || actor.kind != ActorKind::Worker;
    if let Some(lease) = &mut work.lease {
        lease.expires_at = cx.now + work.spec.policy.lease.ttl_ms as Millis;
        lease.renewed_at = cx.now;
        lease.renewed_by = delegated.then(|| actor.id.to_string());
        if progressed {
            lease.progressed_at = Some(cx.now);
        }
    }
    if let Some(progress) = &renewal.progress {
        work.progress = Some(progress.clone());
    }
}

fn expiry(work: &Work) -> Millis {
    work.lease.as_ref().map_or(0, |lease| lease.expires_at)
}
