//! Due commands, and the gauges of open commands.

use serde_json::json;
use tenure_core::{
    Actor, CommandId, CommandState, Payload,
    action::CloseOut,
    command::{
        Arguments, BlockCode, CallError, Duty, Effect, Evaluation, Executor, Idempotency, Intent,
        PolicyDecision, Risk, ToolFacts,
    },
    model::ErrorClass,
};

use super::{Bed, START, job, success};
use crate::{CommandGauges, CommandGroupGauges};

fn tool(executor: Executor) -> ToolFacts {
    ToolFacts { risk: Risk::Low, idempotency: Idempotency::None, executor, ..ToolFacts::default() }
}

fn evaluation(effect: Effect, tool: ToolFacts) -> Evaluation {
    Evaluation::new(PolicyDecision::new(effect, "p1"), tool)
}

fn mail(target: &str, evaluation: Evaluation) -> Intent {
    let arguments = Arguments::whole(Payload::new(&json!({ "to": target })).unwrap());
    Intent::new("mail", target, arguments, evaluation)
}

/// A work item that ends with a command to send.
async fn outbox(bed: &Bed, id: &str, target: &str, tool: ToolFacts) -> CommandId {
    let held = bed.held(job(id), "w").await;
    let new = mail(target, evaluation(Effect::Allow, tool));
    let (command, new) = bed.worker("w").outgoing(held.work.id, new).await.unwrap();
    let close = CloseOut { commands: vec![(command, new)], ..success() };
    bed.worker("w").close_out(&held.lease, close).await.unwrap();
    command
}

pub async fn a_page_of_what_is_due_has_all_that_a_call_needs(bed: &mut Bed) {
    let mut sent = Vec::new();
    for n in 0..5 {
        sent.push(outbox(bed, &format!("w{n}"), &format!("t{n}"), tool(Executor::Http)).await);
        bed.clock.advance(1);
    }
    let first = bed.ledger.due_page(Duty::Send, None, &[], 2, |_| false).await.unwrap();
    let ids = |page: &crate::DuePage| page.items.iter().map(|due| due.command.id).collect::<Vec<_>>();
    assert_eq!(ids(&first), sent[..2]);
    let due = &first.items[1];
    assert_eq!(due.arguments.as_ref().unwrap().value(), json!({ "to": "t1" }));
    assert_eq!((due.work.id, due.work.spec.source.id.as_str()), (due.command.work, "w1"));
    let passed = sent[2];
    let second = bed.ledger.due_page(Duty::Send, first.next, &[], 2, |id| id == passed).await.unwrap();
    assert_eq!(ids(&second), sent[3..4], "skipped commands are not read");
    let third = bed.ledger.due_page(Duty::Send, second.next, &[], 2, |_| false).await.unwrap();
    assert_eq!((ids(&third), third.next), (sent[4..].to_vec(), None));
    assert!(bed.ledger.due_page(Duty::Lookup, None, &[], 2, |_| false).await.unwrap().items.is_empty());
}

pub async fn only_the_first_of_a_line_is_due(bed: &mut Bed) {
    let ordered = ToolFacts { ordered: true, ..tool(Executor::Http) };
    let a1 = outbox(bed, "1", "a", ordered.clone()).await;
    let a2 = outbox(bed, "2", "a", ordered.clone()).await;
    let b1 = outbox(bed, "3", "b", ordered.clone()).await;
    let due = async |bed: &Bed| {
        let page = bed.ledger.due_page(Duty::Send, None, &[], 10, |_| false).await.unwrap();
        let mut ids: Vec<CommandId> = page.items.iter().map(|due| due.command.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(due(bed).await, [a1, b1]);
    let relay = bed.ledger.caller(Actor::system("relay"));
    let sending = relay.relay_dispatch(a1, evaluation(Effect::Allow, ordered)).await.unwrap();
    assert_eq!(due(bed).await, [b1], "the first is under way");
    let error = CallError { class: ErrorClass::Validation, message: "no".into(), retry_after_ms: None };
    relay.fail_command(&sending.proof, a1, error, false).await.unwrap();
    assert_eq!(due(bed).await, [a2, b1]);
}

pub async fn open_commands_are_counted(bed: &mut Bed) {
    assert_eq!(bed.ledger.gauges().await.unwrap().commands, CommandGauges::default());
    outbox(bed, "1", "a", tool(Executor::Http)).await;
    let held = bed.held(job("2"), "w").await;
    let worker = bed.worker("w");
    let ask = evaluation(Effect::NeedsApproval, tool(Executor::Worker));
    worker.reserve(&held.lease, mail("asked", ask)).await.unwrap();
    let allow = evaluation(Effect::Allow, tool(Executor::Worker));
    for target in ["b", "c", "d"] {
        let id = worker.reserve(&held.lease, mail(target, allow.clone())).await.unwrap().command.id;
        worker.dispatch(&held.lease, id, allow.clone(), None).await.unwrap();
        if target == "d" {
            bed.clock.advance(7);
            let lost = CallError { class: ErrorClass::Timeout, message: "?".into(), retry_after_ms: None };
            worker.uncertain(&held.lease, id, lost).await.unwrap();
        }
    }
    let gauges = bed.ledger.gauges().await.unwrap().commands;
    let states: Vec<(CommandState, u64)> = gauges.states.iter().map(|(state, n)| (*state, *n)).collect();
    use CommandState::{Blocked, Dispatched, Pending, Uncertain};
    assert_eq!(states, [(Pending, 1), (Blocked, 1), (Dispatched, 2), (Uncertain, 1)]);
    let place = |state, blocked, needs_person, commands, since| {
        let tool = "mail".to_owned();
        CommandGroupGauges { tool, state, blocked, needs_person, commands, since }
    };
    let places = [
        place(Dispatched, None, false, 2, START),
        place(Blocked, Some(BlockCode::ApprovalRequired), false, 1, START),
        place(Uncertain, None, true, 1, START + 7),
    ];
    assert_eq!(gauges.places, places);
    assert_eq!(gauges.unsent_since, Some(START));
    assert_eq!((gauges.uncertain(), gauges.needs_person()), ((1, Some(START + 7)), (1, Some(START + 7))));
    assert_eq!(gauges.approvals(), (1, Some(START)));
}
