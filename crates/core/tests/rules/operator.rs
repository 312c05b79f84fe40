//! Operators: quarantine and a person's decision, retry now; and several decisions in one batch.

use tenure_core::{
    Action, Actor, Code, State, Submission, WorkId,
    action::{Claim, ClaimBy, CloseOut, Decide, Resolve, Tenants},
    decide,
    model::{ErrorClass, ReasonCode, WaitState},
    reply::Ticked,
};

use crate::common::*;

#[test]
fn a_quarantine_from_each_state() {
    let table: [(&str, Prepare, Result<State, Code>); 8] = [
        ("queued", |w| w.ingest("a"), Ok(State::Quarantined)),
        ("running", |w| w.held("a").work, Ok(State::Quarantined)),
        (
            "waiting",
            |w| {
                let l = w.held("a");
                w.wait(&l, "r");
                l.work
            },
            Ok(State::Quarantined),
        ),
        (
            "retry scheduled",
            |w| {
                let l = w.held("a");
                w.fail(&l, ErrorClass::Transport, "x").unwrap();
                l.work
            },
            Ok(State::Quarantined),
        ),
        (
            "stalled",
            |w| {
                let l = w.held_with("a", owner_bound);
                w.after(LAPSE, l.work);
                l.work
            },
            Ok(State::Quarantined),
        ),
        ("owned externally", |w| w.ingest_with("a", external), Ok(State::Quarantined)),
        (
            "cancel requested",
            |w| {
                let l = w.held("a");
                w.cancel(l.work).unwrap();
                l.work
            },
            Err(Code::IllegalState),
        ),
        (
            "over",
            |w| {
                let l = w.held("a");
                w.close(&l, State::Failed).unwrap();
                l.work
            },
            Err(Code::Terminal),
        ),
    ];
    for (name, prepare, expected) in table {
        let mut w = World::default();
        let id = prepare(&mut w);
        let outcome = w.quarantine(id).map(|ack| ack.state).map_err(|refusal| refusal.code);
        assert_eq!(outcome, expected, "{name}");
        if expected.is_ok() {
            let events = w.events();
            w.quarantine(id).unwrap();
            assert_eq!(w.events(), events, "{name}: once");
            let row = w.row(id);
            assert_eq!((row.due_at, &row.lease), (None, &None), "{name}");
            assert_eq!(row.body.reason.as_ref().unwrap().code, ReasonCode::Operator, "{name}");
            let open = |wait: &&tenure_core::Wait| wait.state == WaitState::Open;
            assert_eq!(w.records.waits.get(&id).into_iter().flatten().filter(open).count(), 0, "{name}");
        }
    }
}

#[test]
fn if_seq_refuses_a_work_that_has_changed() {
    let mut w = World::default();
    let id = w.ingest("a");
    let seen = w.row(id).seq;
    w.quarantine(id).unwrap();
    let events = w.events();
    let cancel = |seq| {
        let mut submission = Submission::new(
            Actor::person("ana"),
            Tenants::All,
            Action::Cancel { work: id, reason: "x".into(), deadline_ms: None },
            [7; 16],
        );
        submission.if_seq = Some(seq);
        submission
    };
    let refused = decide(&w.records, &cancel(seen), w.now).unwrap_err();
    assert_eq!(refused.code, Code::StateChanged);
    assert!(refused.detail.contains("quarantined at event 2"), "{}", refused.detail);
    assert_eq!(w.events(), events);
    let now = w.row(id).seq;
    assert_ne!(decide(&w.records, &cancel(now), w.now).unwrap_err().code, Code::StateChanged);
}

#[test]
fn a_quarantine_ends_the_lease() {
    let mut w = World::default();
    let lease = w.held("a");
    w.quarantine(lease.work).unwrap();
    assert_eq!(w.close(&lease, State::Succeeded).unwrap_err().code, Code::LeaseLost);
}

#[test]
fn only_a_person_decides_and_only_on_quarantined_work() {
    let mut w = World::default();
    let id = w.ingest("a");
    assert_eq!(w.decide(id, Decide::Requeue).unwrap_err().code, Code::IllegalState);
    w.quarantine(id).unwrap();
    let action = || Action::Decide { work: id, reason: "x".into(), decision: Decide::Requeue };
    for actor in [Actor::machine("bot"), Actor::worker("w1"), Actor::system("sweeper")] {
        assert_eq!(w.submit(actor, action()).unwrap_err().code, Code::PersonRequired);
    }
    let silent = Action::Decide { work: id, reason: " ".into(), decision: Decide::Requeue };
    assert_eq!(w.person(silent).unwrap_err().code, Code::ReasonMissing);
    assert_eq!(w.decide(id, Decide::Requeue).unwrap().state, State::Queued);
    assert_eq!(w.last(id).message.as_deref(), Some("I looked"));
}

#[test]
fn a_requeue_restarts_the_failure_counts() {
    let mut w = World::default();
    let id = w.ingest("a");
    for _ in 0..3 {
        if w.state(id) == State::RetryScheduled {
            w.retry_now(id).unwrap();
        }
        let lease = w.claim(id, &w1());
        w.fail(&lease, ErrorClass::Unknown, "same").unwrap();
    }
    assert_eq!(w.state(id), State::Quarantined);
    w.decide(id, Decide::Requeue).unwrap();
    let body = &w.row(id).body;
    assert_eq!((body.failures, body.lapses, &body.fingerprint, &body.reason), (0, 0, &None, &None));
    let lease = w.claim(id, &w1());
    assert_eq!(w.fail(&lease, ErrorClass::Unknown, "same").unwrap().state, State::RetryScheduled);
}

#[test]
fn the_ends_that_a_person_may_declare() {
    for state in State::ALL.into_iter().filter(|state| state.is_terminal()) {
        let mut w = World::default();
        let id = w.ingest("a");
        w.quarantine(id).unwrap();
        let events = w.events();
        let outcome = w.decide(id, Decide::Close(Box::new(close(state)))).map(|ack| ack.state);
        match state {
            State::TimedOut | State::CompletedWithWarnings => {
                assert_eq!(outcome.unwrap_err().code, Code::IllegalState, "{state}");
                assert_eq!(w.events(), events, "24");
            }
            _ => assert_eq!(outcome, Ok(state)),
        }
    }
    let mut w = World::default();
    let id = w.ingest("a");
    w.quarantine(id).unwrap();
    let unproven = Decide::Close(Box::new(CloseOut { result: None, ..close(State::Succeeded) }));
    assert_eq!(w.decide(id, unproven).unwrap_err().code, Code::ResultMissing);
}

#[test]
fn externally_owned_work_never_enters_the_queue() {
    let mut w = World::default();
    let id = w.ingest_with("a", external);
    w.quarantine(id).unwrap();
    assert_eq!(w.decide(id, Decide::Requeue).unwrap_err().code, Code::IllegalState);
    assert_eq!(w.decide(id, Decide::Close(Box::new(close(State::Failed)))).unwrap().state, State::Failed);
}

#[test]
fn retry_now_cuts_a_backoff_short() {
    let mut w = World::default();
    let lease = w.held("a");
    assert_eq!(w.retry_now(lease.work).unwrap_err().code, Code::IllegalState);
    w.fail(&lease, ErrorClass::Unavailable, "down").unwrap();
    assert_eq!(w.retry_now(lease.work).unwrap().state, State::Queued);
    assert_eq!(w.row(lease.work).next_retry_at, None);
    assert_eq!(w.after(HOUR, lease.work), Ticked::Nothing, "the retry is not due twice");
}

fn claim_of(id: WorkId, request: &str) -> Action {
    Action::Claim(Claim { claimant: claimant(&w2(), request), by: ClaimBy::Ids(vec![id]) })
}

/// Two work items of one session, the older one running, and the session as a store has loaded it.
fn two_in_a_session(w: &mut World) -> (Lease, WorkId) {
    let old = w.held_with("a", in_session);
    w.pass(1);
    let new = w.ingest_with("b", in_session);
    w.tick(new);
    (old, new)
}

#[test]
fn later_decisions_of_a_batch_see_earlier_ones() {
    let mut w = World::default();
    let (old, new) = two_in_a_session(&mut w);
    assert_eq!(w.in_batch(claim_of(new, "r1")).unwrap_err().code, Code::Busy);
    let done = Action::CloseOut { holder: old.holder(), close: close(State::Succeeded) };
    w.in_batch(done).unwrap();
    w.in_batch(claim_of(new, "r1")).unwrap();
    assert_eq!(w.row(new).state, State::Running);
    assert_eq!(w.in_batch(claim_of(new, "r2")).unwrap_err().code, Code::Busy);
}

#[test]
fn a_batch_never_claims_past_an_older_work_that_came_back() {
    let mut w = World::default();
    let old = w.held_with("a", in_session);
    w.wait(&old, "ref");
    w.pass(1);
    let new = w.ingest_with("b", in_session);
    w.tick(new);
    let answer = Resolve { target: reference_target("ref"), payload: payload("yes"), claim: None };
    w.in_batch(Action::Resolve(answer)).unwrap();
    assert_eq!(w.in_batch(claim_of(new, "r")).unwrap_err().code, Code::Busy, "who is next is not known yet");
    assert_eq!(w.try_claim(new, &w2()).unwrap_err().code, Code::Busy, "an older one is first");
    w.claim(old.work, &w2());
}

#[test]
fn a_batch_keeps_the_head_that_only_got_a_flag() {
    let mut w = World::default();
    let (old, new) = two_in_a_session(&mut w);
    w.release(&old).unwrap();
    w.tick(new);
    let other = w.held("c");
    let spec = w.spec(&format!("work:{new}"), tenure_core::model::WaitKind::Tool);
    let wait = tenure_core::action::WaitAction {
        holder: other.holder(),
        waits: vec![spec],
        message: None,
        tool: None,
        usage: Vec::new(),
    };
    w.in_batch(Action::Wait(wait)).unwrap();
    w.in_batch(claim_of(old.work, "r")).expect("being waited for changes no queue");
}
