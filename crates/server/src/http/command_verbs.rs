//! What becomes of a command: who may do it, who does it, and how it went. Only a person approves, rejects, replays and
//! records.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use tenure_api::wire::{self as w, Code, Scope};
use tenure_core::Command;
use tenure_store::{DispatchRef, LeaseRef, PrincipalKind};

use super::{App, Body, Json, JsonResult, Problem, Segments, Who, error::Problems};
use crate::wire::{self, Shown};

fn reply(command: &Command) -> Json<w::Command> {
    Json(wire::command(command, &Shown::default()))
}

/// What the sender of a call shows when it says how the call went.
fn sender(token: String, fence: u64, number: Option<u32>) -> Result<DispatchRef, Problem> {
    Ok(DispatchRef { lease: LeaseRef::of_token(token, fence)?, number })
}

/// A person allows exactly this content, once and for a while.
#[utoipa::path(post, path = "/v1/commands/{id}/approve", tag = "command", params(("id" = String, Path)),
    request_body = w::ApproveCommand, security(("token" = ["approve"])),
    responses((status = 200, description = "Approved.", body = w::Command), Problems))]
pub(crate) async fn approve(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::ApproveCommand>,
) -> JsonResult<w::Command> {
    let seal = wire::digest("seal", &body.seal)?;
    let caller = who.caller();
    let command = caller.command(id.parse()?).await?;
    // As it is configured now, not when it was reserved.
    let four_eyes = app.evaluator.live().tools.get(&command.spec.tool).facts.four_eyes;
    Ok(reply(&caller.approve(command.id, seal, four_eyes, &body.reason).await?))
}

/// A person says no: it will not be done.
#[utoipa::path(post, path = "/v1/commands/{id}/reject", tag = "command", params(("id" = String, Path)),
    request_body = w::RejectCommand, security(("token" = ["approve"])),
    responses((status = 200, description = "Rejected.", body = w::Command), Problems))]
pub(crate) async fn reject(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::RejectCommand>,
) -> JsonResult<w::Command> {
    Ok(reply(&who.caller().reject(id.parse()?, &body.reason).await?))
}

/// Asks whether to make the call now: policy, approval, budget and rate are checked, and the answer is committed before
/// it is given. Make the call only if the answer is a 2xx. A problem means that it must not be made, and shows the command
/// as it stands in `command`.
#[utoipa::path(post, path = "/v1/commands/{id}/dispatch", tag = "command", params(("id" = String, Path)),
    request_body = w::DispatchCommand, extensions(("x-no-dry-run" = json!(true))), security(("token" = ["work"])),
    responses(Problems,
        (status = 200, description = "The command is dispatched: make the call now, with its `idempotency_key`.",
            body = w::Command),
        (status = 409, description = "Do not make the call. `code` says why: approval_required, policy_denied, budget, \
            cancel_requested, already_dispatched, already_succeeded, superseded, in_doubt, not_due, illegal_state, \
            policy_stale, lease_lost, lease_lapsed, terminal. To its holder, `command` shows the command as it stands.",
            content_type = "application/problem+json", body = w::Problem),
        (status = 429, description = "Do not make the call: commands of this tool go out too fast (rate_limited, with \
            `command`), or this token sends too much. Dispatch again after `retry_after_ms`.",
            content_type = "application/problem+json", body = w::Problem)))]
pub(crate) async fn dispatch(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::DispatchCommand>,
) -> JsonResult<w::Command> {
    let caller = who.caller();
    let command = caller.command(id.parse()?).await?;
    let lease = LeaseRef { work: command.work, fence: body.fence, token: body.token };
    // A dispatch that leads to no call takes nothing of the tool's rate.
    let takes = command.may_go_out() && app.ledger.holder(&lease).genuine;
    if takes {
        app.evaluator.take(&command.spec.tool).map_err(|wait| too_fast(&command, wait))?;
    }
    let estimate = body.estimate.map(wire::cost);
    let act = || async {
        let facts = app.evaluator.input(&app.ledger, &caller, command.work).await?;
        let arguments = app.evaluator.arguments(&app.ledger, &facts, &command).await?;
        let evaluation =
            app.evaluator.evaluation(facts.asked(caller.actor()), &command, &arguments, estimate.clone());
        caller.dispatch(&lease, command.id, evaluation, body.request_id.as_deref()).await
    };
    let dispatched = app.evaluator.current(act).await;
    let refused = dispatched.as_ref().is_err_and(|error| error.refusal().is_some());
    if takes && refused {
        app.evaluator.give_back(&command.spec.tool);
    }
    Ok(reply(&dispatched?))
}

fn too_fast(command: &Command, wait: Duration) -> Problem {
    let detail = format!(
        "Commands of `{}` go out too fast; nothing was written. Do not make the call: dispatch again as `Retry-After` says.",
        command.spec.tool
    );
    Problem::later(Code::RateLimited, detail, wait).with_command(wire::command(command, &Shown::default()))
}

/// It happened, with evidence. By whoever dispatched it, also after the lease is lost.
#[utoipa::path(post, path = "/v1/commands/{id}/receipt", tag = "command", params(("id" = String, Path)),
    request_body = w::DeliverReceipt, security(("token" = ["work"])),
    responses((status = 200, description = "Recorded.", body = w::Command), Problems))]
pub(crate) async fn receipt(
    who: Who,
    Segments([id]): Segments<1>,
    Body(mut body): Body<w::DeliverReceipt>,
) -> JsonResult<w::Command> {
    let by = sender(std::mem::take(&mut body.token), body.fence, body.dispatch)?;
    Ok(reply(&who.caller().receipt(&by, id.parse()?, wire::proof(body)?).await?))
}

/// It did not happen: the provider refused it, or the call is proven unsent.
#[utoipa::path(post, path = "/v1/commands/{id}/fail", tag = "command", params(("id" = String, Path)),
    request_body = w::FailCommand, security(("token" = ["work"])),
    responses((status = 200, description = "`failed`, or `pending` where it is to be tried again.", body = w::Command),
        Problems))]
pub(crate) async fn fail(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::FailCommand>,
) -> JsonResult<w::Command> {
    let by = sender(body.token, body.fence, body.dispatch)?;
    Ok(reply(&who.caller().fail_command(&by, id.parse()?, wire::call_error(body.error), body.unsent).await?))
}

/// Nobody knows whether it happened: it is looked up, sent again with the same key where the provider knows it, or
/// left to a person.
#[utoipa::path(post, path = "/v1/commands/{id}/uncertain", tag = "command", params(("id" = String, Path)),
    request_body = w::UncertainCommand, security(("token" = ["work"])),
    responses((status = 200, description = "In doubt.", body = w::Command), Problems))]
pub(crate) async fn uncertain(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::UncertainCommand>,
) -> JsonResult<w::Command> {
    let by = sender(body.token, body.fence, body.dispatch)?;
    Ok(reply(&who.caller().uncertain(&by, id.parse()?, wire::call_error(body.error)).await?))
}

/// What a lookup says of a command in doubt: by whoever claimed it, with its `lookup_token`, or by a person.
#[utoipa::path(post, path = "/v1/commands/{id}/reconcile", tag = "command", params(("id" = String, Path)),
    request_body = w::Reconcile, security(("token" = [])),
    responses((status = 200, description = "The command as it stands now.", body = w::Command), Problems))]
pub(crate) async fn reconcile(
    who: Who,
    Segments([id]): Segments<1>,
    Body(mut body): Body<w::Reconcile>,
) -> JsonResult<w::Command> {
    let (caller, id) = (who.caller(), id.parse()?);
    let (token, message) = (body.token.take(), body.message.take());
    let message = message.as_deref();
    Ok(reply(&match token {
        Some(token) => {
            who.session.require(Scope::Work)?;
            caller.reconcile_claimed(id, &token, wire::finding(body)?, message).await?
        }
        None => {
            // No machine has it: the ledger says that it is to claim the lookup.
            let machine = who.session.principal.kind == PrincipalKind::Machine;
            who.session.require(if machine { Scope::Work } else { Scope::Replay })?;
            caller.reconcile(id, wire::finding(body)?, message).await?
        }
    }))
}

/// A person has a failed command done again. At high risk it needs a fresh approval first.
#[utoipa::path(post, path = "/v1/commands/{id}/replay", tag = "command", params(("id" = String, Path)),
    request_body = w::ReplayCommand, security(("token" = ["replay"])),
    responses((status = 200, description = "`pending`, or `blocked` until it is approved.", body = w::Command), Problems))]
pub(crate) async fn replay(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::ReplayCommand>,
) -> JsonResult<w::Command> {
    let caller = who.caller();
    let command = caller.command(id.parse()?).await?;
    let act = || async {
        let facts = app.evaluator.input(&app.ledger, &caller, command.work).await?;
        let arguments = app.evaluator.arguments(&app.ledger, &facts, &command).await?;
        let evaluation = app.evaluator.evaluation(facts.asked(caller.actor()), &command, &arguments, None);
        caller.replay(command.id, evaluation, app.evaluator.live().replays, &body.reason).await
    };
    Ok(reply(&app.evaluator.current(act).await?))
}

/// A person says how a command in doubt went.
#[utoipa::path(post, path = "/v1/commands/{id}/record", tag = "command", params(("id" = String, Path)),
    request_body = w::RecordCommand, security(("token" = ["replay"])),
    responses((status = 200, description = "Recorded.", body = w::Command), Problems))]
pub(crate) async fn record(
    who: Who,
    Segments([id]): Segments<1>,
    Body(mut body): Body<w::RecordCommand>,
) -> JsonResult<w::Command> {
    let reason = std::mem::take(&mut body.reason);
    Ok(reply(&who.caller().record_outcome(id.parse()?, wire::recorded(body)?, &reason).await?))
}

/// It is not to be done: only before it is dispatched. An operator needs the scope `operate`; the holder of its work
/// the scope `work`, with `fence` and `token`.
#[utoipa::path(post, path = "/v1/commands/{id}/cancel", tag = "command", params(("id" = String, Path)),
    request_body = w::CancelCommand, security(("token" = [])),
    responses((status = 200, description = "Cancelled.", body = w::Command), Problems))]
pub(crate) async fn cancel(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::CancelCommand>,
) -> JsonResult<w::Command> {
    let lease = match (body.fence, body.token) {
        (Some(fence), Some(token)) => {
            who.session.require(Scope::Work)?;
            Some(LeaseRef::of_token(token, fence)?)
        }
        (None, None) => {
            who.session.require(Scope::Operate)?;
            None
        }
        _ => return Err(Problem::invalid("A lease has both: give `fence` and `token`, or neither.")),
    };
    Ok(reply(&who.caller().cancel_command(id.parse()?, lease.as_ref(), &body.reason).await?))
}
