//! A cancelled work item sends nothing more: its unsent commands end with it, the relay's included.

use tenure_core::{
    Action, Code, CommandId, CommandState, State,
    action::{CloseOut, Decide, Ingest},
    command::{CancelCode, Effect, Recorded},
    limits,
    model::ErrorClass,
    reply::Ticked,
};

use crate::common::*;

fn go() -> tenure_core::command::Evaluation {
    evaluation(Effect::Allow, relay(native()))
}

/// A held work item with one unsent command of the relay.
fn pending(w: &mut World) -> (Lease, CommandId) {
    pending_in(w, |_| {})
}

fn pending_in(w: &mut World, change: impl FnOnce(&mut Ingest)) -> (Lease, CommandId) {
    let lease = w.held_with("m", change);
    let id = w.reserve(&lease, go());
    assert_eq!(w.command_state(id), CommandState::Pending);
    (lease, id)
}

#[test]
fn a_cancelled_work_sends_none_of_its_pending_commands() {
    let ways: [(&str, Verb); 6] = [
        ("cancelled while queued", |w, lease| {
            w.release(lease).unwrap();
            w.cancel(lease.work).unwrap();
        }),
        ("cancelled while it waits", |w, lease| {
            w.wait(lease, "r");
            w.cancel(lease.work).unwrap();
        }),
        ("released after the request", |w, lease| {
            w.cancel(lease.work).unwrap();
            w.release(lease).unwrap();
        }),
        ("closed out as cancelled", |w, lease| {
            w.cancel(lease.work).unwrap();
            w.close(lease, State::Cancelled).unwrap();
        }),
        ("lapsed after the request", |w, lease| {
            w.cancel(lease.work).unwrap();
            w.after(LAPSE, lease.work);
        }),
        ("decided by a person", |w, lease| {
            w.quarantine(lease.work).unwrap();
            let cancelled = Decide::Close(Box::new(CloseOut::new(State::Cancelled)));
            w.decide(lease.work, cancelled).unwrap();
        }),
    ];
    for (way, cancel) in ways {
        let mut w = World::default();
        let (lease, id) = pending(&mut w);
        cancel(&mut w, &lease);
        assert_eq!(w.state(lease.work), State::Cancelled, "{way}");
        not_sent(&w, id, way);
    }
}

fn not_sent(w: &World, id: CommandId, way: &str) {
    let command = w.command(id);
    assert_eq!(
        (command.state, command.body.cancelled, command.due_at),
        (CommandState::Cancelled, Some(CancelCode::WorkEnded), None),
        "{way}"
    );
}

#[test]
fn a_cancel_request_stops_pending_commands_however_the_work_ends() {
    let ways: [(&str, State, Verb); 5] = [
        ("closed out as failed", State::Failed, |w, lease| {
            w.close(lease, State::Failed).unwrap();
        }),
        ("failed", State::Failed, |w, lease| {
            w.fail(lease, ErrorClass::Unavailable, "down").unwrap();
        }),
        ("abandoned by its owner", State::Abandoned, |w, lease| {
            w.abandon_own(lease).unwrap();
        }),
        ("lapsed", State::Abandoned, |w, lease| {
            w.after(LAPSE, lease.work);
        }),
        ("abandoned by request", State::Abandoned, |w, lease| {
            w.abandon(lease.work).unwrap();
            w.after(LAPSE, lease.work);
        }),
    ];
    for (way, end, verb) in ways {
        let mut w = World::default();
        let (lease, id) = pending_in(&mut w, owner_bound);
        w.cancel(lease.work).unwrap();
        verb(&mut w, &lease);
        assert_eq!(w.state(lease.work), end, "{way}");
        not_sent(&w, id, way);
    }
    let mut w = World::default();
    let lease = w.held("m");
    w.cancel(lease.work).unwrap();
    let commands = vec![intent(w.command_id(), "bye", go())];
    let close = CloseOut { commands, ..close(State::Failed) };
    let refused = w.by(&lease, Action::CloseOut { holder: lease.holder(), close }).unwrap_err();
    assert_eq!(refused.code, Code::CancelRequested);
}

#[test]
fn a_replay_before_the_cancel_does_not_outlive_it() {
    let mut w = World::default();
    let (lease, id) = pending(&mut w);
    w.relay_dispatch(id, go()).unwrap();
    w.call_failed(id, ErrorClass::Validation, false).unwrap();
    w.replay(id, go()).unwrap();
    w.release(&lease).unwrap();
    w.cancel(lease.work).unwrap();
    not_sent(&w, id, "replayed before");

    // A call that was in progress is not sent again either.
    let mut w = World::default();
    let (lease, id) = pending(&mut w);
    w.relay_dispatch(id, go()).unwrap();
    w.call_failed(id, ErrorClass::Validation, false).unwrap();
    w.replay(id, go()).unwrap();
    w.relay_dispatch(id, go()).unwrap();
    w.release(&lease).unwrap();
    w.cancel(lease.work).unwrap();
    w.call_failed(id, ErrorClass::Unavailable, false).unwrap();
    not_sent(&w, id, "in progress");
}

#[test]
fn a_command_in_doubt_is_not_sent_again_after_a_cancel() {
    // By its holder.
    let mut w = World::default();
    let lease = w.held("m");
    let own = w.dispatched(&lease, native());
    w.uncertain(own).unwrap();
    w.cancel(lease.work).unwrap();
    let refused = w.try_dispatch(&lease, own, evaluation(Effect::Allow, native())).unwrap_err();
    assert_eq!((refused.code, w.command_state(own)), (Code::CancelRequested, CommandState::Uncertain));

    // By the relay: while the work item may still succeed it retries, and afterwards a person is asked.
    for cancelled in [false, true] {
        let mut w = World::default();
        let (lease, id) = pending(&mut w);
        w.relay_dispatch(id, go()).unwrap();
        w.uncertain(id).unwrap();
        w.cancel(lease.work).unwrap();
        w.pass(10 * SECOND);
        let events = w.events();
        let (code, still) = w.relay_refused(id, go());
        assert_eq!((code, still.state), (Code::CancelRequested, CommandState::Uncertain));
        assert_eq!(w.command(id).due_at, Some(w.now + limits::CANCEL_ASK_AGAIN_MS));
        assert_eq!(w.events(), events);
        let end = if cancelled { State::Cancelled } else { State::Succeeded };
        w.close(&lease, end).unwrap();
        if cancelled {
            let (code, asked) = w.relay_refused(id, go());
            assert_eq!(code, Code::InDoubt);
            assert_eq!((asked.state, asked.body.needs_person), (CommandState::Uncertain, true));
            assert_eq!(w.command(id).due_at, None, "no retry is due");
            assert_eq!(w.record(id, Recorded::DidNotHappen).unwrap().state, CommandState::Failed);
            w.replay(id, go()).unwrap();
            w.relay_dispatch(id, go()).unwrap();
            w.uncertain(id).unwrap();
            w.pass(10 * SECOND);
        }
        // It ended first, or a person had it executed nevertheless.
        assert_eq!(w.relay_dispatch(id, go()).unwrap().state, CommandState::Dispatched);
    }
}

#[test]
fn an_outbox_is_sent_after_every_end_but_a_cancel() {
    for end in [State::Succeeded, State::Failed] {
        let mut w = World::default();
        let (lease, id) = pending(&mut w);
        w.close(&lease, end).unwrap();
        assert_eq!(w.relay_dispatch(id, go()).unwrap().state, CommandState::Dispatched, "{end}");
    }
    let mut w = World::default();
    let lease = w.held("m");
    w.cancel(lease.work).unwrap();
    let commands = vec![intent(w.command_id(), "bye", go())];
    let close = CloseOut { commands, ..CloseOut::new(State::Cancelled) };
    let refused = w.by(&lease, Action::CloseOut { holder: lease.holder(), close }).unwrap_err();
    assert_eq!(refused.code, Code::Invalid);
}

#[test]
fn a_work_asked_to_cancel_dispatches_nothing_new() {
    let mut w = World::default();
    let (lease, relayed) = pending(&mut w);
    let mut other = intent(w.command_id(), "hi", evaluation(Effect::Allow, lookup()));
    other.1.slot = Some("own".into());
    let own = w.try_reserve(&lease, other).unwrap().id;
    w.cancel(lease.work).unwrap();
    let events = w.events();
    let refused = w.try_dispatch(&lease, own, evaluation(Effect::Allow, lookup())).unwrap_err();
    assert_eq!(refused.code, Code::CancelRequested);
    assert!(refused.detail.contains("requested (no longer needed)"), "{}", refused.detail);
    let (code, put_off) = w.relay_refused(relayed, go());
    assert_eq!((code, put_off.state), (Code::CancelRequested, CommandState::Pending));
    assert_eq!(w.command(relayed).due_at, Some(w.now + limits::CANCEL_ASK_AGAIN_MS));
    assert_eq!(w.events(), events, "neither appends an event");
    // It ended first: the relay sends.
    w.close(&lease, State::Succeeded).unwrap();
    assert_eq!(w.relay_dispatch(relayed, go()).unwrap().state, CommandState::Dispatched);
}

#[test]
fn a_call_in_progress_at_the_cancel_is_not_retried() {
    let mut w = World::default();
    let (lease, id) = pending(&mut w);
    w.relay_dispatch(id, go()).unwrap();
    w.release(&lease).unwrap();
    w.cancel(lease.work).unwrap();
    assert_eq!(w.command_state(id), CommandState::Dispatched, "its receipt may still arrive");
    let over = w.call_failed(id, ErrorClass::Unavailable, false).unwrap();
    assert_eq!(over.state, CommandState::Cancelled);
}

#[test]
fn a_person_may_replay_a_command_of_a_cancelled_work() {
    let mut w = World::default();
    let (lease, id) = pending(&mut w);
    w.relay_dispatch(id, go()).unwrap();
    w.call_failed(id, ErrorClass::Validation, false).unwrap();
    w.release(&lease).unwrap();
    w.cancel(lease.work).unwrap();
    w.replay(id, go()).unwrap();
    assert_eq!(w.relay_dispatch(id, go()).unwrap().state, CommandState::Dispatched);
    assert_eq!(w.call_failed(id, ErrorClass::Unavailable, false).unwrap().state, CommandState::Pending);
    assert_eq!(w.tick(lease.work), Ticked::Nothing);
}
