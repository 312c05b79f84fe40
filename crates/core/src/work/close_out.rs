//! Close-out: the holder declares the end. A running work item cannot succeed in any other way.

use crate::{
    action::{CloseOut, Holder},
    command,
    decide::{Context, Decision},
    event::{CancelProof, Cancelled, ClosedBy, ClosedOut, Fact},
    model::{AttemptOutcome, Output},
    refusal::{Code, Refusal},
    reply::Reply,
    state::State,
    work::{
        HolderCheck, IfLapsed,
        draft::{Draft, Said},
        hold,
    },
};

pub(crate) fn decide(cx: Context<'_>, holder: &Holder, close: &CloseOut) -> Result<Decision, Refusal> {
    close.check()?;
    let mut draft = match hold(cx, holder, IfLapsed::Revive)? {
        HolderCheck::Repeat(ack) => return Ok(Decision::again(ack)),
        HolderCheck::Current(draft) => draft,
    };
    if close.state.is_success() && draft.work.body.commands.unsettled() > 0 {
        return Err(command::open(&draft.commands));
    }
    if !close.commands.is_empty() && command::cancel::was_cancelled(&draft.work, close.state) {
        return Err(Refusal::new(
            Code::CancelRequested,
            "A cancel of the work item was requested: only a success has side effects. Leave `commands` out.",
        ));
    }
    for (id, intent) in &close.commands {
        command::reserve::outgoing(cx, &mut draft, *id, intent)?;
    }
    match (close.state, draft.work.state) {
        (State::Cancelled, State::CancelRequested) => {
            let fact = Cancelled { proof: CancelProof::Declared, usage: close.usage.clone() };
            let message = close.error.as_ref().map(|(_, message)| message.as_str());
            let said = Said { message, evidence: &close.evidence, ..Said::default() };
            draft.say(State::Cancelled, Fact::Cancelled(fact), said);
        }
        (State::Cancelled, _) => {
            return Err(Refusal::new(
                Code::IllegalState,
                "No cancel was requested. Close out as failed, or release the work item.",
            ));
        }
        (State::Abandoned, _) if !draft.work.owner_bound_started() => {
            return Err(Refusal::new(
                Code::IllegalState,
                "Only started owner-bound work can be abandoned by its owner. Release it, or close it out as \
                 failed.",
            ));
        }
        (State::TimedOut | State::Abandoned, State::CancelRequested) => {
            return Err(Refusal::new(
                Code::IllegalState,
                "A cancel of the work item was requested. Close it out as cancelled, failed, or with its \
                 result.",
            ));
        }
        _ => declare(&mut draft, close, ClosedBy::Holder, None),
    }
    let ack = draft.ack();
    draft.ended(AttemptOutcome::ClosedOut, ack.clone()).finish(|_| Reply::Ack(ack))
}

/// Records the end. A person's reason takes precedence over the error's message.
pub(super) fn declare(draft: &mut Draft, close: &CloseOut, by: ClosedBy, reason: Option<&str>) {
    let output = match (&close.result, &close.result_ref) {
        (Some(result), _) => Some(Output::Inline { hash: result.hash(), seq: draft.next_seq() }),
        (None, Some(reference)) => Some(Output::Reference(reference.clone())),
        (None, None) => close.no_output.then_some(Output::NoOutput),
    };
    let fact = ClosedOut {
        output,
        error: close.error.as_ref().map(|(class, _)| *class),
        warnings: close.warnings.clone(),
        by,
        usage: close.usage.clone(),
    };
    let said = Said {
        message: reason.or(close.error.as_ref().map(|(_, message)| message.as_str())),
        payload: close.result.as_ref(),
        evidence: &close.evidence,
        ..Said::default()
    };
    draft.say(close.state, Fact::ClosedOut(fact), said);
}
