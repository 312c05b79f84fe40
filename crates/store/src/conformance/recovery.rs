//! Recovery of work items whose holder was lost: exactly as their disposition declares.

use serde_json::json;
use tenure_core::{
    Code, Fact, State,
    action::{Claimant, CloseOut, Decide, Failure},
    liveness::{Grade, Liveness},
    model::{AcceptStrength, ErrorClass, ReasonCode, WaitKind, Worker},
    policy::{OnExpiry, PolicyOverrides},
    recovery::Verdict,
};

use super::{Bed, LAPSE_MS, any, claimant, job, owner_bound, payload, refused, success};
use crate::{NewWait, NewWork};

async fn verdict(bed: &Bed, id: tenure_core::WorkId) -> Option<Verdict> {
    bed.events(id).await.iter().rev().find_map(|stored| match &stored.event.fact {
        Fact::Recovered(recovered) => Some(recovered.verdict),
        _ => None,
    })
}

/// It continues from a checkpoint; without one it starts over.
pub async fn rerunnable_work_goes_on(bed: &mut Bed) {
    let fresh = bed.held(job("fresh"), "w").await;
    let stepped = bed.held(job("stepped"), "w").await;
    let w = bed.worker("w");
    w.begin_step(&stepped.lease, "read", &json!(1), false).await.unwrap();
    w.complete_step(&stepped.lease, "read", &json!(1), &json!("text")).await.unwrap();
    w.begin_step(&stepped.lease, "write", &json!(2), false).await.unwrap();
    bed.pass(LAPSE_MS).await;
    assert_eq!(verdict(bed, fresh.work.id).await, Some(Verdict::Retry));
    assert_eq!(verdict(bed, stepped.work.id).await, Some(Verdict::Resume));

    let next = bed.take(stepped.work.id, "v").await;
    assert_eq!((next.work.attempt, next.work.body.failures, next.work.body.lapses), (2, 1, 1));
    assert_eq!(next.steps[0].1, Some(payload(json!("text"))));
    assert!(next.steps[1].0.completed_at.is_none());
    let (step, result) = bed.worker("v").begin_step(&next.lease, "read", &json!(1), false).await.unwrap();
    assert!(step.completed_at.is_some() && result.is_some(), "done once, reused");
    bed.worker("v").close_out(&next.lease, success()).await.unwrap();
}

/// Invariant 10: expiry alone never ends started owner-bound work.
pub async fn started_owner_bound_work_is_left(bed: &mut Bed) {
    let held = bed.held(owner_bound("one"), "w").await;
    let id = held.work.id;
    bed.pass(LAPSE_MS).await;
    bed.skip(30 * 24 * 3_600_000).await;
    bed.pass(LAPSE_MS).await;
    bed.expect(id, State::Stalled).await;
    assert_eq!(
        bed.work(id).await.body.reason.as_ref().map(|reason| reason.code),
        Some(ReasonCode::LeaseLapsed)
    );
    assert!(bed.claim("v", any(5)).await.is_empty());
    let mut reborn = claimant("w", "reborn");
    reborn.worker = Worker::new("w", "w-2");
    let other = bed.worker("w").claim_ids(reborn, vec![id]).await;
    assert_eq!(refused(other), Code::Busy, "the same id with a new incarnation is another owner");

    let again = bed.take(id, "w").await;
    assert!(again.lease.fence > held.lease.fence);
    assert_eq!(refused(bed.worker("w").release(&again.lease, None).await), Code::OwnerBound);
    assert_eq!(refused(bed.worker("w").close_out(&held.lease, success()).await), Code::LeaseLost);
    let ack = bed.worker("w").abandon_own(&again.lease, "draining").await.unwrap();
    assert_eq!(ack.state, State::Abandoned);

    let failing = bed.held(owner_bound("failing"), "w").await;
    let failure = Failure::new(ErrorClass::Transport, "reset");
    let ack = bed.worker("w").fail(&failing.lease, failure).await.unwrap();
    assert_eq!(ack.state, State::Failed, "only its owner could go on: its failure is the end");
}

pub async fn unstarted_owner_bound_work_goes_to_another(bed: &mut Bed) {
    let work = bed.ingest(owner_bound("one")).await;
    let deferred = Claimant { defer_start: true, ..claimant("w", "deferred") };
    let held = bed.worker("w").claim_ids(deferred.clone(), vec![work.id]).await.unwrap().remove(0);
    assert!(!held.work.started());
    bed.pass(LAPSE_MS).await;
    assert_eq!(verdict(bed, work.id).await, Some(Verdict::Retry));
    let next = bed.take(work.id, "v").await;
    assert!(next.work.started());

    let second = bed.ingest(owner_bound("two")).await;
    let deferred = Claimant { request_id: "again".to_owned(), ..deferred };
    let held = bed.worker("w").claim_ids(deferred, vec![second.id]).await.unwrap().remove(0);
    bed.worker("w").accept(&held.lease, AcceptStrength::Weak).await.unwrap();
    bed.pass(LAPSE_MS).await;
    bed.expect(second.id, State::Stalled).await;
}

pub async fn a_declared_timeout_ends_owner_bound_work(bed: &mut Bed) {
    let policy = PolicyOverrides { on_expiry: Some(OnExpiry::Timeout), ..job("x").policy };
    let held = bed.held(NewWork { policy, ..owner_bound("one") }, "w").await;
    bed.pass(LAPSE_MS).await;
    bed.expect(held.work.id, State::TimedOut).await;
    assert_eq!(refused(bed.worker("w").close_out(&held.lease, success()).await), Code::LeaseLost);
}

/// An answered owner-bound work item waits for its owner for a while, and stalls without it.
pub async fn an_owner_that_does_not_come_back(bed: &mut Bed) {
    let held = bed.held(owner_bound("one"), "w").await;
    let id = held.work.id;
    let wait = vec![NewWait::new(WaitKind::User, "q")];
    bed.worker("w").wait(&held.lease, wait, None).await.unwrap();
    bed.machine().resolve("default", "q", &json!(1), None).await.unwrap();
    bed.expect(id, State::Queued).await;
    assert!(bed.claim("v", any(5)).await.is_empty(), "only its owner may go on");
    let other = bed.worker("v").claim_ids(claimant("v", "ids"), vec![id]).await;
    assert_eq!(refused(other), Code::OwnerBound);
    bed.pass(9_000).await;
    bed.expect(id, State::Stalled).await;
    assert_eq!(
        bed.work(id).await.body.reason.as_ref().map(|reason| reason.code),
        Some(ReasonCode::OwnerAbsent)
    );
    let back = bed.take(id, "w").await;
    assert_eq!(back.answers[0].1, Some(payload(json!(1))));
    let again = vec![NewWait::new(WaitKind::User, "q2")];
    bed.worker("w").wait(&back.lease, again, None).await.unwrap();
    bed.machine().resolve("default", "q2", &json!(2), None).await.unwrap();
    let back = bed.claim("w", any(5)).await.remove(0);
    assert_eq!(back.work.id, id, "its owner also finds it by filter");
    bed.worker("w").close_out(&back.lease, success()).await.unwrap();
}

/// After three lapses in a row a person must decide.
pub async fn poison_is_quarantined(bed: &mut Bed) {
    let work = bed.ingest(job("lapses")).await;
    for worker in ["a", "b", "c"] {
        bed.take(work.id, worker).await;
        bed.pass(LAPSE_MS).await;
    }
    bed.expect(work.id, State::Quarantined).await;
    let row = bed.work(work.id).await;
    assert_eq!(row.body.reason.as_ref().map(|reason| reason.code), Some(ReasonCode::PoisonLapses));

    let same = bed.ingest(job("same")).await;
    for i in 0..3 {
        let held = bed.take(same.id, "w").await;
        let failure = Failure::new(ErrorClass::Unknown, "index out of bounds");
        let ack = bed.worker("w").fail(&held.lease, failure).await.unwrap();
        assert_eq!(ack.state, if i < 2 { State::RetryScheduled } else { State::Quarantined });
        bed.pass(10_000).await;
    }
    bed.person().decide(same.id, "fixed the index", Decide::Requeue).await.unwrap();
    let again = bed.take(same.id, "w").await;
    assert_eq!(again.work.body.failures, 0, "the counts start anew");
    bed.worker("w").close_out(&again.lease, success()).await.unwrap();
}

/// The request to abandon takes effect only after the lapse.
pub async fn an_abandon_request_waits_for_the_lapse(bed: &mut Bed) {
    let held = bed.held(owner_bound("one"), "w").await;
    let id = held.work.id;
    bed.person().request_abandon(id, "the machine was scrapped").await.unwrap();
    bed.person().request_abandon(id, "asked twice").await.unwrap();
    for _ in 0..5 {
        bed.pass(2_000).await;
        bed.worker("w").renew(&[(held.lease.clone(), None)]).await.unwrap()[0].outcome.clone().unwrap();
    }
    bed.expect(id, State::Running).await;
    bed.pass(LAPSE_MS).await;
    bed.expect(id, State::Abandoned).await;
    let last = bed.events(id).await.pop().unwrap().event;
    let message = last.message.unwrap();
    assert!(message.contains("ada") && message.contains("scrapped"), "{message}");

    let stalled = bed.held(owner_bound("two"), "w").await.work.id;
    bed.pass(LAPSE_MS).await;
    bed.expect(stalled, State::Stalled).await;
    bed.person().request_abandon(stalled, "give it up").await.unwrap();
    bed.pass(1_000).await;
    bed.expect(stalled, State::Abandoned).await;

    let queued = bed.ingest(job("three")).await.id;
    let ack = bed.person().request_abandon(queued, "not needed").await.unwrap();
    assert_eq!(ack.state, State::Cancelled, "nobody holds it: there is nothing to doubt");
    let racing = bed.held(job("four"), "w").await;
    bed.person().request_abandon(racing.work.id, "too slow").await.unwrap();
    let ack = bed.worker("w").close_out(&racing.lease, success()).await.unwrap();
    assert_eq!(ack.state, State::Succeeded, "it finished first");
}

/// The holder's process is proven gone: the expiry of the lease need not be awaited.
#[cfg(target_os = "linux")]
pub async fn a_proven_death_is_acted_on_at_once(bed: &mut Bed) {
    let Some(Liveness::LocalProcess { boot_id, pid_namespace, start_time, .. }) = crate::local_process()
    else {
        panic!("Linux tells about processes");
    };
    let mut child = std::process::Command::new("true").spawn().expect("a process that ends at once");
    let pid = child.id();
    child.wait().expect("it has ended");
    let liveness = Liveness::LocalProcess { boot_id, pid_namespace, pid, start_time };
    let dead = |request: &str| {
        let worker = Worker { liveness: liveness.clone(), ..Worker::new("w", "w-1") };
        Claimant::new(worker, request)
    };
    for (new, state) in [(job("free"), State::Queued), (owner_bound("bound"), State::Abandoned)] {
        let work = bed.ingest(new).await;
        let request = work.id.to_string();
        bed.worker("w").claim_ids(dead(&request), vec![work.id]).await.unwrap();
        bed.pass(3_000).await;
        bed.expect(work.id, state).await;
        let lapse = bed.events(work.id).await.remove(2).event;
        assert!(matches!(&lapse.fact, Fact::LeaseLapsed(lapsed) if lapsed.grade == Grade::Dead));
        assert_eq!(lapse.evidence.len(), 1, "the proof is kept");
    }
}

/// Failures of every class count; the last one is the end.
pub async fn lapses_and_failures_exhaust_together(bed: &mut Bed) {
    let work = bed.ingest(job("one")).await;
    for i in 0..3 {
        let held = bed.take(work.id, "w").await;
        if i == 1 {
            bed.pass(LAPSE_MS).await;
        } else {
            let failure = Failure::new(ErrorClass::Unavailable, &format!("try {i}"));
            bed.worker("w").fail(&held.lease, failure).await.unwrap();
            bed.pass(10_000).await;
        }
    }
    bed.expect(work.id, State::Failed).await;
    assert_eq!(bed.work(work.id).await.body.failures, 3);
    let errors: Vec<bool> = bed
        .ledger
        .attempts(work.id)
        .await
        .unwrap()
        .iter()
        .map(|a| a.end.as_ref().unwrap().error.is_some())
        .collect();
    assert_eq!(errors, [true, false, true], "every attempt's error is kept");
    let closed =
        bed.person().decide(work.id, "too late", Decide::Close(Box::new(CloseOut::new(State::Failed)))).await;
    assert_eq!(refused(closed), Code::Terminal);
}

/// Invariant 7: any number of sweepers may run at once; each lapse is recorded once.
pub async fn two_sweepers_find_a_lapse_once(bed: &mut Bed) {
    let mut works = Vec::new();
    for i in 0..20 {
        works.push(bed.held(job(&i.to_string()), "w").await.work.id);
    }
    let mut second = crate::Sweeper::new(bed.clock.clone());
    for _ in 0..LAPSE_MS / 1_000 {
        bed.clock.advance(1_000);
        let ledger = bed.ledger.clone();
        let (_, sweep) = tokio::join!(bed.sweep(), second.run_once(&ledger));
        assert_eq!(sweep.unwrap().failed, 0);
    }
    for id in works {
        assert_eq!(bed.story(id).await, ["work_created", "claimed", "lease_lapsed", "recovered"]);
    }
}

/// A new process judges no lease before it has watched it for its whole ttl, and says so.
pub async fn a_forecast_counts_the_watch_of_a_restarted_sweeper(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let ttl = held.work.spec.policy.lease.ttl_ms as i64;
    bed.pass(1_000).await;
    let lapse = held.expires_at + held.work.spec.policy.lease.grace_ms as i64;
    let foretold = bed.ledger.at_risk(&held.work).await.unwrap().unwrap().forecast;
    assert_eq!(foretold.at, Some(lapse));

    bed.clock.advance(LAPSE_MS);
    let mut restarted = crate::Sweeper::new(bed.clock.clone());
    assert_eq!(restarted.run_once(&bed.ledger).await.unwrap().not_yet, 1);
    let began = bed.now();
    for _ in 0..ttl / 1_000 {
        let work = bed.work(held.work.id).await;
        let foretold = bed.ledger.at_risk(&work).await.unwrap().expect("it is held").forecast;
        assert_eq!(foretold.at, Some(began + ttl), "{foretold:?}");
        assert!(foretold.sentence.contains("after a restart"), "{foretold:?}");
        bed.clock.advance(1_000);
        restarted.run_once(&bed.ledger).await.unwrap();
    }
    assert_eq!(verdict(bed, held.work.id).await, Some(Verdict::Retry), "it was decided at that time");
}
