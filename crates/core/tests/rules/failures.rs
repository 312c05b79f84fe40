//! Failures and timeouts: which count, which are retried, and which end the work item.

use tenure_core::{
    Action, Code, Fact, State,
    action::Ingest,
    model::{ErrorClass, ReasonCode},
    reply::Ticked,
};

use crate::common::*;

#[test]
fn the_class_decides_whether_a_failure_is_retried() {
    use ErrorClass::*;
    let table = [
        (Transport, true),
        (Timeout, true),
        (RateLimited, true),
        (Unavailable, true),
        (Unknown, true),
        (Validation, false),
        (Auth, false),
        (Quota, false),
        (PolicyDenied, false),
        (Misconfigured, false),
        (Unsupported, false),
    ];
    for (class, retried) in table {
        let mut w = World::default();
        let lease = w.held("a");
        let ack = w.fail(&lease, class, "no luck").unwrap();
        let expected = if retried { State::RetryScheduled } else { State::Failed };
        assert_eq!(ack.state, expected, "{class:?}");
        assert_eq!(ack.next_retry_at, retried.then_some(START + 1_000), "{class:?}");
        let body = &w.row(lease.work).body;
        assert_eq!(body.error.as_ref().map(|e| e.class), Some(class));
        assert_eq!(body.failures, 1);
    }
}

#[test]
fn failures_back_off_and_are_exhausted() {
    let mut w = World::default();
    let id = w.ingest("a");
    for (failure, delay) in [(1, Some(1_000)), (2, Some(2_000)), (3, None)] {
        let lease = w.claim(id, &w1());
        let ack = w.fail(&lease, ErrorClass::Unavailable, "down").unwrap();
        assert_eq!(ack.next_retry_at, delay.map(|ms| w.now + ms), "failure {failure}");
        if let Some(delay) = delay {
            assert_eq!(w.after(delay - 1, id), Ticked::Nothing);
            assert_eq!(w.after(1, id), Ticked::Acted);
            assert_eq!(w.state(id), State::Queued);
        }
    }
    assert_eq!(w.state(id), State::Failed);
    let errors = w.log[&id].iter().filter(|event| matches!(event.fact, Fact::AttemptFailed(_)));
    assert_eq!(errors.count(), 3, "every attempt's error is stored");
}

#[test]
fn waits_and_releases_are_not_failures() {
    let mut w = World::default();
    let id = w.ingest("a");
    for n in 0..5 {
        let lease = w.claim(id, &w1());
        w.release(&lease).unwrap();
        let lease = w.claim(id, &w1());
        w.wait(&lease, &format!("r{n}"));
        w.resolve(&format!("r{n}"), "x").unwrap();
    }
    assert_eq!((w.row(id).attempt, w.row(id).body.failures), (10, 0));
}

#[test]
fn a_providers_retry_after_is_honoured() {
    let mut w = World::default();
    let lease = w.held("a");
    let mut fail = failure(&lease, ErrorClass::RateLimited, "slow down");
    fail.error.retry_after_ms = Some(90_000);
    w.by(&lease, Action::Fail(fail)).unwrap();
    assert_eq!(w.row(lease.work).next_retry_at, Some(START + 90_000));
}

fn fails_with(w: &mut World, id: tenure_core::WorkId, errors: &[(ErrorClass, &str)]) -> State {
    for (class, message) in errors {
        if w.state(id) == State::RetryScheduled {
            w.retry_now(id).unwrap();
        }
        let lease = w.claim(id, &w1());
        w.fail(&lease, *class, message).unwrap();
    }
    w.state(id)
}

#[test]
fn three_equal_unknown_failures_are_poison() {
    use ErrorClass::{Transport, Unknown};
    let generous = |i: &mut Ingest| i.policy.retry.max_attempts = 10;
    type Errors = &'static [(ErrorClass, &'static str)];
    let table: [(&str, Errors, State); 4] = [
        ("three equal", &[(Unknown, "x"), (Unknown, "x"), (Unknown, "x")], State::Quarantined),
        ("one differs", &[(Unknown, "x"), (Unknown, "y"), (Unknown, "x")], State::RetryScheduled),
        ("known class", &[(Transport, "x"), (Transport, "x"), (Transport, "x")], State::RetryScheduled),
        ("two", &[(Unknown, "x"), (Unknown, "x")], State::RetryScheduled),
    ];
    for (name, errors, state) in table {
        let mut w = World::default();
        let id = w.ingest_with("a", generous);
        assert_eq!(fails_with(&mut w, id, errors), state, "{name}");
    }
    let mut w = World::default();
    let id = w.ingest("a");
    let errors = [(Unknown, "x"); 3];
    assert_eq!(fails_with(&mut w, id, &errors), State::Quarantined, "checked before exhaustion");
    assert_eq!(w.row(id).body.reason.as_ref().unwrap().code, ReasonCode::PoisonFingerprint);
}

#[test]
fn a_fingerprint_counts_only_with_the_unknown_class() {
    let mut w = World::default();
    let id = w.ingest_with("a", |i| i.policy.retry.max_attempts = 10);
    for class in [ErrorClass::Transport, ErrorClass::Transport, ErrorClass::Unknown] {
        if w.state(id) == State::RetryScheduled {
            w.retry_now(id).unwrap();
        }
        let lease = w.claim(id, &w1());
        let mut fail = failure(&lease, class, "x");
        fail.error.fingerprint = Some("same".into());
        w.by(&lease, Action::Fail(fail)).unwrap();
    }
    assert_eq!(w.state(id), State::RetryScheduled, "one unknown failure is not three equal ones");
}

#[test]
fn a_failure_ends_started_owner_bound_work() {
    let mut w = World::default();
    let lease = w.held_with("a", owner_bound);
    assert_eq!(w.fail(&lease, ErrorClass::Unavailable, "down").unwrap().state, State::Failed);

    let id = w.ingest_with("b", owner_bound);
    let mut me = claimant(&w1(), "r");
    me.defer_start = true;
    let grants = w.claim_as(&me, tenure_core::action::ClaimBy::Ids(vec![id])).unwrap();
    let ack = w.fail(&lease_of(&grants), ErrorClass::Unavailable, "down").unwrap();
    assert_eq!(ack.state, State::RetryScheduled, "not started: any worker may try");
}

fn lease_of(grants: &[tenure_core::Grant]) -> Lease {
    lease(&grants[0])
}

#[test]
fn bad_failures_are_refused() {
    let mut w = World::default();
    let lease = w.held("a");
    let mut fail = failure(&lease, ErrorClass::Unknown, "x");
    fail.error.message = "x".repeat(4_001);
    assert_eq!(w.by(&lease, Action::Fail(fail.clone())).unwrap_err().code, Code::Invalid);
    fail.error.message = "x\0".into();
    assert_eq!(w.by(&lease, Action::Fail(fail.clone())).unwrap_err().code, Code::Invalid);
    fail.error.message = "x".into();
    fail.error.fingerprint = Some(String::new());
    assert_eq!(w.by(&lease, Action::Fail(fail.clone())).unwrap_err().code, Code::Invalid);
    fail.error.fingerprint = None;
    fail.error.retry_after_ms = Some(u64::MAX);
    assert_eq!(w.by(&lease, Action::Fail(fail)).unwrap_err().code, Code::ImpossibleTimings);
}

#[test]
fn the_start_deadline_ends_unclaimed_work() {
    let start = |i: &mut Ingest| i.policy = timeouts(None, None, Some(60_000));
    let mut w = World::default();
    let id = w.ingest_with("a", start);
    assert_eq!(w.row(id).due_at, Some(START + 60_000));
    assert_eq!(w.after(60_000, id), Ticked::Acted);
    assert_eq!(w.state(id), State::TimedOut, "and it is not retried");

    let claimed = w.held_with("b", start);
    w.release(&claimed).unwrap();
    assert_eq!(w.row(claimed.work).due_at, None, "it was started in time");
    assert_eq!(w.after(HOUR, claimed.work), Ticked::Nothing);
}

#[test]
fn the_execution_deadline_counts_per_attempt() {
    let execution = |i: &mut Ingest| i.policy = timeouts(Some(60_000), None, None);
    let mut w = World::default();
    let id = w.ingest_with("a", execution);
    for failure in 1..=3 {
        let lease = w.claim(id, &w1());
        w.pass(45 * SECOND);
        w.renew(&lease).unwrap();
        assert_eq!(w.after(15 * SECOND, id), Ticked::Acted, "a renewed lease does not help");
        assert_eq!(w.row(id).body.failures, failure);
        assert_eq!(w.close(&lease, State::Succeeded).unwrap_err().code, Code::LeaseLost);
        if failure < 3 {
            assert_eq!(w.state(id), State::RetryScheduled);
            assert_eq!(w.row(id).body.reason.as_ref().unwrap().code, ReasonCode::ExecutionTimeout);
            w.after(10 * SECOND, id);
        }
    }
    assert_eq!(w.state(id), State::TimedOut);

    let bound = w.held_with("b", |i| {
        execution(i);
        owner_bound(i)
    });
    w.after(60_000, bound.work);
    assert_eq!(w.state(bound.work), State::TimedOut, "only its owner could retry");
}

#[test]
fn the_overall_deadline_ends_open_work_except_during_a_cancel() {
    let overall = |i: &mut Ingest| i.policy = timeouts(None, Some(600_000), None);
    let table: [(&str, Verb, State); 7] = [
        (
            "running",
            |w, l| {
                w.pass(590_000);
                w.renew(l).unwrap();
            },
            State::TimedOut,
        ),
        (
            "queued",
            |w, l| {
                w.release(l).unwrap();
            },
            State::TimedOut,
        ),
        (
            "retry scheduled",
            |w, l| {
                let mut fail = failure(l, ErrorClass::RateLimited, "x");
                fail.error.retry_after_ms = Some(3_600_000);
                w.by(l, Action::Fail(fail)).unwrap();
            },
            State::TimedOut,
        ),
        (
            "waiting",
            |w, l| {
                w.wait(l, "ref");
            },
            State::TimedOut,
        ),
        (
            "lapsed",
            |w, l| {
                w.after(LAPSE, l.work);
            },
            State::TimedOut,
        ),
        (
            "quarantined",
            |w, l| {
                w.quarantine(l.work).unwrap();
            },
            State::Quarantined,
        ),
        (
            "cancel requested",
            |w, l| {
                w.pass(590_000);
                w.cancel(l.work).unwrap();
                w.renew(l).unwrap();
            },
            State::CancelRequested,
        ),
    ];
    for (name, act, state) in table {
        let mut w = World::default();
        let lease = w.held_with("a", overall);
        act(&mut w, &lease);
        w.now = START + 599_999;
        w.tick(lease.work);
        assert!(!w.state(lease.work).is_terminal(), "{name}");
        w.after(1, lease.work);
        assert_eq!(w.state(lease.work), state, "{name}");
    }
    let mut w = World::default();
    let bound = w.held_with("a", |i| {
        overall(i);
        owner_bound(i)
    });
    w.after(LAPSE, bound.work);
    assert_eq!(w.state(bound.work), State::Stalled);
    w.after(600_000, bound.work);
    assert_eq!(w.state(bound.work), State::TimedOut, "stalled");
}

#[test]
fn a_typed_outcome_names_the_deadline_that_passed() {
    let mut w = World::default();
    let id = w.ingest_with("a", |i| i.policy = timeouts(None, Some(1_000), Some(1_000)));
    w.after(1_000, id);
    let Fact::TimeoutMarked(marked) = &w.last(id).fact else { panic!("{:?}", w.last(id)) };
    assert_eq!(marked.deadline, tenure_core::event::Deadline::Overall);
    assert_eq!(w.row(id).body.error.as_ref().unwrap().class, ErrorClass::Timeout);
}
