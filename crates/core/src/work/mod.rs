//! The life of a work, one verb a file. Each reads the records, refuses or drafts events.

pub mod abandon;
pub mod accept;
pub mod cancel;
pub mod claim;
pub mod close_out;
pub mod complete;
pub(crate) mod draft;
pub mod fail;
pub mod ingest;
pub mod progress;
pub mod quarantine;
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

/// What a lapsed holder may still do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfLapsed {
    /// The verb brings the work back to running first: renew, close-out, fail, wait.
    Revive,
    /// The verb asks for a renewal first.
    Refuse,
}

/// What a holder's verb meets.
pub(crate) enum HolderCheck {
    /// The lease stands: go on with this draft.
    Current(Box<Draft>),
    /// The very same verb ended this attempt before: this was its reply.
    Repeat(Ack),
}

/// The one check of every holder's verb: work + fence + token + not superseded.
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
            "The lease lapsed and nobody took over yet. Renew it first, then send this again.",
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
            "the token does not belong to this work and fence".to_owned(),
            "Send what its claim gave you, or claim it again.",
        ),
        (_, state) if state.is_terminal() => (
            format!("the work has ended as {state}, and ends never change"),
            "Stop working on it; to run it again, rerun it.",
        ),
        (Some(other), _) => {
            (format!("{} holds the work now, under fence {}", other.id, work.fence), "Stop working on it.")
        }
        (None, State::Quarantined) => {
            ("the work is quarantined".to_owned(), "Stop working on it: a person decides what becomes of it.")
        }
        (None, state) if state.is_waiting() => (
            format!("the work is {state} and nobody holds it"),
            "Stop working on it; claim it again once its waits are answered.",
        ),
        (None, state) => (
            format!("the work is {state} and nobody holds it"),
            "Stop working on it; claim it again to go on.",
        ),
    };
    Err(Refusal::new(Code::LeaseLost, format!("This lease is over: {now}. {next}")))
}

/// A late write of a lapsed, unsuperseded holder: the lapse is taken back.
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
    // A cancel that came while it was stalled is still standing; elsewhere a cancel has ended the work.
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

/// A verb that does not apply where the work stands now.
fn wrong_state(work: &Work, verb: &str, instead: &str) -> Refusal {
    if work.state.is_terminal() {
        return Refusal::new(
            Code::Terminal,
            format!("The work has ended as {}; ends never change. To run it again, rerun it.", work.state),
        );
    }
    Refusal::new(Code::IllegalState, format!("The work is {}: {verb} does not apply. {instead}", work.state))
}
