//! Recovery: which sweeper may judge a lease, from which evidence, and the verdict of each disposition.

use tenure_core::{
    Action, Actor, Event, Fact, Reply, State, WorkId,
    action::Ingest,
    liveness::{Grade, Seen, Sighting},
    model::{AcceptStrength, Disposition, ErrorClass, ReasonCode},
    policy::OnExpiry,
    recovery::Verdict,
    reply::Ticked,
};

use crate::common::*;

fn verdict(event: &Event) -> Option<Verdict> {
    match &event.fact {
        Fact::Recovered(recovered) => Some(recovered.verdict),
        _ => None,
    }
}

#[test]
fn a_sweeper_judges_a_lease_only_after_watching_it_for_a_ttl() {
    let mut w = World::default();
    let lease = w.held("a");
    assert_eq!(w.after(LAPSE - 1, lease.work), Ticked::Nothing, "grace is not over");
    w.pass(1);
    let row = w.row(lease.work).clone();
    for watched in [0, 1, 44_999] {
        assert_eq!(w.tick_with(lease.work, watched, None), Ticked::NotYet);
        assert_eq!(w.row(lease.work), &row, "9: nothing is written");
    }
    assert_eq!(w.tick_with(lease.work, 45_000, None), Ticked::Acted);
    assert_eq!(w.story(lease.work)[2..], ["lease_lapsed", "recovered"], "one tick, from lapse to verdict");
}

/// 9: while a tick is delayed by an outage, renewals are delayed as well.
#[test]
fn a_tick_judges_the_lease_as_it_stood_when_the_sweeper_looked() {
    let mut w = World::default();
    let lease = w.held("a");
    w.pass(LAPSE - 1);
    let delayed = Action::Tick { work: lease.work, looked_at: w.now, watched_ms: u64::MAX, sighting: None };
    w.pass(HOUR);
    let row = w.row(lease.work).clone();
    let reply = w.submit(Actor::system("sweeper"), delayed).unwrap();
    assert!(matches!(reply, Reply::Ticked(Ticked::NotYet)), "{reply:?}");
    assert_eq!(w.row(lease.work), &row);
    w.renew(&lease).unwrap();
}

#[test]
fn the_ttl_that_counts_is_the_leases_own() {
    let mut w = World::default();
    let lease = w.held_with("a", |i| i.policy.lease.ttl_ms = 600_000);
    w.pass(630_000);
    assert_eq!(w.tick_with(lease.work, 599_999, None), Ticked::NotYet);
    assert_eq!(w.tick_with(lease.work, 600_000, None), Ticked::Acted);
}

#[test]
fn a_clock_that_went_back_rewrites_an_expiry_out_of_reach() {
    let mut w = World::default();
    let lease = w.held("a");
    w.now = START - 24 * HOUR;
    assert_eq!(w.tick_with(lease.work, 0, None), Ticked::Nothing);
    let row = w.row(lease.work);
    assert_eq!(row.lease.as_ref().unwrap().expires_at, w.now + 45 * SECOND);
    assert_eq!(row.due_at, Some(w.now + LAPSE));
    w.renew(&lease).unwrap();
    assert_eq!(w.after(LAPSE, lease.work), Ticked::Acted);
    let next = w.claim(lease.work, &w2());
    assert_eq!(next.fence, lease.fence + 1, "5: the fence grows though the clock went back");
}

#[test]
fn verdicts_after_a_sighting() {
    let table =
        [(Seen::Gone, Ticked::Acted), (Seen::Stopped, Ticked::Nothing), (Seen::Running, Ticked::Nothing)];
    for (seen, expected) in table {
        let mut w = World::default();
        let id = w.ingest("a");
        w.claim(id, &local());
        assert_eq!(w.row(id).due_at, Some(START + 15 * SECOND), "evidence is checked again soon");
        assert_eq!(w.tick_seen(id, seen), expected, "{seen:?}, lease valid");
    }
    let mut w = World::default();
    let lease = w.held("a");
    let stale = Sighting { fence: lease.fence - 1, seen: Seen::Gone, detail: "another attempt's".into() };
    assert_eq!(
        w.tick_with(lease.work, 0, Some(stale)),
        Ticked::Nothing,
        "evidence for another fence proves nothing"
    );
}

#[test]
fn a_dead_owner_is_abandoned_with_the_proof() {
    let mut w = World::default();
    let id = w.ingest_with("a", owner_bound);
    w.claim(id, &local());
    assert_eq!(w.tick_seen(id, Seen::Gone), Ticked::Acted);
    assert_eq!(w.state(id), State::Abandoned);
    assert!(w.log[&id].iter().any(|e| e.evidence.iter().any(|e| e.reference.contains("4711"))));

    let mut w = World::default();
    let id = w.ingest_with("a", owner_bound);
    w.claim(id, &local());
    w.after(LAPSE, id);
    assert_eq!((w.state(id), w.row(id).due_at), (State::Stalled, Some(w.now + 45 * SECOND)));
    assert_eq!(w.tick_seen(id, Seen::Stopped), Ticked::Nothing, "suspended is not dead");
    assert_eq!(w.tick_seen(id, Seen::Gone), Ticked::Acted);
    assert_eq!(w.state(id), State::Abandoned);
    assert_eq!(w.last(id).evidence[0].reference, "pid 4711 on host-a");
}

#[test]
fn the_verdict_for_each_disposition() {
    type Prepare = fn(&mut Ingest);
    let table: [(&str, Prepare, bool, State, Option<Verdict>); 5] = [
        ("rerunnable, not started", |_| {}, false, State::Queued, Some(Verdict::Retry)),
        ("rerunnable, started", |_| {}, true, State::Queued, Some(Verdict::Retry)),
        ("owner-bound", owner_bound, true, State::Stalled, None),
        (
            "owner-bound, declared",
            |i| {
                owner_bound(i);
                i.policy.on_expiry = OnExpiry::Timeout;
            },
            true,
            State::TimedOut,
            Some(Verdict::TimeOut),
        ),
        (
            "one failure allowed",
            |i| i.policy.retry.max_attempts = 1,
            true,
            State::Failed,
            Some(Verdict::Fail),
        ),
    ];
    for (name, prepare, starts, state, expected) in table {
        let mut w = World::default();
        let lease = w.held_with("a", prepare);
        if starts {
            w.accept_work(&lease, AcceptStrength::Weak).unwrap();
        }
        w.after(LAPSE, lease.work);
        assert_eq!(w.state(lease.work), state, "{name}");
        assert_eq!(verdict(w.last(lease.work)), expected, "{name}");
        assert_eq!(w.row(lease.work).body.failures, 1, "{name}: a lapse is a failure");
        if state.is_terminal() {
            let error = w.row(lease.work).body.error.as_ref().map(|error| error.class);
            assert_eq!(error, Some(ErrorClass::Timeout), "{name}: a typed outcome");
        }
    }
}

#[test]
fn expiry_alone_never_ends_started_owner_bound_work() {
    let mut w = World::default();
    let lease = w.held_with("a", owner_bound);
    w.after(LAPSE, lease.work);
    assert_eq!(w.row(lease.work).due_at, None, "no evidence: nothing happens by itself");
    for _ in 0..10 {
        assert_eq!(w.after(1_000 * HOUR, lease.work), Ticked::Nothing);
    }
    assert_eq!(w.state(lease.work), State::Stalled);
    assert_eq!(w.row(lease.work).body.reason.as_ref().unwrap().code, ReasonCode::LeaseLapsed);
    w.renew(&lease).unwrap();
    assert_eq!(w.state(lease.work), State::Running, "its owner may still come back");
}

#[test]
fn three_lapses_in_a_row_are_poison_before_exhaustion() {
    let mut w = World::default();
    let id = w.ingest("a");
    for lapse in 1..=3 {
        let lease = w.claim(id, &w1());
        w.renew(&lease).unwrap();
        w.after(LAPSE, id);
        assert_eq!(w.row(id).body.lapses, lapse);
    }
    assert_eq!(w.state(id), State::Quarantined);
    assert_eq!(w.row(id).body.reason.as_ref().unwrap().code, ReasonCode::PoisonLapses);
}

#[test]
fn activity_of_a_holder_resets_the_count_of_lapses() {
    let table: [(&str, Verb); 3] = [
        ("release", |w, l| {
            w.release(l).unwrap();
        }),
        ("fail", |w, l| {
            w.fail(l, ErrorClass::Transport, "x").unwrap();
            w.retry_now(l.work).unwrap();
        }),
        ("wait", |w, l| {
            w.wait(l, "r");
            w.resolve("r", "x").unwrap();
        }),
    ];
    for (name, act) in table {
        let mut w = World::default();
        let id = w.ingest_with("a", |i| i.policy.retry.max_attempts = 9);
        for _ in 0..2 {
            w.claim(id, &w1());
            w.after(LAPSE, id);
        }
        let lease = w.claim(id, &w1());
        act(&mut w, &lease);
        assert_eq!(w.row(id).body.lapses, 0, "{name}");
    }
}

#[test]
fn an_abandon_request_acts_only_after_the_lapse() {
    let mut w = World::default();
    let lease = w.held("a");
    w.accept_work(&lease, AcceptStrength::Strong).unwrap();
    assert_eq!(w.abandon(lease.work).unwrap().state, State::Running);
    let events = w.events();
    w.abandon(lease.work).unwrap();
    assert_eq!(w.events(), events, "repeated, written once");
    assert_eq!(w.tick(lease.work), Ticked::Nothing);
    assert_eq!(w.after(LAPSE, lease.work), Ticked::Acted);
    assert_eq!(w.state(lease.work), State::Abandoned, "it is the first rule");
    let message = w.last(lease.work).message.clone().unwrap();
    assert!(message.contains("ana") && message.contains("the host is gone"), "{message}");
}

#[test]
fn an_abandon_request_from_each_state() {
    let mut w = World::default();
    let stalled = w.held_with("a", owner_bound);
    w.after(LAPSE, stalled.work);
    w.abandon(stalled.work).unwrap();
    assert_eq!(w.row(stalled.work).due_at, Some(w.now));
    assert_eq!(w.tick(stalled.work), Ticked::Acted);
    assert_eq!(w.state(stalled.work), State::Abandoned);
    assert_eq!(w.abandon(stalled.work).unwrap().state, State::Abandoned, "again");

    let outside = w.ingest_with("b", external);
    assert_eq!(w.abandon(outside).unwrap().state, State::Abandoned);
    let queued = w.ingest("c");
    assert_eq!(w.abandon(queued).unwrap().state, State::Cancelled, "nobody held it");
    let waiting = w.held("d");
    w.wait(&waiting, "ref");
    assert_eq!(w.abandon(waiting.work).unwrap().state, State::Cancelled);
    let aside = w.ingest("e");
    w.quarantine(aside).unwrap();
    assert!(w.abandon(aside).is_err());
}

fn answered_owner_bound(w: &mut World, change: fn(&mut Ingest)) -> Lease {
    let lease = w.held_with("a", |i| {
        owner_bound(i);
        change(i);
    });
    w.wait(&lease, "ref");
    w.resolve("ref", "yes").unwrap();
    lease
}

#[test]
fn an_owner_that_does_not_come_back_stalls_its_work() {
    let mut w = World::default();
    let lease = answered_owner_bound(&mut w, |_| {});
    assert_eq!(w.row(lease.work).due_at, Some(START + LAPSE));
    assert_eq!(w.after(LAPSE - 1, lease.work), Ticked::Nothing);
    assert_eq!(w.after(1, lease.work), Ticked::Acted);
    let row = w.row(lease.work);
    assert_eq!((row.state, &row.lease, row.due_at), (State::Stalled, &None, None));
    assert_eq!(row.body.reason.as_ref().unwrap().code, ReasonCode::OwnerAbsent);
    assert_eq!(row.body.failures, 0);

    let mut w = World::default();
    let lease = answered_owner_bound(&mut w, |i| i.policy.on_expiry = OnExpiry::Timeout);
    w.after(LAPSE, lease.work);
    assert_eq!(w.state(lease.work), State::TimedOut, "as it declared");
}

#[test]
fn an_absent_owner_does_not_occupy_a_session_of_another_work() {
    let mut w = World::default();
    let lease = w.held_with("a", |i| {
        owner_bound(i);
        in_session(i)
    });
    w.wait(&lease, "ref");
    let other = w.held_with("b", in_session);
    w.resolve("ref", "yes").unwrap();
    w.pass(LAPSE);
    w.renew(&other).unwrap();
    assert_eq!(w.tick(lease.work), Ticked::Nothing, "5: the session is held already");
    assert_eq!(w.state(lease.work), State::Queued);
    assert_eq!(w.row(lease.work).due_at, Some(w.now + 45 * SECOND), "checked again");
    w.close(&other, State::Succeeded).unwrap();
    assert_eq!(w.after(45 * SECOND, lease.work), Ticked::Acted);
    assert_eq!(w.state(lease.work), State::Stalled);
}

#[test]
fn a_tick_of_ended_or_quarantined_work_does_nothing() {
    let mut w = World::default();
    let lease = w.held("a");
    w.close(&lease, State::Succeeded).unwrap();
    let aside = w.ingest("b");
    w.quarantine(aside).unwrap();
    for id in [lease.work, aside] {
        let row = w.row(id).clone();
        assert_eq!(w.after(1_000 * HOUR, id), Ticked::Nothing);
        assert_eq!(w.row(id), &row);
    }
}

#[test]
fn a_lapse_is_recorded_with_its_grade() {
    for (seen, grade, code) in [
        (None, Grade::Silent, ReasonCode::LeaseLapsed),
        (Some(Seen::Stopped), Grade::Suspended, ReasonCode::LeaseLapsed),
        (Some(Seen::Gone), Grade::Dead, ReasonCode::HolderDead),
    ] {
        let mut w = World::default();
        let id = w.ingest("a");
        let lease = w.claim(id, &local());
        w.pass(LAPSE);
        let sighting = seen.map(|seen| Sighting { fence: lease.fence, seen, detail: "pid".into() });
        w.tick_with(id, u64::MAX, sighting);
        let Fact::LeaseLapsed(lapsed) = &w.log[&id][2].fact else { panic!("{:?}", w.story(id)) };
        assert_eq!(lapsed.grade, grade);
        let folded = tenure_core::fold::fold(&w.log[&id][..3]).unwrap();
        assert_eq!(folded.body.reason.as_ref().unwrap().code, code);
        assert_eq!(w.row(id).spec.disposition, Disposition::Rerunnable);
    }
}

/// Asks the holder of `work` to release it.
fn drain(w: &mut World, work: WorkId) {
    let request = Action::RequestRelease { work, reason: "the host goes".into() };
    w.submit(Actor::machine("gateway"), request).unwrap();
}

#[test]
fn a_drain_never_ends_rerunnable_work_whose_holder_stays_silent() {
    let mut w = World::default();
    let lease = w.held_with("a", |i| i.policy.retry.max_attempts = 1);
    drain(&mut w, lease.work);
    w.pass(LAPSE - 1);
    assert!(w.explain(lease.work).sentence.contains("recovery queues it again"));
    w.after(1, lease.work);
    assert_eq!(w.state(lease.work), State::Queued);
    let lease = w.claim(lease.work, &w2());
    assert!(!w.renew(&lease).unwrap().release_requested, "the next holder is not asked");
    w.after(LAPSE, lease.work);
    assert_eq!(w.state(lease.work), State::Failed, "this holder was not drained");

    let work = w.ingest("b");
    for n in 0..4 {
        w.claim(work, &worker("w", &n.to_string()));
        drain(&mut w, work);
        w.after(LAPSE, work);
        let body = &w.row(work).body;
        assert_eq!((w.state(work), body.failures, body.lapses), (State::Queued, 0, 0), "{n}");
    }
}

#[test]
fn a_late_write_after_a_drain_subtracts_no_other_failure() {
    let mut w = World::default();
    let first = w.held("a");
    w.after(LAPSE, first.work);
    let lease = w.claim(first.work, &w2());
    drain(&mut w, lease.work);
    w.after(LAPSE, lease.work);
    assert!(w.renew(&lease).unwrap().release_requested, "it is still asked to release");
    assert!(w.renew(&lease).unwrap().release_requested);
    let body = &w.row(lease.work).body;
    assert_eq!((w.state(lease.work), body.failures, body.lapses), (State::Running, 1, 1));
}
