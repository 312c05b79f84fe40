//! The usage and cost of commands, and the budgets that stop them.

use tenure_core::{
    Actor, Code, CommandId, CommandState, State, Usage,
    command::{
        BlockCode, CommandAction, Effect, Evaluation, Finding, Proof,
        budget::{BudgetKey, Cost, Limit, Per, Unit},
    },
    limits,
    model::ErrorClass,
};

use crate::common::*;

fn allow(tool: tenure_core::command::ToolFacts) -> Evaluation {
    evaluation(Effect::Allow, tool)
}

#[test]
fn usage_is_on_the_receipt_and_summed_on_the_work() {
    let mut w = World::default();
    let lease = w.held("one");
    let tokens =
        Limit { per: Per::Tenant, unit: Unit::Tokens, period: String::new(), max: 1_000, only: None };
    let key = tokens.key(TENANT, lease.work, "mail");
    let id = w.reserve(&lease, allow(lookup()));
    let estimate = Cost { tokens: 500, micros: Vec::new() };
    w.try_dispatch(&lease, id, Evaluation { limits: vec![tokens], estimate, ..allow(lookup()) }).unwrap();
    let used = |model: &str| Usage {
        model: Some(model.into()),
        input_tokens: 100,
        output_tokens: 20,
        ..Usage::default()
    };
    let usage = vec![used("a"), used("b")];
    let (sender, proof) = (w.sender(id), Proof { usage: usage.clone(), ..Proof::provider("x") });
    let receipt = CommandAction::Receipt { command: id, sender, proof: Box::new(proof) };
    let command = w.on_command(Actor::worker("w1"), receipt).unwrap();
    assert_eq!(command.body.receipt.as_ref().unwrap().usage, usage);
    assert_eq!(w.row(lease.work).body.usage, usage);
    let budget = w.records.budgets[&key];
    assert_eq!((budget.spent, budget.reserved), (240, 0), "the usage, not the estimate");
    w.close(&lease, State::Succeeded).unwrap();
    assert_eq!(w.row(lease.work).body.usage, usage, "the attempt reported no usage");
}

#[test]
fn the_relay_retries_commands_stopped_by_policy_or_a_budget() {
    let mut w = World::default();
    let lease = w.held("one");
    let id = w.reserve(&lease, allow(relay(lookup())));
    let deny = evaluation(Effect::Deny, relay(lookup()));
    let (code, stopped) = w.relay_refused(id, deny.clone());
    assert_eq!((code, stopped.state), (Code::PolicyDenied, CommandState::Blocked));
    let due = |w: &World| w.command(id).due_at.unwrap() - w.now;
    assert_eq!(due(&w), limits::ASK_AGAIN_MS);
    w.pass(limits::ASK_AGAIN_MS);
    let events = w.events();
    assert_eq!(w.relay_refused(id, deny).0, Code::PolicyDenied);
    assert_eq!((w.events(), due(&w)), (events, limits::ASK_AGAIN_MS), "postponed, without an event");
    assert_eq!(w.relay_dispatch(id, allow(relay(lookup()))).unwrap().state, CommandState::Dispatched);
    let other = w.held("two");
    let asked = w.reserve(&other, evaluation(Effect::NeedsApproval, relay(lookup())));
    assert_eq!(w.command(asked).due_at, None, "it waits for a person, not for time");
}

#[test]
fn budgets_of_different_tools_are_counted_apart() {
    for (per, max) in [(Per::Tenant, 2), (Per::Work, 2), (Per::Tool, 2)] {
        let mut w = World::default();
        let lease = w.held("one");
        let mut send = |tool: &str, slot: u32| {
            let only = Some(tool.to_owned());
            let limit = Limit { per, unit: Unit::Calls, period: "2026-11-15".into(), max, only };
            let all = Limit { only: None, max: 5, ..limit.clone() };
            let mut intent = intent(w.command_id(), "hi", allow(lookup()));
            (intent.1.tool, intent.1.slot) = (tool.to_owned(), Some(slot.to_string()));
            let id = w.try_reserve(&lease, intent).unwrap().id;
            let limits = if per == Per::Tool { vec![limit] } else { vec![limit, all] };
            let told = w.try_dispatch(&lease, id, Evaluation { limits, ..allow(lookup()) });
            let command = w.command(id);
            let refused = told.map_err(|refusal| refusal.code).err();
            assert_eq!(refused, (command.state == CommandState::Blocked).then_some(Code::Budget));
            (command.state, command.body.message.clone())
        };
        for slot in 0..2 {
            assert_eq!(send("y", slot).0, CommandState::Dispatched, "{per:?} {slot}");
        }
        for slot in 0..2 {
            assert_eq!(
                send("x", slot).0,
                CommandState::Dispatched,
                "{per:?}: y does not spend the budget of x"
            );
        }
        let (state, why) = send("x", 2);
        assert_eq!(state, CommandState::Blocked, "{per:?}");
        let why = why.unwrap();
        assert!(why.starts_with("1 call more would exceed the budget of 2 calls of "), "{why}");
        assert!(why.ends_with("in 2026-11-15: 0 calls spent, 2 calls reserved"), "{why}");
        assert!(!why.contains('{'), "{why}");
        assert_eq!(send("z", 0).0, CommandState::Dispatched);
        // The fifth of all calls was the last one allowed.
        let stopped = send("z", 1).0 == CommandState::Blocked;
        assert_eq!(stopped, per != Per::Tool, "{per:?}");
    }
}

fn money(max: u64) -> Limit {
    Limit { per: Per::Tenant, unit: Unit::Micros("usd".into()), period: String::new(), max, only: None }
}

fn costs(currency: &str, micros: u64) -> Cost {
    Cost { tokens: 0, micros: vec![(currency.into(), micros)] }
}

#[test]
fn currency_case_does_not_bypass_a_money_budget() {
    let mut w = World::default();
    let lease = w.held("one");
    let id = w.reserve(&lease, allow(lookup()));
    let evaluation =
        |micros| Evaluation { limits: vec![money(100)], estimate: costs("USD", micros), ..allow(lookup()) };
    let (code, blocked) = w.not_dispatched(&lease, id, evaluation(101));
    assert_eq!(code, Code::Budget);
    assert_eq!((blocked.state, blocked.body.blocked), (CommandState::Blocked, Some(BlockCode::Budget)));
    assert_eq!(w.try_dispatch(&lease, id, evaluation(100)).unwrap().state, CommandState::Dispatched);
}

#[test]
fn a_call_without_a_cost_is_not_dispatched_under_a_money_budget() {
    let mut w = World::default();
    let lease = w.held("one");
    let id = w.reserve(&lease, allow(lookup()));
    for estimate in [Cost::default(), costs("eur", 5), Cost { tokens: 7, micros: Vec::new() }] {
        let evaluation = Evaluation { limits: vec![money(100)], estimate, ..allow(lookup()) };
        let (code, blocked) = w.not_dispatched(&lease, id, evaluation);
        assert_eq!(code, Code::Budget);
        assert_eq!((blocked.state, blocked.body.blocked), (CommandState::Blocked, Some(BlockCode::Budget)));
    }
    let why = w.command(id).body.message.clone().unwrap();
    assert!(why.contains("`estimate`"), "{why}");
}

#[test]
fn a_receipt_after_absent_is_charged() {
    let mut w = World::default();
    let lease = w.held("one");
    let limit = money(100);
    let key = limit.key(TENANT, lease.work, "mail");
    let id = w.reserve(&lease, allow(lookup()));
    let evaluation = Evaluation { limits: vec![limit], estimate: costs("usd", 40), ..allow(lookup()) };
    w.try_dispatch(&lease, id, evaluation).unwrap();
    let sender = w.sender(id);
    w.uncertain(id).unwrap();
    w.pass(10 * SECOND);
    w.reconcile(id, Finding::Absent).unwrap();
    let budget = w.records.budgets[&key];
    assert_eq!((budget.spent, budget.reserved), (0, 0), "it was recorded as not happened");
    w.receipt_by(id, sender).unwrap();
    let budget = w.records.budgets[&key];
    assert_eq!((budget.spent, budget.reserved), (40, 0), "it happened, and is charged once");
}

/// A dispatched command under a budget of a hundred, and the counter's key.
fn paid(w: &mut World, lease: &Lease, micros: u64) -> (CommandId, BudgetKey) {
    let limit = money(100);
    let key = limit.key(TENANT, lease.work, "mail");
    let id = w.reserve(lease, allow(lookup()));
    let evaluation = Evaluation { limits: vec![limit], estimate: costs("usd", micros), ..allow(lookup()) };
    w.try_dispatch(lease, id, evaluation).unwrap();
    (id, key)
}

#[test]
fn a_receipt_without_the_currency_is_charged_the_estimate() {
    let silent = [Cost::default(), Cost { tokens: 5, micros: Vec::new() }, costs("eur", 1)];
    for cost in silent {
        let mut w = World::default();
        let lease = w.held("one");
        let (id, key) = paid(&mut w, &lease, 40);
        let used = Usage { currency: Some("USD".into()), cost_micros: 7, ..Usage::default() };
        for (usage, charged) in [(vec![], 40), (vec![used], 7)] {
            let mut w = w.clone();
            let (sender, cost) = (w.sender(id), Some(cost.clone()));
            let proof = Box::new(Proof { cost: cost.clone(), usage, ..Proof::provider("x") });
            w.on_command(Actor::worker("w1"), CommandAction::Receipt { command: id, sender, proof }).unwrap();
            let budget = w.records.budgets[&key];
            assert_eq!((budget.spent, budget.reserved), (charged, 0), "{cost:?}");
        }
    }
    let mut w = World::default();
    let lease = w.held("one");
    let (id, key) = paid(&mut w, &lease, 40);
    let (sender, cost) = (w.sender(id), Some(costs("USD", 0)));
    let proof = Box::new(Proof { cost, ..Proof::provider("x") });
    w.on_command(Actor::worker("w1"), CommandAction::Receipt { command: id, sender, proof }).unwrap();
    assert_eq!(w.records.budgets[&key].spent, 0, "it reports a cost of zero");
}

#[test]
fn a_receipt_after_the_end_of_its_work_is_charged() {
    let absent: fn(&mut World, CommandId) = |w, id| {
        w.pass(10 * SECOND);
        w.reconcile(id, Finding::Absent).unwrap();
    };
    let unsent: fn(&mut World, CommandId) = |w, id| {
        w.call_failed(id, ErrorClass::Unavailable, true).unwrap();
    };
    for (relayed, not_happened) in [(false, absent), (true, absent), (true, unsent)] {
        let mut w = World::default();
        let lease = w.held("one");
        let facts = if relayed { relay(lookup()) } else { lookup() };
        let limit = money(100);
        let key = limit.key(TENANT, lease.work, "mail");
        let id = w.reserve(&lease, allow(facts.clone()));
        let evaluation = Evaluation { limits: vec![limit], estimate: costs("usd", 40), ..allow(facts) };
        match relayed {
            true => w.relay_dispatch(id, evaluation).unwrap(),
            false => w.try_dispatch(&lease, id, evaluation).unwrap(),
        };
        let sender = w.sender(id);
        w.uncertain(id).unwrap();
        w.cancel(lease.work).unwrap();
        w.close(&lease, State::Failed).unwrap();
        not_happened(&mut w, id);
        assert_eq!(w.command_state(id), CommandState::Cancelled, "it has no holder");
        assert_eq!(w.records.budgets[&key].spent, 0);
        assert_eq!(w.receipt_by(id, sender).unwrap().state, CommandState::Succeeded);
        let budget = w.records.budgets[&key];
        assert_eq!((budget.spent, budget.reserved), (40, 0), "relayed: {relayed}");
        w.receipt_by(id, sender).unwrap();
        assert_eq!(w.records.budgets[&key].spent, 40, "once");
    }
}

#[test]
fn an_estimate_does_not_undercut_the_tools() {
    let tool = Cost { tokens: 100, micros: vec![("USD".into(), 40)] };
    let usd = Unit::Micros("usd".into());
    for (estimate, tokens, micros) in [
        (Cost::default(), 100, 40),
        (costs("usd", 1), 100, 40),
        (costs("usd", 41), 100, 41),
        (Cost { tokens: 1, ..costs("eur", 9) }, 100, 40),
        (Cost { tokens: 101, ..Cost::default() }, 101, 40),
    ] {
        let counted = estimate.clone().at_least(&tool);
        assert_eq!((counted.tokens, counted.of(&usd)), (tokens, micros), "{estimate:?}");
        assert_eq!(counted.of(&Unit::Micros("eur".into())), estimate.of(&Unit::Micros("eur".into())));
    }
}
