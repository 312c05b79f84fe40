//! Release: the holder hands the work back, and it counts as no failure.

use crate::{
    action::Holder,
    decide::{Context, Decision},
    event::{CancelProof, Cancelled, Fact, Plain},
    limits,
    model::AttemptOutcome,
    refusal::{Code, Refusal},
    reply::Reply,
    state::State,
    work::{Held, IfLapsed, draft::Said, hold},
};

pub(crate) fn decide(cx: Context<'_>, holder: &Holder, message: Option<&str>) -> Result<Decision, Refusal> {
    if let Some(message) = message {
        limits::text("message", message)?;
    }
    let mut draft = match hold(cx, holder, IfLapsed::Refuse)? {
        Held::Repeat(ack) => return Ok(Decision::again(ack)),
        Held::Current(draft) => draft,
    };
    if draft.work.owner_bound_started() {
        return Err(Refusal::new(
            Code::OwnerBound,
            "Started owner-bound work cannot be handed back: nobody else may go on. Close it out, or fail it.",
        ));
    }
    let said = Said { message, ..Said::default() };
    if draft.work.state == State::CancelRequested {
        let fact = Fact::Cancelled(Cancelled { proof: CancelProof::HolderStopped });
        draft.say(State::Cancelled, fact, said);
    } else {
        draft.say(State::Queued, Fact::Released(Plain {}), said);
    }
    let ack = draft.ack();
    draft.ended(AttemptOutcome::Released, ack.clone()).finish(|_| Reply::Ack(ack))
}
