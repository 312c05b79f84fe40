//! The operators' verbs: cancel, quarantine, decide, rerun.

use serde_json::json;
use tenure_core::{
    Code, Fact, State,
    action::{CloseOut, Decide, Failure},
    event::CancelProof,
    model::{ErrorClass, ReasonCode, WaitKind, WaitState},
    payload::Digest,
    policy::{PolicyOverrides, RetryPolicy},
};

use super::{Bed, LAPSE_MS, any, external, job, owner_bound, payload, refused, success};
use crate::{NewWait, NewWork};

async fn proof(bed: &Bed, id: tenure_core::WorkId) -> CancelProof {
    match bed.events(id).await.pop().unwrap().event.fact {
        Fact::Cancelled(cancelled) => cancelled.proof,
        other => panic!("its last event is {other:?}"),
    }
}

/// A work item without a holder ends immediately.
pub async fn cancel_what_nobody_holds(bed: &mut Bed) {
    let ada = bed.person();
    let queued = bed.ingest(job("queued")).await.id;
    let retrying = bed.held(job("retrying"), "w").await;
    bed.worker("w").fail(&retrying.lease, Failure::new(ErrorClass::Transport, "reset")).await.unwrap();
    let waiting = bed.held(job("waiting"), "w").await;
    let waits = vec![NewWait::new(WaitKind::User, "q")];
    bed.worker("w").wait(&waiting.lease, waits, None).await.unwrap();
    let outside = bed.ingest(external("outside")).await.id;
    let lapsed = bed.held(job("lapsed"), "w").await;
    bed.pass(LAPSE_MS).await;
    bed.expect(lapsed.work.id, State::Queued).await;
    for id in [queued, retrying.work.id, waiting.work.id, outside, lapsed.work.id] {
        assert_eq!(refused(ada.cancel(id, "", None).await), Code::ReasonMissing);
        let ack = ada.cancel(id, "not needed any more", None).await.unwrap();
        assert_eq!(ack.state, State::Cancelled);
        assert_eq!(proof(bed, id).await, CancelProof::NotHeld);
        assert_eq!(ada.cancel(id, "again", None).await.unwrap(), ack, "asked twice, done once");
    }
    assert_eq!(bed.waits(waiting.work.id).await[0].state, WaitState::Cancelled);
    let late = bed.worker("w").close_out(&lapsed.lease, success()).await;
    assert_eq!(refused(late), Code::LeaseLost, "a cancel supersedes a lapsed lease");
    assert!(bed.claim("w", any(10)).await.is_empty());
}

/// A drain never ends a rerunnable work item: its holder is asked to release it, and it returns to the queue.
pub async fn a_holder_is_asked_to_hand_back(bed: &mut Bed) {
    let w = bed.worker("w");
    let held = bed.held(job("one"), "w").await;
    for _ in 0..2 {
        let ack = bed.machine().request_release(held.work.id, "the host goes").await.unwrap();
        assert_eq!(ack.state, State::Running);
    }
    let renewed = w.renew(&[(held.lease.clone(), None)]).await.unwrap().remove(0).outcome.unwrap();
    assert!(renewed.release_requested && !renewed.cancel_requested);
    assert_eq!(w.release(&held.lease, None).await.unwrap().state, State::Queued);
    assert_eq!(bed.story(held.work.id).await[2..], ["release_requested", "lease_released"]);
    let next = bed.take(held.work.id, "v").await;
    let renewed = bed.worker("v").renew(&[(next.lease.clone(), None)]).await.unwrap().remove(0).outcome;
    assert!(!renewed.unwrap().release_requested, "the next holder is not asked");
    // One that does not respond lapses, which does not count as a failure.
    bed.machine().request_release(held.work.id, "that host too").await.unwrap();
    bed.pass(LAPSE_MS).await;
    bed.expect(held.work.id, State::Queued).await;
    let retry = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let new = job("once");
    let policy = PolicyOverrides { retry: Some(retry), ..new.policy };
    let once = bed.ingest(NewWork { policy, ..new }).await.id;
    for _ in 0..4 {
        bed.take(once, "w").await;
        bed.machine().request_release(once, "a rolling update").await.unwrap();
        bed.pass(LAPSE_MS).await;
        bed.expect(once, State::Queued).await;
    }
    let bound = bed.held(super::owner_bound("two"), "w").await;
    assert_eq!(refused(bed.machine().request_release(bound.work.id, "x").await), Code::OwnerBound);
    assert_eq!(refused(bed.machine().request_release(held.work.id, "x").await), Code::IllegalState);
}

/// A holder learns of the cancel at its next renewal, and stops by itself.
pub async fn cancel_asks_the_holder(bed: &mut Bed) {
    let w = bed.worker("w");
    let held = bed.held(job("released"), "w").await;
    let ack = bed.person().cancel(held.work.id, "wrong file", None).await.unwrap();
    assert_eq!(ack.state, State::CancelRequested);
    let row = bed.work(held.work.id).await;
    let cancel = row.body.cancel.clone().unwrap();
    assert_eq!((cancel.deadline_at, cancel.acknowledged_at), (bed.now() + 60_000, None));
    assert_eq!(&*cancel.requested_by.id, "ada");
    bed.person().cancel(held.work.id, "again", Some(1)).await.unwrap();
    bed.pass(1_000).await;
    let renewed = w.renew(&[(held.lease.clone(), None)]).await.unwrap().remove(0).outcome.unwrap();
    assert!(renewed.cancel_requested);
    w.renew(&[(held.lease.clone(), None)]).await.unwrap();
    let cancel = bed.work(held.work.id).await.body.cancel.clone().unwrap();
    assert_eq!(cancel.acknowledged_at, Some(bed.now()));
    assert_eq!(cancel.deadline_at, bed.now() + 59_000, "the first request stands");
    let wait = vec![NewWait::new(WaitKind::User, "q")];
    assert_eq!(refused(w.wait(&held.lease, wait, None).await), Code::IllegalState);
    w.progress(&held.lease, &json!("cleaning up"), None).await.unwrap();
    assert_eq!(w.release(&held.lease, None).await.unwrap().state, State::Cancelled);
    assert_eq!(proof(bed, held.work.id).await, CancelProof::HolderStopped);
    let told = bed.story(held.work.id).await.iter().filter(|kind| **kind == "cancel_acknowledged").count();
    assert_eq!(told, 1);

    for (id, close, state) in [
        ("declared", CloseOut::new(State::Cancelled), State::Cancelled),
        ("finished", success(), State::Succeeded),
        ("failed", CloseOut::failed(ErrorClass::Validation, "bad"), State::Failed),
    ] {
        let held = bed.held(job(id), "w").await;
        bed.person().cancel(held.work.id, "stop", None).await.unwrap();
        assert_eq!(w.close_out(&held.lease, close).await.unwrap().state, state);
    }
    let failing = bed.held(job("failing"), "w").await;
    bed.person().cancel(failing.work.id, "stop", None).await.unwrap();
    let failure = Failure::new(ErrorClass::Transport, "reset");
    assert_eq!(w.fail(&failing.lease, failure).await.unwrap().state, State::Failed, "it is not retried");
    let unasked = bed.held(job("unasked"), "w").await;
    let close = CloseOut::new(State::Cancelled);
    assert_eq!(refused(w.close_out(&unasked.lease, close).await), Code::IllegalState);
}

/// At the deadline renewals are refused; nothing ends while the lease is valid.
pub async fn a_cancel_has_a_deadline(bed: &mut Bed) {
    let w = bed.worker("w");
    let held = bed.held(job("stubborn"), "w").await;
    bed.person().cancel(held.work.id, "stop", Some(4_000)).await.unwrap();
    for _ in 0..3 {
        bed.pass(1_000).await;
        w.renew(&[(held.lease.clone(), None)]).await.unwrap().remove(0).outcome.unwrap();
    }
    bed.pass(1_000).await;
    let late = w.renew(&[(held.lease.clone(), None)]).await.unwrap().remove(0);
    assert_eq!(late.outcome.unwrap_err().code, Code::CancelDeadline);
    bed.expect(held.work.id, State::CancelRequested).await;
    bed.pass(LAPSE_MS).await;
    bed.expect(held.work.id, State::Cancelled).await;
    assert_eq!(proof(bed, held.work.id).await, CancelProof::Lapsed);

    // Only its owner could report how it stopped: if it lapsed before the deadline, it is still awaited.
    let bound = bed.held(owner_bound("bound"), "w").await;
    bed.person().cancel(bound.work.id, "stop", Some(30_000)).await.unwrap();
    assert_eq!(refused(w.release(&bound.lease, None).await), Code::OwnerBound);
    bed.pass(LAPSE_MS).await;
    bed.expect(bound.work.id, State::CancelRequested).await;
    bed.pass(20_000).await;
    bed.expect(bound.work.id, State::Abandoned).await;
}

/// A stalled holder that comes back learns of the cancel.
pub async fn cancel_while_stalled(bed: &mut Bed) {
    let held = bed.held(owner_bound("one"), "w").await;
    bed.pass(LAPSE_MS).await;
    bed.expect(held.work.id, State::Stalled).await;
    let ack = bed.person().cancel(held.work.id, "stop", None).await.unwrap();
    assert_eq!(ack.state, State::Stalled, "nobody knows whether it still runs");
    let renewed = bed.worker("w").renew(&[(held.lease.clone(), None)]).await.unwrap().remove(0);
    assert!(renewed.outcome.unwrap().cancel_requested);
    bed.expect(held.work.id, State::CancelRequested).await;
    let close = CloseOut::new(State::Cancelled);
    bed.worker("w").close_out(&held.lease, close).await.unwrap();
    bed.expect(held.work.id, State::Cancelled).await;
}

/// Quarantined from any state; only a person decides.
pub async fn quarantine_and_decisions(bed: &mut Bed) {
    let ada = bed.person();
    let mut set_aside = Vec::new();
    for id in ["requeued", "succeeded", "failed", "cancelled", "abandoned"] {
        let held = bed.held(job(id), "w").await;
        let ack = bed.machine().quarantine(held.work.id, "looks odd").await.unwrap();
        assert_eq!(ack.state, State::Quarantined);
        assert_eq!(refused(bed.worker("w").close_out(&held.lease, success()).await), Code::LeaseLost);
        set_aside.push(held.work.id);
    }
    let row = bed.work(set_aside[0]).await;
    assert_eq!(row.body.reason.as_ref().map(|reason| reason.code), Some(ReasonCode::Operator));
    assert_eq!(refused(ada.cancel(set_aside[0], "no", None).await), Code::IllegalState);
    let by_machine = bed.machine().decide(set_aside[0], "go", Decide::Requeue).await;
    assert_eq!(refused(by_machine), Code::PersonRequired);
    assert_eq!(refused(ada.decide(set_aside[0], "", Decide::Requeue).await), Code::ReasonMissing);
    let bare = Decide::Close(Box::new(CloseOut::new(State::Succeeded)));
    assert_eq!(refused(ada.decide(set_aside[1], "it was done", bare).await), Code::ResultMissing);
    for (id, decision, state) in [
        (0, Decide::Requeue, State::Queued),
        (1, Decide::Close(Box::new(success())), State::Succeeded),
        (2, Decide::Close(Box::new(CloseOut::new(State::Failed))), State::Failed),
        (3, Decide::Close(Box::new(CloseOut::new(State::Cancelled))), State::Cancelled),
        (4, Decide::Close(Box::new(CloseOut::new(State::Abandoned))), State::Abandoned),
    ] {
        let ack = ada.decide(set_aside[id], "I looked at it", decision).await.unwrap();
        assert_eq!(ack.state, state);
        let last = bed.events(set_aside[id]).await.pop().unwrap().event;
        assert_eq!((&*last.actor.id, last.message.as_deref()), ("ada", Some("I looked at it")));
    }
    assert_eq!(bed.claim("v", any(5)).await[0].work.id, set_aside[0]);
    assert_eq!(refused(ada.decide(set_aside[0], "x", Decide::Requeue).await), Code::IllegalState);
    assert_eq!(refused(ada.quarantine(set_aside[1], "too late").await), Code::Terminal);
    let queued = bed.ingest(job("queued")).await.id;
    assert_eq!(ada.quarantine(queued, "wait").await.unwrap().state, State::Quarantined);
    bed.skip(400 * 24 * 3_600_000).await;
    bed.expect(queued, State::Quarantined).await;
}

/// A terminal state never changes: a rerun is a new work item that may reuse the checkpoints before a step.
pub async fn rerun_is_a_new_work(bed: &mut Bed) {
    let old = bed.held(job("one"), "w").await;
    let id = old.work.id;
    let w = bed.worker("w");
    for (step, result) in [("read", "text"), ("think", "plan")] {
        w.begin_step(&old.lease, step, &json!(1), false).await.unwrap();
        w.complete_step(&old.lease, step, &json!(1), &json!(result)).await.unwrap();
    }
    w.begin_step(&old.lease, "write", &json!(1), false).await.unwrap();
    let ada = bed.person();
    assert_eq!(refused(ada.rerun(id, None, "again").await), Code::IllegalState);
    w.close_out(&old.lease, CloseOut::failed(ErrorClass::Quota, "no credit")).await.unwrap();
    let ended = bed.work(id).await;

    assert_eq!(refused(ada.rerun(id, Some("dance"), "again").await), Code::NotFound);
    let new = ada.rerun(id, Some("think"), "paid the bill").await.unwrap().work;
    assert_eq!((new.spec.generation, new.spec.rerun_of), (2, Some(id)));
    assert_eq!(new.state, State::Queued);
    assert_eq!(refused(ada.rerun(id, None, "from the start").await), Code::IdempotencyMismatch);
    let other = ada.rerun_executing(id, Some("think"), vec![Digest::default()], "and send it").await;
    assert_eq!(refused(other), Code::IdempotencyMismatch);
    let again = ada.rerun(id, Some("think"), "asked twice").await.unwrap();
    assert_eq!((again.work.id, again.created), (new.id, false));
    let next = bed.take(new.id, "v").await;
    assert_eq!(next.input, Some(payload(json!({ "ask": "one" }))));
    let known: Vec<_> =
        next.steps.iter().map(|(step, result)| (step.name.as_str(), result.clone())).collect();
    assert_eq!(known, [("read", Some(payload(json!("text"))))], "what came before the step is reused");
    let v = bed.worker("v");
    let (_, read) = v.begin_step(&next.lease, "read", &json!(1), false).await.unwrap();
    assert_eq!(read, Some(payload(json!("text"))));
    let (think, result) = v.begin_step(&next.lease, "think", &json!(2), false).await.unwrap();
    assert_eq!((think.ordinal, result), (1, None));
    v.complete_step(&next.lease, "think", &json!(2), &json!("better")).await.unwrap();
    v.close_out(&next.lease, success()).await.unwrap();
    assert_eq!(bed.work(id).await, ended, "the old one did not change");

    let third = ada.rerun(new.id, None, "once more").await.unwrap().work;
    assert_eq!(third.spec.generation, 3);
    assert_eq!(refused(ada.rerun(id, None, "again").await), Code::IllegalState, "only the newest");
    assert!(bed.ledger.steps(third.id).await.unwrap().is_empty());
    let delivered = bed.machine().ingest(job("one")).await.unwrap();
    assert_eq!(delivered.work.id, third.id, "a late delivery meets the newest generation");
}
