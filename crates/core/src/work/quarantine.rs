//! Quarantine: set aside until a person decides, with a reason that is kept.

use crate::{
    WorkId,
    action::Decide,
    decide::{Context, Decision},
    event::{ActorKind, ClosedBy, Fact, Plain, Quarantined},
    limits,
    model::ReasonCode,
    refusal::{Code, Refusal},
    state::State,
    work::{
        close_out,
        draft::{Draft, Said},
        wrong_state,
    },
};

pub(crate) fn decide(cx: Context<'_>, id: WorkId, reason: &str) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    let work = cx.work(id)?;
    if work.state == State::CancelRequested || work.state.is_terminal() {
        return Err(wrong_state(work, "quarantine", "Let the cancel end it, or request an abandon."));
    }
    let mut draft = Draft::new(cx, work);
    if work.state != State::Quarantined {
        draft.cancel_waits(cx);
        let fact = Fact::Quarantined(Quarantined { reason: ReasonCode::Operator });
        draft.say(State::Quarantined, fact, Said { message: Some(reason), ..Said::default() });
    }
    draft.done()
}

/// A person's decision over a quarantined work.
pub(crate) fn person(
    cx: Context<'_>,
    id: WorkId,
    reason: &str,
    decision: &Decide,
) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    if cx.submission.actor.kind != ActorKind::Person {
        return Err(Refusal::new(
            Code::PersonRequired,
            "Only a person decides over quarantined work. Use a person's credential.",
        ));
    }
    let work = cx.work(id)?;
    if work.state != State::Quarantined {
        return Err(wrong_state(work, "deciding", "It is for quarantined works: quarantine it first."));
    }
    let mut draft = Draft::new(cx, work);
    match decision {
        Decide::Requeue => {
            let said = Said { message: Some(reason), ..Said::default() };
            draft.say(State::Queued, Fact::Requeued(Plain {}), said);
        }
        Decide::Close(close) => {
            close.check()?;
            close_out::declare(&mut draft, close, ClosedBy::Person, Some(reason));
        }
    }
    draft.done()
}
