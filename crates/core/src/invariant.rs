//! The invariants of every row at every commit. Stores assert them before a save; `verify` after a load.

use crate::{
    liveness::Liveness,
    model::{Disposition, Work},
    state::{State, waiting},
};

/// The first broken invariant of a row, in words.
pub fn fault(work: &Work) -> Option<String> {
    lease_by_state(work)
        .or_else(|| commands_known(work))
        .or_else(|| required_fields(work))
        .or_else(|| due_armed(work))
}

/// running, cancel_requested: a lease; stalled, queued, retry_scheduled: none or a lapsed one; otherwise
/// none.
fn lease_by_state(work: &Work) -> Option<String> {
    let ok = match (work.state, &work.lease) {
        (State::Running | State::CancelRequested, Some(lease)) => lease.lapsed_at.is_none(),
        (State::Running | State::CancelRequested, None) => false,
        (State::Stalled | State::Queued | State::RetryScheduled, lease) => {
            lease.as_ref().is_none_or(|lease| lease.lapsed_at.is_some())
        }
        (_, lease) => lease.is_none(),
    };
    if !ok {
        return Some(format!("the state {} does not match its lease", work.state));
    }
    let fence_ok = work.lease.as_ref().is_none_or(|lease| lease.fence == work.fence);
    (!fence_ok || work.lease.is_some() != work.body.holder.is_some())
        .then(|| "the lease is not the last one granted, or has no holder".to_owned())
}

/// A dispatched command of a worker belongs to a holder, or to the wait that it was handed over to.
fn commands_known(work: &Work) -> Option<String> {
    let awaited = work.held_lease().is_some() || work.state.is_waiting();
    (work.body.commands.dispatched > 0 && !awaited)
        .then(|| format!("{} has a dispatched command without a holder or a wait", work.state))
}

fn required_fields(work: &Work) -> Option<String> {
    let external = work.spec.disposition == Disposition::ExternallyOwned;
    let missing = match work.state {
        State::RetryScheduled if work.next_retry_at.is_none() => "a retry time",
        State::RetryScheduled | State::Stalled | State::CancelRequested | State::Quarantined | waiting!()
            if work.body.reason.is_none() =>
        {
            "a reason"
        }
        State::CancelRequested if work.body.cancel.is_none() => "its cancel",
        state if state.is_waiting() && work.open_waits == 0 && !external => "an open wait",
        state if !state.is_waiting() && work.open_waits > 0 => "a waiting state for its open waits",
        State::Succeeded | State::CompletedWithWarnings
            if work.body.output.is_none() && work.body.warnings.is_empty() =>
        {
            "an output"
        }
        state if state.is_terminal() && work.body.completed_at.is_none() => "an end time",
        _ => return None,
    };
    Some(format!("{} needs {missing}", work.state))
}

/// An open row without a due date waits for somebody, never for time.
fn due_armed(work: &Work) -> Option<String> {
    if work.due_at.is_some() {
        return None;
    }
    let opaque = work.body.holder.as_ref().is_none_or(|holder| holder.liveness == Liveness::Opaque);
    let fine = match work.state {
        State::Queued => {
            work.spec.overall_at().is_none()
                && work.body.bound_until.is_none()
                && (work.spec.start_at().is_none() || work.attempt > 0)
        }
        State::Stalled => opaque && work.spec.overall_at().is_none(),
        State::Running | State::CancelRequested | State::RetryScheduled => false,
        state if state.is_waiting() => work.body.wait_due.is_none() && work.spec.overall_at().is_none(),
        _ => true,
    };
    (!fine).then(|| format!("{} has no due date", work.state))
}
