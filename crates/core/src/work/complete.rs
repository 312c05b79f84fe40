//! Complete: the external owner of externally owned work declares how it ended.

use crate::{
    WorkId,
    action::CloseOut,
    decide::{Context, Decision},
    event::ClosedBy,
    model::{Disposition, Output, Work},
    refusal::{Code, Refusal},
    state::State,
    usage,
    work::{close_out, draft::Draft, wrong_state},
};

pub(crate) fn decide(
    cx: Context<'_>,
    id: WorkId,
    genuine: bool,
    close: &CloseOut,
) -> Result<Decision, Refusal> {
    close.check_without_commands()?;
    let work = cx.work(id)?;
    if !genuine {
        return Err(Refusal::new(
            Code::TokenRefused,
            "The completion token is not valid for this work item. Use the one returned at ingest.",
        ));
    }
    if work.spec.disposition != Disposition::ExternallyOwned {
        return Err(Refusal::new(
            Code::IllegalState,
            "Only externally owned work is completed by its owner. The holder of this work item closes it out.",
        ));
    }
    if same_end(work, close) {
        return Ok(Decision::again(Draft::new(cx, work).ack()));
    }
    if work.state != State::WaitingExternal || close.state == State::Abandoned {
        return Err(wrong_state(
            work,
            "completing it",
            "Its owner declares any terminal state but \
         `abandoned`, once.",
        ));
    }
    let mut draft = Draft::new(cx, work);
    close_out::declare(&mut draft, close, ClosedBy::ExternalOwner, None);
    draft.done()
}

/// Whether the work item has ended just as this call says: then the call is a repeat.
fn same_end(work: &Work, close: &CloseOut) -> bool {
    let same_output = match &work.body.output {
        Some(Output::Inline { hash, .. }) => close.result.as_ref().is_some_and(|r| r.hash() == *hash),
        Some(Output::Reference(reference)) => close.result_ref.as_ref() == Some(reference),
        Some(Output::NoOutput) => close.no_output,
        None => close.result.is_none() && close.result_ref.is_none() && !close.no_output,
    };
    let error = work.body.error.as_ref().map(|error| error.class);
    work.state == close.state
        && same_output
        && error == close.error.as_ref().map(|(class, _)| *class)
        && work.body.warnings == close.warnings
        && work.body.usage == usage::sum(&close.usage)
}
