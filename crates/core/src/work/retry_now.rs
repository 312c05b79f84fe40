//! Retry now: an operator ends a backoff early.

use crate::{
    WorkId,
    decide::{Context, Decision},
    event::{Fact, Plain},
    limits,
    refusal::Refusal,
    state::State,
    work::{
        draft::{Draft, Said},
        wrong_state,
    },
};

pub(crate) fn decide(cx: Context<'_>, id: WorkId, reason: &str) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    let work = cx.work(id)?;
    if work.state != State::RetryScheduled {
        return Err(wrong_state(work, "retry-now", "It is only for work items with a scheduled retry."));
    }
    let mut draft = Draft::new(cx, work);
    let said = Said { message: Some(reason), ..Said::default() };
    draft.say(State::Queued, Fact::RetriedNow(Plain {}), said);
    draft.done()
}
