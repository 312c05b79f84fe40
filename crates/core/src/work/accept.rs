//! Accept: how firmly the agent has the work item. Weak: it was sent the input. Strong: it took it on.

use crate::{
    action::Holder,
    decide::{Context, Decision},
    event::{Accepted, Fact},
    model::AcceptStrength,
    refusal::Refusal,
    work::{HolderCheck, IfLapsed, hold},
};

pub(crate) fn decide(
    cx: Context<'_>,
    holder: &Holder,
    strength: AcceptStrength,
) -> Result<Decision, Refusal> {
    match hold(cx, holder, IfLapsed::Refuse)? {
        HolderCheck::Repeat(ack) => Ok(Decision::again(ack)),
        HolderCheck::Current(mut draft) => {
            if draft.work.body.accept_strength >= Some(strength) {
                return Ok(Decision::again(draft.ack()));
            }
            let state = draft.work.state;
            draft.emit(state, Fact::Accepted(Accepted { strength }));
            draft.done()
        }
    }
}
