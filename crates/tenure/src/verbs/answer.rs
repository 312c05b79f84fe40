//! Verbs that answer waits.

use tenure_api::wire::{
    Approve, CommandId, Resolve as ResolveRequest, ResolveWait, Resolved, RevokeWaits, Wait, WaitId,
    WaitKind, WaitQuery, WaitState, Work,
};

use super::{Context, command, find, operate::confirm};
use crate::{
    args::{Act, Answered, Resolve, WaitsRevoke},
    exit::{Exit, Failure},
    render::{self, say},
};

pub async fn resolve(cx: &Context, args: Resolve) -> Result<Exit, Failure> {
    let resolved = if args.reference.starts_with(WaitId::PREFIX) {
        let Resolve { reference, wait_token: token, seal, payload, .. } = args;
        let answer = ResolveWait { token, seal, payload, claim: None };
        cx.client.resolve_wait(&WaitId::from(reference), &answer).await?
    } else {
        let answer = ResolveRequest {
            reference: Some(args.reference),
            token: None,
            tenant: args.tenant,
            payload: args.payload,
            claim: None,
        };
        cx.client.resolve(&answer).await?
    };
    told(cx, &resolved)
}

/// Approves or rejects a command, or the question of a work item.
pub async fn decide(cx: &Context, id: &str, approved: bool, decision: Answered) -> Result<Exit, Failure> {
    if id.starts_with(CommandId::PREFIX) {
        return command::decide(cx, id, approved, decision).await;
    }
    let work = find(cx, id).await?;
    let approval = |wait: &&Wait| wait.kind == WaitKind::Approval;
    let commands = work.waits.iter().filter(approval).map(|wait| render::command_of(&wait.reference));
    // A sealed command is decided as itself, not through the wait of its work item.
    if let Some([command, ..]) = commands.collect::<Option<Vec<&str>>>().as_deref() {
        let verb = if approved { "approve" } else { "reject" };
        let why = format!("{} waits for a command: run `tenure {verb} {command} --reason …`", work.id);
        return Err(Failure::new(Exit::Refused, why));
    }
    let Answered { reason: note, seal, yes, dry_run } = decision;
    let wait = asked(cx, &work, seal.as_deref()).await?;
    if wait.state == WaitState::Open && seal.is_none() {
        render::show(&render::question(&wait, &cx.out.style()));
        let act = Act { reason: String::new(), yes, dry_run };
        confirm(&act, if approved { "Exactly this is approved." } else { "Exactly this is rejected." })?;
    }
    let seal = wait.seal.unwrap_or_default();
    told(cx, &cx.client.approve(&work.id, &Approve { approved, seal, note }).await?)
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
    confirm(
        &act,
        &format!(
            "Every open wait of session {session} will be revoked; its work items continue without answers."
        ),
    )?;
    let request = RevokeWaits { session, tenant, reason: act.reason };
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
