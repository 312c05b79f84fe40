//! Abandon: gives up on learning how a work item ended. A request is a durable marker that takes effect only
//! at a lapse.

use crate::{
    WorkId,
    action::Holder,
    decide::{Context, Decision},
    event::{ClosedBy, ClosedOut, Fact, Plain},
    limits,
    model::{AttemptOutcome, Disposition},
    refusal::{Code, Refusal},
    reply::Reply,
    state::{State, waiting},
    usage::{self, Usage},
    work::{
        HolderCheck, IfLapsed, cancel,
        draft::{Draft, Said},
        hold, wrong_state,
    },
};

pub(crate) fn request(cx: Context<'_>, id: WorkId, reason: &str) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    let work = cx.work(id)?;
    let said = Said { message: Some(reason), ..Said::default() };
    match work.state {
        State::Running | State::CancelRequested | State::Stalled => {
            let mut draft = Draft::new(cx, work);
            if work.body.abandon_request.is_none() {
                draft.say(work.state, Fact::AbandonRequested(Plain {}), said);
            }
            draft.done()
        }
        State::WaitingExternal if work.spec.disposition == Disposition::ExternallyOwned => {
            let mut draft = Draft::new(cx, work);
            draft.say(State::Abandoned, Fact::ClosedOut(given_up(ClosedBy::Person, &[])), said);
            draft.done()
        }
        // Nobody holds it: no outcome is in doubt, so it is simply cancelled.
        State::Queued | State::RetryScheduled | waiting!() => cancel::request(cx, work, reason, 0)?.done(),
        State::Abandoned => Ok(Decision::again(Draft::new(cx, work).ack())),
        State::Quarantined
        | State::Succeeded
        | State::CompletedWithWarnings
        | State::Failed
        | State::TimedOut
        | State::Cancelled => Err(wrong_state(
            work,
            "abandon",
            "A person decides on it: use `decide` with `abandoned` and a \
             reason.",
        )),
    }
}

/// The owner is draining: it started owner-bound work and will not finish it.
pub(crate) fn own(
    cx: Context<'_>,
    holder: &Holder,
    reason: &str,
    usage: &[Usage],
) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    usage::check(usage)?;
    let mut draft = match hold(cx, holder, IfLapsed::Revive)? {
        HolderCheck::Repeat(ack) => return Ok(Decision::again(ack)),
        HolderCheck::Current(draft) => draft,
    };
    if !draft.work.owner_bound_started() {
        return Err(Refusal::new(
            Code::IllegalState,
            "Only started owner-bound work can be abandoned by its owner. Release this one.",
        ));
    }
    let said = Said { message: Some(reason), ..Said::default() };
    draft.say(State::Abandoned, Fact::ClosedOut(given_up(ClosedBy::Holder, usage)), said);
    let ack = draft.ack();
    draft.ended(AttemptOutcome::ClosedOut, ack.clone()).finish(|_| Reply::Ack(ack))
}

fn given_up(by: ClosedBy, usage: &[Usage]) -> ClosedOut {
    ClosedOut { output: None, error: None, warnings: Vec::new(), by, usage: usage.to_vec() }
}
