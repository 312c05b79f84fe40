//! Ingest: recording a new work item.

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use tenure_api::wire::{self as w, Scope};
use tenure_core::{Code, Refusal};
use tenure_store::Error;

use super::{App, Body, Json, Problem, Who, error::Problems};
use crate::{
    traces,
    wire::{self, View},
};

/// Records a work item. The same source and content again returns the existing one.
#[utoipa::path(post, path = "/v1/work", tag = "work", request_body = w::Ingest, security(("token" = ["submit"])),
    responses(
        (status = 201, description = "Recorded.", body = w::Ingested),
        (status = 200, description = "It existed already.", body = w::Ingested),
        Problems
    ))]
pub(crate) async fn ingest(
    State(app): State<Arc<App>>,
    who: Who,
    Body(body): Body<w::Ingest>,
) -> Result<Response, Problem> {
    if body.claim.is_some() {
        who.session.require(Scope::Work)?;
    }
    let tenant = who.session.tenant(body.tenant.as_deref())?;
    let policy = app.live.borrow().sources.get(&body.source.system).map(|source| source.policy);
    let new = wire::new_work(body, tenant, &policy.unwrap_or_default())?;
    let ingested = who.caller().ingest(new).await.inspect_err(|error| {
        let mismatch = matches!(error, Error::Refused(Refusal { code: Code::IdempotencyMismatch, .. }));
        if mismatch && !who.dry_run {
            app.metrics.key_reused();
        }
    })?;
    if !ingested.created && !who.dry_run {
        app.metrics.duplicate();
    }
    traces::about(ingested.work.id);
    let now = ingested.work.updated_at;
    let payloads = who.session.may(Scope::Payload);
    let status = if ingested.created { StatusCode::CREATED } else { StatusCode::OK };
    let reply = w::Ingested {
        work: wire::work(&ingested.work, &View { now, payloads, ..View::default() }),
        created: ingested.created,
        lease: ingested.lease.map(wire::grant),
        completion_token: ingested.completion_token,
    };
    Ok((status, Json(reply)).into_response())
}
