//! Release: the holder returns the work item to the queue; it does not count as a failure. An operator may
//! request it.

use crate::{
    WorkId,
    action::Holder,
    command,
    decide::{Context, Decision},
    event::{CancelProof, Cancelled, Fact, Plain, Released},
    limits,
    liveness::Grade,
    model::AttemptOutcome,
    refusal::{Code, Refusal},
    reply::Reply,
    state::State,
    usage::{self, Usage},
    work::{
        HolderCheck, IfLapsed,
        draft::{Draft, Said},
        hold,
        tick::recover,
        wrong_state,
    },
};

pub(crate) fn decide(
    cx: Context<'_>,
    holder: &Holder,
    message: Option<&str>,
    usage: &[Usage],
) -> Result<Decision, Refusal> {
    usage::check(usage)?;
    if let Some(message) = message {
        limits::text("message", message)?;
    }
    let mut draft = match hold(cx, holder, IfLapsed::Refuse)? {
        HolderCheck::Repeat(ack) => return Ok(Decision::again(ack)),
        HolderCheck::Current(draft) => draft,
    };
    if draft.work.owner_bound_started() {
        return Err(Refusal::new(
            Code::OwnerBound,
            "Owner-bound work that was started cannot be released: nobody else may continue it. Close it \
             out, or fail it.",
        ));
    }
    let said = Said { message, ..Said::default() };
    if draft.work.state == State::CancelRequested {
        let fact = Fact::Cancelled(Cancelled { proof: CancelProof::HolderStopped, usage: usage.to_vec() });
        draft.say(State::Cancelled, fact, said);
    } else if command::doubt(&draft.commands, cx.now).blocks_a_rerun() {
        draft.say(State::Stalled, Fact::Released(Released { usage: usage.to_vec() }), said);
        recover(cx, &mut draft, Grade::Silent, &[]);
    } else {
        draft.say(State::Queued, Fact::Released(Released { usage: usage.to_vec() }), said);
    }
    let ack = draft.ack();
    draft.ended(AttemptOutcome::Released, ack.clone()).finish(|_| Reply::Ack(ack))
}

/// The holder is notified by its next renewal. If it does not release, the work item continues, and a lapse
/// leads to recovery without counting as a failure.
pub(crate) fn request(cx: Context<'_>, id: WorkId, reason: &str) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    let work = cx.work(id)?;
    if work.state != State::Running {
        return Err(wrong_state(
            work,
            "a request to release",
            "Only a running work item has a holder to ask.",
        ));
    }
    if work.owner_bound_started() {
        return Err(Refusal::new(
            Code::OwnerBound,
            "Owner-bound work that was started cannot be released: nobody else may continue it. Cancel or \
             abandon it.",
        ));
    }
    let mut draft = Draft::new(cx, work);
    if !work.body.release_requested {
        let said = Said { message: Some(reason), ..Said::default() };
        draft.say(State::Running, Fact::ReleaseRequested(Plain {}), said);
    }
    draft.done()
}
