//! The verbs of a command: approval, dispatch and outcome. Only a person approves, rejects, replays and
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

/// The proof that a sender of a call gives when it reports the call's outcome.
fn sender(token: String, fence: u64, number: Option<u32>) -> Result<DispatchRef, Problem> {
    Ok(DispatchRef { lease: LeaseRef::of_token(token, fence)?, number })
}

/// Approves exactly this content, for one dispatch and a limited time. For a person.
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
    // As configured now, not as it was when the command was reserved.
    let four_eyes = app.evaluator.live().tools.get(&command.spec.tool).facts.four_eyes;
    Ok(reply(&caller.approve(command.id, seal, four_eyes, &body.reason).await?))
}

/// Rejects a command: it will not be dispatched. For a person.
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

/// Asks whether to make the call now. Policy, approval, budget and rate are checked, and the decision is
/// committed before the response. Make the call only on a 2xx. A problem means that it must not be made, and
/// shows the command's state in `command`.
#[utoipa::path(post, path = "/v1/commands/{id}/dispatch", tag = "command", params(("id" = String, Path)),
    request_body = w::DispatchCommand, extensions(("x-no-dry-run" = json!(true))), security(("token" = ["work"])),
    responses(Problems,
        (status = 200, description = "The command is dispatched: make the call now, with its `idempotency_key`.",
            body = w::Command),
        (status = 409, description = "Do not make the call. `code` says why: approval_required, policy_denied, budget, \
            cancel_requested, already_dispatched, already_succeeded, superseded, in_doubt, not_due, illegal_state, \
            policy_stale, lease_lost, lease_lapsed, terminal. `command` shows the command's current state to its holder.",
            content_type = "application/problem+json", body = w::Problem),
        (status = 429, description = "Do not make the call: the rate limit of this tool is reached (rate_limited, with \
            `command`), or that of this token. Dispatch again after `retry_after_ms`.",
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
    // A dispatch that cannot lead to a call does not count against the tool's rate.
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
        "The rate limit of `{}` is reached; nothing was written. Do not make the call: dispatch again after `Retry-After`.",
        command.spec.tool
    );
    Problem::later(Code::RateLimited, detail, wait).with_command(wire::command(command, &Shown::default()))
}

/// Records that a command took effect, with evidence. For its sender, also after the lease is lost.
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

/// Records that a command did not take effect: the provider refused it, or the call is proven unsent.
#[utoipa::path(post, path = "/v1/commands/{id}/fail", tag = "command", params(("id" = String, Path)),
    request_body = w::FailCommand, security(("token" = ["work"])),
    responses((status = 200, description = "`failed`, or `pending` when it will be retried.", body = w::Command),
        Problems))]
pub(crate) async fn fail(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::FailCommand>,
) -> JsonResult<w::Command> {
    let by = sender(body.token, body.fence, body.dispatch)?;
    Ok(reply(&who.caller().fail_command(&by, id.parse()?, wire::call_error(body.error), body.unsent).await?))
}

/// Records that nobody knows whether a command took effect. It is looked up, sent again with the same key if
/// the provider deduplicates by it, or left to a person.
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

/// Records what a lookup found of a command in doubt: by the worker that claimed the lookup, with its
/// `lookup_token`, or by a person.
#[utoipa::path(post, path = "/v1/commands/{id}/reconcile", tag = "command", params(("id" = String, Path)),
    request_body = w::Reconcile, security(("token" = [])),
    responses((status = 200, description = "The command's current state.", body = w::Command), Problems))]
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
            // A machine without a token is refused by the ledger with the advice to claim the lookup.
            let machine = who.session.principal.kind == PrincipalKind::Machine;
            who.session.require(if machine { Scope::Work } else { Scope::Replay })?;
            caller.reconcile(id, wire::finding(body)?, message).await?
        }
    }))
}

/// Replays a failed command. At high risk it needs a fresh approval first. For a person.
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

/// Records how a command in doubt ended. For a person.
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

/// Cancels a command that is not dispatched yet. An operator needs the scope `operate`; the holder of its
/// work item needs the scope `work`, with `fence` and `token`.
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
        _ => return Err(Problem::invalid("`fence` and `token` belong together: give both, or neither.")),
    };
    Ok(reply(&who.caller().cancel_command(id.parse()?, lease.as_ref(), &body.reason).await?))
}
