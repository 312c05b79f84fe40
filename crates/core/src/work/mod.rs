//! The verbs of a work item, one file each. Each reads the records, refuses or drafts events.

pub mod abandon;
pub mod accept;
pub mod cancel;
pub mod claim;
pub mod close_out;
pub mod complete;
pub(crate) mod draft;
pub mod erase;
pub mod fail;
pub mod forecast;
pub mod ingest;
pub mod plan;
pub mod progress;
pub mod quarantine;
pub(crate) mod recover;
pub mod release;
pub mod renew;
pub mod rerun;
pub mod resolve;
pub mod retry_now;
pub mod step;
pub mod tick;
pub mod wait;

use crate::{
    action::Holder,
    decide::Context,
    event::{Fact, Late},
    model::Work,
    refusal::{Code, Refusal},
    reply::Ack,
    state::State,
};
use draft::Draft;

/// How a verb of a lapsed holder is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfLapsed {
    /// The verb moves the work item back to running first: renew, close-out, fail, wait.
    Revive,
    /// The verb requires a renewal first.
    Refuse,
}

/// The result of checking the lease of a holder's verb.
pub(crate) enum HolderCheck {
    /// The lease is valid: continue with this draft.
    Current(Box<Draft>),
    /// The identical verb ended this attempt before: this was its reply.
    Repeat(Ack),
}

/// The one check of every holder's verb: work item + fence + token + not superseded.
pub(crate) fn hold(cx: Context<'_>, holder: &Holder, lapsed: IfLapsed) -> Result<HolderCheck, Refusal> {
    let work = cx.work(holder.work)?;
    let lease = work.lease.as_ref().filter(|lease| lease.fence == holder.fence && holder.genuine);
    let Some(lease) = lease else {
        return repeat_or_lost(cx, work, holder);
    };
    let Some(lapsed_at) = lease.lapsed_at else {
        return Ok(HolderCheck::Current(Box::new(Draft::new(cx, work))));
    };
    if lapsed == IfLapsed::Refuse {
        return Err(Refusal::new(
            Code::LeaseLapsed,
            "The lease lapsed, but nobody else has claimed the work item. Renew the lease first, then repeat \
             the request.",
        ));
    }
    Ok(HolderCheck::Current(Box::new(revive(cx, work, lapsed_at)?)))
}

fn repeat_or_lost(cx: Context<'_>, work: &Work, holder: &Holder) -> Result<HolderCheck, Refusal> {
    let end = cx.records.ends.get(&(work.id, holder.fence)).and_then(Option::as_ref);
    if let Some(end) = end
        && holder.genuine
        && cx.submission.body_hash.is_some()
        && end.body_hash == cx.submission.body_hash
        && let Some(ack) = &end.ack
    {
        return Ok(HolderCheck::Repeat(ack.clone()));
    }
    let (now, next) = match (&work.body.holder, work.state) {
        _ if !holder.genuine => (
            "the lease token does not match this work item and fence".to_owned(),
            "Send the values that its claim returned, or claim it again.",
        ),
        (_, state) if state.is_terminal() => (
            format!("the work item has ended as {state}, and a terminal state never changes"),
            "Stop working on it; to run it again, rerun it.",
        ),
        (Some(other), _) => (
            format!("{} holds the work item now, under fence {}", other.id, work.fence),
            "Stop working on it.",
        ),
        (None, State::Quarantined) => {
            ("the work item is quarantined".to_owned(), "Stop working on it: a person decides on it.")
        }
        (None, state) if state.is_waiting() => (
            format!("the work item is {state} and nobody holds it"),
            "Stop working on it; claim it again once its waits are answered.",
        ),
        (None, state) => (
            format!("the work item is {state} and nobody holds it"),
            "Stop working on it; claim it again to continue.",
        ),
    };
    Err(Refusal::new(Code::LeaseLost, format!("This lease is no longer valid: {now}. {next}")))
}

/// A late write of a lapsed holder that was not superseded: the lapse is revoked.
fn revive(cx: Context<'_>, work: &Work, lapsed_at: i64) -> Result<Draft, Refusal> {
    if let Some(key) = work.spec.session_key()
        && let Some(other) = cx.records.sessions.get(&key).and_then(|view| view.holder)
        && other != work.id
    {
        return Err(Refusal::new(
            Code::LeaseLost,
            format!("This lease lapsed, and {other} holds the session now. Stop working on it."),
        ));
    }
    // A cancel that came while it was stalled is still pending; in other states it would have ended the work
    // item.
    let cancelled = work.state == State::Stalled && work.body.cancel.is_some();
    let to = if cancelled { State::CancelRequested } else { State::Running };
    let mut draft = Draft::new(cx, work);
    draft.emit(
        to,
        Fact::Late(Late {
            lapsed_at,
            expires_at: cx.now + work.spec.policy.lease.ttl_ms as i64,
            failures: work.body.failures.saturating_sub(work.lapse_counts()),
            lapses: work.body.lapses.saturating_sub(work.lapse_counts()),
        }),
    );
    Ok(draft)
}

/// The refusal of a verb that does not apply in the current state.
fn wrong_state(work: &Work, verb: &str, instead: &str) -> Refusal {
    if work.state.is_terminal() {
        return Refusal::new(
            Code::Terminal,
            format!(
                "The work item has ended as {}; a terminal state never changes. To run it again, rerun it.",
                work.state
            ),
        );
    }
    Refusal::new(
        Code::IllegalState,
        format!("The work item is {}: {verb} does not apply. {instead}", work.state),
    )
}
