//! Waits to which a dispatched command was handed: which answers are its receipt, and what happens to the
//! work item.

use serde_json::json;
use tenure_core::{
    Code, CommandId, CommandState, State,
    command::{CallError, Effect, EvidenceKind, Finding, Idempotency, Risk, ToolFacts},
    model::{ErrorClass, OnTimeout, WaitKind},
    policy::{Jitter, PolicyOverrides, RetryPolicy},
};

use super::{
    Bed, LAPSE_MS, TENANT,
    commands::{dispatched, evaluation, lookup, mail, native, state},
    job, not_dispatched, refused, said_in,
};
use crate::{LeaseRef, NewWait, NewWork, WaitFilter};

async fn hand_over(bed: &Bed, lease: &LeaseRef, id: CommandId, reference: &str, on_timeout: OnTimeout) {
    let wait = NewWait {
        command: Some(id),
        timeout_ms: Some(1_000),
        on_timeout,
        default: (on_timeout == OnTimeout::Default).then(|| json!("none")),
        schema: Some(json!({ "type": "string" })),
        ..NewWait::new(WaitKind::Tool, reference)
    };
    bed.worker("w").wait(lease, vec![wait], None).await.unwrap();
}

pub async fn an_answer_kept_before_the_dispatch_is_no_receipt(bed: &mut Bed) {
    assert!(bed.machine().resolve(TENANT, "job", &json!("of another"), None).await.unwrap().kept);
    bed.pass(10).await;
    let (held, id) = dispatched(bed, "one", lookup()).await;
    hand_over(bed, &held.lease, id, "job", OnTimeout::TimeOut).await;
    assert_eq!(state(bed, id).await, CommandState::Dispatched);
    assert!(bed.story(held.work.id).await.contains(&"early_answer_refused"));
    bed.machine().resolve(TENANT, "job", &json!("done"), None).await.unwrap();
    assert_eq!(state(bed, id).await, CommandState::Succeeded);
    bed.verify().await;
}

/// Only the second call was made, and the answer is older.
pub async fn an_answer_kept_after_an_unsent_call_is_no_receipt(bed: &mut Bed) {
    let (held, id) = dispatched(bed, "one", lookup()).await;
    let worker = bed.worker("w");
    let down = CallError { class: ErrorClass::Unavailable, message: "down".into(), retry_after_ms: None };
    let unsent = worker.fail_command(&held.lease, id, down, true).await.unwrap();
    bed.clock.advance(10);
    assert!(bed.machine().resolve(TENANT, "job", &json!("of another"), None).await.unwrap().kept);
    bed.clock.advance(unsent.body.next_at.unwrap() - bed.now());
    worker.dispatch(&held.lease, id, evaluation(Effect::Allow, lookup()), None).await.unwrap();
    hand_over(bed, &held.lease, id, "job", OnTimeout::TimeOut).await;
    assert_eq!(state(bed, id).await, CommandState::Dispatched);
    bed.machine().resolve(TENANT, "job", &json!("done"), None).await.unwrap();
    let done = bed.ledger.command(id).await.unwrap();
    let (work, seq) = done.body.receipt.as_ref().unwrap().response.unwrap();
    assert_eq!(bed.ledger.payload(work, seq).await.unwrap().unwrap().value(), json!("done"));
}

/// Each of the two calls has its callback: the second is not taken for the first.
pub async fn a_second_callback_of_a_command_sent_twice_is_refused(bed: &mut Bed) {
    let allowed = || evaluation(Effect::Allow, lookup());
    for (name, waits, [one, other]) in [("a", ["a1", "a2"], ["a2", "a1"]), ("b", ["b1", "b2"], ["b1", "b2"])]
    {
        let (held, id) = dispatched(bed, name, lookup()).await;
        hand_over(bed, &held.lease, id, waits[0], OnTimeout::Default).await;
        bed.pass(1_000).await;
        bed.skip(5_000).await;
        bed.person().reconcile(id, Finding::Absent, None).await.unwrap();
        bed.pass(1_000).await;
        let again = bed.take(held.work.id, "w").await;
        bed.worker("w").dispatch(&again.lease, id, allowed(), None).await.unwrap();
        hand_over(bed, &again.lease, id, waits[1], OnTimeout::TimeOut).await;
        let answer = |reference: &'static str| {
            let machine = bed.machine();
            async move { machine.resolve(TENANT, reference, &json!("done"), None).await }
        };
        assert!(answer(one).await.unwrap().answers[0].0.first);
        assert_eq!(refused(answer(other).await), Code::IdempotencyMismatch);
        assert!(!answer(one).await.unwrap().answers[0].0.first, "a repeat is one");
    }
}

pub async fn an_answer_after_the_deadline_settles_its_command(bed: &mut Bed) {
    for (n, on_timeout) in [OnTimeout::TimeOut, OnTimeout::Default].into_iter().enumerate() {
        let reference = format!("job-{n}");
        let (held, id) = dispatched(bed, &reference, lookup()).await;
        hand_over(bed, &held.lease, id, &reference, on_timeout).await;
        bed.pass(1_000).await;
        assert_eq!(state(bed, id).await, CommandState::Uncertain);
        let answers = |value: serde_json::Value| {
            let (machine, reference) = (bed.machine(), reference.clone());
            async move { machine.resolve(TENANT, &reference, &value, None).await }
        };
        assert_eq!(refused(answers(json!(7)).await), Code::AnswerMismatch, "its schema still counts");
        let late = answers(json!("done")).await.unwrap();
        assert!(!late.kept && late.answers[0].0.first);
        assert_eq!(late.answers[0].1.as_ref().unwrap().value(), json!("done"));
        let done = bed.ledger.command(id).await.unwrap();
        assert_eq!(done.state, CommandState::Succeeded);
        let (work, seq) = done.body.receipt.as_ref().unwrap().response.unwrap();
        assert_eq!(bed.ledger.payload(work, seq).await.unwrap().unwrap().value(), json!("done"));
        let again = answers(json!("twice")).await.unwrap();
        assert!(!again.answers[0].0.first, "the first one counts");
        assert_eq!(again.answers[0].1.as_ref().unwrap().value(), json!("done"));
    }
    bed.verify().await;
}

/// With a lookup it is stalled until the lookup is made, otherwise a person decides; it is never queued.
pub async fn a_wait_that_ends_in_doubt_queues_nothing(bed: &mut Bed) {
    let blind = ToolFacts { idempotency: Idempotency::None, risk: Risk::High, ..lookup() };
    for (name, facts, then) in [("l", lookup(), State::Stalled), ("b", blind, State::Quarantined)] {
        let (held, id) = dispatched(bed, &format!("{name}-default"), facts.clone()).await;
        hand_over(bed, &held.lease, id, &format!("{name}-default"), OnTimeout::Default).await;
        bed.pass(1_000).await;
        bed.expect(held.work.id, then).await;

        let chat = format!("chat-{name}");
        let held = bed.held(said_in(&chat, &format!("{name}-revoked")), "w").await;
        let allowed = super::commands::evaluation(tenure_core::command::Effect::Allow, facts);
        let new = super::commands::mail("hi", allowed.clone());
        let id = bed.worker("w").reserve(&held.lease, new).await.unwrap().command.id;
        bed.worker("w").dispatch(&held.lease, id, allowed, None).await.unwrap();
        hand_over(bed, &held.lease, id, &format!("{name}-revoked"), OnTimeout::TimeOut).await;
        bed.person().revoke_session_waits(&held.work.spec.tenant, &chat, "nobody answers").await.unwrap();
        bed.expect(held.work.id, then).await;
    }
    bed.verify().await;
}

pub async fn an_answer_after_a_revoke_fits_the_schema_or_is_no_receipt(bed: &mut Bed) {
    let (held, id) = dispatched(bed, "one", lookup()).await;
    hand_over(bed, &held.lease, id, "job", OnTimeout::TimeOut).await;
    let now = bed.work(held.work.id).await;
    assert_eq!(now.spec.session, None);
    bed.person().submit(revoke(held.work.id)).await.unwrap();
    assert_eq!(state(bed, id).await, CommandState::Uncertain);
    let wrong = bed.machine().resolve(TENANT, "job", &json!(7), None).await;
    assert_eq!(refused(wrong), Code::AnswerMismatch);
    assert_eq!(state(bed, id).await, CommandState::Uncertain);
    bed.machine().resolve(TENANT, "job", &json!("done"), None).await.unwrap();
    assert_eq!(state(bed, id).await, CommandState::Succeeded);
}

fn revoke(work: tenure_core::WorkId) -> tenure_core::Action {
    tenure_core::Action::RevokeWaits { work, reason: "nobody answers".to_owned() }
}

pub async fn a_workers_word_does_not_end_a_doubt(bed: &mut Bed) {
    let (held, id) = dispatched(bed, "one", lookup()).await;
    let worker = bed.worker("w");
    let timeout =
        || CallError { class: ErrorClass::Timeout, message: "no reply".into(), retry_after_ms: None };
    worker.uncertain(&held.lease, id, timeout()).await.unwrap();
    let before = bed.story(held.work.id).await;
    assert_eq!(refused(worker.fail_command(&held.lease, id, timeout(), true).await), Code::InDoubt);
    assert_eq!(bed.story(held.work.id).await, before);
    bed.skip(5_000).await;
    bed.person().reconcile(id, Finding::Absent, None).await.unwrap();
    assert_eq!(state(bed, id).await, CommandState::Pending);
}

pub async fn a_person_without_replay_ends_no_doubt_by_an_answer(bed: &mut Bed) {
    let (held, id) = dispatched(bed, "one", lookup()).await;
    hand_over(bed, &held.lease, id, "job", OnTimeout::TimeOut).await;
    let (clerk, filter) = (bed.person().who_replays(false), WaitFilter::default());
    let wait = bed.ledger.waits(&filter, 1).await.unwrap()[0].id;
    let done = json!("done");
    assert_eq!(refused(clerk.resolve(TENANT, "job", &done, None).await), Code::Forbidden);
    assert_eq!(refused(clerk.resolve_wait(wait, None, None, &done, None).await), Code::Forbidden);
    assert_eq!(state(bed, id).await, CommandState::Dispatched);
    bed.person().resolve_wait(wait, None, None, &done, None).await.unwrap();
    let receipt = bed.ledger.command(id).await.unwrap().body.receipt.clone().unwrap();
    assert_eq!(receipt.evidence, EvidenceKind::Person);
}

/// Repeating a call with the same key has no second effect, but the repeats are limited.
pub async fn a_native_command_in_doubt_stays_within_its_attempts(bed: &mut Bed) {
    for (name, attempts, lapses, end) in
        [("poison", 10, 3, State::Quarantined), ("exhausted", 2, 2, State::Failed)]
    {
        let retry = RetryPolicy { jitter: Jitter::None, max_attempts: attempts, ..RetryPolicy::default() };
        let new = job(name);
        let policy = PolicyOverrides { retry: Some(retry), ..new.policy };
        let work = bed.ingest(NewWork { policy, ..new }).await.id;
        let allowed = evaluation(Effect::Allow, native());
        for lapse in 1..=lapses {
            let held = bed.take(work, "w").await;
            let id =
                bed.worker("w").reserve(&held.lease, mail("hi", allowed.clone())).await.unwrap().command.id;
            let go = bed.worker("w").dispatch(&held.lease, id, allowed.clone(), None).await.unwrap();
            assert_eq!(go.state, CommandState::Dispatched, "{name} {lapse}");
            bed.pass(LAPSE_MS).await;
            assert_eq!(state(bed, id).await, CommandState::Uncertain);
            bed.expect(work, if lapse < lapses { State::Queued } else { end }).await;
        }
    }
}

/// A late copy of a dispatch's request, after its command became uncertain, is no permission for a second call.
pub async fn a_late_copy_of_a_dispatch_permits_nothing(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let (worker, allowed) = (bed.worker("w"), evaluation(Effect::Allow, native()));
    let id = worker.reserve(&held.lease, mail("hi", allowed.clone())).await.unwrap().command.id;
    let ask = async |request: &str| worker.dispatch(&held.lease, id, allowed.clone(), Some(request)).await;
    ask("one").await.unwrap();
    let lost = CallError { class: ErrorClass::Timeout, message: "lost".into(), retry_after_ms: None };
    worker.uncertain(&held.lease, id, lost).await.unwrap();
    let (code, shown) = not_dispatched(ask("one").await);
    assert_eq!((code, shown.state, shown.body.dispatches), (Code::InDoubt, CommandState::Uncertain, 1));
    assert_eq!(ask("two").await.unwrap().body.dispatches, 2, "asked for on purpose, with the same key");
    let (code, shown) = not_dispatched(ask("one").await);
    assert_eq!((code, shown.body.dispatches), (Code::DispatchSuperseded, 2));
    bed.verify().await;
}
