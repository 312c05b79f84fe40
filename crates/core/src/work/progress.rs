//! Progress that the holder wants recorded as an event. Progress that rides on a renewal is cheaper and not
//! recorded.

use crate::{
    action::Holder,
    decide::{Context, Decision},
    event::{Fact, Progressed},
    limits,
    model::ProgressRequest,
    payload::Payload,
    refusal::{Code, Refusal},
    work::{HolderCheck, IfLapsed, draft::Said, hold},
};

/// Progress is stored in the row, and every renewal may rewrite it, so it must be small.
const PROGRESS_BYTES: usize = 16 * 1024;

pub(crate) fn decide(
    cx: Context<'_>,
    holder: &Holder,
    progress: &Payload,
    request_id: Option<&str>,
) -> Result<Decision, Refusal> {
    check(progress)?;
    if let Some(id) = request_id {
        limits::name("request_id", id)?;
    }
    match hold(cx, holder, IfLapsed::Refuse)? {
        HolderCheck::Repeat(ack) => Ok(Decision::again(ack)),
        HolderCheck::Current(mut draft) => {
            let asked = request_id.map(|id| ProgressRequest::new(id, content(progress)));
            if let Some(asked) = &asked
                && let Some(known) =
                    draft.work.body.progress_requests.iter().find(|known| known.id == asked.id)
            {
                if known.content == asked.content {
                    return Ok(Decision::again(draft.ack()));
                }
                return Err(Refusal::new(
                    Code::IdempotencyMismatch,
                    "This `request_id` was used before with different progress. Send new progress under a \
                     new `request_id`.",
                ));
            }
            let state = draft.work.state;
            let fact = Fact::Progressed(Progressed {
                request_id: request_id.map(str::to_owned),
                content: asked.map(|asked| asked.content),
            });
            draft.say(state, fact, Said { payload: Some(progress), ..Said::default() });
            draft.done()
        }
    }
}

fn content(progress: &Payload) -> String {
    progress.hash().hex()[..16].to_owned()
}

pub(super) fn check(progress: &Payload) -> Result<(), Refusal> {
    if progress.text().len() > PROGRESS_BYTES {
        return Err(Refusal::new(
            Code::PayloadRefused,
            format!(
                "Progress is stored in the row and may have at most {PROGRESS_BYTES} bytes. Send a summary."
            ),
        ));
    }
    Ok(())
}
