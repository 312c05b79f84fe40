//! Progress: what the holder wants seen, as an event. Cheaper news rides on a renewal.

use crate::{
    action::Holder,
    decide::{Context, Decision},
    event::{Fact, Progressed},
    limits,
    payload::Payload,
    refusal::{Code, Refusal},
    work::{Held, IfLapsed, draft::Said, hold},
};

/// Progress lives in the row, and every renewal may rewrite it: it stays small.
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
        Held::Repeat(ack) => Ok(Decision::again(ack)),
        Held::Current(mut draft) => {
            if request_id.is_some() && draft.work.body.progress_request.as_deref() == request_id {
                return Ok(Decision::again(draft.ack()));
            }
            let state = draft.work.state;
            let fact = Fact::Progressed(Progressed { request_id: request_id.map(str::to_owned) });
            draft.say(state, fact, Said { payload: Some(progress), ..Said::default() });
            draft.done()
        }
    }
}

pub(super) fn check(progress: &Payload) -> Result<(), Refusal> {
    if progress.text().len() > PROGRESS_BYTES {
        return Err(Refusal::new(
            Code::PayloadRefused,
            format!("Progress is kept in the row and may have {PROGRESS_BYTES} bytes. Send a summary."),
        ));
    }
    Ok(())
}
