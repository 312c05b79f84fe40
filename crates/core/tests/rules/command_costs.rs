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
    let tokens = Limit { per: Per::Tenant, unit: Unit::Tokens, period: String::new(), max: 1_000 };
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
