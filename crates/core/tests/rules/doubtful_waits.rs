//! Waits that a dispatched command was handed over to: which answers are its receipt, and the state of a work
//! item whose waits are over while a command is in doubt.

use tenure_core::{
    Action, Actor, Code, CommandId, CommandState, Fact, Reply, State, WaitId,
    action::{Resolve, Target, TokenCheck},
    command::{Effect, EvidenceKind, Finding, Idempotency, Intent, Proof, Recorded, Risk, ToolFacts},
    event::Unfit,
    model::{ErrorClass, OnTimeout, ReasonCode, WaitKind, WaitState},
    reply::ResolvedWait,
};

use crate::common::*;

/// Only a person can find out whether it happened.
fn blind() -> ToolFacts {
    tool(Idempotency::None, Risk::High)
}

/// Hands a dispatched command over to a wait on `job-7` of one second.
fn handed(w: &mut World, lease: &Lease, id: CommandId, on_timeout: OnTimeout) -> WaitId {
    let mut spec = w.spec("job-7", WaitKind::Tool);
    spec.command = Some(id);
    spec.timeout_ms = Some(1_000);
    spec.on_timeout = on_timeout;
    spec.default = (on_timeout == OnTimeout::Default).then(|| payload("none"));
    let wait = spec.id;
    w.wait_for(lease, vec![spec]).unwrap();
    wait
}

fn answers(reply: Reply) -> (Vec<ResolvedWait>, bool) {
    match reply {
        Reply::Resolved { answers, kept, .. } => (answers, kept),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_stored_before_the_dispatch_is_never_its_receipt() {
    for ms in [0, 1] {
        let mut w = World::default();
        let lease = w.held("m");
        assert!(answers(w.resolve("job-7", "of another job").unwrap()).1);
        w.pass(ms);
        let id = w.dispatched(&lease, lookup());
        handed(&mut w, &lease, id, OnTimeout::TimeOut);
        assert_eq!(
            (w.state(lease.work), w.command_state(id)),
            (State::WaitingTool, CommandState::Dispatched)
        );
        let refused = w.log[&lease.work].iter().find_map(|event| match &event.fact {
            Fact::EarlyAnswerRefused(refused) => Some((refused.why, event.payload.clone())),
            _ => None,
        });
        assert_eq!(refused, Some((Unfit::BeforeDispatch, Some(payload("of another job")))));
        w.resolve("job-7", "done").unwrap();
        assert_eq!(w.command_state(id), CommandState::Succeeded, "its own callback is its receipt");
    }
}

/// The first call is known not to have been made: only the second one can be answered.
#[test]
fn an_answer_stored_after_an_unsent_call_is_not_the_next_receipt() {
    for facts in [lookup(), blind(), native()] {
        let mut w = World::default();
        let lease = w.held("m");
        let id = w.reserve(&lease, evaluation(Effect::Allow, facts.clone()));
        w.try_dispatch(&lease, id, evaluation(Effect::Allow, facts.clone())).unwrap();
        w.call_failed(id, ErrorClass::Unavailable, true).unwrap();
        assert_eq!(w.command_state(id), CommandState::Pending);
        w.pass(1);
        assert!(answers(w.resolve("job-7", "of another job").unwrap()).1);
        w.now = w.command(id).body.next_at.unwrap();
        w.try_dispatch(&lease, id, evaluation(Effect::Allow, facts)).unwrap();
        handed(&mut w, &lease, id, OnTimeout::TimeOut);
        assert_eq!(w.command_state(id), CommandState::Dispatched);
        let refused = w.log[&lease.work].iter().find_map(|event| match &event.fact {
            Fact::EarlyAnswerRefused(refused) => Some(refused.why),
            _ => None,
        });
        assert_eq!(refused, Some(Unfit::BeforeDispatch));
        assert_eq!(w.command(id).body.first_dispatched_at, Some(w.now));
    }
}

#[test]
fn an_answer_stored_between_two_sends_of_the_same_key_is_its_receipt() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, native());
    w.pass(1);
    w.resolve("job-7", "done").unwrap();
    w.after(LAPSE, lease.work);
    let lease = w.claim(lease.work, &w2());
    w.try_dispatch(&lease, id, evaluation(Effect::Allow, native())).unwrap();
    handed(&mut w, &lease, id, OnTimeout::TimeOut);
    assert_eq!(w.command_state(id), CommandState::Succeeded);
}

#[test]
fn an_answer_after_the_deadline_settles_the_command_of_its_wait() {
    for on_timeout in [OnTimeout::TimeOut, OnTimeout::Fail, OnTimeout::Default] {
        for by_id in [false, true] {
            let mut w = World::default();
            let lease = w.held("m");
            let id = w.dispatched(&lease, lookup());
            let wait = handed(&mut w, &lease, id, on_timeout);
            w.after(1_000, lease.work);
            assert_eq!(w.command_state(id), CommandState::Uncertain);
            let answer = |w: &mut World, text: &str| {
                let target = match by_id {
                    true => Target::Wait { id: wait, token: TokenCheck::Genuine, seal: None },
                    false => reference_target("job-7"),
                };
                answers(w.resolve_as(Actor::machine("webhook"), target, text, None).unwrap())
            };
            let (first, kept) = answer(&mut w, "done");
            assert!(!kept && first[0].first, "{on_timeout:?}");
            let receipt = w.command(id).body.receipt.clone().unwrap();
            assert_eq!(
                (receipt.evidence, receipt.response),
                (EvidenceKind::Provider, Some((lease.work, first[0].seq.unwrap())),)
            );
            let events = w.events();
            let (again, kept) = answer(&mut w, "done");
            assert_eq!((again[0].first, again[0].seq, kept), (false, first[0].seq, false));
            assert_eq!(w.events(), events, "it counts once");
        }
    }
}

#[test]
fn an_answer_after_a_wrong_absent_prevents_the_second_send() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    handed(&mut w, &lease, id, OnTimeout::Default);
    w.after(1_000, lease.work);
    w.pass(10_000);
    assert_eq!(w.reconcile(id, Finding::Absent).unwrap().state, CommandState::Pending);
    w.resolve("job-7", "done").unwrap();
    assert_eq!(w.command_state(id), CommandState::Succeeded);
}

#[test]
fn an_answer_does_not_overrule_a_person() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    handed(&mut w, &lease, id, OnTimeout::TimeOut);
    w.after(1_000, lease.work);
    w.record(id, Recorded::DidNotHappen).unwrap();
    assert!(answers(w.resolve("job-7", "done").unwrap()).1, "it is stored");
    assert_eq!(w.command_state(id), CommandState::Failed);
}

#[test]
fn an_answer_to_an_ended_wait_without_a_command_is_not_used() {
    let mut w = World::default();
    let lease = w.held("m");
    let wait = w.wait(&lease, "ref");
    w.cancel(lease.work).unwrap();
    assert!(answers(w.resolve("ref", "late").unwrap()).1);
    let target = Target::Wait { id: wait, token: TokenCheck::Genuine, seal: None };
    let refused = w.resolve_as(Actor::machine("webhook"), target, "late", None).unwrap_err();
    assert_eq!(refused.code, Code::IllegalState);
}

#[test]
fn a_wait_that_ends_without_an_answer_queues_no_work_with_a_command_in_doubt() {
    for (facts, state) in
        [(lookup(), State::Stalled), (blind(), State::Quarantined), (native(), State::Queued)]
    {
        for revoked in [false, true] {
            let mut w = World::default();
            let lease = w.held("m");
            let id = w.dispatched(&lease, facts.clone());
            let wait = handed(&mut w, &lease, id, OnTimeout::Default);
            if revoked {
                w.revoke(lease.work).unwrap();
            } else {
                w.after(1_000, lease.work);
            }
            assert_eq!((w.state(lease.work), w.command_state(id)), (state, CommandState::Uncertain));
            let ended = if revoked { WaitState::Cancelled } else { WaitState::TimedOut };
            let waits = &w.records.waits[&lease.work];
            assert_eq!(waits.iter().find(|known| known.id == wait).unwrap().state, ended);
            if state != State::Queued {
                assert_eq!(w.why(lease.work), Some(ReasonCode::InDoubt));
                assert!(w.try_claim(lease.work, &w2()).is_err(), "it cannot be claimed");
            }
        }
    }
}

#[test]
fn a_work_set_aside_for_its_doubt_goes_on_when_that_is_settled() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    handed(&mut w, &lease, id, OnTimeout::Default);
    w.after(1_000, lease.work);
    w.reconcile(id, Finding::Found(Proof::provider("m-1"))).unwrap();
    w.tick(lease.work);
    assert_eq!(w.state(lease.work), State::Queued);
}

/// The date until which only the owner may claim it belongs to a queued work item.
#[test]
fn an_owner_bound_work_set_aside_for_its_doubt_waits_for_no_owner() {
    let mut w = World::default();
    let lease = w.held_with("m", owner_bound);
    let id = w.dispatched(&lease, blind());
    handed(&mut w, &lease, id, OnTimeout::TimeOut);
    w.revoke(lease.work).unwrap();
    let row = w.row(lease.work);
    assert_eq!((row.state, row.body.bound_until), (State::Stalled, None));
}

#[test]
fn an_answer_to_another_wait_queues_no_work_with_a_command_in_doubt() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    w.uncertain(id).unwrap();
    w.wait(&lease, "which");
    let claim = Some(claimant(&w2(), "r1"));
    let reply = w.resolve_as(Actor::machine("webhook"), reference_target("which"), "blue", claim).unwrap();
    assert!(matches!(reply, Reply::Resolved { grant: None, .. }), "{reply:?}");
    assert_eq!(w.state(lease.work), State::Stalled);
}

#[test]
fn a_work_in_doubt_does_not_occupy_a_session_of_another_work() {
    let mut w = World::default();
    let lease = w.held_with("m", in_session);
    let id = w.dispatched(&lease, lookup());
    handed(&mut w, &lease, id, OnTimeout::Default);
    w.held_with("n", in_session);
    w.after(1_000, lease.work);
    assert_eq!(w.state(lease.work), State::Quarantined);
}

#[test]
fn an_abandon_request_takes_effect_when_a_wait_ends_in_doubt() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    w.abandon(lease.work).unwrap();
    handed(&mut w, &lease, id, OnTimeout::Default);
    w.after(1_000, lease.work);
    assert_eq!(w.state(lease.work), State::Abandoned);
}

/// The tool's callback has the wait's token, or knows its reference. Any other answer of a person is that
/// person's record.
#[test]
fn a_persons_answer_without_the_token_is_a_persons_record() {
    for late in [false, true] {
        for by_id in [false, true] {
            let mut w = World::default();
            let lease = w.held("m");
            let id = w.dispatched(&lease, lookup());
            let wait = handed(&mut w, &lease, id, OnTimeout::Default);
            if late {
                w.after(1_000, lease.work);
            }
            let target = |token| match by_id {
                true => Target::Wait { id: wait, token, seal: None },
                false => reference_target("job-7"),
            };
            let resolve =
                Resolve { target: target(TokenCheck::Absent), payload: payload("done"), claim: None };
            let before = w.command_state(id);
            w.replays = false;
            let refused = w.submit(Actor::person("ana"), Action::Resolve(resolve.clone())).unwrap_err();
            assert_eq!((refused.code, w.command_state(id)), (Code::Forbidden, before));
            w.replays = true;
            w.submit(Actor::person("ana"), Action::Resolve(resolve)).unwrap();
            let receipt = w.command(id).body.receipt.clone().unwrap();
            assert_eq!(receipt.evidence, EvidenceKind::Person, "late: {late}, by id: {by_id}");
        }
    }
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    let wait = handed(&mut w, &lease, id, OnTimeout::Default);
    w.replays = false;
    let target = Target::Wait { id: wait, token: TokenCheck::Genuine, seal: None };
    w.resolve_as(Actor::person("ana"), target, "done", None).unwrap();
    assert_eq!(w.command(id).body.receipt.as_ref().unwrap().evidence, EvidenceKind::Provider);
}

#[test]
fn a_persons_early_answer_is_not_a_receipt() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    w.pass(1);
    w.resolve_as(Actor::person("ana"), reference_target("job-7"), "done", None).unwrap();
    handed(&mut w, &lease, id, OnTimeout::TimeOut);
    assert_eq!(w.command_state(id), CommandState::Dispatched);
    let refused = w.log[&lease.work].iter().find_map(|event| match &event.fact {
        Fact::EarlyAnswerRefused(refused) => Some(refused.why),
        _ => None,
    });
    assert_eq!(refused, Some(Unfit::NotEvidence));
}

/// The callback is for the wait that is open now: as the receipt of an older command it could be a false one.
#[test]
fn an_answer_to_an_open_wait_is_not_a_late_receipt() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    handed(&mut w, &lease, id, OnTimeout::Default);
    w.after(1_000, lease.work);
    let other = w.held("n");
    w.wait(&other, "job-7");
    w.resolve("job-7", "done").unwrap();
    assert_eq!((w.state(other.work), w.command_state(id)), (State::Queued, CommandState::Uncertain));
    // The wait's own token still identifies it.
    let wait = w.records.waits[&lease.work][0].id;
    let target = Target::Wait { id: wait, token: TokenCheck::Genuine, seal: None };
    w.resolve_as(Actor::machine("webhook"), target, "done", None).unwrap();
    assert_eq!(w.command_state(id), CommandState::Succeeded);
}

/// A command that was sent again, after a wrong `absent` or with the same key, and handed over to a wait on
/// `job-8`.
fn sent_twice(w: &mut World, facts: ToolFacts) -> (CommandId, [WaitId; 2]) {
    let lease = w.held("m");
    let id = w.dispatched(&lease, facts.clone());
    let first = handed(w, &lease, id, OnTimeout::Default);
    w.after(1_000, lease.work);
    if facts.idempotency == Idempotency::Lookup {
        w.pass(10_000);
        w.reconcile(id, Finding::Absent).unwrap();
        w.tick(lease.work);
    }
    let lease = w.claim(lease.work, &w2());
    w.try_dispatch(&lease, id, evaluation(Effect::Allow, facts)).unwrap();
    let mut spec = w.spec("job-8", WaitKind::Tool);
    spec.command = Some(id);
    let second = spec.id;
    w.wait_for(&lease, vec![spec]).unwrap();
    assert_eq!(w.command_state(id), CommandState::Dispatched);
    (id, [first, second])
}

#[test]
fn a_second_callback_of_a_resent_command_is_not_a_repeat() {
    for (one, other) in [(0, 1), (1, 0)] {
        let mut w = World::default();
        let (id, waits) = sent_twice(&mut w, lookup());
        let by_id = |n: usize| Target::Wait { id: waits[n], token: TokenCheck::Genuine, seal: None };
        let by_ref = |n: usize| reference_target(["job-7", "job-8"][n]);
        let tool = || Actor::machine("webhook");
        w.resolve_as(tool(), by_ref(one), "done", None).unwrap();
        assert_eq!(w.command_state(id), CommandState::Succeeded);
        let before = (w.events(), w.records.kept.clone());
        for target in [by_id(other), by_ref(other)] {
            let refused = w.resolve_as(tool(), target, "done too", None).unwrap_err();
            assert_eq!(refused.code, Code::IdempotencyMismatch);
            assert!(refused.detail.contains("it happened twice"), "{}", refused.detail);
        }
        assert!(!answers(w.resolve_as(tool(), by_ref(one), "done", None).unwrap()).0[0].first);
        assert_eq!((w.events(), w.records.kept.clone()), before);
    }
}

#[test]
fn a_second_callback_of_a_native_command_is_a_repeat() {
    for (one, other) in [("job-7", "job-8"), ("job-8", "job-7")] {
        let mut w = World::default();
        let (id, _) = sent_twice(&mut w, native());
        w.resolve(one, "done").unwrap();
        assert_eq!(w.command_state(id), CommandState::Succeeded);
        assert!(!answers(w.resolve(other, "done").unwrap()).0[0].first);
    }
}

#[test]
fn a_callback_after_the_workers_receipt_changes_nothing() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    handed(&mut w, &lease, id, OnTimeout::TimeOut);
    w.receipt(id).unwrap();
    assert!(!answers(w.resolve("job-7", "done").unwrap()).0[0].first);
}

#[test]
fn a_command_handed_over_under_a_used_reference_is_refused_by_its_name() {
    for with_command in [false, true] {
        let mut w = World::default();
        let mut lease = w.held("m");
        if with_command {
            let id = w.dispatched(&lease, lookup());
            handed(&mut w, &lease, id, OnTimeout::TimeOut);
        } else {
            w.wait(&lease, "job-7");
        }
        w.resolve("job-7", "done").unwrap();
        lease = w.claim(lease.work, &w1());
        let id = w.command_id();
        let (id, second) = intent(id, "hi", evaluation(Effect::Allow, lookup()));
        let second = Intent { slot: Some("b".into()), ..second };
        let id = w.try_reserve(&lease, (id, second)).unwrap().id;
        w.try_dispatch(&lease, id, evaluation(Effect::Allow, lookup())).unwrap();
        let mut spec = w.spec("job-7", WaitKind::Tool);
        spec.command = Some(id);
        let refused = w.wait_for(&lease, vec![spec]).unwrap_err();
        assert_eq!(refused.code, Code::CommandsOpen);
        assert!(
            refused.detail.contains("`job-7`") && refused.detail.contains("new `ref`"),
            "{}",
            refused.detail
        );
        let mut spec = w.spec("job-8", WaitKind::Tool);
        spec.command = Some(id);
        w.wait_for(&lease, vec![spec]).unwrap();
    }
}
