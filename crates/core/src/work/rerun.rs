//! Rerun: a terminal state never changes, so running again creates a new work item that is linked to the old
//! one.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    WorkId,
    decide::{Context, Decision},
    event::{Created, Fact},
    limits,
    model::{Disposition, OnParentClose, Spec, Step, Work},
    payload::Digest,
    refusal::{Code, Refusal},
    reply::Reply,
    state::State,
    work::{
        draft::{Draft, Said},
        ingest::submitters,
        wrong_state,
    },
};

pub(crate) fn decide(
    cx: Context<'_>,
    of: WorkId,
    id: WorkId,
    from_step: Option<&str>,
    execute: &[Digest],
    reason: &str,
) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    limits::count("execute", execute.len(), limits::OUTBOX)?;
    let old = cx.work(of)?;
    if let Some(newer) = newest(cx, old).filter(|newest| newest.id != old.id) {
        if newer.spec.rerun_of == Some(old.id) {
            same_rerun(newer, from_step, execute)?;
            return Ok(Decision::unchanged(reply(newer, false)));
        }
        return Err(Refusal::new(
            Code::IllegalState,
            format!("{of} was rerun before; {} is the newest. Rerun that one.", newer.id),
        ));
    }
    if !old.state.is_terminal() {
        return Err(wrong_state(old, "rerun", "Wait for its end, or cancel it first."));
    }
    if old.spec.disposition == Disposition::ExternallyOwned {
        return Err(Refusal::new(
            Code::IllegalState,
            "Externally owned work is run by its owner. Ask the owner, and record it as a new work item.",
        ));
    }
    let Some(input) = cx.records.inputs.get(&of).and_then(Option::as_ref) else {
        return Err(Refusal::new(
            Code::NotFound,
            format!("The input of {of} was erased. Ingest it again under a new source id."),
        ));
    };
    cx.submission.room()?;
    let steps = taken_over(cx, old, id, from_step)?;
    let spec = Spec {
        generation: old.spec.generation + 1,
        rerun_of: Some(old.id),
        execute: execute.to_vec(),
        from_step: from_step.map(str::to_owned),
        created_at: cx.now,
        on_parent_close: on_parent_close(cx, old),
        submitters: submitters(cx, Some(old), &[]),
        ..(*old.spec).clone()
    };
    let created = Created {
        spec: Arc::new(spec),
        from_step: from_step.map(str::to_owned),
        steps: steps.len() as u32,
        // How much of it belongs to the steps that are taken over is not recorded.
        bytes: if steps.is_empty() { 0 } else { old.body.payload_bytes },
        output: None,
        error: None,
        warnings: Vec::new(),
        usage: Vec::new(),
    };
    let said = Said { message: Some(reason), payload: Some(input), ..Said::default() };
    let mut draft = Draft::birth(cx, id, State::Queued, Fact::WorkCreated(created), said);
    steps.into_iter().for_each(|step| draft.put_step(step));
    draft.finish(|draft| reply(&draft.work, true))
}

/// An existing rerun must be the one that is requested.
fn same_rerun(newer: &Work, from_step: Option<&str>, execute: &[Digest]) -> Result<(), Refusal> {
    let set = |keys: &[Digest]| keys.iter().copied().collect::<BTreeSet<Digest>>();
    if newer.spec.from_step.as_deref() == from_step && set(&newer.spec.execute) == set(execute) {
        return Ok(());
    }
    Err(Refusal::new(
        Code::IdempotencyMismatch,
        format!(
            "It was rerun before as {}, {} and with {} commands to execute again. Send the same `from_step` \
             and `execute`, or rerun {} once it has ended.",
            newer.id,
            newer
                .spec
                .from_step
                .as_ref()
                .map_or_else(|| "from the start".to_owned(), |step| format!("from step `{step}`")),
            newer.spec.execute.len(),
            newer.id
        ),
    ))
}

/// The rerun does not end with a parent that has ended already, because it was requested nevertheless.
fn on_parent_close(cx: Context<'_>, old: &Work) -> OnParentClose {
    let parent = old.spec.parent.and_then(|id| cx.records.peer(id));
    match parent {
        Some(parent) if !parent.state.is_terminal() => old.spec.on_parent_close,
        Some(_) | None => OnParentClose::Leave,
    }
}

fn newest<'a>(cx: Context<'a>, old: &Work) -> Option<&'a Work> {
    let id = cx.records.identities.get(&old.spec.identity())?.as_ref()?;
    cx.records.peer(*id)
}

fn reply(work: &Work, created: bool) -> Reply {
    Reply::Ingested { work: Box::new(work.clone()), created, grant: None }
}

/// The completed checkpoints before `from_step`; none without it.
fn taken_over(
    cx: Context<'_>,
    old: &Work,
    id: WorkId,
    from_step: Option<&str>,
) -> Result<Vec<Step>, Refusal> {
    let Some(name) = from_step else { return Ok(Vec::new()) };
    let steps = cx.records.steps.get(&old.id).map_or(&[][..], Vec::as_slice);
    let Some(first) = steps.iter().find(|step| step.name == name && !step.voided) else {
        return Err(Refusal::new(
            Code::NotFound,
            format!(
                "{} does not have a step `{name}`. Rerun it from one of its steps, or from the start.",
                old.id
            ),
        ));
    };
    Ok(steps
        .iter()
        .filter(|step| !step.voided && step.ordinal < first.ordinal && step.completed_at.is_some())
        .map(|step| Step { work: id, ..step.clone() })
        .collect())
}
