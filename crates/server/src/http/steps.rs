//! Steps: named checkpoints inside a work item.

use tenure_api::wire as w;
use tenure_store::LeaseRef;

use super::{Body, Json, JsonResult, Problem, Segments, Who, error::Problems};
use crate::wire;

/// Begins or completes a step. If it is already complete with the same input, its result is returned.
#[utoipa::path(put, path = "/v1/work/{id}/steps/{step}", tag = "worker",
    params(("id" = String, Path), ("step" = String, Path)),
    request_body = w::PutStep, security(("token" = ["work"])),
    responses((status = 200, description = "The step's current state.", body = w::StepReply), Problems))]
pub(crate) async fn put(
    who: Who,
    Segments([id, name]): Segments<2>,
    Body(body): Body<w::PutStep>,
) -> JsonResult<w::StepReply> {
    let lease = LeaseRef { work: id.parse()?, fence: body.fence, token: body.token };
    let caller = who.caller();
    let (step, result) = match (body.verb, &body.result) {
        (w::StepVerb::Begin, None) => caller.begin_step(&lease, &name, &body.input, body.restart).await?,
        (w::StepVerb::Complete, Some(result)) if !body.restart => {
            (caller.complete_step(&lease, &name, &body.input, result).await?, None)
        }
        (w::StepVerb::Begin, Some(_)) => {
            return Err(Problem::invalid("`begin` has no `result` yet. Leave it out, or send `complete`."));
        }
        (w::StepVerb::Complete, _) => {
            return Err(Problem::invalid("`complete` needs a `result`, and no `restart`. Give the result."));
        }
    };
    let reused = body.verb == w::StepVerb::Begin && step.completed_at.is_some();
    Ok(Json(w::StepReply { step: wire::step(&step, result.as_ref()), reused }))
}
