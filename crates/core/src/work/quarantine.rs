//! Quarantine: sets a work item aside until a person decides, with a reason that is recorded.

use crate::{
    WorkId,
    action::Decide,
    command,
    decide::{Context, Decision},
    event::{ActorKind, ClosedBy, Fact, Quarantined, Requeued},
    limits,
    model::{Disposition, ReasonCode},
    refusal::{Code, Refusal},
    state::State,
    work::{
        close_out,
        draft::{Draft, Said},
        resolve::bound_until,
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

/// A person's decision on a quarantined work item.
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
            "Only a person may decide on a quarantined work item. Use a person's credential.",
        ));
    }
    let work = cx.work(id)?;
    if work.state != State::Quarantined {
        return Err(wrong_state(
            work,
            "deciding",
            "It is only for quarantined work items: quarantine it first.",
        ));
    }
    let mut draft = Draft::new(cx, work);
    match decision {
        Decide::Requeue if work.spec.disposition == Disposition::ExternallyOwned => {
            return Err(Refusal::new(
                Code::IllegalState,
                "Externally owned work is run by its owner, never from the queue. Decide on a terminal state.",
            ));
        }
        Decide::Requeue if work.body.commands.unsettled() > 0 => {
            return Err(command::open(&draft.commands));
        }
        Decide::Requeue => {
            let said = Said { message: Some(reason), ..Said::default() };
            let fact = Requeued { bound_until: bound_until(&draft) };
            draft.say(State::Queued, Fact::Requeued(fact), said);
        }
        Decide::Close(close) => {
            close.check_without_commands()?;
            close_out::declare(&mut draft, close, ClosedBy::Person, Some(reason));
        }
    }
    draft.done()
}
