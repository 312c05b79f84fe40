//! One due date for each open row: a lower bound of the next thing that happens to it by itself.

use crate::{
    Millis,
    liveness::Liveness,
    model::{Disposition, Work},
    policy::OnExpiry,
    state::{State, waiting},
};

/// When the row must be looked at again. None if nothing will ever happen to it by itself.
pub fn next(work: &Work, now: Millis) -> Option<Millis> {
    let overall = work.spec.overall_at();
    match work.state {
        State::Queued => earliest([start(work), overall, work.body.bound_until]),
        State::RetryScheduled => earliest([work.next_retry_at, overall]),
        State::Running => earliest([overall, work.body.execution_at, lease_check(work, now)]),
        State::CancelRequested => earliest([cancel_check(work), look(work, now)]),
        waiting!() => earliest([work.body.wait_due, overall]),
        State::Stalled => earliest([overall, stalled_check(work, now)]),
        State::Quarantined
        | State::Succeeded
        | State::CompletedWithWarnings
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Abandoned => None,
    }
}

fn earliest<const N: usize>(dates: [Option<Millis>; N]) -> Option<Millis> {
    dates.into_iter().flatten().min()
}

/// The start deadline applies until the first claim.
fn start(work: &Work) -> Option<Millis> {
    work.spec.start_at().filter(|_| work.attempt == 0)
}

/// When the lease lapses unless it is renewed.
pub fn lapse_at(work: &Work) -> Option<Millis> {
    work.lease.as_ref().map(|lease| lease.expires_at + work.spec.policy.lease.grace_ms as Millis)
}

fn lease_check(work: &Work, now: Millis) -> Option<Millis> {
    earliest([lapse_at(work), look(work, now)])
}

/// When to check again whether the holder's process still exists.
fn look(work: &Work, now: Millis) -> Option<Millis> {
    local_process(work).then(|| now + work.spec.policy.lease.renew_ms as Millis)
}

/// When a lapse ends a cancelled work item: at once if that is harmless or an abandon was requested, else
/// only after the cancel deadline.
fn cancel_check(work: &Work) -> Option<Millis> {
    let lapse = lapse_at(work)?;
    match &work.body.cancel {
        Some(cancel) if !harmless_to_cancel(work) && work.body.abandon_request.is_none() => {
            Some(lapse.max(cancel.deadline_at))
        }
        Some(_) | None => Some(lapse),
    }
}

fn stalled_check(work: &Work, now: Millis) -> Option<Millis> {
    if work.body.abandon_request.is_some() {
        return Some(now);
    }
    // It was stalled because of commands in doubt, and none is left.
    let leaves = work.owner_bound_started() && work.spec.policy.on_expiry == OnExpiry::Leave;
    if work.body.commands.total > 0 && !leaves && work.body.commands.unsettled() == 0 {
        return Some(now);
    }
    local_process(work).then(|| now + work.spec.policy.lease.ttl_ms as Millis)
}

fn local_process(work: &Work) -> bool {
    work.body.holder.as_ref().is_some_and(|holder| match holder.liveness {
        Liveness::Opaque => false,
        Liveness::LocalProcess { .. } => true,
    })
}

/// It was never started, or is declared rerunnable with nothing in doubt: stopping it half-way leaves no
/// doubt.
pub fn harmless_to_cancel(work: &Work) -> bool {
    let certain = work.body.commands.unsettled() == 0;
    !work.started() || (work.spec.disposition == Disposition::Rerunnable && certain)
}
