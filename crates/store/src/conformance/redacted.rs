//! Redacted arguments: their hash is the same for the same arguments within one work item and its reruns, and
//! reveals nothing to others.

use serde_json::json;
use tenure_core::{
    Code, CommandState, Payload,
    action::CloseOut,
    command::{Arguments, Effect, Intent, Proof},
    model::ErrorClass,
    payload::Digest,
};

use super::{
    Bed,
    commands::{evaluation, lookup},
    job, refused,
};
use crate::NewWork;

fn unlock(pin: &str) -> Intent {
    let whole = Payload::new(&json!({ "door": "front", "pin": pin })).unwrap();
    let kept = Payload::new(&json!({ "door": "front", "pin": "[redacted]" })).unwrap();
    let arguments = Arguments::redacted(&whole, kept);
    Intent::new("unlock", "door-1", arguments, evaluation(Effect::Allow, lookup()))
}

pub async fn the_same_arguments_are_known_again_in_a_work_and_its_reruns(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let worker = bed.worker("w");
    let first = worker.reserve(&held.lease, unlock("4711")).await.unwrap().command;
    let again = worker.reserve(&held.lease, unlock("4711")).await.unwrap();
    assert_eq!((again.command.id, again.fresh), (first.id, false));
    assert_eq!(
        refused(worker.reserve(&held.lease, unlock("4712")).await),
        Code::IdempotencyMismatch,
        "other arguments of the same intent"
    );
    worker.dispatch(&held.lease, first.id, evaluation(Effect::Allow, lookup()), None).await.unwrap();
    worker.receipt(&held.lease, first.id, Proof::provider("m-1")).await.unwrap();
    worker.close_out(&held.lease, CloseOut::failed(ErrorClass::Unknown, "gave up")).await.unwrap();

    let rerun = bed.person().rerun(held.work.id, None, "once more").await.unwrap();
    let next = bed.take(rerun.work.id, "w").await;
    let reused = worker.reserve(&next.lease, unlock("4711")).await.unwrap().command;
    assert_eq!(reused.state, CommandState::Succeeded);
    assert_eq!(reused.body.receipt.as_ref().unwrap().reused_from, Some(first.id));
    assert_eq!(reused.spec.input_hash, first.spec.input_hash);
}

pub async fn the_hash_differs_between_works_and_between_tenants(bed: &mut Bed) {
    let one = bed.held(job("one"), "w").await;
    let other = bed.held(job("other"), "w").await;
    let foreign = bed.held(NewWork { tenant: "elsewhere".into(), ..job("one") }, "w").await;
    let worker = bed.worker("w");
    let mut hashes = Vec::new();
    for held in [one, other, foreign] {
        hashes.push(worker.reserve(&held.lease, unlock("4711")).await.unwrap().command.spec.input_hash);
    }
    assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2], "{hashes:?}");
}

pub async fn a_dry_run_does_not_tell_the_hash(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let trying = bed.worker("w").trying(true);
    let tried = trying.reserve(&held.lease, unlock("4711")).await.unwrap().command;
    let real = bed.worker("w").reserve(&held.lease, unlock("4711")).await.unwrap().command;
    assert_eq!(tried.spec.input_hash, Digest::default());
    assert_ne!(tried.seal(), real.seal());
    assert_ne!(tried.idempotency_key(), real.idempotency_key());
    let again = trying.reserve(&held.lease, unlock("4711")).await.unwrap();
    assert_eq!((again.fresh, again.command), (false, real), "what is there is shown as it is");
}
