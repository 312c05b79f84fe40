//! Waits and their answers. An approval is answered only by callers who may approve.

use serde_json::json;
use tenure_api::wire::{self as w, Scope};
use tenure_core::{
    Code, Refusal, State, Wait, WaitId, WorkId,
    action::Tenants,
    limits,
    model::{WaitKind, WaitState},
    next::Next,
    payload::Digest,
};
use tenure_store::{Caller, Resolved, WaitFilter};

use super::{Body, Json, JsonResult, Params, Problem, Segments, Who, error::Problems, work::page_size};
use crate::wire::{self, ToCore};

const PAGE: u32 = 50;
/// The number of waits of one work item that are read.
const LOOKED_AT: usize = 1_000;

/// Lists waits in the order in which they were opened.
#[utoipa::path(get, path = "/v1/waits", tag = "wait", params(w::WaitQuery), security(("token" = ["view"])),
    responses((status = 200, description = "A page of waits.", body = w::Page<w::Wait>), Problems))]
pub(crate) async fn list(who: Who, Params(query): Params<w::WaitQuery>) -> JsonResult<w::Page<w::Wait>> {
    let limit = page_size(query.limit, PAGE)?;
    let filter = WaitFilter {
        tenants: query.tenant.map(|tenant| Tenants::Only(vec![tenant])),
        id: query.id.map(|id| id.as_str().parse()).transpose()?,
        work: query.work.map(|id| id.as_str().parse()).transpose()?,
        works: Vec::new(),
        session: query.session,
        reference: query.reference,
        kind: query.kind.map(ToCore::to_core),
        state: query.state.map(ToCore::to_core),
        after: query.cursor.as_deref().map(parse_cursor).transpose()?,
        last_ended: query.last_ended,
    };
    let caller = who.caller();
    let waits = caller.waits(&filter, limit).await?;
    let next = waits.next().filter(|_| !filter.last_ended).map(|(at, id)| format!("{at}.{id}"));
    let payloads = who.session.may(Scope::Payload);
    let mut items = Vec::with_capacity(waits.len());
    for wait in waits.iter() {
        let answer = match wait.answer_seq.filter(|_| payloads) {
            Some(seq) => caller.payload(wait.work, seq).await?,
            None => None,
        };
        items.push(wire::wait(wait, payloads, answer.as_ref()));
    }
    Ok(Json(w::Page { items, unreadable: wire::unreadable(&waits.unreadable), next }))
}

fn parse_cursor(text: &str) -> Result<(i64, WaitId), Problem> {
    let parsed = text.split_once('.').and_then(|(at, id)| Some((at.parse().ok()?, id.parse().ok()?)));
    parsed.ok_or_else(|| Problem::invalid(format!("`{text}` is not a cursor. Use the `next` of a page.")))
}

/// Answers one wait: with its token, or as a person without one. An approval needs its `seal` and the scope
/// to approve.
#[utoipa::path(post, path = "/v1/waits/{id}/resolve", tag = "wait", params(("id" = String, Path)),
    request_body = w::ResolveWait, security(("token" = ["resolve"])),
    responses((status = 200, description = "The answer that counts, which is the first.", body = w::Resolved), Problems))]
pub(crate) async fn resolve_one(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::ResolveWait>,
) -> JsonResult<w::Resolved> {
    let wait = id.parse()?;
    let seal = body.seal.map(|seal| wire::digest("seal", &seal)).transpose()?;
    // The token of another wait is refused as wrong.
    let token = body.token.map(|token| match token.split_once('.') {
        Some((of, mac)) if of == id => mac.to_owned(),
        _ => token,
    });
    let proof = (token.as_deref(), seal);
    let resolved = answer_one(&who, wait, proof, &body.payload, body.claim).await?;
    Ok(reply(&who, resolved))
}

/// Answers every open wait on a reference, or one wait by its token; the answer is kept if none is open yet.
/// Approvals are skipped.
#[utoipa::path(post, path = "/v1/resolve", tag = "wait", request_body = w::Resolve,
    security(("token" = ["resolve"])),
    responses((status = 200, description = "For each wait the answer that counts, which is the first.", body = w::Resolved), Problems))]
pub(crate) async fn resolve(who: Who, Body(body): Body<w::Resolve>) -> JsonResult<w::Resolved> {
    let resolved = match (&body.reference, &body.token) {
        (Some(reference), None) => {
            let tenant = who.session.tenant(body.tenant.as_deref())?;
            let claim = claimant(&who, body.claim)?;
            who.caller().resolve(&tenant, reference, &body.payload, claim).await?
        }
        (None, Some(token)) => {
            let (id, mac) = token.split_once('.').ok_or_else(|| {
                Refusal::new(
                    Code::TokenRefused,
                    "This is not a wait token. Use the one that the wait was created with.",
                )
            })?;
            answer_one(&who, id.parse()?, (Some(mac), None), &body.payload, body.claim).await?
        }
        _ => return Err(Problem::invalid("Give either `ref` or `token`.")),
    };
    Ok(reply(&who, resolved))
}

async fn answer_one(
    who: &Who,
    id: WaitId,
    (token, seal): (Option<&str>, Option<Digest>),
    payload: &serde_json::Value,
    claim: Option<w::Claimant>,
) -> Result<Resolved, Problem> {
    let caller = who.caller();
    let filter = WaitFilter { id: Some(id), ..WaitFilter::default() };
    if caller.waits(&filter, 1).await?.iter().any(Wait::asks_approval) {
        who.session.require(Scope::Approve)?;
    }
    Ok(caller.resolve_wait(id, token, seal, payload, claimant(who, claim)?).await?)
}

/// A caller who claims together with an answer also needs the scope to work.
fn claimant(who: &Who, claim: Option<w::Claimant>) -> Result<Option<tenure_core::action::Claimant>, Problem> {
    if claim.is_some() {
        who.session.require(Scope::Work)?;
    }
    Ok(claim.map(wire::claimant))
}

fn reply(who: &Who, resolved: Resolved) -> Json<w::Resolved> {
    Json(wire::resolved(resolved, who.session.may(Scope::Payload)))
}

/// Revokes every open wait of a session: its work items are queued again, and their workers find the waits
/// cancelled.
#[utoipa::path(post, path = "/v1/waits/revoke", tag = "operator", request_body = w::RevokeWaits,
    security(("token" = ["operate"])),
    responses((status = 200, description = "The work items that waited.", body = w::Revoked), Problems))]
pub(crate) async fn revoke(who: Who, Body(body): Body<w::RevokeWaits>) -> JsonResult<w::Revoked> {
    let tenant = who.session.tenant(body.tenant.as_deref())?;
    let acks = who.caller().revoke_session_waits(&tenant, &body.session, &body.reason).await?;
    Ok(Json(w::Revoked { works: acks.iter().map(wire::ack).collect() }))
}

/// Answers the approval that a work item in `waiting_approval` asks for: the wait with this seal. For a
/// person.
#[utoipa::path(post, path = "/v1/work/{id}/approve", tag = "wait", params(("id" = String, Path)),
    request_body = w::Approve, security(("token" = ["approve"])),
    responses((status = 200, description = "The answer that counts, which is the first.", body = w::Resolved), Problems))]
pub(crate) async fn approve(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Approve>,
) -> JsonResult<w::Resolved> {
    body.note.iter().try_for_each(|note| limits::filled_in("note", note))?;
    let (caller, seal) = (who.caller(), wire::digest("seal", &body.seal)?);
    let wait = sealed(&caller, id.parse()?, seal).await?;
    let answer = json!({ "approved": body.approved, "note": body.note });
    Ok(reply(&who, caller.resolve_wait(wait, None, Some(seal), &answer, None).await?))
}

/// Records that the account that a work item in `waiting_auth` needs is connected again. For a person.
#[utoipa::path(post, path = "/v1/work/{id}/reconnect", tag = "wait", params(("id" = String, Path)),
    request_body = w::Reconnect, security(("token" = ["resolve"])),
    responses((status = 200, description = "The answer that counts, which is the first.", body = w::Resolved), Problems))]
pub(crate) async fn reconnect(
    who: Who,
    Segments([id]): Segments<1>,
    Body(body): Body<w::Reconnect>,
) -> JsonResult<w::Resolved> {
    body.note.iter().try_for_each(|note| limits::filled_in("note", note))?;
    let caller = who.caller();
    let wait = reconnection(&caller, id.parse()?).await?;
    let answer = json!({ "reconnected": true, "note": body.note });
    Ok(reply(&who, caller.resolve_wait(wait, None, None, &answer, None).await?))
}

/// The wait that the person saw. The seal tells several approvals of one work item apart.
async fn sealed(caller: &Caller, work: WorkId, seal: Digest) -> Result<WaitId, Problem> {
    let (state, waits) = of_kind(caller, work, WaitKind::Approval).await?;
    let shown = |wait: &&Wait| wait.asks_approval() && wait.seal() == seal;
    match waits.iter().find(shown).or(waits.last()) {
        // For every other kind the ledger says why it is not answered so.
        Some(wait) => Ok(wait.id),
        None => Err(never_asked(work, state, "an approval")),
    }
}

/// The one reconnection that a work item waits for: the open one, or the last one answered.
async fn reconnection(caller: &Caller, work: WorkId) -> Result<WaitId, Problem> {
    let (state, waits) = of_kind(caller, work, WaitKind::Auth).await?;
    let open: Vec<&Wait> = waits.iter().filter(|wait| wait.state == WaitState::Open).collect();
    match open[..] {
        [only] => Ok(only.id),
        [] => match waits.last() {
            Some(last) => Ok(last.id),
            None => Err(never_asked(work, state, "a reconnection")),
        },
        _ => Err(Refusal::new(
            Code::IllegalState,
            "Several are open. List them with /v1/waits?work= and answer each with /v1/waits/{id}/resolve.",
        )
        .into()),
    }
}

async fn of_kind(caller: &Caller, work: WorkId, kind: WaitKind) -> Result<(State, Vec<Wait>), Problem> {
    let state = caller.work(work).await?.state;
    let filter = WaitFilter { work: Some(work), kind: Some(kind), ..WaitFilter::default() };
    Ok((state, caller.waits(&filter, LOOKED_AT).await?.whole()?))
}

fn never_asked(work: WorkId, state: State, what: &str) -> Problem {
    let (code, next) = if state.is_terminal() {
        (Code::Terminal, "There is nothing left to decide; to run it again, rerun it.".to_owned())
    } else {
        (Code::IllegalState, format!("`{}` says what it waits for.", Next::Explain(work)))
    };
    Refusal::new(code, format!("{work} is {state} and never asked for {what}. {next}")).into()
}
