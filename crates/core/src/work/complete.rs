//! Complete: the outside owner of externally owned work says how it ended.

use crate::{
    WorkId,
    action::CloseOut,
    decide::{Context, Decision},
    event::ClosedBy,
    model::Disposition,
    refusal::{Code, Refusal},
    state::State,
    work::{close_out, draft::Draft, wrong_state},
};

pub(crate) fn decide(
    cx: Context<'_>,
    id: WorkId,
    genuine: bool,
    close: &CloseOut,
) -> Result<Decision, Refusal> {
    close.check()?;
    let work = cx.work(id)?;
    if !genuine {
        return Err(Refusal::new(
            Code::TokenRefused,
            "The token does not complete this work. Use the one given at ingest.",
        ));
    }
    if work.spec.disposition != Disposition::ExternallyOwned {
        return Err(Refusal::new(
            Code::IllegalState,
            "Only externally owned work is completed from outside. Its holder closes this one out.",
        ));
    }
    let output_of = |close: &CloseOut| close.result.as_ref().map(|result| result.hash());
    let inline = |work: &crate::Work| match &work.body.output {
        Some(crate::model::Output::Inline { hash, .. }) => Some(*hash),
        Some(_) | None => None,
    };
    if work.state == close.state && inline(work) == output_of(close) {
        return Ok(Decision::again(Draft::new(cx, work).ack()));
    }
    if work.state != State::WaitingExternal || close.state == State::Abandoned {
        return Err(wrong_state(work, "completing it", "Its owner declares any end but abandoned, once."));
    }
    let mut draft = Draft::new(cx, work);
    close_out::declare(&mut draft, close, ClosedBy::ExternalOwner, None);
    draft.done()
}
