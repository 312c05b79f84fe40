//! Leases: renewing, starting, late writes, and superseded holders.

use tenure_core::{
    Action, Actor, Code, Fact, Reply, State,
    action::{Holder, Renew, Tenants},
    limits,
    liveness::{Grade, grade},
    model::{AcceptStrength, ErrorClass},
    reply::Ticked,
};

use crate::common::*;

#[test]
fn a_renewal_moves_the_row_and_appends_nothing() {
    let mut w = World::default();
    let lease = w.held("a");
    w.pass(15 * SECOND);
    let events = w.events();
    let renewed = w.renew(&lease).unwrap();
    assert_eq!((renewed.expires_at, renewed.cancel_requested), (START + 60 * SECOND, false));
    let row = w.row(lease.work);
    assert_eq!(row.due_at, Some(START + LAPSE), "a renewal moves the due date only down");
    assert_eq!(row.lease.as_ref().unwrap().renewed_by, None);
    assert_eq!(w.events(), events);

    assert_eq!(w.after(60 * SECOND, lease.work), Ticked::Nothing, "the old due date finds nothing due");
    assert_eq!(w.row(lease.work).due_at, Some(START + 15 * SECOND + LAPSE));
}

#[test]
fn progress_may_ride_on_a_renewal_of_somebody_else() {
    let mut w = World::default();
    let lease = w.held("a");
    let renew = Renew { holder: lease.holder(), progress: Some(payload("half")) };
    w.submit(Actor::machine("supervisor"), Action::Renew(vec![renew])).unwrap();
    let row = w.row(lease.work);
    assert_eq!(row.progress, Some(payload("half")));
    assert_eq!(row.lease.as_ref().unwrap().renewed_by.as_deref(), Some("supervisor"));
    assert!(!row.started(), "a renewal's progress is no progress event");
}

#[test]
fn each_renewal_is_answered_on_its_own() {
    let mut w = World::default();
    let (a, b) = (w.held("a"), w.held("b"));
    w.release(&b).unwrap();
    let forged = Holder { genuine: false, ..a.holder() };
    let renew = |holder| Renew { holder, progress: None };
    let unknown = Holder { work: w.work_id(), ..a.holder() };
    let actions =
        vec![renew(b.holder()), renew(unknown), renew(a.holder()), renew(a.holder()), renew(forged)];
    let Reply::Renewed(renewals) = w.by(&a, Action::Renew(actions)).unwrap() else { panic!() };
    let codes: Vec<_> = renewals.iter().map(|r| r.outcome.as_ref().err().map(|e| e.code)).collect();
    let twice = Some(Code::Invalid);
    assert_eq!(codes, [Some(Code::LeaseLost), Some(Code::NotFound), None, twice, twice]);
}

#[test]
fn until_a_tick_records_the_lapse_every_write_counts() {
    let mut w = World::default();
    let lease = w.held("a");
    w.pass(HOUR);
    w.progress(&lease, None).unwrap();
    w.renew(&lease).unwrap();
    assert_eq!(w.story(lease.work), ["work_created", "claimed", "progressed"]);
}

#[test]
fn a_late_repeat_of_progress_changes_nothing() {
    let mut w = World::default();
    let lease = w.held("a");
    let report = |w: &mut World, id: &str, text: &str| {
        let (holder, request_id) = (lease.holder(), Some(id.to_owned()));
        w.by(&lease, Action::Progress { holder, progress: payload(text), request_id })
    };
    report(&mut w, "r1", "one").unwrap();
    report(&mut w, "r2", "two").unwrap();
    let events = w.events();
    report(&mut w, "r1", "one").unwrap();
    assert_eq!((w.events(), &w.row(lease.work).progress), (events, &Some(payload("two"))));
    assert_eq!(report(&mut w, "r1", "three").unwrap_err().code, Code::IdempotencyMismatch);
    // Limited: the oldest are forgotten first.
    for n in 0..limits::PROGRESS_REQUESTS {
        report(&mut w, &format!("more-{n}"), "more").unwrap();
    }
    assert_eq!(w.row(lease.work).body.progress_requests.len(), limits::PROGRESS_REQUESTS);
    // The next attempt has its own fence and remembers nothing.
    w.release(&lease).unwrap();
    w.claim(lease.work, &w2());
    assert!(w.row(lease.work).body.progress_requests.is_empty());
}

type Late = (&'static str, fn(&mut World, &Lease) -> Result<State, Code>, Result<State, Code>);

/// Each verb of a holder, and its result if the lapse was recorded and nobody else has claimed the work item.
fn late_writes() -> [Late; 9] {
    fn state<T>(w: &World, l: &Lease, outcome: Result<T, tenure_core::Refusal>) -> Result<State, Code> {
        outcome.map(|_| w.state(l.work)).map_err(|refusal| refusal.code)
    }
    [
        (
            "renew",
            |w, l| {
                let r = w.renew(l);
                state(w, l, r)
            },
            Ok(State::Running),
        ),
        (
            "close-out",
            |w, l| {
                let r = w.close(l, State::Succeeded);
                state(w, l, r)
            },
            Ok(State::Succeeded),
        ),
        (
            "fail",
            |w, l| {
                let r = w.fail(l, ErrorClass::Transport, "x");
                state(w, l, r)
            },
            Ok(State::RetryScheduled),
        ),
        (
            "wait",
            |w, l| {
                let r = w.wait_with(l, "ref", |_| {});
                state(w, l, r)
            },
            Ok(State::WaitingUser),
        ),
        (
            "accept",
            |w, l| {
                let r = w.accept_work(l, AcceptStrength::Weak);
                state(w, l, r)
            },
            Err(Code::LeaseLapsed),
        ),
        (
            "progress",
            |w, l| {
                let r = w.progress(l, None);
                state(w, l, r)
            },
            Err(Code::LeaseLapsed),
        ),
        (
            "begin",
            |w, l| {
                let r = w.begin(l, "s", "x", false);
                state(w, l, r)
            },
            Err(Code::LeaseLapsed),
        ),
        (
            "complete",
            |w, l| {
                let r = w.complete_step(l, "s", "x");
                state(w, l, r)
            },
            Err(Code::LeaseLapsed),
        ),
        (
            "release",
            |w, l| {
                let r = w.release(l);
                state(w, l, r)
            },
            Err(Code::LeaseLapsed),
        ),
    ]
}

#[test]
fn a_late_write_of_an_unsuperseded_holder_revokes_the_lapse() {
    for (name, verb, expected) in late_writes() {
        let mut w = World::default();
        let lease = w.held("a");
        assert_eq!(w.after(LAPSE, lease.work), Ticked::Acted);
        assert_eq!((w.state(lease.work), w.row(lease.work).body.failures), (State::Queued, 1), "{name}");
        assert_eq!(verb(&mut w, &lease), expected, "{name}");
        let late = w.story(lease.work).contains(&"late");
        assert_eq!(late, expected.is_ok(), "{name}");
        if expected == Ok(State::Running) {
            let body = &w.row(lease.work).body;
            assert_eq!((body.failures, body.lapses), (0, 0), "the lapse's failure is taken back");
        }
    }
}

#[test]
fn a_superseded_holder_has_lost_every_verb() {
    for (name, verb, _) in late_writes() {
        let mut w = World::default();
        let lease = w.held("a");
        w.after(LAPSE, lease.work);
        let other = w.claim(lease.work, &w2());
        let events = w.events();
        assert_eq!(verb(&mut w, &lease), Err(Code::LeaseLost), "{name}");
        assert_eq!(w.events(), events, "{name}: nothing is written");
        w.close(&other, State::Succeeded).unwrap();
        assert_eq!(verb(&mut w, &lease), Err(Code::LeaseLost), "{name} after the end");
    }
}

#[test]
fn a_wrong_token_or_a_foreign_tenant_is_refused() {
    let mut w = World::default();
    let lease = w.held("a");
    let forged = |holder: Holder| Action::CloseOut { holder, close: close(State::Succeeded) };
    let wrong_token = forged(Holder { genuine: false, ..lease.holder() });
    assert_eq!(w.by(&lease, wrong_token).unwrap_err().code, Code::LeaseLost);
    let wrong_fence = forged(Holder { fence: lease.fence + 1, ..lease.holder() });
    assert_eq!(w.by(&lease, wrong_fence).unwrap_err().code, Code::LeaseLost);
    let elsewhere = Tenants::Only(vec!["globex".into()]);
    let outcome = w.submit_for(Actor::worker("w1"), elsewhere, forged(lease.holder()));
    assert_eq!(outcome.unwrap_err().code, Code::NotFound);
    assert_eq!(w.state(lease.work), State::Running);
}

#[test]
fn a_late_write_is_lost_when_another_work_holds_the_session() {
    let mut w = World::default();
    let lease = w.held_with("a", in_session);
    w.after(LAPSE, lease.work);
    w.quarantine(lease.work).unwrap();
    assert_eq!(w.renew(&lease).unwrap_err().code, Code::LeaseLost, "a person's decision ended it");

    let mut w = World::default();
    let lease = w.held_with("a", in_session);
    w.after(LAPSE, lease.work);
    // An older work item of the session comes back from a wait and is claimed first.
    w.now = START - HOUR;
    let older = w.ingest_with("b", in_session);
    w.now = START + HOUR;
    w.claim(older, &w2());
    assert_eq!(w.renew(&lease).unwrap_err().code, Code::LeaseLost);
    assert_eq!(w.state(lease.work), State::Queued);
}

#[test]
fn the_verb_that_ended_an_attempt_can_be_repeated() {
    type Verb = fn(&mut World, &Lease) -> Result<tenure_core::Ack, tenure_core::Refusal>;
    let table: [(&str, Verb); 5] = [
        ("close-out", |w, l| w.close(l, State::Succeeded)),
        ("fail", |w, l| w.fail(l, ErrorClass::Unavailable, "down")),
        ("release", |w, l| w.release(l)),
        ("wait", |w, l| w.wait_with(l, "ref", |_| {}).map(ack)),
        ("abandon", |w, l| w.abandon_own(l)),
    ];
    for (name, verb) in table {
        let mut w = World::default();
        let lease = match name {
            "abandon" => w.held_with("a", owner_bound),
            _ => w.held("a"),
        };
        let first = verb(&mut w, &lease).unwrap();
        let events = w.events();
        assert_eq!(verb(&mut w, &lease).unwrap(), first, "{name}");
        assert_eq!(w.events(), events, "{name}");
        let other = w.close(&lease, State::Failed).unwrap_err();
        assert_eq!(other.code, Code::LeaseLost, "{name}: another body is no repeat");
        if name == "release" {
            w.claim(lease.work, &w2());
            assert_eq!(verb(&mut w, &lease).unwrap(), first, "even after a later claim");
        }
    }
}

#[test]
fn verbs_that_start_a_work() {
    let table: [(&str, Verb, bool); 6] = [
        (
            "claim and renew",
            |w, l| {
                w.renew(l).unwrap();
            },
            false,
        ),
        (
            "weak accept",
            |w, l| {
                w.accept_work(l, AcceptStrength::Weak).unwrap();
            },
            true,
        ),
        (
            "step",
            |w, l| {
                w.begin(l, "s", "x", false).unwrap();
            },
            true,
        ),
        (
            "progress",
            |w, l| {
                w.progress(l, None).unwrap();
            },
            true,
        ),
        (
            "wait",
            |w, l| {
                w.wait(l, "ref");
            },
            true,
        ),
        (
            "release",
            |w, l| {
                w.release(l).unwrap();
            },
            false,
        ),
    ];
    for (name, act, starts) in table {
        let mut w = World::default();
        let lease = w.held("a");
        w.pass(SECOND);
        act(&mut w, &lease);
        assert_eq!(w.row(lease.work).started(), starts, "{name}");
        if let Some(first) = &w.row(lease.work).body.first_started {
            assert_eq!((first.worker.as_str(), first.incarnation.as_str()), ("w1", "boot-1"), "{name}");
            assert_eq!(first.at, START + SECOND, "{name}");
        }
    }
}

#[test]
fn an_accept_is_recorded_once_and_only_strengthened() {
    let mut w = World::default();
    let lease = w.held("a");
    for (strength, events) in [
        (AcceptStrength::Weak, 3),
        (AcceptStrength::Weak, 3),
        (AcceptStrength::Strong, 4),
        (AcceptStrength::Weak, 4),
    ] {
        w.accept_work(&lease, strength).unwrap();
        assert_eq!(w.events(), events, "{strength:?}");
    }
    assert_eq!(w.row(lease.work).body.accept_strength, Some(AcceptStrength::Strong));
}

#[test]
fn progress_is_written_once_per_request() {
    let mut w = World::default();
    let lease = w.held("a");
    for (request, events) in [(Some("p1"), 3), (Some("p1"), 3), (Some("p2"), 4), (None, 5), (None, 6)] {
        w.progress(&lease, request).unwrap();
        assert_eq!(w.events(), events, "{request:?}");
    }
    let long =
        Action::Progress { holder: lease.holder(), progress: payload(&"x".repeat(17_000)), request_id: None };
    assert_eq!(w.by(&lease, long).unwrap_err().code, Code::PayloadRefused);
}

#[test]
fn a_release_counts_as_no_failure_and_owner_bound_work_refuses_it() {
    let mut w = World::default();
    let lease = w.held("a");
    w.release(&lease).unwrap();
    assert_eq!((w.state(lease.work), w.row(lease.work).body.failures), (State::Queued, 0));
    assert_eq!(w.row(lease.work).lease, None);

    let bound = w.held_with("b", owner_bound);
    assert_eq!(w.release(&bound).unwrap_err().code, Code::OwnerBound);
    assert_eq!(w.state(bound.work), State::Running);
}

#[test]
fn only_started_owner_bound_work_is_given_up_by_its_owner() {
    let mut w = World::default();
    let plain = w.held("a");
    assert_eq!(w.abandon_own(&plain).unwrap_err().code, Code::IllegalState);
    assert_eq!(w.close(&plain, State::Abandoned).unwrap_err().code, Code::IllegalState);
    let bound = w.held_with("b", owner_bound);
    assert_eq!(w.abandon_own(&bound).unwrap().state, State::Abandoned);
}

#[test]
fn a_revived_attempt_keeps_its_execution_deadline() {
    let mut w = World::default();
    let lease = w.held_with("a", |i| i.policy = timeouts(Some(600_000), None, None));
    w.after(LAPSE, lease.work);
    w.renew(&lease).unwrap();
    assert_eq!(w.row(lease.work).body.execution_at, Some(START + 600_000));
    w.pass(500_000);
    w.renew(&lease).unwrap();
    assert_eq!(w.after(100_000, lease.work), Ticked::Acted);
    let Fact::TimeoutMarked(_) = w.last(lease.work).fact else { panic!("{:?}", w.last(lease.work)) };
}

#[test]
fn freshness_is_counted_in_missed_renewals() {
    let mut w = World::default();
    let lease = w.held("a");
    for (later, expected) in
        [(0, (Grade::Alive, 0)), (15, (Grade::Alive, 1)), (44, (Grade::Alive, 2)), (46, (Grade::Silent, 3))]
    {
        assert_eq!(grade(w.row(lease.work), None, START + later * SECOND), Some(expected));
    }
}
