//! What commands use and cost, and what stops them for it.

use tenure_core::{
    Actor, CommandState, State, Usage,
    command::{
        CommandAction, Effect, Gate, Proof,
        budget::{Cost, Limit, Per, Unit},
    },
    limits,
};

use crate::common::*;

fn allow(tool: tenure_core::command::ToolFacts) -> Gate {
    gate(Effect::Allow, tool)
}

#[test]
fn what_a_call_used_is_on_its_receipt_and_summed_on_its_work() {
    let mut w = World::default();
    let lease = w.held("one");
    let tokens =
        Limit { per: Per::Tenant, unit: Unit::Tokens, period: String::new(), max: 1_000, only: None };
    let key = tokens.key(TENANT, lease.work, "mail");
    let id = w.reserve(&lease, allow(lookup()));
    let estimate = Cost { tokens: 500, micros: Vec::new() };
    w.try_dispatch(&lease, id, Gate { limits: vec![tokens], estimate, ..allow(lookup()) }).unwrap();
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
    assert_eq!((budget.spent, budget.reserved), (240, 0), "what it used, not what was expected");
    w.close(&lease, State::Succeeded).unwrap();
    assert_eq!(w.row(lease.work).body.usage, usage, "the attempt said nothing of its own");
}

#[test]
fn what_policy_or_a_budget_stops_is_asked_about_again_by_the_relay() {
    let mut w = World::default();
    let lease = w.held("one");
    let id = w.reserve(&lease, allow(relay(lookup())));
    let deny = gate(Effect::Deny, relay(lookup()));
    assert_eq!(w.relay_dispatch(id, deny.clone()).unwrap().state, CommandState::Blocked);
    let due = |w: &World| w.command(id).due_at.unwrap() - w.now;
    assert_eq!(due(&w), limits::ASK_AGAIN_MS);
    w.pass(limits::ASK_AGAIN_MS);
    let events = w.events();
    w.relay_dispatch(id, deny).unwrap();
    assert_eq!((w.events(), due(&w)), (events, limits::ASK_AGAIN_MS), "put off, and nothing told");
    assert_eq!(w.relay_dispatch(id, allow(relay(lookup()))).unwrap().state, CommandState::Dispatched);
    let other = w.held("two");
    let asked = w.reserve(&other, gate(Effect::NeedsApproval, relay(lookup())));
    assert_eq!(w.command(asked).due_at, None, "a person is asked, not the clock");
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
            (intent.tool, intent.slot) = (tool.to_owned(), Some(slot.to_string()));
            let id = w.try_reserve(&lease, intent).unwrap().id;
            let limits = if per == Per::Tool { vec![limit] } else { vec![limit, all] };
            let command = w.try_dispatch(&lease, id, Gate { limits, ..allow(lookup()) }).unwrap();
            (command.state, command.body.message.clone())
        };
        for slot in 0..2 {
            assert_eq!(send("y", slot).0, CommandState::Dispatched, "{per:?} {slot}");
        }
        for slot in 0..2 {
            assert_eq!(send("x", slot).0, CommandState::Dispatched, "{per:?}: y has spent nothing of x");
        }
        let (state, why) = send("x", 2);
        assert_eq!(state, CommandState::Blocked, "{per:?}");
        let why = why.unwrap();
        assert!(why.starts_with("1 call more would pass the budget of 2 calls of "), "{why}");
        assert!(why.ends_with("in 2026-11-15: spent are 0 calls, set aside 2 calls"), "{why}");
        assert!(!why.contains('{'), "{why}");
        assert_eq!(send("z", 0).0, CommandState::Dispatched);
        // The fifth of them all was the last.
        let stopped = send("z", 1).0 == CommandState::Blocked;
        assert_eq!(stopped, per != Per::Tool, "{per:?}");
    }
}
