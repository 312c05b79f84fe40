//! Commands through the public API: intent before effect, evidence after it, and doubt that is resolved.

use serde_json::json;
use tenure_core::{
    Actor, Code, Command, CommandId, CommandState, Payload, State, Usage,
    action::{CloseOut, Failure},
    command::{
        Arguments, CallError, Duty, Effect, Evaluation, Executor, Finding, Idempotency, Intent, Planned,
        PolicyDecision, Proof, Recorded, ReplayLimits, Risk, ToolFacts,
        budget::{Account, BudgetKey, Cost, Limit, Per, Unit},
    },
    model::{ErrorClass, WaitKind},
    next::Next,
    payload::Digest,
    records::reference_to_command,
};
use tokio::task::JoinSet;

use super::{Bed, LAPSE_MS, TENANT, claimant, job, not_dispatched, refused, success};
use crate::{Claimed, CommandFilter, DispatchRef, LeaseRef, NewWait};

pub(super) fn lookup() -> ToolFacts {
    ToolFacts {
        risk: Risk::Low,
        idempotency: Idempotency::Lookup,
        consistency_delay_ms: 5_000,
        max_unknowns: 2,
        approval_ms: 60_000,
        ..ToolFacts::default()
    }
}

pub(super) fn native() -> ToolFacts {
    ToolFacts { idempotency: Idempotency::Native, ..lookup() }
}

pub(super) fn evaluation(effect: Effect, tool: ToolFacts) -> Evaluation {
    Evaluation::new(PolicyDecision::new(effect, "p1"), tool)
}

pub(super) fn allow() -> Evaluation {
    evaluation(Effect::Allow, lookup())
}

pub(super) fn mail(text: &str, evaluation: Evaluation) -> Intent {
    let arguments = Arguments::whole(Payload::new(&json!({ "text": text })).unwrap());
    Intent::new("mail", "bob", arguments, evaluation)
}

fn timeout() -> CallError {
    CallError { class: ErrorClass::Timeout, message: "no reply".into(), retry_after_ms: None }
}

/// A held work item with a dispatched command.
pub(super) async fn dispatched(bed: &Bed, id: &str, tool: ToolFacts) -> (Claimed, CommandId) {
    let held = bed.held(job(id), "w").await;
    let allowed = evaluation(Effect::Allow, tool);
    let command = bed.worker("w").reserve(&held.lease, mail("hi", allowed.clone())).await.unwrap().command;
    let go = bed.worker("w").dispatch(&held.lease, command.id, allowed, None).await.unwrap();
    assert_eq!(go.state, CommandState::Dispatched);
    (held, command.id)
}

pub(super) async fn state(bed: &Bed, id: CommandId) -> CommandState {
    bed.ledger.command(id).await.unwrap().state
}

pub async fn intent_effect_evidence(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let worker = bed.worker("w");
    let reserved = worker.reserve(&held.lease, mail("hi", allow())).await.unwrap();
    assert!(reserved.fresh && reserved.command.state == CommandState::Pending);
    let id = reserved.command.id;
    assert_eq!(worker.arguments(id).await.unwrap().unwrap().value(), json!({ "text": "hi" }));
    worker.dispatch(&held.lease, id, allow(), Some("r1")).await.unwrap();
    assert!(worker.dispatch(&held.lease, id, allow(), Some("r1")).await.is_ok(), "its reply was lost");
    let second = worker.dispatch(&held.lease, id, allow(), None).await;
    assert_eq!(refused(second), Code::AlreadyDispatched);
    assert_eq!(refused(worker.close_out(&held.lease, success()).await), Code::CommandsOpen);
    let nothing = Proof { external_id: None, ..Proof::provider("x") };
    assert_eq!(refused(worker.receipt(&held.lease, id, nothing).await), Code::EvidenceMissing);
    assert_eq!(
        refused(worker.receipt(&super::forged(&held.lease), id, Proof::provider("x")).await),
        Code::LeaseLost
    );
    let response = Some(super::payload(json!({ "id": "msg-7" })));
    let proof = Proof { response, ..Proof::provider("msg-7") };
    let done = worker.receipt(&held.lease, id, proof).await.unwrap();
    assert_eq!(done.state, CommandState::Succeeded);
    let again = worker.reserve(&held.lease, mail("hi", allow())).await.unwrap();
    assert_eq!((again.command.id, again.fresh), (id, false));
    assert_eq!(again.response.unwrap().value(), json!({ "id": "msg-7" }), "the receipt is reused");
    assert!(bed.person().explain_command(id).await.unwrap().sentence.contains("msg-7"));
    worker.close_out(&held.lease, success()).await.unwrap();
    let story = bed.story(held.work.id).await;
    assert_eq!(story[2..], ["command_reserved", "command_dispatched", "command_succeeded", "close_out"]);
}

pub async fn the_same_intent_is_the_same_command(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let mut crowd = JoinSet::new();
    for _ in 0..20 {
        let (worker, lease) = (bed.worker("w"), held.lease.clone());
        crowd.spawn(async move { worker.reserve(&lease, mail("hi", allow())).await.unwrap() });
    }
    let all = crowd.join_all().await;
    assert!(all.iter().all(|one| one.command.id == all[0].command.id));
    assert_eq!(all.iter().filter(|one| one.fresh).count(), 1);
    let worker = bed.worker("w");
    let other = worker.reserve(&held.lease, mail("hello", allow())).await;
    assert_eq!(refused(other), Code::IdempotencyMismatch);
    worker.release(&held.lease, None).await.unwrap();
    let next = bed.take(held.work.id, "v").await;
    let new = bed.worker("v").reserve(&next.lease, mail("hello", allow())).await.unwrap().command;
    let old = bed.ledger.command(all[0].command.id).await.unwrap();
    assert_eq!((old.state, old.body.superseded_by), (CommandState::Cancelled, Some(new.id)));
}

pub async fn approvals_are_sealed_used_once_and_expire(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let ask = evaluation(Effect::NeedsApproval, ToolFacts { risk: Risk::High, ..lookup() });
    let worker = bed.worker("w");
    let id = worker.reserve(&held.lease, mail("hi", ask.clone())).await.unwrap().command.id;
    let seal = bed.ledger.command(id).await.unwrap().seal();
    let clerk = bed.person().who_approves(false);
    for nobody in [&worker, &bed.machine(), &clerk] {
        assert_eq!(refused(nobody.approve(id, seal, false, "mine").await), Code::PersonRequired);
    }
    assert_eq!(refused(clerk.reject(id, "not mine").await), Code::PersonRequired);
    let wrong = Digest::of("something else");
    assert_eq!(refused(bed.person().approve(id, wrong, false, "ok").await), Code::SealBroken);
    bed.person().approve(id, seal, false, "ok").await.unwrap();
    assert_eq!(refused(bed.person().reject(id, "no").await), Code::IllegalState, "the first decision wins");
    worker.renew(&[(held.lease.clone(), None)]).await.unwrap();
    bed.skip(60_000).await;
    assert_eq!(state(bed, id).await, CommandState::Blocked, "it expired");
    bed.person().approve(id, seal, false, "ok again").await.unwrap();
    let lease = held.lease;
    worker.dispatch(&lease, id, ask.clone(), None).await.unwrap();
    worker.uncertain(&lease, id, timeout()).await.unwrap();
    bed.skip(5_000).await;
    bed.person().reconcile(id, Finding::Absent, Some("not in their list")).await.unwrap();
    let (code, blocked) = not_dispatched(worker.dispatch(&lease, id, ask, None).await);
    assert_eq!(
        (code, blocked.state),
        (Code::ApprovalRequired, CommandState::Blocked),
        "one approval, one dispatch"
    );
}

pub async fn a_worker_waits_for_the_approval(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let ask = evaluation(Effect::NeedsApproval, lookup());
    let worker = bed.worker("w");
    let id = worker.reserve(&held.lease, mail("hi", ask.clone())).await.unwrap().command.id;
    bed.expect(held.work.id, State::Running).await;
    let wait = NewWait { endless: true, ..NewWait::new(WaitKind::Approval, &reference_to_command(id)) };
    worker.wait(&held.lease, vec![wait], None).await.unwrap();
    bed.expect(held.work.id, State::WaitingApproval).await;
    let filter = CommandFilter { needs_approval: true, ..CommandFilter::default() };
    let asked = bed.person().commands(&filter, None, 10).await.unwrap().rows.remove(0);
    assert_eq!(asked.id, id);
    bed.person().approve(id, asked.seal(), false, "ok").await.unwrap();
    bed.expect(held.work.id, State::Queued).await;
    let next = bed.take(held.work.id, "v").await;
    assert_eq!(next.answers[0].1.as_ref().unwrap().value()["state"], "approved");
    let gone = bed.worker("v").dispatch(&next.lease, id, ask, None).await.unwrap();
    assert_eq!(gone.state, CommandState::Dispatched);

    let handed = NewWait { command: Some(id), ..NewWait::new(WaitKind::Tool, "job-7") };
    let plain = NewWait::new(WaitKind::Tool, "job-8");
    assert_eq!(refused(bed.worker("v").wait(&next.lease, vec![plain], None).await), Code::CommandsOpen);
    bed.worker("v").wait(&next.lease, vec![handed], None).await.unwrap();
    bed.machine().resolve(TENANT, "job-7", &json!({ "done": true }), None).await.unwrap();
    let done = bed.ledger.command(id).await.unwrap();
    let (work, seq) = done.body.receipt.as_ref().unwrap().response.unwrap();
    let answer = bed.ledger.payload(work, seq).await.unwrap().unwrap();
    assert_eq!(answer.value(), json!({ "done": true }), "the answer is the receipt");
}

pub async fn lookups_are_claimed_of_the_own_tenants(bed: &mut Bed) {
    let (_, id) = dispatched(bed, "one", lookup()).await;
    bed.pass(LAPSE_MS).await;
    bed.pass(5_000).await;
    let within =
        |tenants: &[&str]| bed.machine().within(tenants.iter().map(|tenant| (*tenant).to_owned()).collect());
    let foreign = within(&["other"]).claim_lookups(|_| true, 10, 30_000).await.unwrap();
    assert_eq!(foreign, [], "what is another's is not even looked at");
    let named = within(&["other", TENANT]);
    assert_eq!(named.claim_lookups(|_| false, 10, 30_000).await.unwrap(), []);
    let taken = named.claim_lookups(|_| true, 10, 30_000).await.unwrap();
    assert_eq!(taken.iter().map(|command| command.id).collect::<Vec<_>>(), [id]);
    assert_eq!(within(&[TENANT]).claim_lookups(|_| true, 10, 30_000).await.unwrap(), [], "it is taken");
}

pub async fn a_lapse_puts_it_in_doubt_and_a_lookup_ends_it(bed: &mut Bed) {
    let (held, id) = dispatched(bed, "one", lookup()).await;
    bed.pass(LAPSE_MS).await;
    assert_eq!(state(bed, id).await, CommandState::Uncertain);
    bed.expect(held.work.id, State::Stalled).await;
    assert!(bed.ledger.due_commands(Duty::Lookup, 10).await.unwrap().is_empty(), "it may not be shown yet");
    bed.pass(5_000).await;
    let due = bed.ledger.due_commands(Duty::Lookup, 10).await.unwrap();
    assert_eq!(due.iter().map(|c| c.id).collect::<Vec<_>>(), [id]);
    let taken = bed.machine().take_lookup(id, 30_000).await.unwrap();
    assert_eq!(refused(bed.machine().take_lookup(id, 30_000).await), Code::NotDue);
    assert!(bed.ledger.due_commands(Duty::Lookup, 10).await.unwrap().is_empty());
    let found = || Finding::Found(Proof::provider("m-1"));
    assert_eq!(refused(bed.machine().reconcile(id, found(), None).await), Code::PersonRequired);
    let token = bed.ledger.lookup_token(&taken);
    let later = token.replacen('1', "2", 1);
    for forged in ["", "x", &token[1..], &later, "0.00"] {
        let told = bed.machine().reconcile_claimed(id, forged, found(), None).await;
        assert_eq!(refused(told), Code::TokenRefused, "{forged}");
    }
    bed.machine().reconcile_claimed(id, &token, found(), None).await.unwrap();
    bed.sweep().await;
    bed.expect(held.work.id, State::Queued).await;

    let (other, id) = dispatched(bed, "two", native()).await;
    bed.pass(LAPSE_MS).await;
    bed.expect(other.work.id, State::Queued).await;
    let next = bed.take(other.work.id, "v").await;
    let again =
        bed.worker("v").dispatch(&next.lease, id, evaluation(Effect::Allow, native()), None).await.unwrap();
    assert_eq!(again.state, CommandState::Dispatched, "the same key again is no second effect");
    let late = bed.worker("w").uncertain(&other.lease, id, timeout()).await;
    assert_eq!(refused(late), Code::DispatchSuperseded, "another dispatch by now");
    let late = bed.worker("w").receipt(&other.lease, id, Proof::provider("x")).await.unwrap();
    assert_eq!(late.state, CommandState::Succeeded, "evidence counts, whoever has dispatched since");
}

pub async fn a_late_copy_speaks_of_its_own_dispatch_only(bed: &mut Bed) {
    let (held, id) = dispatched(bed, "one", lookup()).await;
    let worker = bed.worker("w");
    let busy = |message: &str| CallError {
        class: ErrorClass::RateLimited,
        message: message.into(),
        retry_after_ms: None,
    };
    let first = DispatchRef::new(held.lease.clone(), 1);
    worker.fail_command(&first, id, busy("slow down"), true).await.unwrap();
    bed.skip(5_000).await;
    let again = worker.dispatch(&held.lease, id, evaluation(Effect::Allow, lookup()), None).await.unwrap();
    assert_eq!((again.state, again.body.dispatches), (CommandState::Dispatched, 2));
    let before = bed.story(held.work.id).await;
    let copy = worker.fail_command(&first, id, busy("slow down"), true).await.unwrap();
    assert_eq!(copy.state, CommandState::Dispatched, "a repeated report counts once");
    assert_eq!(
        refused(worker.fail_command(&first, id, busy("no"), true).await),
        Code::DispatchSuperseded,
        "the outcome of the first call says nothing about the second"
    );
    assert_eq!(bed.story(held.work.id).await, before);
    let second = DispatchRef::new(held.lease.clone(), 2);
    worker.fail_command(&second, id, busy("slow down"), true).await.unwrap();
    assert_eq!(state(bed, id).await, CommandState::Pending);
    let happened = worker.receipt(&first, id, Proof::provider("m-1")).await.unwrap();
    assert_eq!(happened.state, CommandState::Succeeded, "evidence counts whenever it comes");
}

pub async fn what_nobody_can_tell_ends_with_a_person(bed: &mut Bed) {
    let (held, id) = dispatched(bed, "one", ToolFacts::default()).await;
    bed.pass(LAPSE_MS).await;
    bed.expect(held.work.id, State::Quarantined).await;
    let filter = CommandFilter { needs_person: true, ..CommandFilter::default() };
    assert_eq!(bed.person().commands(&filter, None, 10).await.unwrap()[0].id, id);
    let requeue = || tenure_core::action::Decide::Requeue;
    assert_eq!(refused(bed.person().decide(held.work.id, "go", requeue()).await), Code::CommandsOpen);
    let happened = || Recorded::Happened(Proof::provider("seen by ada"));
    assert_eq!(refused(bed.machine().record_outcome(id, happened(), "I asked").await), Code::PersonRequired);
    bed.person().record_outcome(id, happened(), "I asked them").await.unwrap();
    bed.person().decide(held.work.id, "go on", requeue()).await.unwrap();
    bed.expect(held.work.id, State::Queued).await;

    let (held, id) = dispatched(bed, "two", lookup()).await;
    bed.pass(LAPSE_MS).await;
    for _ in 0..2 {
        bed.expect(held.work.id, State::Stalled).await;
        bed.person().reconcile(id, Finding::Unknown, None).await.unwrap();
    }
    bed.expect(held.work.id, State::Quarantined).await;
}

/// A work item that ends with a command to send.
async fn outbox(bed: &Bed, id: &str, tool: ToolFacts) -> (Claimed, CommandId) {
    let held = bed.held(job(id), "w").await;
    let tool = ToolFacts { executor: Executor::Http, ..tool };
    let report = mail("your report", evaluation(Effect::Allow, tool));
    let (command, report) = bed.worker("w").outgoing(held.work.id, report).await.unwrap();
    let close = CloseOut { commands: vec![(command, report)], ..success() };
    bed.worker("w").close_out(&held.lease, close.clone()).await.unwrap();
    bed.worker("w").close_out(&held.lease, close).await.expect("the same again is the same");
    (held, command)
}

pub async fn the_outbox_is_sent_once(bed: &mut Bed) {
    let (held, id) = outbox(bed, "one", native()).await;
    bed.expect(held.work.id, State::Succeeded).await;
    let due = bed.ledger.due_commands(Duty::Send, 10).await.unwrap();
    assert_eq!(due.iter().map(|c| c.id).collect::<Vec<_>>(), [id]);
    let go = evaluation(Effect::Allow, due[0].body.tool.clone());
    let ledger = bed.ledger.clone();
    let relay = || ledger.caller(tenure_core::Actor::system("relay"));
    let mut crowd = JoinSet::new();
    for _ in 0..10 {
        let (relay, go) = (relay(), go.clone());
        crowd.spawn(async move { relay.relay_dispatch(id, go).await });
    }
    let sent: Vec<_> = crowd.join_all().await.into_iter().flatten().collect();
    assert_eq!(sent.len(), 1, "two relays never send the same one");
    assert_eq!(sent[0].arguments.as_ref().unwrap().value(), json!({ "text": "your report" }));
    bed.skip(60_000).await;
    assert_eq!(state(bed, id).await, CommandState::Uncertain, "its relay is gone");
    bed.skip(10_000).await;
    let again = relay().relay_dispatch(id, go).await.unwrap();
    let lost = relay().uncertain(&sent[0].proof, id, timeout()).await;
    assert_eq!(refused(lost), Code::DispatchSuperseded, "the first call says nothing of the second");
    let done = relay().receipt(&again.proof, id, Proof::provider("x")).await.unwrap();
    assert_eq!(done.state, CommandState::Succeeded);
    bed.expect(held.work.id, State::Succeeded).await;
    assert!(bed.ledger.due_commands(Duty::Send, 10).await.unwrap().is_empty());
}

pub async fn ordered_sends_wait_for_one_another(bed: &mut Bed) {
    let ordered = ToolFacts { ordered: true, ..native() };
    let (_, first) = outbox(bed, "one", ordered.clone()).await;
    let (_, second) = outbox(bed, "two", ordered.clone()).await;
    let go = || evaluation(Effect::Allow, ToolFacts { executor: Executor::Http, ..ordered.clone() });
    let relay = bed.ledger.caller(tenure_core::Actor::system("relay"));
    assert_eq!(refused(relay.relay_dispatch(second, go()).await), Code::NotDue);
    let sent = relay.relay_dispatch(first, go()).await.unwrap();
    assert_eq!(refused(relay.relay_dispatch(second, go()).await), Code::NotDue);
    let class = ErrorClass::Unavailable;
    let error = CallError { class, message: "503".into(), retry_after_ms: None };
    let back = relay.fail_command(&sent.proof, first, error, false).await.unwrap();
    assert_eq!(back.state, CommandState::Pending, "tried again later");
    bed.skip(10_000).await;
    assert_eq!(refused(relay.relay_dispatch(second, go()).await), Code::NotDue);
    let sent = relay.relay_dispatch(first, go()).await.unwrap();
    relay.receipt(&sent.proof, first, Proof::provider("1")).await.unwrap();
    relay.relay_dispatch(second, go()).await.unwrap();
}

pub async fn what_waits_in_line_names_the_first_of_it(bed: &mut Bed) {
    let ordered = ToolFacts { ordered: true, ..native() };
    let (_, first) = outbox(bed, "one", ordered.clone()).await;
    let (held, second) = outbox(bed, "two", ordered.clone()).await;
    let relay = bed.ledger.caller(tenure_core::Actor::system("relay"));
    let ask = evaluation(Effect::NeedsApproval, ordered);
    let (code, stopped) = not_dispatched(relay.relay_dispatch(first, ask).await);
    assert_eq!((code, stopped.state), (Code::ApprovalRequired, CommandState::Blocked));
    let behind = format!("waits behind {first}, which is blocked");
    let approve = vec![Next::ApproveCommand(first), Next::RejectCommand(first)];
    for said in [
        bed.person().explain_command(second).await.unwrap(),
        bed.person().explain(held.work.id).await.unwrap(),
    ] {
        assert!(said.sentence.contains(&behind) && said.next == approve, "{said:?}");
    }
    let own = bed.person().explain_command(first).await.unwrap();
    assert!(!own.sentence.contains("behind") && own.next == approve, "{own:?}");
    bed.person().reject(first, "no").await.unwrap();
    for said in [
        bed.person().explain_command(second).await.unwrap(),
        bed.person().explain(held.work.id).await.unwrap(),
    ] {
        assert!(!said.sentence.contains("behind") && said.advice.starts_with("nothing"), "{said:?}");
    }
}

pub async fn budgets_hold_under_a_crowd(bed: &mut Bed) {
    let mut works: Vec<(LeaseRef, CommandId)> = Vec::new();
    for n in 0..12 {
        let held = bed.held(job(&format!("m{n}")), "w").await;
        let id = bed.worker("w").reserve(&held.lease, mail("hi", allow())).await.unwrap().command.id;
        works.push((held.lease, id));
    }
    let unit = Unit::Micros("eur".into());
    let limits =
        vec![Limit { per: Per::Tenant, unit: unit.clone(), period: "2026-11".into(), max: 100, only: None }];
    let estimate = Cost { tokens: 0, micros: vec![("EUR".into(), 20)] };
    let paid = Evaluation { limits, estimate, ..allow() };
    let mut crowd = JoinSet::new();
    for (lease, id) in works.clone() {
        let (worker, paid) = (bed.worker("w"), paid.clone());
        crowd.spawn(async move { worker.dispatch(&lease, id, paid, None).await });
    }
    let (gone, stopped): (Vec<_>, Vec<_>) = crowd.join_all().await.into_iter().partition(Result::is_ok);
    let gone: Vec<Command> = gone.into_iter().map(Result::unwrap).collect();
    let stopped: Vec<_> = stopped.into_iter().map(not_dispatched).collect();
    assert_eq!(gone.len(), 5, "five times twenty is a hundred");
    assert!(gone.iter().all(|command| command.state == CommandState::Dispatched));
    for (code, command) in &stopped {
        assert_eq!((*code, command.state), (Code::Budget, CommandState::Blocked));
        assert_eq!(state(bed, command.id).await, CommandState::Blocked, "that it was stopped is committed");
    }
    let key = BudgetKey {
        tenant: TENANT.into(),
        account: Account::Tenant,
        unit,
        period: "2026-11".into(),
        only: None,
    };
    let stands = async |bed: &Bed| {
        let budgets = bed.ledger.budgets(std::slice::from_ref(&key)).await.unwrap();
        budgets.first().map(|(_, budget)| (budget.spent, budget.reserved))
    };
    assert_eq!(stands(bed).await, Some((0, 100)));
    let lease = |id: CommandId| works.iter().find(|(_, other)| *other == id).unwrap().0.clone();
    let cost = Some(Cost { tokens: 0, micros: vec![("EUR".into(), 5)] });
    let proof = Proof { cost, ..Proof::provider("x") };
    bed.worker("w").receipt(&lease(gone[0].id), gone[0].id, proof).await.unwrap();
    let error = CallError { class: ErrorClass::Validation, message: "no".into(), retry_after_ms: None };
    bed.worker("w").fail_command(&lease(gone[1].id), gone[1].id, error, false).await.unwrap();
    assert_eq!(stands(bed).await, Some((5, 60)));
    let blocked = stopped[0].1.id;
    let now = bed.worker("w").dispatch(&lease(blocked), blocked, paid, None).await.unwrap();
    assert_eq!(now.state, CommandState::Dispatched, "there is room again");
}

pub async fn one_answer_settles_what_several_works_set_aside(bed: &mut Bed) {
    let limits =
        vec![Limit { per: Per::Tenant, unit: Unit::Calls, period: String::new(), max: 100, only: None }];
    let counted = Evaluation { limits, ..allow() };
    for n in 0..3 {
        let held = bed.held(job(&format!("m{n}")), "w").await;
        let worker = bed.worker("w");
        let id = worker.reserve(&held.lease, mail("hi", allow())).await.unwrap().command.id;
        worker.dispatch(&held.lease, id, counted.clone(), None).await.unwrap();
        let wait = NewWait { command: Some(id), ..NewWait::new(WaitKind::Tool, "the batch is through") };
        worker.wait(&held.lease, vec![wait], None).await.unwrap();
    }
    let (account, unit) = (Account::Tenant, Unit::Calls);
    let key = BudgetKey { tenant: TENANT.into(), account, unit, period: String::new(), only: None };
    let stands = async |bed: &Bed| {
        let budgets = bed.ledger.budgets(std::slice::from_ref(&key)).await.unwrap();
        budgets.first().map(|(_, budget)| (budget.spent, budget.reserved))
    };
    assert_eq!(stands(bed).await, Some((0, 3)));
    bed.person().resolve(TENANT, "the batch is through", &json!({ "id": "b-1" }), None).await.unwrap();
    assert_eq!(stands(bed).await, Some((3, 0)));
    bed.verify().await;
}

pub async fn a_dispatch_is_given_once_under_a_crowd(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let id = bed.worker("w").reserve(&held.lease, mail("hi", allow())).await.unwrap().command.id;
    let mut crowd = JoinSet::new();
    for n in 0..20 {
        let (worker, lease) = (bed.worker("w"), held.lease.clone());
        crowd.spawn(async move { worker.dispatch(&lease, id, allow(), Some(&format!("r{n}"))).await });
    }
    let told: Vec<_> = crowd.join_all().await;
    assert_eq!(told.iter().filter(|answer| answer.is_ok()).count(), 1);
}

pub async fn replays_are_for_people_and_bounded(bed: &mut Bed) {
    let (held, id) = dispatched(bed, "one", lookup()).await;
    let error = || CallError { class: ErrorClass::Validation, message: "no".into(), retry_after_ms: None };
    bed.worker("w").fail_command(&held.lease, id, error(), false).await.unwrap();
    let limits = ReplayLimits { per_command: 1, ..ReplayLimits::default() };
    let machine = bed.machine().replay(id, allow(), limits, "again").await;
    assert_eq!(refused(machine), Code::PersonRequired);
    let dry = bed.person().trying(true).replay(id, allow(), limits, "again").await.unwrap();
    assert_eq!(dry.state, CommandState::Pending);
    assert_eq!(state(bed, id).await, CommandState::Failed, "a dry run writes nothing");
    bed.person().replay(id, allow(), limits, "again").await.unwrap();
    bed.worker("w").dispatch(&held.lease, id, allow(), None).await.unwrap();
    bed.worker("w").fail_command(&held.lease, id, error(), false).await.unwrap();
    let enough = bed.person().replay(id, allow(), limits, "again").await;
    assert_eq!(refused(enough), Code::LimitReached);
}

pub async fn a_rerun_repeats_nothing_by_itself(bed: &mut Bed) {
    let (held, done) = dispatched(bed, "one", lookup()).await;
    let worker = bed.worker("w");
    let response = Some(super::payload(json!("sent")));
    worker.receipt(&held.lease, done, Proof { response, ..Proof::provider("m-1") }).await.unwrap();
    let mut other = mail("second", allow());
    other.slot = Some("2".into());
    let doubtful = worker.reserve(&held.lease, other.clone()).await.unwrap().command;
    worker.dispatch(&held.lease, doubtful.id, allow(), None).await.unwrap();
    let failed = CloseOut::failed(ErrorClass::Unknown, "gave up");
    worker.close_out(&held.lease, failed).await.unwrap();
    assert_eq!(state(bed, doubtful.id).await, CommandState::Uncertain);
    let plan = bed.person().replay_plan(held.work.id, &[], |_| Effect::Allow).await.unwrap();
    assert_eq!(plan.iter().map(|(_, p)| *p).collect::<Vec<_>>(), [Planned::ReuseReceipt, Planned::Blocked]);

    let again = bed.person().rerun(held.work.id, None, "once more").await.unwrap();
    let next = bed.take(again.work.id, "w").await;
    let reused = worker.reserve(&next.lease, mail("hi", allow())).await.unwrap();
    assert_eq!(reused.command.state, CommandState::Succeeded);
    assert_eq!(reused.command.body.receipt.as_ref().unwrap().reused_from, Some(done));
    assert_eq!(reused.response.unwrap().value(), json!("sent"));
    assert_eq!(refused(worker.reserve(&next.lease, other).await), Code::InDoubt);
    worker.close_out(&next.lease, CloseOut::failed(ErrorClass::Unknown, "again")).await.unwrap();

    let key = doubtful.spec.key;
    let third = bed.person().rerun_executing(again.work.id, None, vec![key], "send it anyway").await.unwrap();
    let last = bed.take(third.work.id, "w").await;
    let mut anyway = mail("second", allow());
    anyway.slot = Some("2".into());
    assert_eq!(worker.reserve(&last.lease, anyway).await.unwrap().command.state, CommandState::Pending);
}

pub async fn one_risky_tool_needs_no_work(bed: &mut Bed) {
    let work = || {
        let mut work = job("risky");
        work.claim = Some(claimant("w", "r1"));
        work
    };
    let worker = bed.worker("w");
    let first = worker.reserve_alone(work(), mail("hi", allow())).await.unwrap();
    let lease = first.lease.unwrap().lease;
    let again = worker.reserve_alone(work(), mail("hi", allow())).await.unwrap();
    assert_eq!((again.command.id, again.fresh), (first.command.id, false));
    assert_eq!(again.lease.unwrap().lease, lease);

    // The same claim with one more intent. Changes without an event in between are kept.
    bed.clock.advance(1_000);
    worker.renew(&[(lease.clone(), Some(json!("half-way")))]).await.unwrap();
    let renewed = bed.work(lease.work).await;
    let mut second = mail("hi", allow());
    second.slot = Some("second".to_owned());
    let second = worker.reserve_alone(work(), second).await.unwrap();
    assert_eq!((second.command.work, second.fresh), (lease.work, true));
    let now = bed.work(lease.work).await;
    assert_eq!((now.lease, now.progress), (renewed.lease, renewed.progress));
    worker.cancel_command(second.command.id, Some(&lease), "one is enough").await.unwrap();

    let mut other = work();
    other.claim = Some(claimant("v", "r2"));
    assert_eq!(refused(bed.worker("v").reserve_alone(other, mail("hi", allow())).await), Code::Busy);
    worker.dispatch(&lease, first.command.id, allow(), None).await.unwrap();
    worker.receipt(&lease, first.command.id, Proof::provider("x")).await.unwrap();
    worker.close_out(&lease, success()).await.unwrap();
}

pub async fn a_changed_policy_is_asked_again(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    bed.ledger.set_policy_version(Some("p2"));
    let stale = bed.worker("w").reserve(&held.lease, mail("hi", allow())).await;
    assert_eq!(refused(stale), Code::PolicyStale);
    bed.ledger.set_policy_version(Some("p1"));
    bed.worker("w").reserve(&held.lease, mail("hi", allow())).await.unwrap();
}

pub async fn commands_are_listed_within_their_tenants(bed: &mut Bed) {
    let (held, first) = dispatched(bed, "one", lookup()).await;
    bed.clock.advance(1_000);
    let mut new = mail("two", evaluation(Effect::Deny, lookup()));
    new.target = "eve".into();
    let second = bed.worker("w").reserve(&held.lease, new).await.unwrap().command.id;
    let all = |filter: CommandFilter| {
        let person = bed.person();
        async move {
            let found = person.commands(&filter, None, 10).await.unwrap();
            assert!(found.iter().all(|command| filter.matches(command)));
            found.into_iter().map(|command| command.id).collect::<Vec<_>>()
        }
    };
    let any_command = CommandFilter::default;
    assert_eq!(all(any_command()).await, [second, first]);
    for (filter, expected) in [
        (CommandFilter { states: vec![CommandState::Blocked], ..any_command() }, vec![second]),
        (CommandFilter { tool: Some("mail".into()), ..any_command() }, vec![second, first]),
        (CommandFilter { target: Some("bob".into()), ..any_command() }, vec![first]),
        (CommandFilter { work: Some(held.work.id), ..any_command() }, vec![second, first]),
        (CommandFilter { needs_approval: true, ..any_command() }, vec![]),
        (CommandFilter { states: vec![CommandState::Blocked], needs_person: true, ..any_command() }, vec![]),
        (CommandFilter { created_before: Some(bed.now()), ..any_command() }, vec![first]),
        (CommandFilter { created_after: Some(bed.now() - 1), ..any_command() }, vec![second]),
    ] {
        assert_eq!(all(filter.clone()).await, expected, "{filter:?}");
    }
    let page = bed.person().commands(&any_command(), Some(second), 10).await.unwrap();
    assert_eq!(page.len(), 1);
    assert_eq!(bed.person().command_counts().await.unwrap()[&CommandState::Blocked], 1);
    let foreign = bed.person().within(vec!["other".into()]);
    assert!(foreign.commands(&any_command(), None, 10).await.unwrap().is_empty());
    assert_eq!(refused(foreign.command(first).await), Code::NotFound);
    assert_eq!(refused(foreign.approve(second, Digest::default(), false, "mine").await), Code::NotFound);

    let (text, person) = (first.to_string(), bed.person());
    let same = text.bytes().zip(second.to_string().bytes()).take_while(|(a, b)| a == b).count();
    assert_eq!(person.find_command(&text).await.unwrap().id, first);
    assert_eq!(person.find_command(&text[..=same]).await.unwrap().id, first);
    assert_eq!(refused(person.find_command(&text[..same]).await), Code::Ambiguous);
    assert_eq!(refused(foreign.find_command(&text).await), Code::NotFound);
    assert_eq!(refused(person.find_command("c_ffff").await), Code::NotFound);
    assert_eq!(refused(person.find_command("w_01").await), Code::Invalid);
}

pub async fn works_with_open_commands_are_not_pruned(bed: &mut Bed) {
    let (held, id) = dispatched(bed, "one", lookup()).await;
    bed.worker("w").close_out(&held.lease, CloseOut::failed(ErrorClass::Unknown, "x")).await.unwrap();
    bed.skip(7_200_000).await;
    let long_ago = bed.now() - 3_600_000;
    let pruned = bed.ledger.prune(&Actor::person("ada"), "too old", long_ago, 10).await.unwrap();
    assert_eq!(pruned.works, 0, "something may still come of it");
    bed.person().record_outcome(id, Recorded::DidNotHappen, "I asked").await.unwrap();
    bed.skip(7_200_000).await;
    let pruned = bed.ledger.prune(&Actor::person("ada"), "too old", bed.now() - 3_600_000, 10).await.unwrap();
    assert_eq!(pruned.works, 0, "somebody may still ask whether it happened");
    bed.skip(7 * 24 * 3_600_000).await;
    assert_eq!(
        bed.ledger.prune(&Actor::person("ada"), "too old", bed.now() - 3_600_000, 10).await.unwrap().works,
        1
    );
    assert_eq!(refused(bed.ledger.command(id).await), Code::NotFound);
}

/// The verdict on the doubt comes after the holder's report; the attempt keeps the usage of that report.
pub async fn usage_is_kept_where_commands_are_in_doubt(bed: &mut Bed) {
    let used = vec![Usage { calls: 3, ..Usage::default() }];
    let worker = bed.worker("w").having_used(used.clone());
    let (failed, _) = dispatched(bed, "failed", lookup()).await;
    worker.fail(&failed.lease, Failure::new(ErrorClass::Unavailable, "down")).await.unwrap();
    let (released, _) = dispatched(bed, "released", ToolFacts::default()).await;
    worker.release(&released.lease, None).await.unwrap();
    for (id, state) in [(failed.work.id, State::Stalled), (released.work.id, State::Quarantined)] {
        bed.expect(id, state).await;
        assert_eq!(bed.work(id).await.body.usage, used);
        let attempts = bed.ledger.attempts(id).await.unwrap();
        assert_eq!(attempts[0].end.as_ref().unwrap().usage, used);
    }
}

fn money(estimate: Cost, tool: ToolFacts) -> (Evaluation, BudgetKey) {
    let unit = Unit::Micros("usd".into());
    let limit = Limit { per: Per::Tenant, unit: unit.clone(), period: String::new(), max: 100, only: None };
    let (tenant, period) = (TENANT.into(), String::new());
    let key = BudgetKey { tenant, account: Account::Tenant, unit, period, only: None };
    (Evaluation { limits: vec![limit], estimate, ..evaluation(Effect::Allow, tool) }, key)
}

fn usd(currency: &str, micros: u64) -> Cost {
    Cost { tokens: 0, micros: vec![(currency.into(), micros)] }
}

pub async fn money_is_counted_whatever_is_left_unsaid(bed: &mut Bed) {
    let stands = async |bed: &Bed, key: &BudgetKey| {
        let budgets = bed.ledger.budgets(std::slice::from_ref(key)).await.unwrap();
        budgets.first().map_or((0, 0), |(_, budget)| (budget.spent, budget.reserved))
    };
    let worker = bed.worker("w");
    let send = async |bed: &Bed, name: &str, estimate: Cost| {
        let held = bed.held(job(name), "w").await;
        let (paid, _) = money(estimate, lookup());
        let id = bed.worker("w").reserve(&held.lease, mail("hi", allow())).await.unwrap().command.id;
        let sent = bed.worker("w").dispatch(&held.lease, id, paid, None).await;
        (held, id, sent)
    };
    let (_, key) = money(Cost::default(), lookup());
    for (name, estimate) in [
        ("nothing said", Cost::default()),
        ("another currency", usd("EUR", 5)),
        ("in capitals", usd("USD", 101)),
    ] {
        let (code, stopped) = not_dispatched(send(bed, name, estimate).await.2);
        assert_eq!((code, stopped.state), (Code::Budget, CommandState::Blocked), "{name}");
    }

    let (held, id, _) = send(bed, "silent", usd("USD", 40)).await;
    let proof = Proof { cost: Some(usd("eur", 1)), ..Proof::provider("x") };
    worker.receipt(&held.lease, id, proof).await.unwrap();
    assert_eq!(stands(bed, &key).await, (40, 0), "a receipt that does not name it is charged the estimate");

    let (held, id, _) = send(bed, "absent", usd("usd", 30)).await;
    worker.uncertain(&held.lease, id, timeout()).await.unwrap();
    worker.close_out(&held.lease, CloseOut::failed(ErrorClass::Unknown, "gave up")).await.unwrap();
    bed.skip(5_000).await;
    let absent = bed.person().reconcile(id, Finding::Absent, None).await.unwrap();
    assert_eq!((absent.state, stands(bed, &key).await), (CommandState::Cancelled, (40, 0)));
    let late = worker.receipt(&held.lease, id, Proof::provider("m-1")).await.unwrap();
    assert_eq!((late.state, stands(bed, &key).await), (CommandState::Succeeded, (70, 0)), "it happened");
    bed.verify().await;
}
