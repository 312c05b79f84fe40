//! Approvals: given by a person, by the wait's id, and only for the content that the person was shown. Also
//! how a doubt is settled.

use tenure_core::{
    Action, Actor, Code, CommandId, CommandState, Fact, Refusal, Reply, State, WaitId,
    action::{CloseOut, Target, TokenCheck},
    command::{
        BlockCode, Command, CommandAction, Effect, Evaluation, EvidenceKind, Finding, Idempotency,
        LookupClaim, Proof, Recorded, ReserveIn, Risk, ToolFacts,
    },
    model::{ErrorClass, OnTimeout, WaitKind, WaitState},
    payload::Digest,
    records::reference_to_command,
};

use crate::common::*;

fn ask(tool: ToolFacts) -> Evaluation {
    evaluation(Effect::NeedsApproval, tool)
}

/// A work item that asks for an approval on `ship`.
fn asking(w: &mut World) -> (Lease, WaitId) {
    let lease = w.held("a");
    let mut spec = w.spec("ship", WaitKind::Approval);
    spec.prompt = Some("Ship it?".into());
    let id = spec.id;
    w.wait_for(&lease, vec![spec]).unwrap();
    (lease, id)
}

fn by_id(id: WaitId, seal: Option<Digest>) -> Target {
    Target::Wait { id, token: TokenCheck::Absent, seal }
}

#[test]
fn an_approval_needs_the_waits_id_and_seal() {
    let mut w = World::default();
    let (lease, id) = asking(&mut w);
    let ana = || Actor::person("ana");
    let seal = w.records.waits[&lease.work][0].seal();
    let tries = [
        (ana(), reference_target("ship"), Code::SealBroken),
        (Actor::machine("bot"), reference_target("ship"), Code::SealBroken),
        (ana(), by_id(id, None), Code::SealBroken),
        (ana(), by_id(id, Some(Digest::of("x"))), Code::SealBroken),
        (Actor::machine("bot"), by_id(id, Some(seal)), Code::TokenRefused),
        (
            Actor::machine("bot"),
            Target::Wait { id, token: TokenCheck::Genuine, seal: Some(seal) },
            Code::PersonRequired,
        ),
        (ana(), Target::Wait { id, token: TokenCheck::Wrong, seal: Some(seal) }, Code::TokenRefused),
    ];
    for (actor, target, code) in tries {
        let said = format!("{actor:?} {target:?}");
        assert_eq!(w.resolve_as(actor, target, "yes", None).unwrap_err().code, code, "{said}");
    }
    assert_eq!(w.state(lease.work), State::WaitingApproval);
    w.resolve_as(ana(), by_id(id, Some(seal)), "yes", None).unwrap();
    assert_eq!(w.state(lease.work), State::Queued);
}

#[test]
fn a_seal_covers_the_work_reference_and_prompt() {
    let mut w = World::default();
    let (lease, _) = asking(&mut w);
    let wait = w.records.waits[&lease.work][0].clone();
    let mut others = [wait.clone(), wait.clone(), wait.clone(), wait.clone()];
    others[0].work = w.work_id();
    others[1].reference = "ship ".into();
    others[2].detail.prompt = Some("Ship it!".into());
    others[3].detail.prompt = None;
    for other in others {
        assert_ne!(other.seal(), wait.seal(), "{other:?}");
    }
}

#[test]
fn an_early_answer_never_approves() {
    let mut w = World::default();
    w.resolve_as(Actor::person("ana"), reference_target("ship"), "yes", None).unwrap();
    let (lease, _) = asking(&mut w);
    assert_eq!(w.state(lease.work), State::WaitingApproval);
    assert!(w.log[&lease.work].iter().any(|event| matches!(event.fact, Fact::EarlyAnswerRefused(_))));
}

#[test]
fn a_passed_deadline_never_approves() {
    let mut w = World::default();
    let lease = w.held("a");
    let mut spec = w.spec("ship", WaitKind::Approval);
    spec.on_timeout = OnTimeout::Default;
    spec.default = Some(payload("yes"));
    assert_eq!(w.wait_for(&lease, vec![spec]).unwrap_err().code, Code::Invalid);
    let id = w.dispatched(&lease, lookup());
    let mut spec = w.spec("ship", WaitKind::Approval);
    spec.command = Some(id);
    assert_eq!(
        w.wait_for(&lease, vec![spec]).unwrap_err().code,
        Code::Invalid,
        "an approval is not a receipt"
    );
}

#[test]
fn a_late_answer_never_approves() {
    let mut w = World::default();
    let (lease, id) = asking(&mut w);
    w.after(24 * HOUR, lease.work);
    assert_eq!(w.state(lease.work), State::TimedOut);
    let seal = Some(w.records.waits[&lease.work][0].seal());
    let late = w.resolve_as(Actor::person("ana"), by_id(id, seal), "yes", None).unwrap_err();
    assert_eq!(late.code, Code::IllegalState);
}

#[test]
fn an_answer_by_reference_skips_approvals() {
    let mut w = World::default();
    let (lease, _) = asking(&mut w);
    let other = w.held("b");
    w.wait(&other, "ship");
    w.resolve("ship", "blue").unwrap();
    assert_eq!((w.state(lease.work), w.state(other.work)), (State::WaitingApproval, State::Queued));
    let wait = &w.records.waits[&lease.work][0];
    assert_eq!((wait.state, wait.answer_seq), (WaitState::Open, None));
}

fn approve_as(w: &mut World, who: &str, id: CommandId, four_eyes: bool) -> Result<Command, Refusal> {
    let (seal, reason) = (w.command(id).seal(), "it is right".to_owned());
    w.on_command(Actor::person(who), CommandAction::Approve { command: id, seal, four_eyes, reason })
}

/// A work item that `who` submits, beneath a parent.
fn submitted(w: &mut World, who: &str, source: &str, parent: Option<tenure_core::WorkId>) -> Lease {
    let mut new = ingest(w.work_id(), source);
    new.parent = parent;
    let Reply::Ingested { work, .. } = w.submit(Actor::person(who), Action::Ingest(Box::new(new))).unwrap()
    else {
        panic!()
    };
    w.claim(work.id, &w1())
}

#[test]
fn four_eyes_exclude_every_requester() {
    let mut w = World::default();
    let grandparent = submitted(&mut w, "gus", "g", None);
    let parent = submitted(&mut w, "pia", "p", Some(grandparent.work));
    let child = submitted(&mut w, "sue", "c", Some(parent.work));
    w.close(&child, State::Failed).unwrap();
    // Ana reruns it, and a worker with a person's name gets the reservation.
    let rerun = w.rerun(child.work, None).unwrap();
    let lease = w.claim(rerun.id, &worker("rex", "boot-1"));
    let id = w.reserve(&lease, ask(lookup()));
    for who in ["gus", "pia", "sue", "ana", "rex"] {
        assert_eq!(approve_as(&mut w, who, id, true).unwrap_err().code, Code::FourEyes, "{who}");
    }
    approve_as(&mut w, "eve", id, true).unwrap();
}

#[test]
fn four_eyes_exclude_the_replayer() {
    let mut w = World::default();
    let lease = w.held("m");
    let facts = tool(Idempotency::None, Risk::High);
    let id = w.dispatched(&lease, facts.clone());
    w.uncertain(id).unwrap();
    w.record(id, Recorded::DidNotHappen).unwrap();
    w.replay(id, evaluation(Effect::Allow, facts)).unwrap();
    assert_eq!(approve_as(&mut w, "ana", id, true).unwrap_err().code, Code::FourEyes);
    approve_as(&mut w, "eve", id, true).unwrap();
}

#[test]
fn four_eyes_are_read_when_the_approval_is_decided() {
    let mut w = World::default();
    let lease = submitted(&mut w, "sue", "c", None);
    let id = w.reserve(&lease, ask(ToolFacts { four_eyes: false, ..lookup() }));
    assert_eq!(
        approve_as(&mut w, "sue", id, true).unwrap_err().code,
        Code::FourEyes,
        "switched on after the reservation"
    );
    let strict = w.held("m");
    let id = w.reserve(&strict, ask(ToolFacts { four_eyes: true, ..lookup() }));
    approve_as(&mut w, "w1", id, false).unwrap();
}

#[test]
fn a_workers_unsent_report_does_not_restore_the_approval() {
    for effect in [Effect::NeedsApproval, Effect::Allow] {
        let mut w = World::default();
        let lease = w.held("m");
        let id = w.reserve(&lease, ask(lookup()));
        w.approve(id).unwrap();
        w.try_dispatch(&lease, id, ask(lookup())).unwrap();
        let told = w.call_failed(id, ErrorClass::Transport, true).unwrap();
        assert_eq!(
            (told.state, told.body.blocked),
            (CommandState::Blocked, Some(BlockCode::ApprovalRequired))
        );
        w.pass(HOUR);
        w.renew(&lease).unwrap();
        let (code, still) = w.not_dispatched(&lease, id, evaluation(effect, lookup()));
        assert_eq!(
            (code, still.state),
            (Code::ApprovalRequired, CommandState::Blocked),
            "with any policy decision: {effect:?}"
        );
        w.approve(id).unwrap();
        assert_eq!(w.try_dispatch(&lease, id, ask(lookup())).unwrap().state, CommandState::Dispatched);
    }
}

#[test]
fn a_worker_waits_again_after_its_approval_was_used() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.reserve(&lease, ask(lookup()));
    let mut waits = Vec::new();
    let mut lease = lease;
    for _ in 0..2 {
        let spec = w.spec(&reference_to_command(id), WaitKind::Approval);
        let Reply::Waiting { ack, .. } = w.wait_for(&lease, vec![spec]).unwrap() else { panic!() };
        waits.extend(ack.waits);
        assert_eq!(w.state(lease.work), State::WaitingApproval);
        w.approve(id).unwrap();
        lease = w.claim(lease.work, &w1());
        w.pass(SECOND);
        w.try_dispatch(&lease, id, ask(lookup())).unwrap();
        assert_eq!(w.call_failed(id, ErrorClass::Transport, true).unwrap().state, CommandState::Blocked);
    }
    assert_ne!(waits[0], waits[1], "an ended wait never changes");
    assert_eq!(w.records.waits[&lease.work].len(), 2);
}

#[test]
fn the_relay_keeps_the_approval_of_an_unsent_command() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.command_id();
    let commands = vec![intent(id, "hi", ask(relay(lookup())))];
    let close = CloseOut { commands, ..close(State::Succeeded) };
    w.by(&lease, Action::CloseOut { holder: lease.holder(), close }).unwrap();
    w.approve(id).unwrap();
    w.relay_dispatch(id, ask(relay(lookup()))).unwrap();
    assert_eq!(w.call_failed(id, ErrorClass::Transport, true).unwrap().state, CommandState::Pending);
    w.pass(SECOND);
    assert_eq!(w.relay_dispatch(id, ask(relay(lookup()))).unwrap().state, CommandState::Dispatched);
}

#[test]
fn only_a_claimed_lookup_or_a_person_settles_a_doubt() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    w.uncertain(id).unwrap();
    w.pass(10 * SECOND);
    let says = |w: &mut World, actor: Actor, claim: Option<LookupClaim>| {
        let finding = Box::new(Finding::Found(Proof::provider("m-1")));
        w.on_command(actor, CommandAction::Reconcile { command: id, claim, finding, message: None })
    };
    let bot = || Actor::worker("w1");
    assert_eq!(says(&mut w, bot(), None).unwrap_err().code, Code::PersonRequired);
    let take = |for_ms| CommandAction::TakeLookup { command: id, for_ms };
    let until = w.on_command(bot(), take(1_000)).unwrap().due_at.unwrap();
    let first = LookupClaim { until, genuine: true };
    let forged = LookupClaim { genuine: false, ..first };
    assert_eq!(says(&mut w, bot(), Some(forged)).unwrap_err().code, Code::TokenRefused);
    w.pass(SECOND);
    let until = w.on_command(bot(), take(2_000)).unwrap().due_at.unwrap();
    let superseded = says(&mut w, bot(), Some(first)).unwrap_err();
    assert_eq!(superseded.code, Code::TokenRefused, "another caller has claimed it");
    let claim = LookupClaim { until, genuine: true };
    assert_eq!(says(&mut w, bot(), Some(claim)).unwrap().state, CommandState::Succeeded);
    assert_eq!(
        says(&mut w, bot(), Some(claim)).unwrap().state,
        CommandState::Succeeded,
        "its reply was lost"
    );
}

#[test]
fn a_receipt_is_not_accepted_as_a_lookup() {
    for doubted in [false, true] {
        let mut w = World::default();
        let lease = w.held("m");
        let id = w.dispatched(&lease, lookup());
        if doubted {
            w.uncertain(id).unwrap();
        }
        let events = w.events();
        for kind in [EvidenceKind::Lookup, EvidenceKind::Person] {
            let proof = Box::new(Proof { kind, ..Proof::provider("msg-1") });
            let receipt = CommandAction::Receipt { command: id, sender: w.sender(id), proof };
            let refused = w.on_command(Actor::worker("w1"), receipt).unwrap_err();
            assert_eq!(refused.code, Code::PersonRequired, "{kind:?}");
        }
        assert_eq!(w.events(), events, "nothing was written");
        assert_eq!(
            w.receipt(id).unwrap().state,
            CommandState::Succeeded,
            "the provider's response is accepted"
        );
    }
}

#[test]
fn an_approval_is_not_reused_for_another_prompt() {
    let asks = |w: &mut World, kind: WaitKind, prompt: &str, schema: bool| {
        let mut spec = w.spec("ship", kind);
        spec.prompt = Some(prompt.into());
        spec.schema = schema.then(|| payload("a schema"));
        spec
    };
    type Question = (WaitKind, &'static str, bool);
    let approval: Question = (WaitKind::Approval, "Ship staging?", false);
    let others: [(Question, Question); 4] = [
        (approval, (WaitKind::Approval, "Ship prod?", false)),
        (approval, (WaitKind::Approval, "Ship staging?", true)),
        (approval, (WaitKind::User, "Ship staging?", false)),
        ((WaitKind::User, "Ship staging?", false), approval),
    ];
    for (first, then) in others {
        let mut w = World::default();
        let lease = w.held("a");
        let spec = asks(&mut w, first.0, first.1, first.2);
        w.wait_for(&lease, vec![spec]).unwrap();
        match first.0 {
            WaitKind::Approval => w.approve_wait("ship").unwrap(),
            _ => w.resolve("ship", "yes").unwrap(),
        };
        let lease = w.claim(lease.work, &w1());
        let other = asks(&mut w, then.0, then.1, then.2);
        let events = w.events();
        assert_eq!(w.wait_for(&lease, vec![other]).unwrap_err().code, Code::IdempotencyMismatch, "{then:?}");
        assert_eq!(w.events(), events);
        let same = asks(&mut w, first.0, first.1, first.2);
        assert!(w.wait_for(&lease, vec![same]).is_ok(), "the same question keeps its answer");
    }
}

/// As in a ledger that is older than the refusal of such waits.
#[test]
fn a_stored_default_approves_nothing() {
    let mut w = World::default();
    let (lease, id) = asking(&mut w);
    let waits = w.records.waits.get_mut(&lease.work).unwrap();
    waits[0].detail.on_timeout = OnTimeout::Default;
    waits[0].detail.default = Some(payload("yes"));
    w.after(24 * HOUR, lease.work);
    assert_eq!(w.state(lease.work), State::WaitingApproval, "it is escalated");
    let wait = w.records.waits[&lease.work].iter().find(|wait| wait.id == id).unwrap();
    assert_eq!((wait.state, wait.answer_seq, wait.detail.escalations), (WaitState::Open, None, 1));
}

#[test]
fn a_workers_report_does_not_settle_a_doubt() {
    for lapsed in [false, true] {
        let mut w = World::default();
        let lease = w.held("m");
        let id = w.dispatched(&lease, lookup());
        if lapsed {
            w.after(LAPSE, lease.work);
        } else {
            w.uncertain(id).unwrap();
        }
        let refused = w.call_failed(id, ErrorClass::Transport, true).unwrap_err();
        assert_eq!((refused.code, w.command_state(id)), (Code::InDoubt, CommandState::Uncertain));
        assert!(refused.detail.contains("tenure commands record"), "{}", refused.detail);
        assert_eq!(w.receipt(id).unwrap().state, CommandState::Succeeded, "evidence settles it");
    }
    // Reported before, and the reply was lost.
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    let first = w.call_failed(id, ErrorClass::Validation, false).unwrap();
    assert_eq!(w.call_failed(id, ErrorClass::Validation, false).unwrap(), first);
    // The relay's own calls: nobody else can report on them.
    let id = w.command_id();
    let mut sent = intent(id, "hi", evaluation(Effect::Allow, relay(lookup())));
    sent.1.slot = Some("relay".into());
    w.try_reserve(&lease, sent).unwrap();
    w.relay_dispatch(id, evaluation(Effect::Allow, relay(lookup()))).unwrap();
    w.uncertain(id).unwrap();
    assert_eq!(w.call_failed(id, ErrorClass::Transport, true).unwrap().state, CommandState::Pending);
}

#[test]
fn a_person_who_reserves_it_again_cannot_approve_it() {
    let mut w = World::default();
    let lease = submitted(&mut w, "sue", "s", None);
    let id = w.reserve(&lease, ask(lookup()));
    let again = |w: &mut World, actor: Actor| {
        let holder = lease.holder();
        let (id, intent) = intent(w.command_id(), "hi", ask(lookup()));
        let (place, intent) = (ReserveIn::Work(holder), Box::new(intent));
        let action = CommandAction::Reserve { place, id, intent };
        match w.submit(actor, Action::Command(Box::new(action))).unwrap() {
            Reply::Command { command, fresh, .. } => (command.id, fresh),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(again(&mut w, Actor::person("ria")), (id, false));
    let events = w.events();
    again(&mut w, Actor::person("ria"));
    again(&mut w, Actor::worker("w1"));
    assert_eq!(w.events(), events, "recorded once, and only for people");
    assert_eq!(approve_as(&mut w, "ria", id, true).unwrap_err().code, Code::FourEyes);
    assert_eq!(approve_as(&mut w, "ben", id, true).unwrap().state, CommandState::Approved);
}
