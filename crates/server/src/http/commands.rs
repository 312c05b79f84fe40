//! Commands as they are recorded and read: reserving, listing, explaining, the replay plan of a rerun, and
//! claiming lookups.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;
use tenure_api::wire::{self as w, Scope};
use tenure_core::{
    Code, Command, CommandId, Refusal, WorkId,
    action::Tenants,
    command::{Duty, Effect, plan::plan},
    model::{Disposition, Source},
};
use tenure_store::{Caller, CommandFilter, Error, LeaseRef, Ledger, NewWork, fair};
use tokio::time::Instant;

use super::{
    App, Body, Json, JsonResult, Params, Problem, Segments, Who, claim::WAIT_MAX, error::Problems,
    work::page_size,
};
use crate::wire::{self, Shown, ToCore, ToWire};

const PAGE: u32 = 50;
/// Lookups that one call claims, and their default duration.
const LOOKUPS_MAX: u32 = 100;
const LOOKUP_MS: u64 = 60_000;
/// The longest pause between two looks of a long poll.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The kind of a work item that was created for a single command.
const ALONE: &str = "command";

/// Records an intended side effect before it happens. The same intent again returns the same command, with
/// its receipt.
#[utoipa::path(post, path = "/v1/work/{id}/commands", tag = "command", params(("id" = String, Path)),
    request_body = w::Reserve, security(("token" = ["work"])),
    responses((status = 201, description = "Recorded. Check its state before you dispatch it.", body = w::Command),
        (status = 200, description = "It existed already.", body = w::Command), Problems))]
pub(crate) async fn reserve(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Reserve>,
) -> Result<Response, Problem> {
    let lease = LeaseRef { work: id.parse::<WorkId>()?, fence: body.fence, token: body.token.clone() };
    let wanted = body.intent();
    let caller = who.caller();
    let act = || async {
        let facts = app.evaluator.input(&app.ledger, &caller, lease.work).await?;
        let intent = app.evaluator.intent(facts.asked(caller.actor()), &wanted).await?;
        caller.reserve(&lease, intent).await
    };
    let reserved = app.evaluator.current(act).await.inspect_err(|error| count_reuse(&app, error))?;
    let shown = Shown { response: reserved.response.as_ref(), ..Shown::default() };
    let status = if reserved.fresh { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(wire::command(&reserved.command, &shown))).into_response())
}

/// Records an intended side effect without a work item: one is created and claimed in the same transaction.
/// If the source is already known and its work item is free, that one is claimed; if it has ended, the
/// existing command is returned with its outcome.
#[utoipa::path(post, path = "/v1/commands", tag = "command", request_body = w::ReserveAlone,
    extensions(("x-no-dry-run" = json!(true))), security(("token" = ["work"])),
    responses((status = 201, description = "Recorded, with the lease of its work item.", body = w::ReservedAlone),
        (status = 200, description = "It existed already.", body = w::ReservedAlone), Problems))]
pub(crate) async fn reserve_alone(
    State(app): State<Arc<App>>,
    who: Who,
    Body(body): Body<w::ReserveAlone>,
) -> Result<Response, Problem> {
    who.session.require(Scope::Submit)?;
    let tenant = who.session.tenant(body.tenant.as_deref())?;
    let source = body.source.map_or_else(
        || Source { system: "manual".into(), id: body.claim.request_id.clone(), run_id: String::new() },
        |source| Source { system: source.system, id: source.id, run_id: source.run_id },
    );
    let (tool, target, slot) = (body.tool, body.target, body.slot);
    let input = json!({ "tool": tool, "target": target });
    let (arguments, estimate) = (body.arguments, body.estimate);
    let wanted = w::Intent { tool, target, step: None, slot, arguments, estimate };
    let work = NewWork {
        tenant,
        source,
        session: body.session,
        correlation_id: body.correlation_id,
        claim: Some(wire::claimant(body.claim)),
        ..NewWork::new("", "", ALONE, Disposition::Rerunnable, input)
    };
    let caller = who.caller();
    let act = || async {
        let facts = app.evaluator.input_of_new(&app.ledger, &work).await?;
        let intent = app.evaluator.intent(facts.asked(caller.actor()), &wanted).await?;
        caller.reserve_alone(work.clone(), intent).await
    };
    let reserved = app.evaluator.current(act).await.inspect_err(|error| count_reuse(&app, error))?;
    let shown = Shown { response: reserved.response.as_ref(), ..Shown::default() };
    let command = wire::command(&reserved.command, &shown);
    let lease = reserved.lease.map(wire::grant);
    let status = if reserved.fresh { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(w::ReservedAlone { command, lease })).into_response())
}

/// Counts the same intent with different arguments: it shows that a caller's keys are not stable.
fn count_reuse(app: &App, error: &Error) {
    if matches!(error, Error::Refused(Refusal { code: Code::IdempotencyMismatch, .. })) {
        app.metrics.key_reused();
    }
}

/// Lists commands, newest first, without payloads.
#[utoipa::path(get, path = "/v1/commands", tag = "command", params(w::CommandQuery), security(("token" = ["view"])),
    responses((status = 200, description = "A page of commands.", body = w::Page<w::Command>), Problems))]
pub(crate) async fn list(
    who: Who,
    Params(query): Params<w::CommandQuery>,
) -> JsonResult<w::Page<w::Command>> {
    let limit = page_size(query.limit, PAGE)?;
    let before = query.cursor.as_deref().map(str::parse::<CommandId>).transpose()?;
    let filter = CommandFilter {
        tenants: query.tenant.map(|tenant| Tenants::Only(vec![tenant])),
        states: query.state.into_iter().map(ToCore::to_core).collect(),
        work: query.work.map(|id| id.as_str().parse()).transpose()?,
        tool: query.tool,
        target: query.target,
        needs_person: query.needs_person,
        needs_approval: query.needs_approval,
        created_after: query.created_after.map(|at| at.0),
        created_before: query.created_before.map(|at| at.0),
    };
    let commands = who.caller().commands(&filter, before, limit).await?;
    let next = commands.next().map(CommandId::to_string);
    let items = commands.iter().map(|command| wire::command(command, &Shown::default())).collect();
    Ok(Json(w::Page { items, unreadable: wire::unreadable(&commands.unreadable), next }))
}

/// Finds a command by its id, or by a prefix that only one command has.
async fn find(caller: &Caller, id: &str) -> Result<Command, Problem> {
    Ok(match id.parse() {
        Ok(id) => caller.command(id).await?,
        Err(_) => caller.find_command(id).await?,
    })
}

/// Returns one command. Callers who may approve see the content to approve.
#[utoipa::path(get, path = "/v1/commands/{id}", tag = "command", params(("id" = String, Path)),
    security(("token" = ["view"])),
    responses((status = 200, description = "The command's current state.", body = w::Command), Problems))]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
) -> JsonResult<w::Command> {
    let command = find(&who.caller(), &id).await?;
    let payloads = who.session.may(Scope::Payload);
    let (mut arguments, mut response) = (None, None);
    if payloads || who.session.may(Scope::Approve) {
        arguments = app.ledger.payload(command.work, command.body.arguments).await?;
    }
    let answered = command.body.receipt.as_ref().and_then(|receipt| receipt.response);
    if let Some((work, seq)) = answered.filter(|_| payloads) {
        response = app.ledger.payload(work, seq).await?;
    }
    let shown = Shown { arguments: arguments.as_ref(), response: response.as_ref() };
    Ok(Json(wire::command(&command, &shown)))
}

/// Explains a command's state and the next step.
#[utoipa::path(get, path = "/v1/commands/{id}/explain", tag = "command", params(("id" = String, Path)),
    security(("token" = ["view"])),
    responses((status = 200, description = "One sentence and the next step.", body = w::CommandExplanation), Problems))]
pub(crate) async fn explain(who: Who, Segments([id]): Segments<1>) -> JsonResult<w::CommandExplanation> {
    let caller = who.caller();
    let command = find(&caller, &id).await?;
    let explained = caller.explain_command(command.id).await?;
    Ok(Json(w::CommandExplanation {
        id: command.id.to_string().into(),
        state: command.state.to_wire().into(),
        sentence: explained.sentence,
        next: explained.next,
    }))
}

/// Claims lookups that are due, of tools that a worker looks up. Other workers skip them for a while. Can
/// wait for one.
#[utoipa::path(post, path = "/v1/commands/claim", tag = "command", request_body = w::ClaimLookups,
    extensions(("x-no-dry-run" = json!(true))), security(("token" = ["work"])),
    responses((status = 200, description = "The lookups; empty when none is due.", body = w::Lookups), Problems))]
pub(crate) async fn claim(
    State(app): State<Arc<App>>,
    who: Who,
    Body(body): Body<w::ClaimLookups>,
) -> JsonResult<w::Lookups> {
    let live = app.evaluator.live();
    let by_worker = |tool: &str| {
        let asked = body.tools.is_empty() || body.tools.iter().any(|name| name == tool);
        asked && live.tools.get(tool).is_looked_up_by_workers()
    };
    let max = body.max.unwrap_or(1).clamp(1, LOOKUPS_MAX) as usize;
    let (caller, for_ms) = (who.caller(), body.for_ms.unwrap_or(LOOKUP_MS));
    let timeout = body.wait_ms.map(Duration::from_millis).unwrap_or_default().min(WAIT_MAX);
    let until = Instant::now() + timeout;
    let open = app.auth.open_call(&who.session);
    let taken = loop {
        // Registered before the look, so that a command that comes into doubt afterwards wakes this call.
        let doubted = app.feed.doubted.notified();
        // A turn covers the look only, as with claims of work items.
        let turn = app.claims.turn(fair::key_of(&who.session.tenants)).await;
        let taken = caller.claim_lookups(by_worker, max, for_ms).await?;
        drop(turn);
        if !taken.is_empty() || Instant::now() >= until {
            break taken;
        }
        let pause = Instant::now() + until_a_lookup(&app.ledger).await?;
        tokio::select! {
            () = doubted => {}
            () = tokio::time::sleep_until(pause.min(until)) => {}
            denied = open.ended() => return Err(denied.into()),
            () = app.stopping.cancelled() => break taken,
        }
    };
    let mut items = Vec::with_capacity(taken.len());
    for command in &taken {
        let arguments = app.ledger.payload(command.work, command.body.arguments).await?;
        let shown = Shown { arguments: arguments.as_ref(), ..Shown::default() };
        let (command, lookup_token) = (wire::command(command, &shown), app.ledger.lookup_token(command));
        items.push(w::Lookup { command, lookup_token });
    }
    Ok(Json(w::Lookups { items }))
}

/// How long to wait: until the next lookup is due, and not for long, since other workers claim and release
/// them.
async fn until_a_lookup(ledger: &Ledger) -> Result<Duration, Error> {
    let (next, now) = (ledger.next_due_command(Duty::Lookup).await?, ledger.now().await?);
    let wait = next.filter(|due| *due > now).map(|due| Duration::from_millis((due - now) as u64));
    Ok(wait.map_or(LOOK_AGAIN, |wait| wait.min(LOOK_AGAIN)))
}

/// Returns what a rerun of a work item would do with each of its commands and those of the runs before it.
#[utoipa::path(get, path = "/v1/work/{id}/replay-plan", tag = "command",
    params(("id" = String, Path), w::ReplayPlanQuery), security(("token" = ["view"])),
    responses((status = 200, description = "One entry for each command.", body = w::ReplayPlan), Problems))]
pub(crate) async fn replay_plan(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
    Params(query): Params<w::ReplayPlanQuery>,
) -> JsonResult<w::ReplayPlan> {
    let caller = who.caller();
    let id = super::work::find(&caller, &id).await?;
    let execute: Vec<_> =
        query.execute.iter().map(|key| wire::digest("execute", key)).collect::<Result<_, _>>()?;
    let commands = caller.commands_of_runs(id).await?;
    let effects = effects(&app, &caller, id, &commands).await?;
    let items = plan(&commands, &execute, |command| effects[&command.id]).into_iter().map(|line| {
        let command = wire::command(line.command, &Shown::default());
        w::PlannedCommand { command, planned: line.planned.to_wire().into() }
    });
    Ok(Json(w::ReplayPlan { items: items.collect() }))
}

/// The policy decision for each command now.
async fn effects(
    app: &App,
    caller: &Caller,
    work: WorkId,
    commands: &[Command],
) -> Result<HashMap<CommandId, Effect>, Problem> {
    let facts = app.evaluator.input(&app.ledger, caller, work).await?;
    let mut effects = HashMap::new();
    for command in commands {
        let arguments = app.evaluator.arguments(&app.ledger, &facts, command).await?;
        let evaluation = app.evaluator.evaluation(facts.asked(caller.actor()), command, &arguments, None);
        effects.insert(command.id, evaluation.decision.effect);
    }
    Ok(effects)
}
