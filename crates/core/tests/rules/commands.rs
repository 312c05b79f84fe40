//! Commands, verb by verb: from every state, the next state or the refusal.

use tenure_core::{
    Actor, Code, CommandId, CommandState, Refusal,
    command::{
        BlockCode, CancelCode, CommandAction, DispatchAction, Dispatcher, Effect, Evaluation, EvidenceKind,
        Finding, Idempotency, Proof, Recorded, Risk, Sender, ToolFacts,
        budget::{Account, BudgetKey, Cost, Limit, Per, Unit},
    },
    model::ErrorClass,
    payload::Digest,
};

use crate::common::*;

fn allow(tool: ToolFacts) -> Evaluation {
    evaluation(Effect::Allow, tool)
}

fn ask(tool: ToolFacts) -> Evaluation {
    evaluation(Effect::NeedsApproval, tool)
}

/// A held work item with a command of a looked-up, low-risk tool in this state.
fn in_state(w: &mut World, state: CommandState) -> (Lease, CommandId) {
    let lease = w.held(&format!("{state}-{}", w.events()));
    let id = match state {
        CommandState::Pending => w.reserve(&lease, allow(lookup())),
        CommandState::Blocked => w.reserve(&lease, ask(lookup())),
        CommandState::Approved => {
            let id = w.reserve(&lease, ask(lookup()));
            w.approve(id).unwrap();
            id
        }
        CommandState::Cancelled => {
            let id = w.reserve(&lease, allow(lookup()));
            w.cancel_command(id).unwrap();
            id
        }
        CommandState::Dispatched => w.dispatched(&lease, lookup()),
        CommandState::Uncertain => {
            let id = w.dispatched(&lease, lookup());
            w.uncertain(id).unwrap();
            id
        }
        CommandState::Succeeded => {
            let id = w.dispatched(&lease, lookup());
            w.receipt(id).unwrap();
            id
        }
        CommandState::Failed => {
            let id = w.dispatched(&lease, lookup());
            w.call_failed(id, ErrorClass::Validation, false).unwrap();
            id
        }
    };
    assert_eq!(w.command_state(id), state);
    (lease, id)
}

type Try = fn(&mut World, &Lease, CommandId) -> Result<tenure_core::Command, Refusal>;

/// The result of a verb from each state.
type Row = [Result<CommandState, Code>; 8];

/// One row a verb: for each state, in the order of their codes, the next state or the refusal.
#[test]
fn every_verb_from_every_state() {
    use CommandState::*;
    let illegal = Err(Code::IllegalState);
    let lost = Err(Code::LeaseLost);
    let verbs: [(&str, Try, Row); 11] = [
        (
            "dispatch",
            |w, lease, id| w.try_dispatch(lease, id, allow(lookup())),
            [
                Ok(Dispatched),
                Ok(Dispatched),
                Ok(Dispatched),
                Err(Code::AlreadyDispatched),
                Err(Code::InDoubt),
                Err(Code::AlreadySucceeded),
                illegal,
                illegal,
            ],
        ),
        (
            "dispatch, denied",
            |w, lease, id| w.try_dispatch(lease, id, evaluation(Effect::Deny, lookup())),
            [
                Err(Code::PolicyDenied),
                Err(Code::PolicyDenied),
                Err(Code::PolicyDenied),
                Err(Code::AlreadyDispatched),
                Err(Code::InDoubt),
                Err(Code::AlreadySucceeded),
                illegal,
                illegal,
            ],
        ),
        (
            "approve",
            |w, _, id| w.approve(id),
            [illegal, Ok(Approved), Ok(Approved), illegal, illegal, illegal, illegal, illegal],
        ),
        (
            "reject",
            |w, _, id| w.reject(id),
            [illegal, Ok(Cancelled), illegal, illegal, illegal, illegal, illegal, illegal],
        ),
        (
            "receipt",
            |w, _, id| w.receipt(id),
            [lost, lost, lost, Ok(Succeeded), Ok(Succeeded), Ok(Succeeded), illegal, lost],
        ),
        (
            "fail",
            |w, _, id| w.call_failed(id, ErrorClass::Validation, false),
            [lost, lost, lost, Ok(Failed), Err(Code::InDoubt), illegal, Ok(Failed), lost],
        ),
        (
            "fail, unsent",
            |w, _, id| w.call_failed(id, ErrorClass::Transport, true),
            [lost, lost, lost, Ok(Pending), Err(Code::InDoubt), illegal, Ok(Failed), lost],
        ),
        (
            "uncertain",
            |w, _, id| w.uncertain(id),
            [lost, lost, lost, Ok(Uncertain), Ok(Uncertain), illegal, illegal, lost],
        ),
        (
            "record",
            |w, _, id| w.record(id, Recorded::Happened(Proof::provider("seen"))),
            [illegal, illegal, illegal, illegal, Ok(Succeeded), Ok(Succeeded), illegal, illegal],
        ),
        (
            "replay",
            |w, _, id| w.replay(id, allow(lookup())),
            [illegal, illegal, illegal, illegal, illegal, illegal, Ok(Pending), illegal],
        ),
        (
            "cancel",
            |w, _, id| w.cancel_command(id),
            [Ok(Cancelled), Ok(Cancelled), Ok(Cancelled), illegal, illegal, illegal, illegal, Ok(Cancelled)],
        ),
    ];
    for (verb, act, expected) in verbs {
        for (from, expected) in CommandState::ALL.into_iter().zip(expected) {
            let mut w = World::default();
            let (lease, id) = in_state(&mut w, from);
            let events = w.events();
            let outcome = act(&mut w, &lease, id);
            let got = outcome.as_ref().map(|command| command.state).map_err(|refusal| refusal.code);
            assert_eq!(got, expected, "{verb} from {from}: {outcome:?}");
            if got == Err(Code::PolicyDenied) {
                assert_eq!(w.command_state(id), Blocked, "the block by policy is recorded");
            } else if outcome.is_err() {
                assert_eq!(w.events(), events, "24: a refusal writes nothing");
                assert_eq!(w.command_state(id), from);
            }
        }
    }
}

#[test]
fn lookups_by_finding() {
    use CommandState::*;
    let low = lookup();
    let high = ToolFacts { risk: Risk::High, ..lookup() };
    for (facts, wait_ms, finding, expected) in [
        (&low, 0, Finding::Found(Proof::provider("m-1")), Ok(Succeeded)),
        (&low, 0, Finding::Absent, Err(Code::NotDue)),
        (&low, 10_000, Finding::Absent, Ok(Pending)),
        (&high, 10_000, Finding::Absent, Ok(Blocked)),
        (&low, 0, Finding::Unknown, Ok(Uncertain)),
    ] {
        let mut w = World::default();
        let lease = w.held("m");
        let id = w.dispatched(&lease, facts.clone());
        w.uncertain(id).unwrap();
        w.pass(wait_ms);
        let outcome = w.reconcile(id, finding.clone());
        let got = outcome.as_ref().map(|command| command.state).map_err(|refusal| refusal.code);
        assert_eq!(got, expected, "{finding:?}");
        if got == Ok(Blocked) {
            let (code, again) = w.not_dispatched(&lease, id, allow(facts.clone()));
            assert_eq!(
                (code, again.state),
                (Code::ApprovalRequired, Blocked),
                "a fresh approval under any policy"
            );
            w.approve(id).unwrap();
            assert_eq!(w.try_dispatch(&lease, id, allow(facts.clone())).unwrap().state, Dispatched);
        }
    }
}

#[test]
fn the_same_intent_is_the_same_command() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    let key = w.command(id).idempotency_key();
    w.receipt(id).unwrap();
    let other = w.command_id();
    let again = w.try_reserve(&lease, intent(other, "hi", allow(lookup()))).unwrap();
    assert_eq!((again.id, again.state, again.idempotency_key()), (id, CommandState::Succeeded, key));
    assert_eq!(again.body.receipt.as_ref().unwrap().external_id.as_deref(), Some("msg-1"));
    let other = w.command_id();
    let refused = w.try_reserve(&lease, intent(other, "hello", allow(lookup()))).unwrap_err();
    assert_eq!(refused.code, Code::IdempotencyMismatch);
    let mut slot = intent(other, "hello", allow(lookup()));
    slot.1.slot = Some("second".into());
    assert_eq!(w.try_reserve(&lease, slot).unwrap().id, other);
}

#[test]
fn other_arguments_of_a_later_attempt_supersede_an_unsent_command() {
    let mut w = World::default();
    let lease = w.held("m");
    let old = w.reserve(&lease, ask(lookup()));
    let new = w.command_id();
    let same_fence = w.try_reserve(&lease, intent(new, "hello", ask(lookup()))).unwrap_err();
    assert_eq!(same_fence.code, Code::IdempotencyMismatch);
    w.release(&lease).unwrap();
    let lease = w.claim(lease.work, &w2());
    assert_eq!(w.try_reserve(&lease, intent(new, "hello", ask(lookup()))).unwrap().id, new);
    let (code, old) = w.not_dispatched(&lease, old, allow(lookup()));
    assert_eq!((old.state, old.body.cancelled), (CommandState::Cancelled, Some(CancelCode::Superseded)));
    assert_eq!((code, old.body.superseded_by), (Code::Superseded, Some(new)));
}

#[test]
fn integers_that_json_rounds_are_refused() {
    let refused = tenure_core::Payload::new(&serde_json::json!({ "amount": 9_007_199_254_740_993_u64 }));
    assert_eq!(refused.unwrap_err().code, Code::PayloadRefused);
}

#[test]
fn a_stale_policy_decision_is_refused() {
    let mut w = World::default();
    let lease = w.held("m");
    let mut stale = allow(lookup());
    stale.decision.policy_version = "p0".into();
    let id = w.command_id();
    let refused = w.try_reserve(&lease, intent(id, "hi", stale.clone())).unwrap_err();
    assert_eq!((refused.code, refused.retryable()), (Code::PolicyStale, tenure_core::Retryable::Yes));
    let id = w.reserve(&lease, allow(lookup()));
    assert_eq!(w.try_dispatch(&lease, id, stale).unwrap_err().code, Code::PolicyStale);
}

#[test]
fn only_a_person_approves_and_the_seal_covers_the_content() {
    let mut w = World::default();
    let lease = w.held("m");
    let strict = ToolFacts { four_eyes: true, ..lookup() };
    let id = w.reserve(&lease, ask(strict.clone()));
    for actor in [Actor::machine("bot"), Actor::worker("w1"), Actor::system("relay")] {
        assert_eq!(w.approve_as(actor, id).unwrap_err().code, Code::PersonRequired);
    }
    assert_eq!(w.approve_as(Actor::person("w1"), id).unwrap_err().code, Code::FourEyes);
    let (seal, reason) = (Digest::of("x"), "ok".to_owned());
    let wrong = CommandAction::Approve { command: id, seal, four_eyes: true, reason };
    assert_eq!(w.on_command(Actor::person("ana"), wrong).unwrap_err().code, Code::SealBroken);
    let approved = w.approve(id).unwrap();
    assert_eq!(approved.state, CommandState::Approved);
    assert_eq!(w.reject(id).unwrap_err().code, Code::IllegalState, "the first decision wins");
    // Single use.
    assert_eq!(w.try_dispatch(&lease, id, ask(strict.clone())).unwrap().state, CommandState::Dispatched);
    w.uncertain(id).unwrap();
    w.pass(10_000);
    w.reconcile(id, Finding::Absent).unwrap();
    let (code, again) = w.not_dispatched(&lease, id, ask(strict));
    assert_eq!(code, Code::ApprovalRequired);
    assert_eq!((again.state, again.body.blocked), (CommandState::Blocked, Some(BlockCode::ApprovalRequired)));
}

#[test]
fn approvals_expire_and_policy_is_evaluated_again() {
    let mut w = World::default();
    let lease = w.held_with("m", |ingest| ingest.policy.lease.ttl_ms = 10 * HOUR as u64);
    let short = ToolFacts { approval_ms: 1_000, ..lookup() };
    let id = w.reserve(&lease, ask(short.clone()));
    w.approve(id).unwrap();
    w.pass(999);
    w.tick_command(id);
    assert_eq!(w.command_state(id), CommandState::Approved);
    w.pass(1);
    w.tick_command(id);
    assert_eq!(w.command_state(id), CommandState::Blocked);
    w.approve(id).unwrap();
    w.pass(1_000);
    let (code, late) = w.not_dispatched(&lease, id, ask(short.clone()));
    assert_eq!(
        (code, late.state),
        (Code::ApprovalRequired, CommandState::Blocked),
        "expired before any tick"
    );
    w.approve(id).unwrap();
    let (code, denied) = w.not_dispatched(&lease, id, evaluation(Effect::Deny, short));
    assert_eq!((code, denied.body.blocked), (Code::PolicyDenied, Some(BlockCode::PolicyDenied)));
    assert_eq!(w.approve(id).unwrap_err().code, Code::PolicyDenied);
}

#[test]
fn a_proven_unsent_call_is_tried_again_later() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    assert_eq!(w.call_failed(id, ErrorClass::Transport, false).unwrap_err().code, Code::Invalid);
    for failure in 1..=2 {
        w.call_failed(id, ErrorClass::Transport, true).unwrap();
        assert_eq!(w.try_dispatch(&lease, id, allow(lookup())).unwrap_err().code, Code::NotDue);
        w.pass(1_000 << (failure - 1));
        assert_eq!(w.try_dispatch(&lease, id, allow(lookup())).unwrap().state, CommandState::Dispatched);
    }
    assert_eq!(w.call_failed(id, ErrorClass::Transport, true).unwrap().state, CommandState::Failed);
    let other = w.held("n");
    let id = w.dispatched(&other, lookup());
    let unknown = w.call_failed(id, ErrorClass::Unknown, true).unwrap();
    assert_eq!(unknown.state, CommandState::Failed, "an unclassified error is never retried automatically");
}

#[test]
fn only_a_repeated_request_id_may_dispatch_again() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.reserve(&lease, allow(lookup()));
    let mut dispatch = |request: Option<&str>| {
        let by = Dispatcher::Holder(lease.holder());
        let request_id = request.map(str::to_owned);
        let action = DispatchAction { command: id, by, evaluation: allow(lookup()), request_id };
        w.on_command(Actor::worker("w1"), CommandAction::Dispatch(Box::new(action)))
    };
    assert!(dispatch(Some("r1")).is_ok());
    assert!(dispatch(Some("r1")).is_ok(), "its reply was lost");
    for other in [Some("r2"), None] {
        assert_eq!(dispatch(other).unwrap_err().code, Code::AlreadyDispatched);
    }
}

#[test]
fn success_needs_evidence_and_its_own_sender() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    let sender = w.sender(id);
    let mut receipt = |sender: Sender, proof: Proof| {
        let action = CommandAction::Receipt { command: id, sender, proof: Box::new(proof) };
        w.on_command(Actor::worker("w1"), action).map_err(|refusal| refusal.code)
    };
    let nothing = Proof { external_id: None, ..Proof::provider("x") };
    let person = Proof { kind: tenure_core::command::EvidenceKind::Person, ..Proof::provider("x") };
    assert_eq!(receipt(sender, nothing).unwrap_err(), Code::EvidenceMissing);
    assert_eq!(receipt(sender, person).unwrap_err(), Code::PersonRequired);
    for wrong in [Sender { genuine: false, ..sender }, Sender { fence: sender.fence + 1, ..sender }] {
        assert_eq!(receipt(wrong, Proof::provider("x")).unwrap_err(), Code::LeaseLost);
    }
    assert_eq!(receipt(sender, Proof::provider("x")).unwrap().state, CommandState::Succeeded);
}

#[test]
fn a_late_receipt_overrules_a_wrong_absent() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    w.uncertain(id).unwrap();
    w.pass(10_000);
    w.reconcile(id, Finding::Absent).unwrap();
    assert_eq!(w.receipt(id).unwrap().state, CommandState::Succeeded);
}

#[test]
fn the_consistency_delay_starts_with_the_doubt() {
    let mut w = World::default();
    let lease = w.held_with("m", |ingest| ingest.policy.lease.ttl_ms = HOUR as u64);
    let id = w.dispatched(&lease, lookup());
    w.pass(60_000);
    let doubtful = w.uncertain(id).unwrap();
    assert_eq!(doubtful.body.next_at, Some(doubtful.updated_at + 10_000), "no lookup counts before");
    w.pass(9_999);
    assert_eq!(w.reconcile(id, Finding::Absent).unwrap_err().code, Code::NotDue);
    assert_eq!(w.reconcile(id, Finding::Unknown).unwrap().state, CommandState::Uncertain);
    w.pass(1);
    assert_eq!(w.reconcile(id, Finding::Absent).unwrap().state, CommandState::Pending);
}

#[test]
fn native_tools_are_sent_again_inside_their_window_only() {
    let mut w = World::default();
    let lease = w.held_with("m", |ingest| ingest.policy.lease.ttl_ms = 100 * HOUR as u64);
    let id = w.dispatched(&lease, native());
    let key = w.command(id).idempotency_key();
    w.uncertain(id).unwrap();
    w.pass(23 * HOUR);
    let again = w.try_dispatch(&lease, id, allow(native())).unwrap();
    assert_eq!((again.state, again.idempotency_key()), (CommandState::Dispatched, key));
    w.uncertain(id).unwrap();
    w.pass(HOUR);
    let (code, over) = w.not_dispatched(&lease, id, allow(native()));
    assert_eq!((code, over.state, over.body.needs_person), (Code::InDoubt, CommandState::Uncertain, true));
}

#[test]
fn people_record_and_replay_with_limits() {
    let mut w = World::default();
    let lease = w.held("m");
    let none = tool(Idempotency::None, Risk::High);
    let id = w.dispatched(&lease, none.clone());
    assert!(w.uncertain(id).unwrap().body.needs_person, "only a person can find out");
    let record =
        |outcome| CommandAction::Record { command: id, outcome: Box::new(outcome), reason: "I asked".into() };
    let machine = w.on_command(Actor::machine("bot"), record(Recorded::DidNotHappen));
    assert_eq!(machine.unwrap_err().code, Code::PersonRequired);
    assert_eq!(w.record(id, Recorded::DidNotHappen).unwrap().state, CommandState::Failed);
    for _ in 0..3 {
        let replayed = w.replay(id, allow(none.clone())).unwrap();
        assert_eq!(replayed.state, CommandState::Blocked, "high risk needs review");
        w.approve(id).unwrap();
        w.try_dispatch(&lease, id, allow(none.clone())).unwrap();
        w.call_failed(id, ErrorClass::Validation, false).unwrap();
    }
    assert_eq!(w.replay(id, allow(none.clone())).unwrap_err().code, Code::LimitReached);
    assert_eq!(w.row(lease.work).body.commands.replays, 3);
}

#[test]
fn replays_are_counted_by_the_minute() {
    let mut w = World::default();
    for n in 0..61 {
        let lease = w.held(&format!("m{n}"));
        let id = w.dispatched(&lease, lookup());
        w.call_failed(id, ErrorClass::Validation, false).unwrap();
        let outcome = w.replay(id, allow(lookup()));
        assert_eq!(outcome.is_ok(), n < 60, "{n}");
    }
}

#[test]
fn budgets_are_reserved_spent_and_released() {
    let mut w = World::default();
    let lease = w.held("m");
    let money = || Unit::Micros("EUR".into());
    let paid = |amount: u64| Evaluation {
        limits: vec![
            Limit { per: Per::Tenant, unit: money(), period: "2026-11".into(), max: 100, only: None },
            Limit { per: Per::Tool, unit: Unit::Calls, period: String::new(), max: 2, only: None },
        ],
        estimate: Cost { tokens: 0, micros: vec![("EUR".into(), amount)] },
        ..allow(lookup())
    };
    let key = BudgetKey {
        tenant: TENANT.into(),
        account: Account::Tenant,
        unit: Unit::Micros("eur".into()),
        period: "2026-11".into(),
        only: None,
    };
    let stands = |w: &World| {
        let budget = w.records.budgets[&key];
        (budget.spent, budget.reserved)
    };
    let reserve = |w: &mut World, slot: &str| {
        let id = w.command_id();
        let mut intent = intent(id, "hi", allow(lookup()));
        intent.1.slot = Some(slot.into());
        w.try_reserve(&lease, intent).unwrap().id
    };
    let first = reserve(&mut w, "1");
    w.try_dispatch(&lease, first, paid(60)).unwrap();
    assert_eq!(stands(&w), (0, 60));
    let second = reserve(&mut w, "2");
    let (code, blocked) = w.not_dispatched(&lease, second, paid(50));
    assert_eq!(code, Code::Budget);
    assert_eq!((blocked.state, blocked.body.blocked), (CommandState::Blocked, Some(BlockCode::Budget)));
    w.call_failed(first, ErrorClass::Validation, false).unwrap();
    assert_eq!(stands(&w), (0, 0), "nothing happened");
    let now = w.try_dispatch(&lease, second, paid(50)).unwrap();
    assert_eq!(now.state, CommandState::Dispatched, "the budget allows it now");
    w.uncertain(second).unwrap();
    assert_eq!(stands(&w), (0, 50), "a command in doubt keeps its reservation");
    let sender = w.sender(second);
    let cost = Some(Cost { tokens: 0, micros: vec![("EUR".into(), 70)] });
    let proof = Box::new(Proof { cost, ..Proof::provider("x") });
    w.on_command(Actor::worker("w1"), CommandAction::Receipt { command: second, sender, proof }).unwrap();
    assert_eq!(stands(&w), (70, 0), "the actual cost");
    let third = reserve(&mut w, "3");
    assert_eq!(w.try_dispatch(&lease, third, paid(10)).unwrap().state, CommandState::Dispatched);
    let fourth = reserve(&mut w, "4");
    let (code, calls) = w.not_dispatched(&lease, fourth, paid(10));
    assert_eq!((code, calls.body.blocked), (Code::Budget, Some(BlockCode::Budget)), "two calls are all");
}

#[test]
fn a_resend_without_effect_does_not_settle_the_first_call() {
    for (class, unsent) in [(ErrorClass::RateLimited, false), (ErrorClass::Transport, true)] {
        let mut w = World::default();
        let lease = w.held("one");
        let id = w.dispatched(&lease, native());
        w.uncertain(id).unwrap();
        w.try_dispatch(&lease, id, allow(native())).unwrap();
        let failed = w.call_failed(id, class, unsent).unwrap();
        assert_eq!(failed.state, CommandState::Uncertain, "the first may have happened");
        let events = w.events();
        w.call_failed(id, class, unsent).unwrap();
        assert_eq!(w.events(), events, "a repeat is recorded once");
        w.try_dispatch(&lease, id, allow(native())).unwrap();
        assert_eq!(w.receipt(id).unwrap().state, CommandState::Succeeded);
    }
}

#[test]
fn a_different_outcome_is_not_answered_as_a_repeat() {
    let mut w = World::default();
    let lease = w.held("m");
    let id = w.dispatched(&lease, lookup());
    let receipt = |w: &mut World, proof: Proof| {
        let (sender, proof) = (w.sender(id), Box::new(proof));
        w.on_command(Actor::worker("w1"), CommandAction::Receipt { command: id, sender, proof })
    };
    receipt(&mut w, Proof::provider("m-1")).unwrap();
    receipt(&mut w, Proof::provider("m-1")).unwrap();
    let seen = Proof { reference: Some("their list".into()), ..Proof::new(EvidenceKind::Provider) };
    receipt(&mut w, seen).unwrap();
    let refused = receipt(&mut w, Proof::provider("m-2")).unwrap_err();
    assert_eq!(refused.code, Code::IdempotencyMismatch);
    assert!(refused.detail.contains("`m-1`") && refused.detail.contains("`m-2`"), "{}", refused.detail);
    assert_eq!(w.reconcile(id, Finding::Absent).unwrap_err().code, Code::IllegalState);
    w.reconcile(id, Finding::Unknown).unwrap();
    w.reconcile(id, Finding::Found(Proof::provider("m-1"))).unwrap();
}
