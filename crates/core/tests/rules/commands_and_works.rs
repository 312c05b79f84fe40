//! Commands and their work items: lapses, ends, waits, reruns, the outbox and its relay.

use tenure_core::{
    Action, Actor, Code, CommandState, Reply, State,
    action::{CloseOut, Decide},
    command::{
        CancelCode, CommandAction, Effect, Finding, Idempotency, Planned, Proof, Recorded, ReserveIn, Risk,
        ToolFacts, explain, plan::plan,
    },
    model::{ErrorClass, OnTimeout, ReasonCode, WaitKind},
    records::reference_to_command,
    reply::Ticked,
};

use crate::common::*;

fn none() -> ToolFacts {
    tool(Idempotency::None, Risk::Low)
}

#[test]
fn a_lapse_makes_dispatched_commands_uncertain_before_recovery() {
    for (facts, state, reason) in [
        (native(), State::Queued, None),
        (lookup(), State::Stalled, Some(ReasonCode::LeaseLapsed)),
        (none(), State::Quarantined, Some(ReasonCode::InDoubt)),
    ] {
        let mut w = World::default();
        let lease = w.held("m");
        let id = w.dispatched(&lease, facts);
        assert_eq!(w.after(LAPSE, lease.work), Ticked::Acted);
        assert_eq!(w.command_state(id), CommandState::Uncertain);
        assert_eq!((w.state(lease.work), w.why(lease.work)), (state, reason));
        // The holder's evidence is accepted even now.
        assert_eq!(w.receipt(id).unwrap().state, CommandState::Succeeded);
    }
}

#[test]
fn a_native_command_in_doubt_is_not_retried_for_ever() {
    let mut w = World::default();
    let mut lease = w.held("m");
    let id = w.dispatched(&lease, native());
    for lapse in 1..=3 {
        w.after(LAPSE, lease.work);
        if lapse < 3 {
            assert_eq!(w.state(lease.work), State::Queued, "lapse {lapse}");
            lease = w.claim(lease.work, &w2());
        }
    }
    assert_eq!((w.state(lease.work), w.why(lease.work)), (State::Quarantined, Some(ReasonCode::InDoubt)));
    assert_eq!(w.command_state(id), CommandState::Uncertain);
    assert!(w.command(id).body.needs_person, "it has no holder to send it again");
}

#[test]
fn a_stalled_work_goes_on_when_the_lookup_has_settled_its_doubt() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    w.after(LAPSE, lease.work);
    assert_eq!(w.tick(lease.work), Ticked::Nothing, "still in doubt");
    w.reconcile(id, Finding::Found(Proof::provider("m-7"))).unwrap();
    assert_eq!(w.tick(lease.work), Ticked::Acted);
    assert_eq!(w.state(lease.work), State::Queued);
    let lease = w.claim(lease.work, &w2());
    let again = w.command_id();
    let known = w.try_reserve(&lease, intent(again, "hi", evaluation(Effect::Allow, lookup()))).unwrap();
    assert_eq!((known.id, known.state), (id, CommandState::Succeeded), "the receipt is reused");
    w.close(&lease, State::Succeeded).unwrap();
}

#[test]
fn lookups_without_a_result_end_with_a_person() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    w.after(LAPSE, lease.work);
    for n in 1..=3 {
        let command = w.reconcile(id, Finding::Unknown).unwrap();
        assert_eq!(command.body.needs_person, n == 3);
        w.pass(60 * SECOND);
    }
    assert_eq!((w.state(lease.work), w.why(lease.work)), (State::Quarantined, Some(ReasonCode::InDoubt)));
    let report = w.row(lease.work).body.reason.clone().unwrap().message.unwrap();
    assert!(report.contains("mail to bob") && report.contains("3 lookups"), "{report}");
    assert_eq!(w.decide(lease.work, Decide::Requeue).unwrap_err().code, Code::CommandsOpen);
    let well = Decide::Close(Box::new(close(State::Succeeded)));
    assert_eq!(w.decide(lease.work, well).unwrap_err().code, Code::CommandsOpen);
    w.record(id, Recorded::DidNotHappen).unwrap();
    w.decide(lease.work, Decide::Requeue).unwrap();
    assert_eq!(w.state(lease.work), State::Queued);
}

#[test]
fn no_work_succeeds_while_a_command_is_open() {
    for settle in [false, true] {
        let mut w = World::default();
        let lease = w.held("m");
        let id = w.dispatched(&lease, lookup());
        if settle {
            w.uncertain(id).unwrap();
        }
        for state in [State::Succeeded, State::CompletedWithWarnings] {
            assert_eq!(w.close(&lease, state).unwrap_err().code, Code::CommandsOpen);
        }
        w.receipt(id).unwrap();
        w.close(&lease, State::Succeeded).unwrap();
    }
}

#[test]
fn other_ends_keep_commands_in_doubt_and_cancel_the_rest() {
    let mut w = World::default();
    let lease = w.held("m");
    let sent = w.dispatched(&lease, lookup());
    let id = w.command_id();
    let mut idle = intent(id, "hi", evaluation(Effect::NeedsApproval, lookup()));
    idle.1.slot = Some("2".into());
    let idle = w.try_reserve(&lease, idle).unwrap().id;
    w.close(&lease, State::Failed).unwrap();
    assert_eq!(w.command_state(sent), CommandState::Uncertain);
    assert_eq!(w.command(idle).body.cancelled, Some(CancelCode::WorkEnded));
    let before = w.row(lease.work).body.completed_at;
    w.pass(20 * SECOND);
    w.reconcile(sent, Finding::Unknown).unwrap();
    w.reconcile(sent, Finding::Absent).unwrap();
    assert_eq!(w.command_state(sent), CommandState::Cancelled, "it has no holder");
    assert_eq!((w.state(lease.work), w.row(lease.work).body.completed_at), (State::Failed, before));
}

#[test]
fn failing_or_releasing_in_doubt_waits_for_the_lookup() {
    type Act = fn(&mut World, &Lease);
    let fail: Act = |w, lease| drop(w.fail(lease, ErrorClass::Unavailable, "down").unwrap());
    let release: Act = |w, lease| drop(w.release(lease).unwrap());
    for (act, facts, state) in [
        (fail, lookup(), State::Stalled),
        (release, lookup(), State::Stalled),
        (fail, none(), State::Quarantined),
        (release, none(), State::Quarantined),
        (fail, native(), State::RetryScheduled),
        (release, native(), State::Queued),
    ] {
        let mut w = World::default();
        let lease = w.held("m");
        let id = w.dispatched(&lease, facts);
        act(&mut w, &lease);
        assert_eq!(w.state(lease.work), state);
        assert_eq!(w.command_state(id), CommandState::Uncertain);
        if state == State::Stalled {
            w.pass(20 * SECOND);
            w.reconcile(id, Finding::Absent).unwrap();
            w.tick(lease.work);
            assert_eq!(w.state(lease.work), State::Queued);
        }
    }
}

#[test]
fn an_execution_timeout_in_doubt_waits_for_the_lookup() {
    let mut w = World::default();
    let lease = w.held_with("m", |ingest| ingest.policy = timeouts(Some(5_000), None, None));
    w.dispatched(&lease, lookup());
    w.after(5_000, lease.work);
    assert_eq!(w.state(lease.work), State::Stalled);
}

#[test]
fn a_cancel_waits_for_commands_in_doubt() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    w.after(LAPSE, lease.work);
    w.cancel(lease.work).unwrap();
    assert_eq!(w.state(lease.work), State::Stalled, "the outcome is unknown");
    w.receipt(id).unwrap();
    w.tick(lease.work);
    assert_eq!(w.state(lease.work), State::Cancelled);
}

#[test]
fn a_worker_that_cannot_go_on_waits_for_the_approval() {
    for approve in [true, false] {
        let mut w = World::default();
        let lease = w.held("m");
        let id = w.reserve(&lease, evaluation(Effect::NeedsApproval, lookup()));
        assert_eq!(w.state(lease.work), State::Running, "only its worker can report that it cannot continue");
        let mut spec = w.spec(&reference_to_command(id), WaitKind::Approval);
        spec.endless = true;
        w.wait_for(&lease, vec![spec]).unwrap();
        assert_eq!(w.state(lease.work), State::WaitingApproval);
        let by_call = w.resolve(&reference_to_command(id), "yes").unwrap_err();
        assert_eq!(by_call.code, Code::ReferenceReserved, "never answered by a call");
        let decided = if approve { w.approve(id) } else { w.reject(id) }.unwrap();
        assert_eq!(w.state(lease.work), State::Queued);
        let answer = w.last(lease.work).payload.clone().unwrap().value();
        assert_eq!(answer["state"], decided.state.as_str());
        let lease = w.claim(lease.work, &w2());
        if approve {
            let gone = w.try_dispatch(&lease, id, evaluation(Effect::NeedsApproval, lookup())).unwrap();
            assert_eq!(gone.state, CommandState::Dispatched, "approved once, for the current holder");
        }
    }
}

#[test]
fn a_wait_for_a_decided_command_keeps_its_lease() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.reserve(&lease, evaluation(Effect::NeedsApproval, lookup()));
    w.approve(id).unwrap();
    let spec = w.spec(&reference_to_command(id), WaitKind::Approval);
    w.wait_for(&lease, vec![spec]).unwrap();
    assert_eq!(w.state(lease.work), State::Running);
    let other = w.held("n");
    let spec = w.spec(&reference_to_command(id), WaitKind::Approval);
    assert_eq!(w.wait_for(&other, vec![spec]).unwrap_err().code, Code::NotFound, "another work's command");
}

#[test]
fn waiting_needs_dispatched_commands_handed_over() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    let spec = w.spec("job-7", WaitKind::Tool);
    assert_eq!(w.wait_for(&lease, vec![spec.clone()]).unwrap_err().code, Code::CommandsOpen);
    let mut handed = spec;
    handed.command = Some(id);
    w.wait_for(&lease, vec![handed]).unwrap();
    assert_eq!((w.state(lease.work), w.command_state(id)), (State::WaitingTool, CommandState::Dispatched));
    let Reply::Resolved { answers, .. } = w.resolve("job-7", "done").unwrap() else { panic!() };
    let receipt = w.command(id).body.receipt.clone().unwrap();
    assert_eq!(receipt.response, Some((lease.work, answers[0].seq.unwrap())), "the answer is the receipt");
    assert_eq!(w.state(lease.work), State::Queued);
}

#[test]
fn an_early_answer_is_a_receipt_as_well() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    w.pass(1);
    w.resolve("job-7", "done").unwrap();
    let mut handed = w.spec("job-7", WaitKind::Tool);
    handed.command = Some(id);
    let other = w.spec("user", WaitKind::User);
    w.wait_for(&lease, vec![handed, other]).unwrap();
    assert_eq!((w.state(lease.work), w.command_state(id)), (State::WaitingUser, CommandState::Succeeded));
    let (work, seq) = w.command(id).body.receipt.clone().unwrap().response.unwrap();
    assert_eq!(w.log[&work][seq as usize - 1].payload, Some(payload("done")));
}

#[test]
fn a_handed_command_is_in_doubt_when_its_wait_ends_without_an_answer() {
    for (on_timeout, state) in [
        (OnTimeout::TimeOut, State::TimedOut),
        (OnTimeout::Warn, State::TimedOut),
        (OnTimeout::Default, State::Stalled),
        (OnTimeout::Escalate, State::WaitingTool),
    ] {
        let mut w = World::default();
        let lease = w.held("m");
        let id = w.dispatched(&lease, lookup());
        let mut spec = w.spec("job-7", WaitKind::Tool);
        spec.command = Some(id);
        spec.timeout_ms = Some(1_000);
        spec.on_timeout = on_timeout;
        spec.default = (on_timeout == OnTimeout::Default).then(|| payload("none"));
        w.wait_for(&lease, vec![spec]).unwrap();
        w.after(1_000, lease.work);
        assert_eq!(w.state(lease.work), state, "{on_timeout:?}");
        let doubtful = on_timeout != OnTimeout::Escalate;
        assert_eq!(w.command_state(id) == CommandState::Uncertain, doubtful);
    }
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    let mut spec = w.spec("job-7", WaitKind::Tool);
    spec.command = Some(id);
    w.wait_for(&lease, vec![spec]).unwrap();
    w.revoke(lease.work).unwrap();
    assert_eq!(w.command_state(id), CommandState::Uncertain);
}

fn outbox(w: &mut World, source: &str, facts: ToolFacts) -> (Lease, tenure_core::CommandId) {
    let lease = w.held(source);
    let id = w.command_id();
    let mut sent = intent(id, "your report", evaluation(Effect::Allow, relay(facts)));
    sent.1.slot = Some(source.to_owned());
    let close = CloseOut { commands: vec![sent], ..close(State::Succeeded) };
    w.by(&lease, Action::CloseOut { holder: lease.holder(), close }).unwrap();
    assert_eq!((w.state(lease.work), w.command_state(id)), (State::Succeeded, CommandState::Pending));
    (lease, id)
}

#[test]
fn the_outbox_commits_with_the_end_and_the_relay_sends_it_once() {
    let mut w = World::default();
    let (lease, id) = outbox(&mut w, "m", native());
    assert_eq!(w.story(lease.work)[2..], ["command_reserved", "close_out"]);
    let go = evaluation(Effect::Allow, relay(native()));
    assert_eq!(w.relay_dispatch(id, go.clone()).unwrap().state, CommandState::Dispatched);
    let second = w.relay_dispatch(id, go.clone()).unwrap_err();
    assert_eq!(second.code, Code::AlreadyDispatched, "two relays never send the same command");
    // The relay crashed: at its deadline the outcome is unknown, and the same key is sent again after a
    // backoff.
    w.pass(60 * SECOND);
    w.tick_command(id);
    assert_eq!(w.command_state(id), CommandState::Uncertain);
    assert_eq!(w.relay_dispatch(id, go.clone()).unwrap_err().code, Code::NotDue);
    w.pass(SECOND);
    let first = w.sender(id);
    w.relay_dispatch(id, go).unwrap();
    let stale = w.failed_by(id, first, error(ErrorClass::Timeout)).unwrap_err();
    assert_eq!(stale.code, Code::DispatchSuperseded, "the first call's outcome does not settle the second");
    assert_eq!(w.receipt(id).unwrap().state, CommandState::Succeeded);
    assert_eq!(w.state(lease.work), State::Succeeded);
}

#[test]
fn a_close_out_refuses_commands_of_the_worker() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.command_id();
    let commands = vec![intent(id, "hi", evaluation(Effect::Allow, lookup()))];
    let close = CloseOut { commands, ..close(State::Succeeded) };
    let refused =
        w.by(&lease, Action::CloseOut { holder: lease.holder(), close: close.clone() }).unwrap_err();
    assert_eq!(refused.code, Code::Invalid);
    w.quarantine(lease.work).unwrap();
    assert_eq!(w.decide(lease.work, Decide::Close(Box::new(close))).unwrap_err().code, Code::Invalid);
}

#[test]
fn ordered_commands_to_a_target_wait_for_one_another() {
    let mut w = World::default();
    let ordered = ToolFacts { ordered: true, ..native() };
    let (_, first) = outbox(&mut w, "m", ordered.clone());
    w.pass(1);
    let (_, second) = outbox(&mut w, "n", ordered.clone());
    let go = || evaluation(Effect::Allow, relay(ordered.clone()));
    assert_eq!(w.relay_dispatch(second, go()).unwrap_err().code, Code::NotDue);
    w.relay_dispatch(first, go()).unwrap();
    assert_eq!(w.relay_dispatch(second, go()).unwrap_err().code, Code::NotDue);
    w.receipt(first).unwrap();
    w.relay_dispatch(second, go()).unwrap();
}

#[test]
fn the_relay_and_the_worker_dispatch_only_their_own_commands() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.reserve(&lease, evaluation(Effect::Allow, lookup()));
    let refused = w.relay_dispatch(id, evaluation(Effect::Allow, lookup())).unwrap_err();
    assert_eq!(refused.code, Code::IllegalState);
    let new = w.command_id();
    let mut sent = intent(new, "hi", evaluation(Effect::Allow, relay(lookup())));
    sent.1.slot = Some("sent".into());
    w.try_reserve(&lease, sent).unwrap();
    let refused = w.try_dispatch(&lease, new, evaluation(Effect::Allow, relay(lookup()))).unwrap_err();
    assert_eq!(refused.code, Code::IllegalState);
    let (_, out) = outbox(&mut w, "n", lookup());
    let foreign = w.try_dispatch(&lease, out, evaluation(Effect::Allow, relay(lookup()))).unwrap_err();
    assert_eq!(foreign.code, Code::NotFound, "another work's command does not exist for it");
}

#[test]
fn a_rerun_reuses_receipts_and_repeats_nothing_by_itself() {
    let mut w = World::default();
    let lease = w.held("m");
    let done = w.dispatched(&lease, lookup());
    w.receipt(done).unwrap();
    let id = w.command_id();
    let mut doubtful = intent(id, "hi", evaluation(Effect::Allow, lookup()));
    doubtful.1.slot = Some("doubtful".into());
    let doubtful_id = w.try_reserve(&lease, doubtful.clone()).unwrap().id;
    w.try_dispatch(&lease, doubtful_id, evaluation(Effect::Allow, lookup())).unwrap();
    w.close(&lease, State::Failed).unwrap();

    let commands = w.records.commands_of(lease.work).to_vec();
    let planned: Vec<Planned> =
        plan(&commands, &[], |_| Effect::Allow).iter().map(|line| line.planned).collect();
    assert_eq!(planned, [Planned::ReuseReceipt, Planned::Blocked]);
    let planned: Vec<Planned> = plan(&commands, &[doubtful.1.key()], |_| Effect::NeedsApproval)
        .iter()
        .map(|line| line.planned)
        .collect();
    assert_eq!(planned, [Planned::ReuseReceipt, Planned::NeedsApproval]);

    let again = w.rerun(lease.work, None).unwrap();
    let lease = w.claim(again.id, &w1());
    let new = w.command_id();
    let reused = w.try_reserve(&lease, intent(new, "hi", evaluation(Effect::Allow, lookup()))).unwrap();
    assert_eq!((reused.id, reused.state), (new, CommandState::Succeeded));
    assert_eq!(reused.body.receipt.as_ref().unwrap().reused_from, Some(done));
    doubtful.0 = w.command_id();
    assert_eq!(w.try_reserve(&lease, doubtful.clone()).unwrap_err().code, Code::InDoubt);
    w.pass(20 * SECOND);
    w.reconcile(doubtful_id, Finding::Absent).unwrap();
    assert_eq!(w.try_reserve(&lease, doubtful).unwrap().state, CommandState::Pending);
}

#[test]
fn a_rerun_with_other_arguments_or_an_explicit_execute() {
    let mut w = World::default();
    let lease = w.held("m");
    let done = w.dispatched(&lease, lookup());
    w.receipt(done).unwrap();
    let key = w.command(done).spec.key;
    w.close(&lease, State::Failed).unwrap();
    let again = w.rerun(lease.work, None).unwrap();
    let lease = w.claim(again.id, &w1());
    let id = w.command_id();
    let other = w.try_reserve(&lease, intent(id, "hello", evaluation(Effect::Allow, lookup()))).unwrap();
    assert_eq!(other.state, CommandState::Blocked, "it happened before with other arguments: a person looks");
    w.close(&lease, State::Failed).unwrap();

    let id = w.work_id();
    let execute = vec![key];
    let action = Action::Rerun { of: again.id, id, from_step: None, execute, reason: "send it again".into() };
    w.submit(Actor::person("ana"), action).unwrap();
    let lease = w.claim(id, &w1());
    let id = w.command_id();
    let fresh = w.try_reserve(&lease, intent(id, "hi", evaluation(Effect::Allow, lookup()))).unwrap();
    assert_eq!(fresh.state, CommandState::Pending);
    assert_ne!(fresh.idempotency_key(), w.command(done).idempotency_key());
}

#[test]
fn a_command_without_a_work_gets_one_of_its_own() {
    let mut w = World::default();
    let reserve = |w: &mut World, request: &str| {
        let (id, command) = (w.work_id(), w.command_id());
        let mut work = ingest(id, "one-risky-tool");
        work.source.system = "manual".into();
        work.claim = Some(claimant(&w1(), request));
        let (id, intent) = intent(command, "hi", evaluation(Effect::Allow, lookup()));
        let (place, intent) = (ReserveIn::OwnWork(Box::new(work)), Box::new(intent));
        let action = CommandAction::Reserve { place, id, intent };
        w.submit(Actor::worker("w1"), Action::Command(Box::new(action)))
    };
    let Reply::Command { command, fresh: true, grant: Some(grant) } = reserve(&mut w, "r1").unwrap() else {
        panic!()
    };
    assert_eq!(w.story(command.work), ["work_created", "claimed", "command_reserved"]);
    let Reply::Command { command: same, fresh: false, grant: Some(again) } = reserve(&mut w, "r1").unwrap()
    else {
        panic!()
    };
    assert_eq!((same.id, again.work.fence), (command.id, grant.work.fence));
    assert_eq!(reserve(&mut w, "r2").unwrap_err().code, Code::Busy);
    let lease = lease(&grant);
    w.try_dispatch(&lease, command.id, evaluation(Effect::Allow, lookup())).unwrap();
    w.receipt(command.id).unwrap();
    w.close(&lease, State::Succeeded).unwrap();
}

#[test]
fn tenants_do_not_see_each_others_commands() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.reserve(&lease, evaluation(Effect::NeedsApproval, lookup()));
    let foreign = tenure_core::action::Tenants::Only(vec!["other".into()]);
    let (seal, reason) = (w.command(id).seal(), "mine".into());
    let approve = CommandAction::Approve { command: id, seal, four_eyes: false, reason };
    let refused =
        w.submit_for(Actor::person("eve"), foreign, Action::Command(Box::new(approve))).unwrap_err();
    assert_eq!(refused.code, Code::NotFound);
    let unknown = w.command_id();
    assert_eq!(w.approve(unknown).unwrap_err().code, Code::NotFound);
}

#[test]
fn a_claimed_lookup_is_not_given_to_others() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    w.uncertain(id).unwrap();
    let take = CommandAction::TakeLookup { command: id, for_ms: 30_000 };
    let early = w.on_command(Actor::system("reconciler"), take.clone()).unwrap_err();
    assert_eq!(early.code, Code::NotDue, "the provider may not show it yet");
    w.pass(10 * SECOND);
    let events = w.events();
    w.on_command(Actor::system("reconciler"), take.clone()).unwrap();
    assert_eq!(w.on_command(Actor::system("reconciler"), take).unwrap_err().code, Code::NotDue);
    assert_eq!(w.events(), events);
}

#[test]
fn every_state_is_explained() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.reserve(&lease, evaluation(Effect::NeedsApproval, lookup()));
    let says = |w: &World, words: &str| {
        let said = explain(w.command(id), None, w.now);
        let text = format!("{} {} {:?}", said.sentence, said.advice, said.next);
        assert!(text.contains(words), "{words}: {text}");
    };
    says(&w, "approve exactly this command");
    w.approve(id).unwrap();
    says(&w, "approved by ana");
    w.try_dispatch(&lease, id, evaluation(Effect::NeedsApproval, lookup())).unwrap();
    says(&w, "no receipt yet");
    w.uncertain(id).unwrap();
    says(&w, "a lookup asks the provider");
    w.receipt(id).unwrap();
    says(&w, "msg-1");
}
