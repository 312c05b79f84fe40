//! Cancel: a work item without a holder ends at once; a holder is notified and given a deadline.

use tenure_core::{
    Action, Code, Fact, State,
    event::CancelProof,
    liveness::Seen,
    model::{AcceptStrength, ErrorClass},
    reply::Ticked,
};

use crate::common::*;

fn asked(w: &mut World, bound: bool) -> Lease {
    let lease = if bound { w.held_with("a", owner_bound) } else { w.held("a") };
    w.accept_work(&lease, AcceptStrength::Strong).unwrap();
    w.cancel(lease.work).unwrap();
    lease
}

fn proof(w: &World, lease: &Lease) -> CancelProof {
    match &w.last(lease.work).fact {
        Fact::Cancelled(cancelled) => cancelled.proof,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cancel_from_each_state() {
    let table: [(&str, Prepare, Result<State, Code>); 11] = [
        ("queued", |w| w.ingest("a"), Ok(State::Cancelled)),
        ("running", |w| w.held("a").work, Ok(State::CancelRequested)),
        (
            "waiting",
            |w| {
                let l = w.held("a");
                w.wait(&l, "r");
                l.work
            },
            Ok(State::Cancelled),
        ),
        ("owned externally", |w| w.ingest_with("a", external), Ok(State::Cancelled)),
        (
            "retry scheduled",
            |w| {
                let l = w.held("a");
                w.fail(&l, ErrorClass::Transport, "x").unwrap();
                l.work
            },
            Ok(State::Cancelled),
        ),
        (
            "stalled, started owner-bound",
            |w| {
                let l = w.held_with("a", owner_bound);
                w.after(LAPSE, l.work);
                l.work
            },
            Ok(State::Stalled),
        ),
        ("asked before", |w| asked(w, false).work, Ok(State::CancelRequested)),
        (
            "cancelled",
            |w| {
                let id = w.ingest("a");
                w.cancel(id).unwrap();
                id
            },
            Ok(State::Cancelled),
        ),
        (
            "quarantined",
            |w| {
                let id = w.ingest("a");
                w.quarantine(id).unwrap();
                id
            },
            Err(Code::IllegalState),
        ),
        (
            "over",
            |w| {
                let l = w.held("a");
                w.close(&l, State::Succeeded).unwrap();
                l.work
            },
            Err(Code::Terminal),
        ),
        ("unknown", |w| w.work_id(), Err(Code::NotFound)),
    ];
    for (name, prepare, expected) in table {
        let mut w = World::default();
        let id = prepare(&mut w);
        let outcome = w.cancel(id).map(|ack| ack.state).map_err(|refusal| refusal.code);
        assert_eq!(outcome, expected, "{name}");
    }
}

#[test]
fn a_cancel_asked_twice_is_written_once() {
    let mut w = World::default();
    let lease = asked(&mut w, false);
    let (events, row) = (w.events(), w.row(lease.work).clone());
    w.pass(SECOND);
    w.cancel(lease.work).unwrap();
    assert_eq!((w.events(), w.row(lease.work)), (events, &row), "the first deadline applies");
}

#[test]
fn a_renewal_notifies_the_holder_once() {
    let mut w = World::default();
    let lease = asked(&mut w, false);
    w.pass(5 * SECOND);
    assert!(w.renew(&lease).unwrap().cancel_requested);
    assert_eq!(w.row(lease.work).body.cancel.as_ref().unwrap().acknowledged_at, Some(w.now));
    let events = w.events();
    assert!(w.renew(&lease).unwrap().cancel_requested);
    assert_eq!(w.events(), events, "the receipt is written once");
    w.pass(55 * SECOND);
    assert_eq!(w.renew(&lease).unwrap_err().code, Code::CancelDeadline);
    assert_eq!(w.state(lease.work), State::CancelRequested, "nothing ends while the lease is valid");
    assert_eq!(w.tick(lease.work), Ticked::Nothing);
}

#[test]
fn verbs_of_a_holder_after_a_cancel_request() {
    type Outcome = fn(&mut World, &Lease) -> Result<State, Code>;
    let table: [(&str, Outcome, bool, Result<State, Code>); 12] = [
        ("release", |w, l| w.release(l).map(|a| a.state).map_err(|r| r.code), false, Ok(State::Cancelled)),
        ("release", |w, l| w.release(l).map(|a| a.state).map_err(|r| r.code), true, Err(Code::OwnerBound)),
        ("cancelled", |w, l| closed(w, l, State::Cancelled), false, Ok(State::Cancelled)),
        ("cancelled", |w, l| closed(w, l, State::Cancelled), true, Ok(State::Cancelled)),
        ("succeeded", |w, l| closed(w, l, State::Succeeded), false, Ok(State::Succeeded)),
        (
            "warnings",
            |w, l| closed(w, l, State::CompletedWithWarnings),
            false,
            Ok(State::CompletedWithWarnings),
        ),
        ("failed", |w, l| closed(w, l, State::Failed), false, Ok(State::Failed)),
        ("timed out", |w, l| closed(w, l, State::TimedOut), false, Err(Code::IllegalState)),
        (
            "fail",
            |w, l| w.fail(l, ErrorClass::Transport, "x").map(|a| a.state).map_err(|r| r.code),
            false,
            Ok(State::Failed),
        ),
        (
            "wait",
            |w, l| w.wait_with(l, "r", |_| {}).map(|_| w.state(l.work)).map_err(|r| r.code),
            false,
            Err(Code::IllegalState),
        ),
        (
            "progress",
            |w, l| w.progress(l, None).map(|a| a.state).map_err(|r| r.code),
            false,
            Ok(State::CancelRequested),
        ),
        ("abandon", |w, l| w.abandon_own(l).map(|a| a.state).map_err(|r| r.code), true, Ok(State::Abandoned)),
    ];
    for (name, verb, bound, expected) in table {
        let mut w = World::default();
        let lease = asked(&mut w, bound);
        assert_eq!(verb(&mut w, &lease), expected, "{name}, owner-bound: {bound}");
    }
}

fn closed(w: &mut World, lease: &Lease, state: State) -> Result<State, Code> {
    w.close(lease, state).map(|ack| ack.state).map_err(|refusal| refusal.code)
}

#[test]
fn closing_out_as_cancelled_needs_a_cancel_request() {
    let mut w = World::default();
    let lease = w.held("a");
    assert_eq!(closed(&mut w, &lease, State::Cancelled), Err(Code::IllegalState));
}

#[test]
fn a_lapse_cancels_harmless_work_and_abandons_other_work_at_the_deadline() {
    let mut w = World::default();
    let lease = asked(&mut w, false);
    assert_eq!(w.tick_with(lease.work, u64::MAX, None), Ticked::Nothing);
    assert_eq!(w.after(LAPSE, lease.work), Ticked::Acted);
    assert_eq!((w.state(lease.work), proof(&w, &lease)), (State::Cancelled, CancelProof::Lapsed));

    let mut w = World::default();
    let lease = w.held_with("a", owner_bound);
    let reason = "stop".to_owned();
    w.person(Action::Cancel { work: lease.work, reason, deadline_ms: Some(600_000) }).unwrap();
    assert_eq!(w.after(LAPSE, lease.work), Ticked::Nothing, "its deadline has not passed");
    assert_eq!(w.row(lease.work).due_at, Some(START + 600_000));
    w.now = START + 600_000;
    assert_eq!(w.tick(lease.work), Ticked::Acted);
    assert_eq!(w.state(lease.work), State::Abandoned);
}

#[test]
fn a_cancelled_holder_is_judged_like_any_other() {
    let mut w = World::default();
    let lease = asked(&mut w, false);
    w.pass(LAPSE);
    assert_eq!(w.tick_with(lease.work, 44_999, None), Ticked::NotYet, "9: watched too briefly");
    let id = w.ingest("b");
    let local = w.claim(id, &local());
    w.cancel(id).unwrap();
    assert_eq!(w.row(id).due_at, Some(w.now + 15 * SECOND), "its process is looked at again");
    assert_eq!(w.tick_seen(local.work, Seen::Gone), Ticked::Acted, "proof needs no waiting");
    assert_eq!(w.state(id), State::Cancelled);
}

#[test]
fn an_abandon_request_does_not_wait_for_the_cancel_deadline() {
    let mut w = World::default();
    let lease = w.held_with("a", owner_bound);
    let reason = "stop".to_owned();
    w.person(Action::Cancel { work: lease.work, reason, deadline_ms: Some(3_600_000) }).unwrap();
    w.abandon(lease.work).unwrap();
    assert_eq!(w.row(lease.work).due_at, Some(START + LAPSE), "12: the lapse is due first");
    assert_eq!(w.after(LAPSE, lease.work), Ticked::Acted);
    assert_eq!(w.state(lease.work), State::Abandoned);
}

#[test]
fn a_holder_that_renews_after_a_cancel_while_it_was_stalled() {
    let mut w = World::default();
    let lease = w.held_with("a", owner_bound);
    w.after(LAPSE, lease.work);
    w.cancel(lease.work).unwrap();
    assert!(w.renew(&lease).unwrap().cancel_requested);
    assert_eq!(w.state(lease.work), State::CancelRequested);
    assert_eq!(closed(&mut w, &lease, State::Cancelled), Ok(State::Cancelled));
    assert_eq!(proof(&w, &lease), CancelProof::Declared);
}

#[test]
fn operators_give_a_reason() {
    let mut w = World::default();
    let work = w.ingest("a");
    let id = w.work_id();
    for reason in [String::new(), "  ".into()] {
        let actions = [
            Action::Cancel { work, reason: reason.clone(), deadline_ms: None },
            Action::RequestAbandon { work, reason: reason.clone() },
            Action::RequestRelease { work, reason: reason.clone() },
            Action::RetryNow { work, reason: reason.clone() },
            Action::Quarantine { work, reason: reason.clone() },
            Action::RevokeWaits { work, reason: reason.clone() },
            Action::Rerun { of: work, id, from_step: None, execute: Vec::new(), reason: reason.clone() },
        ];
        for action in actions {
            assert_eq!(w.person(action).unwrap_err().code, Code::ReasonMissing);
        }
    }
    let far = Action::Cancel { work, reason: "x".into(), deadline_ms: Some(u64::MAX) };
    assert_eq!(w.person(far).unwrap_err().code, Code::ImpossibleTimings);
    assert_eq!(w.state(work), State::Queued);
}
