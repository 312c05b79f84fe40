//! Cancel: a work item without a holder ends at once; a holder is notified and given a deadline.

use crate::{
    Millis, WorkId,
    decide::{Context, Decision},
    due::harmless_to_cancel,
    event::{CancelProof, CancelRequested, Cancelled, Fact},
    limits,
    model::Work,
    refusal::{Code, Refusal},
    state::{State, waiting},
    work::{
        draft::{Draft, Said},
        wrong_state,
    },
};

pub(super) const DEADLINE_MS: u64 = 60_000;

pub(crate) fn decide(
    cx: Context<'_>,
    id: WorkId,
    reason: &str,
    deadline_ms: Option<u64>,
) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    let deadline_ms = deadline_ms.unwrap_or(DEADLINE_MS);
    limits::duration("deadline_ms", deadline_ms)?;
    let work = cx.work(id)?;
    request(cx, work, reason, deadline_ms)?.done()
}

/// Drafts the cancel of a work item in any state.
pub(super) fn request(
    cx: Context<'_>,
    work: &Work,
    reason: &str,
    deadline_ms: u64,
) -> Result<Draft, Refusal> {
    let mut draft = Draft::new(cx, work);
    let said = Said { message: Some(reason), ..Said::default() };
    match work.state {
        State::Queued | State::RetryScheduled | waiting!() => {
            draft.cancel_waits(cx);
            draft.say(State::Cancelled, not_held(), said);
        }
        State::Stalled if harmless_to_cancel(work) => draft.say(State::Cancelled, not_held(), said),
        State::Running => draft.say(State::CancelRequested, requested(cx.now, deadline_ms), said),
        State::Stalled if work.body.cancel.is_none() => {
            draft.say(State::Stalled, requested(cx.now, deadline_ms), said);
        }
        // Requested before: the first request applies.
        State::CancelRequested | State::Stalled => {}
        State::Quarantined => {
            return Err(wrong_state(
                work,
                "cancel",
                "A person decides on it: use `decide` with `cancelled` and a reason.",
            ));
        }
        State::Cancelled => {}
        State::Succeeded
        | State::CompletedWithWarnings
        | State::Failed
        | State::TimedOut
        | State::Abandoned => {
            return Err(Refusal::new(
                Code::Terminal,
                format!("The work item has ended as {}: there is nothing left to cancel.", work.state),
            ));
        }
    }
    Ok(draft)
}

fn not_held() -> Fact {
    Fact::Cancelled(Cancelled::new(CancelProof::NotHeld))
}

fn requested(now: Millis, deadline_ms: u64) -> Fact {
    Fact::CancelRequested(CancelRequested { deadline_at: now + deadline_ms as Millis })
}
