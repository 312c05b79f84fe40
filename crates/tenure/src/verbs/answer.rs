//! Verbs that answer waits.

use serde_json::{Value, json};
use tenure_api::wire::{
    Approve, Claimant, Liveness, Reconnect as ReconnectRequest, Resolve as ResolveRequest, ResolveWait,
    Resolved, RevokeWaits, Wait, WaitId, WaitKind, WaitQuery, WaitState, Work, Worker,
};

use super::{
    Context,
    ask::{confirm, typed},
    command,
    hold::new_id,
    names::{self, Named},
};
use crate::{
    args::{Answered, Of, Reconnect, Resolve, WaitsRevoke},
    exit::{Exit, Failure},
    render::{self, say},
};

pub async fn resolve(cx: &Context, args: Resolve) -> Result<Exit, Failure> {
    let payload = match args.payload.clone() {
        Some(payload) => payload,
        None => typed_answer(cx, &args).await?,
    };
    let claim = args.claim.then(|| Claimant {
        worker: Worker {
            id: args.worker.clone().unwrap_or_default(),
            incarnation: args.incarnation.clone().unwrap_or_else(new_id),
            liveness: Liveness::Opaque,
        },
        request_id: new_id(),
        defer_start: false,
    });
    let resolved = if args.reference.starts_with(WaitId::PREFIX) {
        let Resolve { reference, wait_token: token, seal, .. } = args;
        let answer = ResolveWait { token, seal, payload, claim };
        cx.client.resolve_wait(&WaitId::from(reference), &answer).await?
    } else {
        let answer = ResolveRequest {
            reference: Some(args.reference),
            token: None,
            tenant: args.tenant,
            payload,
            claim,
        };
        cx.client.resolve(&answer).await?
    };
    if let Some(lease) = resolved.lease.clone().filter(|_| cx.out.is_for_people()) {
        cx.out.list(&[lease], render::leases)?;
        return Ok(Exit::Ok);
    }
    told(cx, &resolved)
}

/// Shows the questions, and asks for their answer: JSON, or text that is sent as a JSON string.
async fn typed_answer(cx: &Context, args: &Resolve) -> Result<Value, Failure> {
    let by_id = args.reference.starts_with(WaitId::PREFIX);
    let query = WaitQuery {
        id: by_id.then(|| WaitId::from(args.reference.as_str())),
        reference: (!by_id).then(|| args.reference.clone()),
        state: Some(WaitState::Open),
        tenant: args.tenant.clone(),
        ..WaitQuery::default()
    };
    let waits = cx.client.waits(&query).await?.items;
    if waits.is_empty() {
        say(&format!("Nothing waits for {} now: an answer would be kept.", args.reference));
    }
    for wait in &waits {
        render::show(&render::question(wait, &cx.out.style()));
    }
    let missing = || Failure::usage("Give the answer: --payload, which is required without a terminal.");
    let text = typed("Answer (JSON or text): ")?.ok_or_else(missing)?;
    let payload = serde_json::from_str(&text).unwrap_or(Value::String(text));
    if typed(&format!("{payload} will be the answer; the first one counts. Continue? [y/N] "))?.as_deref()
        != Some("y")
    {
        return Err(Failure::new(Exit::Refused, "nothing was done"));
    }
    Ok(payload)
}

/// Approves or rejects a command, or the question of a work item.
pub async fn decide(cx: &Context, of: &Of, approved: bool, decision: Answered) -> Result<Exit, Failure> {
    let work = match names::either(cx, &names::of(cx, of).await?).await? {
        Named::Command(command) => return command::decide(cx, *command, approved, decision).await,
        Named::Work(work) => *work,
    };
    names::remember(cx, &work.id);
    let approval = |wait: &&Wait| wait.kind == WaitKind::Approval;
    let commands = work.waits.iter().filter(approval).map(|wait| render::command_of(&wait.reference));
    // A sealed command is decided as itself, not through the wait of its work item.
    if let Some([command, ..]) = commands.collect::<Option<Vec<&str>>>().as_deref() {
        let verb = if approved { "approve" } else { "reject" };
        let why = format!("{} waits for a command: run `tenure {verb} {command}`", work.id);
        return Err(Failure::new(Exit::Refused, why));
    }
    let Answered { act, seal } = decision;
    let wait = asked(cx, &work, seal.as_deref()).await?;
    let note = if wait.state == WaitState::Open {
        render::show(&render::question(&wait, &cx.out.style()));
        let then = if approved { "Exactly this is approved." } else { "Exactly this is rejected." };
        Some(confirm(&act, then)?)
    } else {
        // It was answered before: nothing is decided, and the first answer is returned.
        act.reason
    };
    let seal = wait.seal.unwrap_or_default();
    told(cx, &cx.client.approve(&work.id, &Approve { approved, seal, note }).await?)
}

/// Records that the account that a work item waits for is connected again. Every other work item that waits
/// for it goes on too.
pub async fn reconnect(cx: &Context, args: &Reconnect) -> Result<Exit, Failure> {
    let work = names::work(cx, &names::of(cx, &args.of).await?).await?;
    names::remember(cx, &work.id);
    let open = work.waits.iter().filter(|wait| wait.kind == WaitKind::Auth && wait.state == WaitState::Open);
    let Some(wait) = open.min_by_key(|wait| wait.opened_at) else {
        let note = args.act.reason.clone();
        return told(cx, &cx.client.reconnect(&work.id, &ReconnectRequest { note }).await?);
    };
    let same = WaitQuery {
        reference: Some(wait.reference.clone()),
        tenant: Some(work.tenant.clone()),
        state: Some(WaitState::Open),
        limit: Some(1_000),
        ..WaitQuery::default()
    };
    let same = cx.client.waits(&same).await?.items.len();
    render::show(&render::question(wait, &cx.out.style()));
    let who =
        if same > 1 { format!("{same} work items continue") } else { format!("{} continues", work.title) };
    let note = confirm(&args.act, &format!("{who} as if the account were connected: connect it first."))?;
    if same <= 1 {
        let request = ReconnectRequest { note: Some(note) };
        return told(cx, &cx.client.reconnect(&work.id, &request).await?);
    }
    let answer = ResolveRequest {
        reference: Some(wait.reference.clone()),
        token: None,
        tenant: Some(work.tenant.clone()),
        payload: json!({ "reconnected": true, "note": note }),
        claim: None,
    };
    told(cx, &cx.client.resolve(&answer).await?)
}

/// The wait for an approval: the one with this seal, or the only open one, or the last one answered.
async fn asked(cx: &Context, work: &Work, seal: Option<&str>) -> Result<Wait, Failure> {
    let query =
        WaitQuery { work: Some(work.id.clone()), kind: Some(WaitKind::Approval), ..WaitQuery::default() };
    let mut waits = cx.client.waits(&query).await?.items;
    waits.retain(|wait| wait.seal.is_some() && (seal.is_none() || wait.seal.as_deref() == seal));
    if waits.iter().any(|wait| wait.state == WaitState::Open) {
        waits.retain(|wait| wait.state == WaitState::Open);
        if waits.len() > 1 {
            let why = "several approvals are open: give --seal, as `tenure show` prints it";
            return Err(Failure::usage(format!("{}: {why}", work.id)));
        }
    }
    waits.pop().ok_or_else(|| {
        let what = if seal.is_some() { "nothing with this seal" } else { "no approval" };
        let why = format!(
            "{} is {}, and asks for {what}. `tenure explain {}` says why",
            work.id, work.state, work.id
        );
        Failure::new(Exit::Refused, why)
    })
}

/// Revokes the open waits of a session.
pub async fn revoke(cx: &Context, args: WaitsRevoke) -> Result<Exit, Failure> {
    let WaitsRevoke { session, tenant, act } = args;
    let then = format!(
        "Every open wait of session {session} will be revoked; its work items continue without answers."
    );
    let request = RevokeWaits { reason: confirm(&act, &then)?, session, tenant };
    let revoked = cx.client.revoke_waits(&request).await?;
    if revoked.works.is_empty() {
        say("This session has no open waits.");
    }
    cx.out.one(&revoked, |revoked, _| {
        revoked.works.iter().map(|ack| format!("{} {}\n", ack.id, render::safe(ack.state.as_str()))).collect()
    })?;
    Ok(Exit::Ok)
}

fn told(cx: &Context, resolved: &Resolved) -> Result<Exit, Failure> {
    if resolved.kept {
        say("Nothing waits for it yet: the answer is kept for a day.");
    }
    let mut first = true;
    for answer in resolved.answers.iter().filter(|answer| !answer.first) {
        first = false;
        say(&format!("{} was answered before; that answer counts.", answer.wait));
    }
    cx.out.one(resolved, |resolved, _| {
        let mut text = String::new();
        for answer in &resolved.answers {
            let payload = answer.payload.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
            text.push_str(&format!("{} {} {}\n", answer.work, answer.wait, render::safe(&payload)));
        }
        text
    })?;
    Ok(if first { Exit::Ok } else { Exit::StateChanged })
}
