//! A cancelled work item sends nothing more.

use serde_json::json;
use tenure_core::{
    Actor, Code, CommandId, CommandState, Payload, State,
    action::{CloseOut, Failure},
    command::{
        Arguments, CallError, Duty, Effect, Evaluation, Executor, Idempotency, Intent, PolicyDecision,
        ReplayLimits, Risk, ToolFacts,
    },
    limits,
    model::ErrorClass,
};

use super::{Bed, job, not_dispatched, owner_bound, refused, success};
use crate::{Claimed, NewWork};

fn evaluation(executor: Executor) -> Evaluation {
    let tool =
        ToolFacts { risk: Risk::Low, idempotency: Idempotency::Native, executor, ..ToolFacts::default() };
    Evaluation::new(PolicyDecision::new(Effect::Allow, "p1"), tool)
}

fn mail(to: &str, executor: Executor) -> Intent {
    let arguments = Arguments::whole(Payload::new(&json!({ "text": "hi" })).unwrap());
    Intent::new("mail", to, arguments, evaluation(executor))
}

/// A held work item with unsent commands, two of the relay and one of its worker.
async fn with_commands(bed: &Bed, id: &str) -> (Claimed, Vec<CommandId>) {
    with_commands_in(bed, job(id)).await
}

async fn with_commands_in(bed: &Bed, new: NewWork) -> (Claimed, Vec<CommandId>) {
    let held = bed.held(new, "w").await;
    let mut commands = Vec::new();
    for (to, executor) in [("bob", Executor::Http), ("ida", Executor::Http), ("eve", Executor::Worker)] {
        let new = bed.worker("w").reserve(&held.lease, mail(to, executor)).await.unwrap();
        commands.push(new.command.id);
    }
    (held, commands)
}

async fn states(bed: &Bed, commands: &[CommandId]) -> Vec<CommandState> {
    let mut states = Vec::new();
    for id in commands {
        states.push(bed.ledger.command(*id).await.unwrap().state);
    }
    states
}

pub async fn its_unsent_commands_end_in_the_same_commit(bed: &mut Bed) {
    let (released, one) = with_commands(bed, "one").await;
    bed.worker("w").release(&released.lease, None).await.unwrap();
    bed.person().cancel(released.work.id, "enough", None).await.unwrap();
    let (asked, two) = with_commands(bed, "two").await;
    bed.person().cancel(asked.work.id, "enough", None).await.unwrap();
    bed.worker("w").close_out(&asked.lease, CloseOut::new(State::Cancelled)).await.unwrap();
    let (lapsed, three) = with_commands(bed, "three").await;
    bed.person().cancel(lapsed.work.id, "enough", None).await.unwrap();
    bed.pass(super::LAPSE_MS).await;
    for (held, commands) in [(released, one), (asked, two), (lapsed, three)] {
        bed.expect(held.work.id, State::Cancelled).await;
        assert_eq!(states(bed, &commands).await, [CommandState::Cancelled; 3]);
    }
    assert!(
        bed.ledger.due_commands(Duty::Send, 10).await.unwrap().is_empty(),
        "the relay has nothing to send"
    );
}

/// Regardless of its terminal state: a cancel was requested, and it did not finish first.
pub async fn a_work_that_ends_otherwise_after_a_cancel_sends_nothing(bed: &mut Bed) {
    let mut ended = Vec::new();
    let (failed, one) = with_commands(bed, "failed").await;
    bed.person().cancel(failed.work.id, "enough", None).await.unwrap();
    let down = Failure::new(ErrorClass::Unavailable, "down");
    bed.worker("w").fail(&failed.lease, down).await.unwrap();
    ended.push((failed, one, State::Failed));
    let (closed, two) = with_commands(bed, "closed").await;
    bed.person().cancel(closed.work.id, "enough", None).await.unwrap();
    let close = CloseOut::failed(ErrorClass::Validation, "no");
    bed.worker("w").close_out(&closed.lease, close).await.unwrap();
    ended.push((closed, two, State::Failed));
    let (abandoned, three) = with_commands_in(bed, owner_bound("abandoned")).await;
    bed.person().cancel(abandoned.work.id, "enough", None).await.unwrap();
    bed.worker("w").abandon_own(&abandoned.lease, "cannot know").await.unwrap();
    ended.push((abandoned, three, State::Abandoned));
    for (held, commands, end) in ended {
        bed.expect(held.work.id, end).await;
        assert_eq!(states(bed, &commands).await, [CommandState::Cancelled; 3], "{end}");
    }
    let (lapsed, four) = with_commands_in(bed, owner_bound("lapsed")).await;
    bed.person().cancel(lapsed.work.id, "enough", Some(1_000)).await.unwrap();
    bed.pass(super::LAPSE_MS).await;
    bed.expect(lapsed.work.id, State::Abandoned).await;
    assert_eq!(states(bed, &four).await, [CommandState::Cancelled; 3]);
    assert!(
        bed.ledger.due_commands(Duty::Send, 10).await.unwrap().is_empty(),
        "the relay has nothing to send"
    );
}

/// A person who replays a command before the cancel did not know of the cancel; a person who does so
/// afterwards does.
pub async fn only_a_replay_after_the_end_outlives_a_cancel(bed: &mut Bed) {
    let relay = bed.ledger.caller(Actor::system("relay"));
    let refused_call =
        || CallError { class: ErrorClass::Validation, message: "no".into(), retry_after_ms: None };
    let again = async |id| {
        let done =
            bed.person().replay(id, evaluation(Executor::Http), ReplayLimits::default(), "fixed").await;
        assert_eq!(done.unwrap().state, CommandState::Pending);
    };
    let (held, commands) = with_commands(bed, "one").await;
    for id in &commands[..2] {
        let sent = relay.relay_dispatch(*id, evaluation(Executor::Http)).await.unwrap();
        relay.fail_command(&sent.proof, *id, refused_call(), false).await.unwrap();
    }
    again(commands[0]).await;
    bed.worker("w").release(&held.lease, None).await.unwrap();
    bed.person().cancel(held.work.id, "enough", None).await.unwrap();
    again(commands[1]).await;
    assert_eq!(
        states(bed, &commands).await,
        [CommandState::Cancelled, CommandState::Pending, CommandState::Cancelled]
    );
    let sent = relay.relay_dispatch(commands[1], evaluation(Executor::Http)).await.unwrap();
    assert_eq!(sent.command.state, CommandState::Dispatched);
}

pub async fn a_command_in_doubt_is_not_sent_again_after_a_cancel(bed: &mut Bed) {
    let relay = bed.ledger.caller(Actor::system("relay"));
    let (held, commands) = with_commands(bed, "one").await;
    let timeout =
        || CallError { class: ErrorClass::Timeout, message: "no reply".into(), retry_after_ms: None };
    let own = evaluation(Executor::Worker);
    bed.worker("w").dispatch(&held.lease, commands[2], own.clone(), None).await.unwrap();
    bed.worker("w").uncertain(&held.lease, commands[2], timeout()).await.unwrap();
    let sent = relay.relay_dispatch(commands[0], evaluation(Executor::Http)).await.unwrap();
    relay.uncertain(&sent.proof, commands[0], timeout()).await.unwrap();
    bed.person().cancel(held.work.id, "enough", None).await.unwrap();
    let told = bed.worker("w").dispatch(&held.lease, commands[2], own, None).await;
    assert_eq!(refused(told), Code::CancelRequested);
    bed.worker("w").close_out(&held.lease, CloseOut::new(State::Cancelled)).await.unwrap();
    bed.skip(60_000).await;
    let (code, asked) = not_dispatched(relay.relay_dispatch(commands[0], evaluation(Executor::Http)).await);
    assert_eq!(code, Code::InDoubt);
    assert_eq!((asked.state, asked.body.needs_person), (CommandState::Uncertain, true));
    assert!(bed.ledger.due_commands(Duty::Send, 10).await.unwrap().is_empty(), "nobody asks again");
}

pub async fn a_work_asked_to_cancel_dispatches_nothing_new(bed: &mut Bed) {
    let (held, commands) = with_commands(bed, "one").await;
    bed.person().cancel(held.work.id, "enough", None).await.unwrap();
    let worker = bed.worker("w");
    let own = worker.dispatch(&held.lease, commands[2], evaluation(Executor::Worker), None).await;
    assert_eq!(refused(own), Code::CancelRequested);
    let relay = bed.ledger.caller(Actor::system("relay"));
    let (code, put_off) = not_dispatched(relay.relay_dispatch(commands[0], evaluation(Executor::Http)).await);
    assert_eq!((code, put_off.state), (Code::CancelRequested, CommandState::Pending));
    worker.close_out(&held.lease, success()).await.unwrap();
    let due = bed.ledger.due_commands(Duty::Send, 10).await.unwrap();
    assert_eq!(due.iter().map(|command| command.id).collect::<Vec<_>>(), [commands[1]]);
    bed.skip(limits::CANCEL_ASK_AGAIN_MS).await;
    assert_eq!(bed.ledger.due_commands(Duty::Send, 10).await.unwrap().len(), 2, "it finished first");
    let sent = relay.relay_dispatch(commands[0], evaluation(Executor::Http)).await.unwrap();
    assert_eq!(sent.command.state, CommandState::Dispatched);
}
