//! Credentials: creating, listing, revoking. A secret is shown once, by the call that created it.

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use tenure_api::wire as w;

use super::{App, Body, Json, JsonResult, Params, Problem, Segments, Who, error::Problems, work::page_size};
use crate::wire;

const PAGE: u32 = 50;

/// Lists credentials, newest first, without their secrets.
#[utoipa::path(get, path = "/v1/tokens", tag = "admin", params(w::PageQuery), security(("token" = ["admin"])),
    responses((status = 200, description = "A page of credentials.", body = w::Page<w::Token>), Problems))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    Params(query): Params<w::PageQuery>,
) -> JsonResult<w::Page<w::Token>> {
    let before = query.cursor.as_deref().map(str::parse).transpose()?;
    let page = app.auth.list(&who.session, before, page_size(query.limit, PAGE)?).await?;
    let items = page.iter().map(wire::token).collect();
    let next = page.next().map(ToString::to_string);
    Ok(Json(w::Page { items, unreadable: wire::unreadable(&page.unreadable), next }))
}

/// Creates a credential. Its secret is in the response and nowhere else.
#[utoipa::path(post, path = "/v1/tokens", tag = "admin", request_body = w::NewToken, extensions(("x-no-dry-run" = json!(true))), security(("token" = ["admin"])),
    responses((status = 201, description = "The credential and its secret.", body = w::TokenMade), Problems))]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    who: Who,
    Body(body): Body<w::NewToken>,
) -> Result<Response, Problem> {
    let (new, quotas) = (wire::new_token(body)?, app.live.borrow().quotas);
    let _turn = app.usage.credential(&who.session, &app.ledger, &new.tenants, &quotas).await?;
    let (credential, secret) = app.auth.create(&who.session, new).await?;
    let made = w::TokenMade { token: wire::token(&credential), secret: secret.reveal().to_owned() };
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

/// Revokes a credential and ends the streams and long polls that it opened: here at once, on other replicas
/// within a second.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "admin", params(("id" = String, Path), w::RevokeToken),
    extensions(("x-no-dry-run" = json!(true))), security(("token" = ["admin"])),
    responses((status = 200, description = "The credential, revoked.", body = w::Token), Problems))]
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
    Params(query): Params<w::RevokeToken>,
) -> JsonResult<w::Token> {
    let revoked = app.auth.revoke(&who.session, id.parse()?, &query.reason).await?;
    Ok(Json(wire::token(&revoked)))
}
