//! The operators' verbs: each reads the work items, asks for confirmation, then sends one request for each
//! with the version that was read.

use std::{
    future::Future,
    io::{self, BufRead, IsTerminal, Write},
};

use serde_json::{Value, json};
use tenure_api::{
    Error,
    wire::{
        Abandon as AbandonRequest, Ack, Cancel as CancelRequest, Decide as DecideRequest, Decision,
        Disposition, Drain as DrainRequest, Failure as WorkFailure, Lever, Quarantine as QuarantineRequest,
        Rerun as RerunRequest, RetryNow, Work,
    },
};

use super::{Context, command::Plan, find};
use crate::{
    args::{Abandon, Act, Cancel, Decide, Drain, Quarantine, Requeue, Rerun, Retry},
    exit::{Exit, Failure},
    render::{self, say},
};

pub async fn retry(cx: &Context, args: &Retry) -> Result<Exit, Failure> {
    let request = |work: &Work| RetryNow { reason: args.act.reason.clone(), if_seq: Some(work.seq) };
    each(
        cx,
        found(cx, &args.ids).await?,
        &args.act,
        "its backoff will end now",
        request,
        async |work, body| cx.client.retry_now(&work.id, &body).await.map(|ack| said(&ack)),
    )
    .await
}

pub async fn cancel(cx: &Context, args: &Cancel) -> Result<Exit, Failure> {
    let deadline_ms = args.within.map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
    let request =
        |work: &Work| CancelRequest { reason: args.act.reason.clone(), if_seq: Some(work.seq), deadline_ms };
    each(
        cx,
        found(cx, &args.ids).await?,
        &args.act,
        "its cancellation will be requested",
        request,
        async |work, body| cx.client.cancel(&work.id, &body).await.map(|ack| said(&ack)),
    )
    .await
}

pub async fn abandon(cx: &Context, args: &Abandon) -> Result<Exit, Failure> {
    let request = |work: &Work| AbandonRequest { reason: args.act.reason.clone(), if_seq: Some(work.seq) };
    let then = "it will be abandoned once its lease lapses, its outcome unknown";
    each(cx, found(cx, &args.ids).await?, &args.act, then, request, async |work, body| {
        cx.client.abandon(&work.id, &body).await.map(|ack| said(&ack))
    })
    .await
}

pub async fn quarantine(cx: &Context, args: &Quarantine) -> Result<Exit, Failure> {
    let request = |work: &Work| QuarantineRequest { reason: args.act.reason.clone(), if_seq: Some(work.seq) };
    let then = "it will be quarantined, and its holder loses the lease";
    each(cx, found(cx, &args.ids).await?, &args.act, then, request, async |work, body| {
        cx.client.quarantine(&work.id, &body).await.map(|ack| said(&ack))
    })
    .await
}

pub async fn requeue(cx: &Context, args: &Requeue) -> Result<Exit, Failure> {
    let works = found(cx, &args.ids).await?;
    let request = |work: &Work| decision(&args.act, work, Decision::Requeue);
    each(cx, works.clone(), &args.act, &requeued(&works), request, async |work, body| {
        decided(cx, &work, &body).await
    })
    .await
}

pub async fn decide(cx: &Context, args: &Decide) -> Result<Exit, Failure> {
    let request = |work: &Work| DecideRequest {
        result: args.result.clone(),
        result_ref: args.result_ref.clone(),
        no_output: args.no_output,
        error: args.class.map(|class| WorkFailure::new(class, args.act.reason.clone())),
        ..decision(&args.act, work, args.decision)
    };
    let works = found(cx, std::slice::from_ref(&args.id)).await?;
    let then = match args.decision {
        Decision::Requeue => requeued(&works),
        end => format!("it will finally end as {end}"),
    };
    each(cx, works, &args.act, &then, request, async |work, body| decided(cx, &work, &body).await).await
}

async fn decided(cx: &Context, work: &Work, body: &DecideRequest) -> Result<Value, Error> {
    let ack = cx.client.decide(&work.id, body).await?;
    if let (Decision::Requeue, Some(what)) = (body.decision, bound_to(work)) {
        say(&what);
    }
    Ok(said(&ack))
}

/// The consequence for all of them, for the confirmation.
fn requeued(works: &[Work]) -> String {
    let bound = works.iter().filter_map(|work| Some(format!(". {}: {}", work.id, bound_to(work)?)));
    let then = format!("it will be queued again, without its failures{}", bound.collect::<String>());
    then.trim_end_matches('.').to_owned()
}

/// The consequence for a requeued work item that only its owner may continue.
fn bound_to(work: &Work) -> Option<String> {
    let first = work.first_started.as_ref().filter(|_| work.disposition == Disposition::OwnerBound)?;
    Some(format!(
        "Only incarnation {} of {}, which started it, may claim it. If it does not return within the \
         lease's ttl and grace, the work item stalls: then abandon it, or quarantine it and decide on its end.",
        first.incarnation, first.worker
    ))
}

fn decision(act: &Act, work: &Work, decision: Decision) -> DecideRequest {
    DecideRequest {
        reason: act.reason.clone(),
        if_seq: Some(work.seq),
        decision,
        result: None,
        result_ref: None,
        no_output: false,
        error: None,
    }
}

pub async fn rerun(cx: &Context, args: &Rerun) -> Result<Exit, Failure> {
    if args.ids.len() > 1 && !args.execute.is_empty() {
        return Err(Failure::usage("--execute names commands of one work item: rerun them one by one."));
    }
    let mut execute = Vec::new();
    for id in &args.ids {
        let plan = Plan::of(cx, &find(cx, id).await?, &args.execute).await?;
        if !plan.items.is_empty() {
            let style = cx.out.style();
            render::show(&render::plan(&plan.items, &style).draw(&style));
        }
        execute = plan.execute;
    }
    let request = |_: &Work| RerunRequest {
        reason: args.act.reason.clone(),
        from_step: args.from_step.clone(),
        execute: execute.clone(),
    };
    let then = "it will run again as a new work item";
    each(cx, found(cx, &args.ids).await?, &args.act, then, request, async |work, body| {
        let new = cx.client.rerun(&work.id, &body).await?;
        Ok(json!({ "id": new.id, "state": new.state, "seq": new.seq, "rerun_of": work.id }))
    })
    .await
}

fn said(ack: &Ack) -> Value {
    serde_json::to_value(ack).expect("wire types have string keys")
}

async fn found(cx: &Context, ids: &[String]) -> Result<Vec<Work>, Failure> {
    let mut works = Vec::new();
    for id in ids {
        works.push(find(cx, id).await?);
    }
    Ok(works)
}

/// Asks for confirmation, and sends each request with the version that was read, so that changed work items
/// are left alone.
async fn each<B, F: Future<Output = Result<Value, Error>>>(
    cx: &Context,
    works: Vec<Work>,
    act: &Act,
    then: &str,
    request: impl Fn(&Work) -> B,
    send: impl Fn(Work, B) -> F,
) -> Result<Exit, Failure> {
    let names: Vec<String> = works.iter().map(|work| format!("{} ({})", work.id, work.state)).collect();
    confirm(act, &format!("{}: {then}.", names.join(", ")))?;
    let mut failures = Vec::new();
    let total = works.len();
    for work in works {
        let id = work.id.clone();
        let body = request(&work);
        match send(work, body).await {
            Ok(done) => cx.out.next(&done, |done, _| {
                format!("{} {}\n", done["id"].as_str().unwrap_or("-"), done["state"].as_str().unwrap_or("-"))
            })?,
            Err(error) => {
                let failure = Failure::from(error);
                say(&format!("{id}: {}", failure.message));
                failures.push(failure.exit);
            }
        }
    }
    Ok(match failures[..] {
        [] => Exit::Ok,
        [only] if total == 1 => only,
        _ if failures.len() < total => Exit::Partial,
        [first, ..] => first,
    })
}

/// Asks for confirmation, unless it is a dry run.
pub fn confirm(act: &Act, consequence: &str) -> Result<(), Failure> {
    if act.dry_run { Ok(()) } else { agree(act.yes, consequence) }
}

/// Asks at a terminal; without one, `--yes` is required.
pub fn agree(yes: bool, consequence: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let stdin = io::stdin();
    ask(consequence, stdin.is_terminal(), &mut stdin.lock(), &mut io::stderr())
}

fn ask(
    consequence: &str,
    terminal: bool,
    from: &mut impl BufRead,
    to: &mut impl Write,
) -> Result<(), Failure> {
    if !terminal {
        return Err(Failure::usage(format!(
            "{consequence} There is no terminal to confirm this: give --yes."
        )));
    }
    write!(to, "{} Continue? [y/N] ", render::safe(consequence))?;
    to.flush()?;
    let mut answer = String::new();
    from.read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(Exit::Refused, "nothing was done"))
}

pub async fn drain(cx: &Context, args: Drain) -> Result<Exit, Failure> {
    let mut levers = vec![Lever::StopClaiming, Lever::RequestCancel];
    levers.extend(args.abandon.then_some(Lever::Abandon));
    levers.extend(args.revoke_waits.then_some(Lever::RevokeWaits));
    confirm(&args.act, &format!("{} will be asked to stop everything that it holds.", args.worker))?;
    let request = DrainRequest { reason: args.act.reason, incarnation: args.incarnation, levers };
    let report = cx.client.drain_worker(&args.worker, &request).await?;
    cx.out.one(&report, |report, _| {
        let work =
            |id: &Option<tenure_api::wire::WorkId>| id.as_ref().map_or("-".to_owned(), ToString::to_string);
        let mut text = String::new();
        for done in &report.confirmed {
            text.push_str(&format!("confirmed  {} {}\n", done.lever, work(&done.work)));
        }
        for not in &report.deferred {
            let because = render::safe(&not.because);
            text.push_str(&format!("deferred   {} {}: {because}\n", not.lever, work(&not.work)));
        }
        text
    })?;
    let works = report.confirmed.iter().filter_map(|done| done.work.as_ref());
    if works.chain(report.deferred.iter().filter_map(|not| not.work.as_ref())).next().is_none() {
        say(&format!("No worker {} holds anything. `tenure workers` lists those that do.", args.worker));
        return Ok(Exit::NotFound);
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(terminal: bool, typed: &str) -> (Result<(), Exit>, String) {
        let mut shown = Vec::new();
        let answer = ask("w_1\x1b[2J is forgotten.", terminal, &mut typed.as_bytes(), &mut shown);
        (answer.map_err(|failure| failure.exit), String::from_utf8(shown).unwrap())
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        for typed in ["y\n", "Y\n", " yes \n"] {
            let (answer, shown) = asked(true, typed);
            assert_eq!(answer, Ok(()), "{typed:?}");
            assert_eq!(shown, "w_1\\u{1b}[2J is forgotten. Continue? [y/N] ");
        }
        for typed in ["", "\n", "n\n", "yep\n", "no\ny\n"] {
            assert_eq!(asked(true, typed).0, Err(Exit::Refused), "{typed:?}");
        }
    }

    #[test]
    fn without_a_terminal_nobody_is_asked() {
        assert_eq!(asked(false, "y\n"), (Err(Exit::Usage), String::new()));
    }
}
