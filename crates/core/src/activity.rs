//! Whether a holder does more than renew. Renewals append no event, so the last event that its work causes is a lower
//! bound: a holder counts as spinning only if it has shown nothing for at least the configured time.

use crate::{
    Millis,
    event::{Event, Fact},
    model::Work,
    policy::OnSpinning,
    refusal::{Code, Refusal},
    span::span,
    state::State,
};

/// The last sign of work: an event that its holder's work causes, or a renewal with new progress.
pub fn active_at(work: &Work) -> Millis {
    let event = work.body.quiet_since.unwrap_or(work.updated_at);
    let progressed = work.lease.as_ref().and_then(|lease| lease.progressed_at);
    progressed.map_or(event, |at| at.max(event))
}

/// Since when its holder has shown nothing but renewals, if that is longer than its settings allow.
pub fn spinning(work: &Work, now: Millis) -> Option<Millis> {
    let lease = work.lease.as_ref().filter(|lease| lease.lapsed_at.is_none() && now < lease.expires_at);
    lease.filter(|_| work.state == State::Running).and_then(|_| quiet(work, now))
}

fn quiet(work: &Work, now: Millis) -> Option<Millis> {
    let after = work.spec.policy.spinning?.after_ms;
    let since = active_at(work);
    (now - since >= Millis::try_from(after).unwrap_or(Millis::MAX)).then_some(since)
}

/// Whether a renewal without new progress is accepted. A command that was sent keeps its lease: a lapse would put it in
/// doubt. Nothing else of the holder is refused, and nothing ends here: the lease lapses, and recovery decides by the
/// disposition. Started owner-bound work stalls, and goes on with its owner's next sign of work.
pub(crate) fn may_renew(work: &Work, now: Millis) -> Result<(), Refusal> {
    let stops = work.spec.policy.spinning.is_some_and(|spinning| spinning.then == OnSpinning::StopRenewing);
    if !stops || work.state == State::CancelRequested || work.body.commands.unsettled() > 0 {
        return Ok(());
    }
    let Some(since) = quiet(work, now) else { return Ok(()) };
    Err(Refusal::new(
        Code::Spinning,
        format!(
            "Nothing but renewals has come for {}: no progress, step, command or receipt. Send new `progress` with \
             the renewal if the work goes on; otherwise stop, and release or fail it.",
            span(now - since)
        ),
    ))
}

/// Keeps the last sign of work over an event that is none.
pub(crate) fn note(work: &mut Work, event: &Event) {
    if is_sign(&event.fact) {
        if work.body.quiet_since.is_some() {
            work.body.quiet_since = None;
        }
    } else if work.body.quiet_since.is_none() {
        work.body.quiet_since = Some(work.updated_at);
    }
}

/// Whether an event comes of the holder's work, or changes what it works on.
fn is_sign(fact: &Fact) -> bool {
    match fact {
        Fact::LeaseLapsed(_)
        | Fact::Recovered(_)
        | Fact::RecoveryApplied(_)
        | Fact::Late(_)
        | Fact::OwnerAbsent(_)
        | Fact::CancelRequested(_)
        | Fact::CancelAcknowledged(_)
        | Fact::ReleaseRequested(_)
        | Fact::AbandonRequested(_)
        | Fact::EarlyAnswerRefused(_)
        | Fact::ContentErased(_)
        | Fact::CommandLookedUp(_)
        | Fact::CommandReservedAgain(_)
        | Fact::Unknown(_) => false,
        Fact::WorkCreated(_)
        | Fact::Claimed(_)
        | Fact::Accepted(_)
        | Fact::Progressed(_)
        | Fact::StepBegun(_)
        | Fact::StepCompleted(_)
        | Fact::WaitingSet(_)
        | Fact::WaitResolved(_)
        | Fact::WaitTimedOut(_)
        | Fact::WaitEscalated(_)
        | Fact::WaitsRevoked(_)
        | Fact::AttemptFailed(_)
        | Fact::RetryDue(_)
        | Fact::RetriedNow(_)
        | Fact::Released(_)
        | Fact::TimeoutMarked(_)
        | Fact::Cancelled(_)
        | Fact::Quarantined(_)
        | Fact::Requeued(_)
        | Fact::ClosedOut(_)
        | Fact::CommandReserved(_)
        | Fact::CommandBlocked(_)
        | Fact::CommandUnblocked(_)
        | Fact::CommandApproved(_)
        | Fact::CommandCancelled(_)
        | Fact::CommandDispatched(_)
        | Fact::CommandSucceeded(_)
        | Fact::CommandFailed(_)
        | Fact::CommandUnsent(_)
        | Fact::CommandUncertain(_)
        | Fact::CommandResent(_)
        | Fact::CommandReplayed(_) => true,
    }
}
