//! Ingest: every actionable unit becomes exactly one work item, however often it is delivered.

use std::sync::Arc;

use crate::{
    action::{CloseOut, Ingest, check_evidence},
    decide::{Context, Decision},
    event::{ActorKind, Created, Fact},
    intake, limits,
    model::{Disposition, Identity, OnParentClose, Output, Spec, Work},
    payload::{Digest, Payload},
    records::{Change, Touch},
    refusal::{Code, Refusal},
    reply::{Grant, Reply},
    state::State,
    work::{
        claim::{self, grant},
        draft::{Draft, Said},
    },
};

/// An ingest in progress: a new work item, or the existing one.
pub(crate) enum Prepared<'a> {
    New { draft: Box<Draft>, granted: bool },
    Known { work: &'a Work, grant: Option<Box<Grant>> },
}

pub(crate) fn decide(cx: Context<'_>, ingest: &Ingest) -> Result<Decision, Refusal> {
    match prepare(cx, ingest)? {
        Prepared::New { draft, granted } => draft.finish(|draft| Reply::Ingested {
            work: draft.work.clone(),
            created: true,
            grant: granted.then(|| Box::new(grant(cx, (*draft.work).clone()))),
        }),
        Prepared::Known { work, grant } => {
            Ok(Decision::unchanged(Reply::Ingested { work: Box::new(work.clone()), created: false, grant }))
        }
    }
}

pub(crate) fn prepare<'a>(cx: Context<'a>, ingest: &Ingest) -> Result<Prepared<'a>, Refusal> {
    check(cx, ingest)?;
    let hash = input_hash(ingest);
    let identity = Identity { tenant: ingest.tenant.clone(), source: ingest.source.clone() };
    let existing = cx.records.identities.get(&identity).and_then(Option::as_ref);
    if let Some(work) = existing.and_then(|id| cx.records.peer(*id)) {
        return again(cx, ingest, work, hash);
    }
    if cx.records.pruned.contains(&identity) {
        return Err(Refusal::new(
            Code::NoLongerRetained,
            format!(
                "{} existed, has ended and was pruned; it is not run again. Send a new source id.",
                ingest.source.id
            ),
        ));
    }
    // An existing work item is returned even during a pause.
    intake::open(cx.records.paused.as_deref().unwrap_or_default(), &ingest.tenant)?;
    cx.submission.room()?;
    let parent = parent(cx, ingest)?;
    let mut draft = birth(cx, ingest, hash, parent);
    if let Some(parent) = parent.filter(|parent| !parent.children && !parent.state.is_terminal()) {
        let parent = Work { children: true, ..parent.clone() };
        draft.change(Change::Work { work: Arc::new(parent), touch: Touch::Flags });
    }
    let mut granted = false;
    if let Some(claimant) = &ingest.claim
        && claim::claimable(&draft.work, &claimant.worker, &cx.submission.actor.id, session(cx, &draft.work))
            .is_ok()
    {
        claim::take(cx, &mut draft, claimant);
        granted = true;
    }
    Ok(Prepared::New { draft: Box::new(draft), granted })
}

/// The session as it will be with this work item in it.
fn session(cx: Context<'_>, work: &Work) -> crate::records::SessionView {
    let mut view = claim::session(cx, work);
    if view.head.is_none() && !view.unsure {
        view.head = Some(work.id);
    }
    view
}

/// The people who requested a work item, including those of the work item that it derives from.
pub(super) fn submitters(cx: Context<'_>, of: Option<&Work>, asked_by: &[Arc<str>]) -> Vec<Arc<str>> {
    let mut people = of.map_or_else(Vec::new, |work| work.spec.submitters.clone());
    let actor = &cx.submission.actor;
    let own = (actor.kind == ActorKind::Person).then_some(&actor.id);
    for person in asked_by.iter().chain(own) {
        if !people.contains(person) {
            people.push(person.clone());
        }
    }
    people
}

fn birth(cx: Context<'_>, ingest: &Ingest, input_hash: Digest, parent: Option<&Work>) -> Draft {
    let spec = Spec {
        tenant: ingest.tenant.clone(),
        source: ingest.source.clone(),
        kind: ingest.kind.clone(),
        title: ingest.title.clone(),
        disposition: ingest.disposition,
        priority: ingest.priority,
        correlation_id: ingest.correlation_id.clone().unwrap_or_else(|| ingest.id.to_string()),
        generation: 1,
        input_hash,
        input_bytes: input_bytes(&ingest.input),
        policy: ingest.policy,
        created_at: cx.now,
        session: ingest.session.clone(),
        workflow: ingest.workflow.clone(),
        parent: ingest.parent,
        on_parent_close: ingest.on_parent_close,
        rerun_of: None,
        execute: Vec::new(),
        from_step: None,
        submitters: submitters(cx, parent, &ingest.asked_by),
    };
    let to = match (&ingest.born, ingest.disposition) {
        (Some(close), _) => close.state,
        (None, Disposition::ExternallyOwned) => State::WaitingExternal,
        (None, Disposition::Rerunnable | Disposition::OwnerBound) => State::Queued,
    };
    let error = ingest.born.as_ref().and_then(|close| close.error.as_ref());
    let created = Created {
        spec: Arc::new(spec),
        from_step: None,
        steps: 0,
        bytes: 0,
        output: ingest.born.as_ref().and_then(outside_output),
        error: error.map(|(class, _)| *class),
        warnings: ingest.born.as_ref().map_or_else(Vec::new, |close| close.warnings.clone()),
        usage: ingest.born.as_ref().map_or_else(Vec::new, |close| close.usage.clone()),
    };
    let of_its_end = ingest.born.as_ref().map_or(&[][..], |close| &close.evidence);
    let evidence = [&ingest.evidence[..], of_its_end].concat();
    let said = Said {
        payload: Some(&ingest.input),
        evidence: &evidence,
        message: error.map(|(_, message)| message.as_str()),
        ..Said::default()
    };
    Draft::birth(cx, ingest.id, to, Fact::WorkCreated(created), said)
}

fn input_bytes(input: &Payload) -> u32 {
    let bytes = input.text().len();
    if bytes > limits::LIGHT_BYTES { bytes as u32 } else { 0 }
}

/// The result of detached work is stored elsewhere: the payload of its first event is the input.
fn outside_output(close: &CloseOut) -> Option<Output> {
    match &close.result_ref {
        Some(reference) => Some(Output::Reference(reference.clone())),
        None => close.no_output.then_some(Output::NoOutput),
    }
}

/// The same identity again: the same content is a repeat, other content is refused as a mistake.
fn again<'a>(
    cx: Context<'a>,
    ingest: &Ingest,
    work: &'a Work,
    hash: Digest,
) -> Result<Prepared<'a>, Refusal> {
    if work.spec.input_hash != hash {
        // If the caller may not access the kind, the refusal leaves out the id.
        let known = cx.submission.kinds.allow(&work.spec.kind).then(|| format!(" as {}", work.id));
        return Err(Refusal::new(
            Code::IdempotencyMismatch,
            format!(
                "{} exists already{} with another kind, disposition or input. Send the same content, or a \
                 new source id.",
                ingest.source.id,
                known.unwrap_or_default()
            ),
        ));
    }
    let grant = ingest.claim.as_ref().and_then(|claimant| {
        let given = cx.records.requests.get(&claimant.key(cx.submission))?;
        let held = work.held_lease()?.fence;
        given.contains(&(work.id, held)).then(|| Box::new(grant(cx, work.clone())))
    });
    Ok(Prepared::Known { work, grant })
}

fn parent<'a>(cx: Context<'a>, ingest: &Ingest) -> Result<Option<&'a Work>, Refusal> {
    let Some(id) = ingest.parent else { return Ok(None) };
    let parent = cx.work(id)?;
    if parent.spec.tenant != ingest.tenant {
        return Err(Refusal::new(
            Code::NotFound,
            format!(
                "There is no work item {id} in tenant {}. A parent must be of the same tenant.",
                ingest.tenant
            ),
        ));
    }
    if parent.state.is_terminal() && ingest.on_parent_close == OnParentClose::Cancel {
        return Err(Refusal::new(
            Code::ParentClosed,
            format!(
                "The parent {id} has ended as {}. Ingest without `on_parent_close: cancel`.",
                parent.state
            ),
        ));
    }
    Ok(Some(parent))
}

/// Two deliveries are the same if these are equal: kind, disposition and input.
fn input_hash(ingest: &Ingest) -> Digest {
    let parts = (&ingest.kind, ingest.disposition, ingest.input.hash());
    Digest::of(serde_json::to_vec(&parts).expect("strings and digests always serialise"))
}

fn check(cx: Context<'_>, ingest: &Ingest) -> Result<(), Refusal> {
    limits::name("tenant", &ingest.tenant)?;
    if !cx.submission.tenants.allow(&ingest.tenant) {
        return Err(Refusal::new(
            Code::NotFound,
            format!("Your credential is not valid for tenant {}. Use one of its tenants.", ingest.tenant),
        ));
    }
    if !cx.submission.kinds.allow(&ingest.kind) {
        let detail =
            format!("Your credential is not valid for kind `{}`. Use one of its kinds.", ingest.kind);
        return Err(Refusal::new(Code::Forbidden, detail));
    }
    well_formed(ingest)
}

/// The checks of an ingest that depend neither on the caller nor on stored records.
pub fn well_formed(ingest: &Ingest) -> Result<(), Refusal> {
    limits::name("source.system", &ingest.source.system)?;
    limits::reference("source.id", &ingest.source.id)?;
    if !ingest.source.run_id.is_empty() {
        limits::reference("source.run_id", &ingest.source.run_id)?;
    } else if ingest.source.system == "scheduler" {
        return Err(Refusal::new(
            Code::Invalid,
            "A scheduled work item needs `source.run_id`: without it the next run would be taken for a \
             repeat of this one.",
        ));
    }
    limits::name("kind", &ingest.kind)?;
    if let Some(title) = &ingest.title {
        limits::title(title)?;
    }
    if let Some(session) = &ingest.session {
        limits::reference("session", session)?;
    }
    if let Some(correlation) = &ingest.correlation_id {
        limits::reference("correlation_id", correlation)?;
    }
    if let Some(workflow) = &ingest.workflow {
        limits::name("workflow.id", &workflow.id)?;
        limits::name("workflow.version", &workflow.version)?;
    }
    ingest.policy.check()?;
    check_evidence(&ingest.evidence)?;
    if let Some(claimant) = &ingest.claim {
        claimant.check()?;
    }
    let external = ingest.disposition == Disposition::ExternallyOwned;
    if external && (ingest.claim.is_some() || ingest.session.is_some()) {
        return Err(Refusal::new(
            Code::Invalid,
            "Externally owned work cannot be claimed and occupies no session. Leave both out.",
        ));
    }
    if let Some(close) = &ingest.born {
        close.check_without_commands()?;
        if !external || close.result.is_some() {
            return Err(Refusal::new(
                Code::Invalid,
                "Only externally owned work can be recorded with its end, with `result_ref` or `no_output`.",
            ));
        }
    }
    Ok(())
}
