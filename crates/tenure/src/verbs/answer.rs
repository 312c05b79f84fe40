//! Answers to what works wait for.

use tenure_api::wire::{Approve, Resolve as ResolveRequest, ResolveWait, Resolved, WaitId};

use super::{Context, find};
use crate::{
    args::Resolve,
    exit::{Exit, Failure},
    render::{self, say},
};

pub async fn resolve(cx: &Context, args: Resolve) -> Result<Exit, Failure> {
    let resolved = if args.reference.starts_with(WaitId::PREFIX) {
        let answer = ResolveWait { token: args.wait_token, payload: args.payload, claim: None };
        cx.client.resolve_wait(&WaitId::from(args.reference), &answer).await?
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

/// Answers what a work asks an approver.
pub async fn decide(cx: &Context, id: &str, approved: bool, note: Option<String>) -> Result<Exit, Failure> {
    let id = find(cx, id).await?.id;
    told(cx, &cx.client.approve(&id, &Approve { approved, note }).await?)
}

fn told(cx: &Context, resolved: &Resolved) -> Result<Exit, Failure> {
    if resolved.kept {
        say("Nothing waits for it yet: the answer is kept for a day, for the wait that asks.");
    }
    let mut first = true;
    for answer in resolved.answers.iter().filter(|answer| !answer.first) {
        first = false;
        say(&format!("{} was answered before; that answer stands.", answer.wait));
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
