//! Several dispatches of one command: which of them a report is about, and how it affects the others.

use tenure_core::{
    Actor, Code, CommandId, CommandState,
    command::{CommandAction, DispatchAction, Dispatcher, Effect, Finding, Sender, ToolFacts},
    limits::EARLIER_DISPATCHES,
    model::ErrorClass,
};

use crate::common::*;

/// A command whose first call was proven unsent and which was dispatched again under the same lease, with the
/// first and the second sender.
fn twice(w: &mut World) -> (tenure_core::CommandId, Sender, Sender) {
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    let first = w.sender(id);
    w.failed_by(id, first, error(ErrorClass::Unavailable)).unwrap();
    w.pass(1_000);
    w.try_dispatch(&lease, id, evaluation(Effect::Allow, lookup())).unwrap();
    let second = w.sender(id);
    assert_eq!((first.dispatch, second.dispatch, first.fence), (Some(1), Some(2), second.fence));
    (id, first, second)
}

#[test]
fn a_report_about_an_earlier_call_does_not_settle_the_last() {
    let mut w = World::default();
    let (id, first, second) = twice(&mut w);
    let events = w.events();
    for refused in [
        w.failed_by(id, first, error(ErrorClass::Validation)),
        w.uncertain_by(id, first, error(ErrorClass::Timeout)),
    ] {
        let refusal = refused.unwrap_err();
        assert_eq!(refusal.code, Code::DispatchSuperseded);
        assert!(refusal.detail.contains("dispatch 1"), "{refusal}");
    }
    let again = w.failed_by(id, first, error(ErrorClass::Unavailable)).unwrap();
    assert_eq!(again.state, CommandState::Dispatched, "a repeat of an accepted report is answered");
    assert_eq!(w.events(), events, "and writes nothing");
    assert_eq!(
        w.failed_by(id, second, error(ErrorClass::Unavailable)).unwrap().state,
        CommandState::Pending,
        "the last call's own sender may report the same"
    );
}

#[test]
fn a_report_without_a_number_is_about_the_last_dispatch_under_the_fence() {
    let mut w = World::default();
    let (id, first, _) = twice(&mut w);
    let unnumbered = Sender { dispatch: None, ..first };
    let told = w.uncertain_by(id, unnumbered, error(ErrorClass::Timeout)).unwrap();
    assert_eq!(told.state, CommandState::Uncertain);
}

#[test]
fn an_unknown_dispatch_number_is_refused() {
    let mut w = World::default();
    let (id, first, _) = twice(&mut w);
    for number in [0, 3, u32::MAX] {
        let stranger = Sender { dispatch: Some(number), ..first };
        assert_eq!(w.receipt_by(id, stranger).unwrap_err().code, Code::LeaseLost);
    }
}

#[test]
fn evidence_of_an_earlier_call_counts() {
    let mut w = World::default();
    let (id, first, second) = twice(&mut w);
    let happened = w.receipt_by(id, first).unwrap();
    assert_eq!(happened.state, CommandState::Succeeded);
    assert_eq!(happened.body.message.as_deref(), Some("by dispatch 1 of 2"));
    let failed = w.failed_by(id, second, error(ErrorClass::Unavailable)).unwrap_err();
    assert_eq!(failed.code, Code::IllegalState, "it happened: the receipt is kept");
    assert_eq!(w.receipt_by(id, second).unwrap().body.receipt, happened.body.receipt, "the first one counts");
}

#[test]
fn evidence_outlives_the_lease_and_the_failure_of_the_call_after_it() {
    let mut w = World::default();
    let lease = w.held("m");
    let native = ToolFacts { native_window_ms: 3_600_000, ..native() };
    let id = w.dispatched(&lease, native.clone());
    let first = w.sender(id);
    w.pass(80_000);
    w.tick(lease.work);
    let other = w.claim(lease.work, &w2());
    w.try_dispatch(&other, id, evaluation(Effect::Allow, native)).unwrap();
    let second = w.sender(id);
    assert_ne!(first.fence, second.fence);
    let stale = w.uncertain_by(id, first, error(ErrorClass::Timeout)).unwrap_err();
    assert_eq!(stale.code, Code::DispatchSuperseded);
    let mixed = Sender { dispatch: second.dispatch, ..first };
    assert_eq!(w.receipt_by(id, mixed).unwrap_err().code, Code::LeaseLost, "a number goes with its fence");
    assert_eq!(w.receipt_by(id, first).unwrap().state, CommandState::Succeeded);

    let lease = w.held("n");
    let id = w.dispatched(&lease, lookup());
    let first = w.sender(id);
    w.uncertain(id).unwrap();
    w.pass(10_000);
    w.reconcile(id, Finding::Absent).unwrap();
    w.try_dispatch(&lease, id, evaluation(Effect::Allow, lookup())).unwrap();
    let second = w.sender(id);
    assert_eq!(w.call_failed(id, ErrorClass::Validation, false).unwrap().state, CommandState::Failed);
    assert_eq!(w.receipt_by(id, second).unwrap_err().code, Code::IllegalState, "the refusal was final");
    assert_eq!(w.receipt_by(id, first).unwrap().state, CommandState::Succeeded, "the lookup was wrong");
}

#[test]
fn earlier_dispatches_are_remembered_up_to_a_limit() {
    let mut w = World::default();
    let lease = w.held_with("m", |ingest| ingest.policy.lease.ttl_ms = 3_600_000);
    let id = w.dispatched(&lease, native());
    let first = w.sender(id);
    for _ in 0..EARLIER_DISPATCHES {
        w.uncertain(id).unwrap();
        w.try_dispatch(&lease, id, evaluation(Effect::Allow, native())).unwrap();
    }
    assert_eq!(w.command(id).fence_of(1), Some(first.fence));
    w.uncertain(id).unwrap();
    w.try_dispatch(&lease, id, evaluation(Effect::Allow, native())).unwrap();
    assert_eq!(w.command(id).body.earlier.len(), EARLIER_DISPATCHES);
    assert_eq!(w.receipt_by(id, first).unwrap_err().code, Code::LeaseLost);
    assert_eq!(w.receipt(id).unwrap().state, CommandState::Succeeded);
}

#[test]
fn a_repeated_request_opens_no_new_dispatch() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.reserve(&lease, evaluation(Effect::Allow, native()));
    let ask = |w: &mut World, lease: &Lease, id: CommandId, request: &str| {
        let action = DispatchAction {
            command: id,
            by: Dispatcher::Holder(lease.holder()),
            evaluation: evaluation(Effect::Allow, native()),
            request_id: Some(request.to_owned()),
        };
        w.on_command(Actor::worker(&lease.worker), CommandAction::Dispatch(Box::new(action)))
    };
    let refused = |w: &mut World, lease: &Lease, id: CommandId, request: &str| {
        let events = w.events();
        let code = ask(w, lease, id, request).unwrap_err().code;
        assert_eq!(w.events(), events, "nothing is written");
        code
    };
    ask(&mut w, &lease, id, "one").unwrap();
    ask(&mut w, &lease, id, "one").unwrap();
    w.uncertain(id).unwrap();
    assert_eq!(refused(&mut w, &lease, id, "one"), Code::InDoubt);
    assert_eq!(ask(&mut w, &lease, id, "two").unwrap().body.dispatches, 2, "its key makes it harmless");
    assert_eq!(refused(&mut w, &lease, id, "one"), Code::DispatchSuperseded, "a later one replaced it");
    assert_eq!(refused(&mut w, &lease, id, "three"), Code::AlreadyDispatched);
    w.call_failed(id, ErrorClass::Unavailable, true).unwrap();
    w.pass(10_000);
    assert_eq!(refused(&mut w, &lease, id, "one"), Code::DispatchSuperseded);
    assert_eq!(refused(&mut w, &lease, id, "two"), Code::InDoubt, "nobody knows about the first call");
    assert_eq!(ask(&mut w, &lease, id, "three").unwrap().body.dispatches, 3);

    // Proven unsent: a late copy of its request permits nothing.
    let lease = w.held("n");
    let id = w.reserve(&lease, evaluation(Effect::Allow, native()));
    ask(&mut w, &lease, id, "one").unwrap();
    assert_eq!(w.call_failed(id, ErrorClass::Unavailable, true).unwrap().state, CommandState::Pending);
    w.pass(10_000);
    assert_eq!(refused(&mut w, &lease, id, "one"), Code::DispatchSuperseded);
    assert_eq!(ask(&mut w, &lease, id, "two").unwrap().state, CommandState::Dispatched);
}
