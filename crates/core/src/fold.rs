//! The effect of an event on a row. Decisions change rows through [`apply`] only, so a row is always the fold
//! of its events, except for the fields that renewals and other work items write: `expires_at`, `renewed_at`,
//! `renewed_by`, `progressed_at`, the progress of renewals, `due_at`, `children` and `waiters`.

use crate::{
    Millis, activity,
    event::{Event, Fact},
    limits,
    liveness::Grade,
    model::{
        AbandonRequest, Body, Cancel, Disposition, ErrorClass, ErrorInfo, Fingerprint, FirstStarted, Lease,
        OnTimeout, ProgressRequest, Reason, ReasonCode, Work,
    },
    payload::Digest,
    recovery::Verdict,
    state::State,
    usage,
};

/// Folds a whole log into its row. None for an empty log, or one that does not begin with `work_created`.
pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<Work> {
    let mut events = events.into_iter();
    let mut work = born(events.next()?)?;
    events.for_each(|event| apply(&mut work, event));
    Some(work)
}

/// Whether a stored row equals the fold of its log.
pub fn matches(row: &Work, folded: &Work) -> bool {
    let mut expected = folded.clone();
    expected.due_at = row.due_at;
    expected.children = row.children;
    expected.waiters = row.waiters;
    expected.progress.clone_from(&row.progress);
    // Rows of older versions do not have it.
    if row.body.state_since.is_none() {
        expected.body.state_since = None;
    }
    if let (Some(kept), Some(lease)) = (&row.lease, &mut expected.lease) {
        lease.expires_at = kept.expires_at;
        lease.renewed_at = kept.renewed_at;
        lease.renewed_by.clone_from(&kept.renewed_by);
        lease.progressed_at = kept.progressed_at;
    }
    *row == expected
}

/// The row that a work item's first event creates.
pub fn born(event: &Event) -> Option<Work> {
    let Fact::WorkCreated(created) = &event.fact else { return None };
    let mut body = Body {
        state_since: Some(event.at),
        steps: created.steps,
        payload_bytes: created.bytes,
        output: created.output.clone(),
        warnings: created.warnings.clone(),
        usage: usage::sum(&created.usage),
        error: created.error.map(|class| ErrorInfo { class, message: event.message.clone() }),
        ..Body::default()
    };
    if event.to == State::WaitingExternal {
        body.reason = Some(reason(ReasonCode::ExternalOwner, None));
    }
    if event.to.is_terminal() {
        body.completed_at = Some(event.at);
    }
    Some(Work {
        id: event.work,
        spec: created.spec.clone(),
        state: event.to,
        seq: event.seq,
        head: event.hash,
        attempt: 0,
        fence: 0,
        lease: None,
        open_waits: 0,
        next_retry_at: None,
        due_at: None,
        progress: None,
        updated_at: event.at,
        children: false,
        waiters: false,
        body: body.into(),
    })
}

/// Applies one later event.
pub fn apply(work: &mut Work, event: &Event) {
    match &event.fact {
        Fact::WorkCreated(_) => {}
        Fact::Claimed(claimed) => {
            work.attempt = event.attempt;
            work.fence = event.fence.unwrap_or(work.fence);
            work.lease = Some(Lease {
                fence: work.fence,
                expires_at: claimed.expires_at,
                renewed_at: event.at,
                renewed_by: None,
                progressed_at: None,
                lapsed_at: None,
            });
            work.body.holder = Some(claimed.worker.clone());
            let bound = work.spec.disposition == Disposition::OwnerBound;
            work.body.held_by = bound.then(|| event.actor.id.clone());
            work.body.lapsed_as = None;
            work.body.execution_at = claimed.execution_at;
            work.body.dispatched_at.get_or_insert(event.at);
            work.body.reason = None;
            work.body.bound_until = None;
            work.body.accept_strength = None;
            work.body.release_requested = false;
            // Written only if it changes: otherwise the body stays shared.
            if !work.body.progress_requests.is_empty() {
                work.body.progress_requests.clear();
            }
            if claimed.starts {
                start(work, event.at);
            }
        }
        Fact::Accepted(accepted) => {
            work.body.accept_strength = work.body.accept_strength.max(Some(accepted.strength));
            work.body.accepted_at.get_or_insert(event.at);
            start(work, event.at);
        }
        Fact::Progressed(progressed) => {
            work.progress.clone_from(&event.payload);
            // Most progress has no request id: then the body stays shared.
            if let (Some(id), Some(content)) = (&progressed.request_id, &progressed.content) {
                let known = &mut work.body.progress_requests;
                known.push(ProgressRequest::new(id, content.clone()));
                known.drain(..known.len().saturating_sub(limits::PROGRESS_REQUESTS));
            }
            start(work, event.at);
        }
        Fact::StepBegun(_) => {
            work.body.step.clone_from(&event.step);
            work.body.steps += 1;
            start(work, event.at);
        }
        Fact::StepCompleted(completed) => {
            add_bytes(work, completed.bytes);
            start(work, event.at);
        }
        Fact::WaitingSet(set) => {
            start(work, event.at);
            work.open_waits = set.open;
            work.body.waits = set.total;
            add_bytes(work, set.bytes);
            work.body.wait_due = set.wait_due;
            if event.to.is_waiting() {
                work.body.lapses = 0;
                let mut why = reason(ReasonCode::WaitingForAnswer, event.message.clone());
                why.tool.clone_from(&set.tool);
                work.body.reason = Some(why);
            }
        }
        Fact::WaitResolved(resolved) => {
            add_bytes(work, resolved.bytes);
            waits_left(work, event, resolved.open, resolved.wait_due, resolved.bound_until);
        }
        Fact::WaitTimedOut(timed) => {
            waits_left(work, event, timed.open, timed.wait_due, timed.bound_until);
        }
        Fact::WaitEscalated(timed) => work.body.wait_due = timed.wait_due,
        Fact::WaitsRevoked(revoked) => waits_left(work, event, 0, None, revoked.bound_until),
        Fact::AttemptFailed(failed) => {
            work.body.failures = failed.failures;
            work.body.lapses = 0;
            work.body.error = Some(ErrorInfo { class: failed.class, message: event.message.clone() });
            work.body.fingerprint =
                Some(Fingerprint { text: failed.fingerprint.clone(), count: failed.fingerprint_count });
            work.next_retry_at = failed.next_retry_at;
            work.body.reason = failed.reason.map(|code| reason(code, event.message.clone()));
            end_lease(work);
        }
        Fact::RetryDue(_) | Fact::RetriedNow(_) => {
            work.next_retry_at = None;
            work.body.reason = None;
        }
        Fact::Released(_) => {
            work.body.lapses = 0;
            if event.to == State::Stalled {
                work.body.reason = Some(reason(ReasonCode::InDoubt, event.message.clone()));
            }
            end_lease(work);
        }
        Fact::LeaseLapsed(lapsed) => {
            work.body.failures = lapsed.failures;
            work.body.lapses = lapsed.lapses;
            if let Some(lease) = &mut work.lease {
                lease.lapsed_at = Some(event.at);
            }
            work.body.lapsed_as = match lapsed.grade {
                Grade::Suspended | Grade::Dead => Some(lapsed.grade),
                Grade::Alive | Grade::Silent => None,
            };
            let code = match lapsed.grade {
                Grade::Dead => ReasonCode::HolderDead,
                Grade::Alive | Grade::Suspended | Grade::Silent => ReasonCode::LeaseLapsed,
            };
            work.body.reason = Some(reason(code, event.message.clone()));
        }
        Fact::Recovered(recovered) => {
            work.body.reason = recovered.reason.map(|code| reason(code, event.message.clone()));
            if matches!(recovered.verdict, Verdict::Fail | Verdict::TimeOut) {
                work.body.error =
                    Some(ErrorInfo { class: ErrorClass::Timeout, message: event.message.clone() });
            }
        }
        Fact::Late(late) => {
            work.body.failures = late.failures;
            work.body.lapses = late.lapses;
            work.next_retry_at = None;
            work.body.bound_until = None;
            work.body.lapsed_as = None;
            if let Some(lease) = &mut work.lease {
                lease.lapsed_at = None;
                lease.expires_at = late.expires_at;
                lease.renewed_at = event.at;
            }
            work.body.reason =
                (event.to == State::CancelRequested).then(|| reason(ReasonCode::CancelRequested, None));
        }
        Fact::OwnerAbsent(_) => {
            work.body.bound_until = None;
            work.body.reason = Some(reason(ReasonCode::OwnerAbsent, event.message.clone()));
        }
        Fact::TimeoutMarked(marked) => {
            work.body.failures = marked.failures;
            work.next_retry_at = marked.next_retry_at;
            work.body.lapses = 0;
            work.body.error = Some(ErrorInfo { class: ErrorClass::Timeout, message: event.message.clone() });
            work.body.reason = Some(reason(ReasonCode::ExecutionTimeout, event.message.clone()))
                .filter(|_| !event.to.is_terminal());
            end_lease(work);
        }
        Fact::CancelRequested(cancel) => {
            // Repeated when an owner comes back to a pending cancel: the first requester and time stay.
            let first = work.body.cancel.take();
            work.body.cancel = Some(Cancel {
                requested_at: first.as_ref().map_or(event.at, |first| first.requested_at),
                requested_by: first.map_or_else(|| event.actor.clone(), |first| first.requested_by),
                deadline_at: cancel.deadline_at,
                reason: event.message.clone(),
                acknowledged_at: None,
            });
            if event.to == State::CancelRequested {
                work.body.reason = Some(reason(ReasonCode::CancelRequested, event.message.clone()));
            }
        }
        Fact::CancelAcknowledged(_) => {
            if let Some(cancel) = &mut work.body.cancel {
                cancel.acknowledged_at = Some(event.at);
            }
        }
        // An unknown event of a newer version only moves the work item.
        Fact::Cancelled(_) | Fact::EarlyAnswerRefused(_) | Fact::RecoveryApplied(_) | Fact::Unknown(_) => {}
        Fact::ReleaseRequested(_) => work.body.release_requested = true,
        Fact::AbandonRequested(_) => {
            work.body.abandon_request = Some(AbandonRequest {
                requested_at: event.at,
                requested_by: event.actor.clone(),
                reason: event.message.clone(),
            });
        }
        Fact::Quarantined(quarantined) => {
            work.next_retry_at = None;
            work.body.reason = Some(reason(quarantined.reason, event.message.clone()));
        }
        Fact::Requeued(requeued) => {
            work.body.bound_until = requeued.bound_until;
            work.body.failures = 0;
            work.body.lapses = 0;
            work.body.fingerprint = None;
            work.body.reason = None;
            work.body.cancel = None;
            work.body.abandon_request = None;
        }
        Fact::ClosedOut(closed) => {
            work.body.output.clone_from(&closed.output);
            if let Some(class) = closed.error {
                work.body.error = Some(ErrorInfo { class, message: event.message.clone() });
            }
            work.body.warnings.clone_from(&closed.warnings);
        }
        Fact::ContentErased(_) => erase(work, event.at),
        Fact::CommandReserved(_)
        | Fact::CommandBlocked(_)
        | Fact::CommandUnblocked(_)
        | Fact::CommandApproved(_)
        | Fact::CommandCancelled(_)
        | Fact::CommandDispatched(_)
        | Fact::CommandSucceeded(_)
        | Fact::CommandFailed(_)
        | Fact::CommandUnsent(_)
        | Fact::CommandUncertain(_)
        | Fact::CommandLookedUp(_)
        | Fact::CommandReservedAgain(_)
        | Fact::CommandResent(_)
        | Fact::CommandReplayed(_) => count_command(work, event),
    }
    // Most events report no usage: then the body stays shared.
    if !event.fact.usage().is_empty() {
        usage::add(&mut work.body.usage, event.fact.usage());
    }
    if work.spec.policy.spinning.is_some() {
        activity::note(work, event);
    }
    if work.state != event.to {
        work.body.state_since = Some(event.at);
    }
    work.state = event.to;
    work.seq = event.seq;
    work.head = event.hash;
    work.updated_at = event.at;
    settle(work, event.at);
}

/// The texts that came from the erased events.
fn erase(work: &mut Work, at: Millis) {
    work.progress = None;
    let body = &mut *work.body;
    let texts = [
        body.error.as_mut().map(|error| &mut error.message),
        body.reason.as_mut().map(|reason| &mut reason.message),
        body.cancel.as_mut().map(|cancel| &mut cancel.reason),
        body.abandon_request.as_mut().map(|request| &mut request.reason),
    ];
    texts.into_iter().flatten().for_each(|text| *text = None);
    body.erased_at = Some(at);
}

/// The row counts its commands by state; the commands themselves are records of their own.
fn count_command(work: &mut Work, event: &Event) {
    let Some(moved) = event.fact.command() else { return };
    if moved.was.is_none() {
        work.body.commands.total += 1;
        start(work, event.at);
    }
    if let Fact::CommandReplayed(_) = &event.fact {
        work.body.commands.replays += 1;
    }
    if !moved.executor.is_relay() && moved.was != Some(moved.now) {
        work.body.commands.follow(moved.was, moved.now);
    }
}

/// Sets the fields that all rows in the new state have in common.
fn settle(work: &mut Work, at: Millis) {
    if work.state.is_terminal() {
        // Commands of an ended work item may still append their events.
        if work.body.completed_at.is_some() {
            return;
        }
        work.body.completed_at = Some(at);
        work.body.reason = None;
        work.body.wait_due = None;
        work.body.bound_until = None;
        work.next_retry_at = None;
        work.open_waits = 0;
        end_lease(work);
    } else if work.state.is_waiting() || work.state == State::Quarantined {
        if work.state == State::Quarantined {
            work.open_waits = 0;
            work.body.wait_due = None;
            work.body.bound_until = None;
        }
        end_lease(work);
    } else if work.state == State::Stalled {
        // Its waits may have ended in the same act, which bound it to its owner while it was queued.
        work.body.bound_until = None;
    }
}

fn end_lease(work: &mut Work) {
    work.lease = None;
    work.body.holder = None;
    work.body.held_by = None;
    work.body.lapsed_as = None;
    work.body.execution_at = None;
    work.body.release_requested = false;
}

/// Written only if it changes: otherwise the body stays shared.
fn add_bytes(work: &mut Work, bytes: u32) {
    if bytes > 0 {
        work.body.payload_bytes += bytes;
    }
}

fn start(work: &mut Work, at: Millis) {
    if work.body.first_started.is_none()
        && let Some(holder) = &work.body.holder
    {
        work.body.first_started = Some(FirstStarted {
            worker: holder.id.clone(),
            incarnation: holder.incarnation.clone(),
            at,
            by: work.body.held_by.clone(),
        });
    }
}

fn waits_left(
    work: &mut Work,
    event: &Event,
    open: u32,
    wait_due: Option<Millis>,
    bound_until: Option<Millis>,
) {
    work.open_waits = open;
    work.body.wait_due = wait_due;
    work.body.bound_until = bound_until;
    if !event.to.is_waiting() {
        work.body.reason = None;
    }
    if let Fact::WaitTimedOut(timed) = &event.fact {
        match timed.on_timeout {
            OnTimeout::Warn => {
                work.body.warnings = vec![format!("nobody answered `{}` in time", timed.reference)];
            }
            OnTimeout::Fail | OnTimeout::TimeOut => {
                work.body.error = Some(ErrorInfo {
                    class: ErrorClass::Timeout,
                    message: Some(format!("nobody answered `{}` in time", timed.reference)),
                });
            }
            OnTimeout::Cancel | OnTimeout::Escalate | OnTimeout::Default => {}
        }
    }
}

fn reason(code: ReasonCode, message: Option<String>) -> Reason {
    Reason { code, tool: None, message }
}

/// The hash before a work item's first event.
pub const GENESIS: Digest = Digest([0; 32]);
