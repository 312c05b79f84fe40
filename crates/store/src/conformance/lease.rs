//! Leases: renewals, tokens, fences, repeats, late writes, and clocks that jump.

use serde_json::json;
use tenure_core::{
    Code, Millis, State,
    action::{CloseOut, Failure},
    model::{AcceptStrength, ErrorClass, WaitKind},
    policy::LeaseTimings,
};

use super::{Bed, LAPSE_MS, claimant, forged, job, payload, refused, success};
use crate::{LeaseRef, NewWait, NewWork};

/// A lost lease does not affect the others.
pub async fn renewals_are_answered_one_by_one(bed: &mut Bed) {
    let mut leases = Vec::new();
    for i in 0..3 {
        leases.push(bed.held(job(&i.to_string()), "w").await.lease);
    }
    let w = bed.worker("w");
    w.release(&leases[1], None).await.unwrap();
    bed.take(leases[1].work, "v").await;
    bed.pass(3_000).await;
    let before = bed.work(leases[0].work).await;
    let all: Vec<_> = leases.iter().map(|lease| (lease.clone(), Some(json!({ "at": 1 })))).collect();
    let mut renewals = w.renew(&all).await.unwrap();
    assert_eq!(renewals[1].outcome.as_ref().unwrap_err().code, Code::LeaseLost);
    for i in [0, 2] {
        let renewed = renewals[i].outcome.clone().unwrap();
        assert_eq!((renewed.expires_at, renewed.cancel_requested), (bed.now() + 6_000, false));
    }
    let after = bed.work(leases[0].work).await;
    assert_eq!(after.seq, before.seq, "a renewal is no event");
    let lease = after.lease.unwrap();
    assert_eq!((lease.renewed_at, lease.expires_at), (bed.now(), bed.now() + 6_000));
    assert_eq!(after.progress, Some(payload(json!({ "at": 1 }))));

    renewals = w.renew(&[(forged(&leases[0]), None), (leases[2].clone(), None)]).await.unwrap();
    assert_eq!(renewals[0].outcome.as_ref().unwrap_err().code, Code::LeaseLost);
    assert!(renewals[1].outcome.is_ok());
    let twice = w.renew(&[(leases[2].clone(), None), (leases[2].clone(), None)]).await.unwrap();
    assert_eq!(twice[1].outcome.as_ref().unwrap_err().code, Code::Invalid);
    bed.machine().renew(&[(leases[0].clone(), None)]).await.unwrap();
    let by = bed.work(leases[0].work).await.lease.unwrap().renewed_by;
    assert_eq!(by.as_deref(), Some("gateway"), "who renews for somebody else is named");
}

/// Invariant 6: every verb of a holder has the right work item, fence and lease token, or changes nothing.
pub async fn nothing_goes_without_fence_and_token(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let other = bed.held(job("two"), "w").await;
    let stale = LeaseRef { fence: held.lease.fence - 1, ..held.lease.clone() };
    let crossed = LeaseRef { token: other.lease.token.clone(), ..held.lease.clone() };
    let empty = LeaseRef { token: String::new(), ..held.lease.clone() };
    let before = bed.snapshot().await;
    let w = bed.worker("w");
    for lease in [forged(&held.lease), stale, crossed, empty] {
        assert_eq!(refused(w.accept(&lease, AcceptStrength::Weak).await), Code::LeaseLost);
        assert_eq!(refused(w.progress(&lease, &json!(1), None).await), Code::LeaseLost);
        assert_eq!(refused(w.begin_step(&lease, "s", &json!(1), false).await), Code::LeaseLost);
        let wait = vec![NewWait::new(WaitKind::User, "q")];
        assert_eq!(refused(w.wait(&lease, wait, None).await), Code::LeaseLost);
        assert_eq!(refused(w.fail(&lease, Failure::new(ErrorClass::Unknown, "x")).await), Code::LeaseLost);
        assert_eq!(refused(w.release(&lease, None).await), Code::LeaseLost);
        assert_eq!(refused(w.close_out(&lease, success()).await), Code::LeaseLost);
        assert_eq!(refused(w.abandon_own(&lease, "why").await), Code::LeaseLost);
    }
    assert_eq!(bed.snapshot().await, before);
}

/// Invariant 6: a repeated verb returns its first reply; a different one is refused because the lease is
/// over.
pub async fn the_verb_that_ended_an_attempt_can_be_repeated(bed: &mut Bed) {
    let w = bed.worker("w");
    let held = bed.held(job("close"), "w").await;
    let first = w.close_out(&held.lease, success()).await.unwrap();
    bed.pass(2_000).await;
    assert_eq!(w.close_out(&held.lease, success()).await.unwrap(), first);
    let other = CloseOut::succeeded(payload(json!("something else")));
    assert_eq!(refused(w.close_out(&held.lease, other).await), Code::LeaseLost);
    assert_eq!(refused(w.close_out(&forged(&held.lease), success()).await), Code::LeaseLost);

    let held = bed.held(job("fail"), "w").await;
    let failure = || Failure::new(ErrorClass::Transport, "reset");
    let first = w.fail(&held.lease, failure()).await.unwrap();
    assert_eq!(first.next_retry_at, Some(bed.now() + 1_000));
    bed.pass(5_000).await;
    let next = bed.take(held.work.id, "v").await;
    assert_eq!(w.fail(&held.lease, failure()).await.unwrap(), first, "even after somebody else went on");
    bed.worker("v").close_out(&next.lease, success()).await.unwrap();

    let held = bed.held(job("wait"), "w").await;
    let waits = || vec![NewWait::new(WaitKind::User, "q1"), NewWait::new(WaitKind::Tool, "q2")];
    let first = w.wait(&held.lease, waits(), Some("two questions")).await.unwrap();
    let again = w.wait(&held.lease, waits(), Some("two questions")).await.unwrap();
    assert_eq!(first.ack, again.ack);
    assert_eq!(first.waits, again.waits, "with the same tokens");
    assert_eq!(bed.waits(held.work.id).await.len(), 2);
}

/// Nobody took over: the lapse is reversed, and the write counts.
pub async fn a_late_write_counts_while_nobody_took_over(bed: &mut Bed) {
    let w = bed.worker("w");
    let held = bed.held(job("close"), "w").await;
    bed.pass(LAPSE_MS).await;
    bed.expect(held.work.id, State::Queued).await;
    assert_eq!(refused(w.accept(&held.lease, AcceptStrength::Weak).await), Code::LeaseLapsed);
    assert_eq!(refused(w.release(&held.lease, None).await), Code::LeaseLapsed);
    let ack = w.close_out(&held.lease, success()).await.unwrap();
    assert_eq!(ack.state, State::Succeeded);
    let story = bed.story(held.work.id).await;
    assert_eq!(story, ["work_created", "claimed", "lease_lapsed", "recovered", "late", "close_out"]);
    let ended = bed.work(held.work.id).await;
    assert_eq!((ended.body.failures, ended.body.lapses), (0, 0), "the lapse is no failure after all");
    assert_eq!(w.close_out(&held.lease, success()).await.unwrap(), ack);

    let held = bed.held(job("renew"), "w").await;
    bed.pass(LAPSE_MS).await;
    let renewal = w.renew(&[(held.lease.clone(), None)]).await.unwrap().remove(0);
    assert_eq!(renewal.outcome.unwrap().expires_at, bed.now() + 6_000);
    bed.expect(held.work.id, State::Running).await;
    w.progress(&held.lease, &json!("goes on"), None).await.unwrap();

    let held = bed.held(job("fail"), "w").await;
    bed.pass(LAPSE_MS).await;
    let ack = w.fail(&held.lease, Failure::new(ErrorClass::Transport, "reset")).await.unwrap();
    assert_eq!(ack.state, State::RetryScheduled);
    assert_eq!(bed.work(held.work.id).await.body.failures, 1, "one failure, not two");

    let held = bed.held(job("wait"), "w").await;
    bed.pass(LAPSE_MS).await;
    let waiting = w.wait(&held.lease, vec![NewWait::new(WaitKind::User, "q")], None).await.unwrap();
    assert_eq!(waiting.ack.state, State::WaitingUser);
}

pub async fn a_late_write_is_refused_after_a_takeover(bed: &mut Bed) {
    let w = bed.worker("w");
    let held = bed.held(job("one"), "w").await;
    bed.pass(LAPSE_MS).await;
    let next = bed.take(held.work.id, "v").await;
    let before = bed.snapshot().await;
    assert_eq!(refused(w.close_out(&held.lease, success()).await), Code::LeaseLost);
    assert_eq!(refused(w.fail(&held.lease, Failure::new(ErrorClass::Unknown, "x")).await), Code::LeaseLost);
    let renewal = w.renew(&[(held.lease.clone(), None)]).await.unwrap().remove(0);
    assert_eq!(renewal.outcome.unwrap_err().code, Code::LeaseLost);
    assert_eq!(bed.snapshot().await, before);
    bed.worker("v").close_out(&next.lease, success()).await.unwrap();
    let attempts = bed.ledger.attempts(held.work.id).await.unwrap();
    assert_eq!(attempts.len(), 2);
    assert!(attempts.iter().all(|attempt| attempt.end.is_some()));
}

/// Until a Tick records the lapse, every write counts, however late.
pub async fn only_a_tick_finds_a_lapse(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    bed.clock.advance(3_600_000);
    bed.expect(held.work.id, State::Running).await;
    let early = bed.worker("v").claim_ids(claimant("v", "early"), vec![held.work.id]).await;
    assert_eq!(refused(early), Code::Busy);
    bed.worker("w").accept(&held.lease, AcceptStrength::Strong).await.unwrap();
    bed.sweep().await;
    bed.expect(held.work.id, State::Running).await;
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
    assert!(!bed.story(held.work.id).await.contains(&"lease_lapsed"));
}

/// Invariant 9: a holder that renews survives every clock jump, and an outage of the sweeper.
pub async fn clock_jumps_expire_no_living_holder(bed: &mut Bed) {
    let held = bed.held(job("alive"), "w").await;
    let silent = bed.held(NewWork { priority: 9, ..job("silent") }, "x").await;
    const HOUR: Millis = 3_600_000;
    for jump in [2 * HOUR, -2 * HOUR, -30 * 24 * HOUR, 30 * 24 * HOUR, 5 * HOUR, -HOUR] {
        bed.clock.jump(jump);
        for _ in 0..6 {
            bed.pass(2_000).await;
            let renewal = bed.worker("w").renew(&[(held.lease.clone(), None)]).await.unwrap().remove(0);
            renewal.outcome.expect("a living holder keeps its lease");
        }
    }
    bed.clock.advance(HOUR);
    bed.sweep().await;
    bed.expect(held.work.id, State::Running).await;
    assert!(!bed.story(held.work.id).await.contains(&"lease_lapsed"));
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
    // The silent holder is found, even though its expiry was far ahead of the clock at one time.
    bed.pass(LAPSE_MS + 6_000).await;
    assert!(bed.story(silent.work.id).await.contains(&"lease_lapsed"));
}

/// The daemon and the renewals pause for three seconds: longer than a short lease, and far less than a
/// default one.
pub async fn a_stall_expires_no_living_holder_of_a_short_lease(bed: &mut Bed) {
    let mut new = job("short");
    new.policy.lease = Some(LeaseTimings { ttl_ms: 1_500, renew_ms: 500, grace_ms: 500 });
    let held = bed.held(new, "w").await;
    for _ in 0..12 {
        bed.pass(250).await;
        let renewal = bed.worker("w").renew(&[(held.lease.clone(), None)]).await.unwrap().remove(0);
        renewal.outcome.unwrap();
    }
    bed.skip(3_000).await;
    for _ in 0..5 {
        bed.pass(250).await;
        bed.expect(held.work.id, State::Running).await;
    }
    bed.pass(250).await;
    assert!(bed.story(held.work.id).await.contains(&"lease_lapsed"), "it never came back");
}
