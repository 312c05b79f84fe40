//! Claims and renewals: how a worker gets leases and keeps them.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use tenure_api::wire as w;
use tenure_core::{Refusal, WorkId, action::ClaimFilter};
use tenure_store::{LeaseRef, fair};

use super::{App, Body, Json, JsonResult, Problem, Who, error::Problems};
use crate::wire;

/// The longest time a claim may wait; a worker polls again afterwards.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(300);

/// Claims work items that match a filter, or exactly the given ids. Can wait for an empty queue to fill.
#[utoipa::path(post, path = "/v1/work/claim", tag = "worker", request_body = w::Claim,
    extensions(("x-no-dry-run" = json!(true))), security(("token" = ["work"])),
    responses((status = 200, description = "The leases; empty when nothing could be claimed.", body = w::Grants), Problems))]
pub(crate) async fn claim(
    State(app): State<Arc<App>>,
    who: Who,
    Body(body): Body<w::Claim>,
) -> JsonResult<w::Grants> {
    let caller = who.caller();
    let w::Claim { worker, request_id, defer_start, .. } = body;
    let claimant = wire::claimant(w::Claimant { worker, request_id, defer_start });
    let claimed = if body.ids.is_empty() {
        let max = body.max.unwrap_or(1) as usize;
        let filter = ClaimFilter { sources: body.sources, kinds: body.kinds, tenants: body.tenants, max };
        let wait = body.wait_ms.map(|ms| Duration::from_millis(ms).min(WAIT_MAX));
        // A turn covers the look at the queue only: a long-polling claim waits without one.
        let turn = app.claims.turn(fair::key_of(&who.session.tenants)).await;
        let found = caller.claim(claimant.clone(), filter.clone(), None).await?;
        drop(turn);
        if !found.is_empty() || wait.is_none() {
            found
        } else {
            let open = app.auth.open_call(&who.session);
            // A long-polling claim whose client has disconnected takes no lease.
            tokio::select! {
                claimed = caller.claim(claimant, filter, wait) => claimed?,
                denied = open.ended() => return Err(denied.into()),
                () = app.stopping.cancelled() => Vec::new(),
            }
        }
    } else {
        if !(body.sources.is_empty()
            && body.kinds.is_empty()
            && body.tenants.is_empty()
            && body.wait_ms.is_none())
        {
            return Err(Problem::invalid("Give `ids`, or filters and `wait_ms`; not both."));
        }
        let ids = body.ids.iter().map(|id| id.as_str().parse()).collect::<Result<Vec<WorkId>, Refusal>>()?;
        caller.claim_ids(claimant, ids).await?
    };
    Ok(Json(w::Grants { leases: claimed.into_iter().map(wire::grant).collect() }))
}

/// Renews many leases at once; each has its own result.
#[utoipa::path(post, path = "/v1/work/renew", tag = "worker", request_body = w::Renew,
    security(("token" = ["work"])),
    responses((status = 200, description = "The result for each lease.", body = w::Renewals), Problems))]
pub(crate) async fn renew(who: Who, Body(body): Body<w::Renew>) -> JsonResult<w::Renewals> {
    let leases = body
        .leases
        .into_iter()
        .map(|lease| {
            let work = lease.id.as_str().parse()?;
            Ok((LeaseRef { work, fence: lease.fence, token: lease.token }, lease.progress))
        })
        .collect::<Result<Vec<_>, Refusal>>()?;
    let renewals = who.caller().renew(&leases).await?;
    Ok(Json(w::Renewals::new(renewals.into_iter().map(wire::renewal).collect())))
}
