//! Steps: named checkpoints. The same input reuses the stored result; a different input is refused unless the
//! step is restarted.

use crate::{
    action::{StepAction, StepVerb},
    decide::{Context, Decision},
    event::{Fact, StepBegun, StepCompleted},
    limits,
    model::Step,
    payload::Payload,
    refusal::{Code, Refusal},
    reply::Reply,
    work::{
        HolderCheck, IfLapsed,
        draft::{Draft, Said},
        hold,
    },
};

pub(crate) fn decide(cx: Context<'_>, action: &StepAction) -> Result<Decision, Refusal> {
    limits::name("step", &action.step)?;
    match hold(cx, &action.holder, IfLapsed::Refuse)? {
        HolderCheck::Repeat(ack) => Ok(Decision::again(ack)),
        HolderCheck::Current(draft) => {
            let steps = cx.records.steps.get(&draft.work.id).map_or(&[][..], Vec::as_slice);
            match &action.verb {
                StepVerb::Begin { restart } => begin(*draft, action, steps, *restart),
                StepVerb::Complete { result } => complete(*draft, action, steps, result),
            }
        }
    }
}

fn live<'a>(steps: &'a [Step], name: &str) -> Option<&'a Step> {
    steps.iter().find(|step| step.name == name && !step.voided)
}

fn mismatch(step: &Step) -> Refusal {
    Refusal::new(
        Code::StepMismatch,
        format!(
            "Step `{}` exists with another input. Send the input it was begun with, or begin it with \
             `restart: true`, which voids it and every later step.",
            step.name
        ),
    )
}

/// A step keeps its first result. A store that gets another completion compares the results.
pub fn same_result(step: &str, stored: &Payload, sent: &Payload) -> Result<(), Refusal> {
    if stored.hash() == sent.hash() {
        return Ok(());
    }
    Err(Refusal::new(
        Code::IdempotencyMismatch,
        format!(
            "Step `{step}` was completed with another result, which is kept. Continue with that one, or \
             begin the step with `restart: true`, which voids it and every later step."
        ),
    ))
}

fn begin(mut draft: Draft, action: &StepAction, steps: &[Step], restart: bool) -> Result<Decision, Refusal> {
    let existing = live(steps, &action.step);
    let last = steps.iter().filter(|step| !step.voided).map(|step| step.ordinal).max();
    // A repeat of a restart that has just happened voids nothing.
    let fresh = |step: &Step| {
        step.completed_at.is_none() && step.input_hash == action.input_hash && Some(step.ordinal) == last
    };
    if let Some(step) = existing.filter(|step| !restart || fresh(step)) {
        if step.input_hash != action.input_hash {
            return Err(mismatch(step));
        }
        let reused = step.completed_at.is_some();
        return Ok(Decision::unchanged(Reply::Step { step: step.clone(), reused }));
    }
    if steps.len() >= limits::STEPS_PER_WORK {
        return Err(Refusal::new(
            Code::LimitReached,
            format!("A work item has at most {} steps. Use fewer, larger ones.", limits::STEPS_PER_WORK),
        ));
    }
    let voided: Vec<Step> = match existing {
        Some(first) => steps
            .iter()
            .filter(|step| !step.voided && step.ordinal >= first.ordinal)
            .map(|step| Step { voided: true, ..step.clone() })
            .collect(),
        None => Vec::new(),
    };
    let step = Step {
        work: draft.work.id,
        name: action.step.clone(),
        ordinal: steps.iter().map(|step| step.ordinal + 1).max().unwrap_or(0),
        input_hash: action.input_hash,
        begun_at: draft.now,
        completed_at: None,
        result: None,
        voided: false,
    };
    let fact = Fact::StepBegun(StepBegun { input_hash: action.input_hash, voided: voided.len() as u32 });
    let state = draft.work.state;
    draft.say(state, fact, Said { step: Some(&action.step), ..Said::default() });
    voided.into_iter().for_each(|step| draft.put_step(step));
    draft.put_step(step.clone());
    draft.finish(|_| Reply::Step { step, reused: false })
}

fn complete(
    mut draft: Draft,
    action: &StepAction,
    steps: &[Step],
    result: &Payload,
) -> Result<Decision, Refusal> {
    let Some(step) = live(steps, &action.step) else {
        return Err(Refusal::new(
            Code::NotFound,
            format!("Step `{}` was not begun. Begin it first.", action.step),
        ));
    };
    if step.input_hash != action.input_hash {
        return Err(mismatch(step));
    }
    if step.completed_at.is_some() {
        return Ok(Decision::unchanged(Reply::Step { step: step.clone(), reused: true }));
    }
    draft.work.check_room(&format!("The result of step `{}`", action.step), result.bytes())?;
    let done = Step {
        completed_at: Some(draft.now),
        result: Some((draft.work.id, draft.next_seq())),
        ..step.clone()
    };
    let fact = Fact::StepCompleted(StepCompleted { input_hash: action.input_hash, bytes: result.bytes() });
    let state = draft.work.state;
    draft.say(state, fact, Said { step: Some(&action.step), payload: Some(result), ..Said::default() });
    draft.put_step(done.clone());
    draft.finish(|_| Reply::Step { step: done, reused: false })
}
