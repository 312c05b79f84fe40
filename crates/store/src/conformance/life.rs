//! The holder's verbs on a work item without disturbances.

use serde_json::json;
use tenure_core::{
    Action, ActorKind, Code, Evidence, State, Usage,
    action::{ClaimFilter, CloseOut, Fail, Failure, WaitSpec},
    model::{AcceptStrength, AttemptOutcome, ErrorClass, OnTimeout, Output, Source, WaitKind, Workflow},
};

use super::{Bed, any, job, payload, refused, success};
use crate::{NewWait, NewWork};

/// From ingest to close-out, and everything reported can be read back.
pub async fn whole_life(bed: &mut Bed) {
    let work = bed.ingest(job("whole")).await;
    assert_eq!((work.state, work.seq, work.attempt), (State::Queued, 1, 0));

    bed.pass(1_000).await;
    let held = bed.take(work.id, "w").await;
    assert_eq!(held.work.state, State::Running);
    assert_eq!(held.input, Some(payload(json!({ "ask": "whole" }))));
    assert_eq!(held.expires_at, bed.now() + 6_000);
    assert_eq!(held.renew_every.as_millis(), 2_000);

    let w = bed.worker("w");
    w.accept(&held.lease, AcceptStrength::Weak).await.expect("accepted");
    w.accept(&held.lease, AcceptStrength::Strong).await.expect("accepted for good");
    w.progress(&held.lease, &json!({ "percent": 40 }), None).await.expect("progress");
    w.begin_step(&held.lease, "read", &json!(1), false).await.expect("a step");
    w.complete_step(&held.lease, "read", &json!(1), &json!("text")).await.expect("its result");
    bed.pass(2_000).await;
    w.renew(&[(held.lease.clone(), Some(json!({ "percent": 80 })))]).await.expect("renewed");
    let ack = w.close_out(&held.lease, success()).await.expect("closed out");
    assert_eq!((ack.state, ack.seq), (State::Succeeded, 8));

    let story = bed.story(work.id).await;
    assert_eq!(
        story,
        [
            "work_created",
            "claimed",
            "accepted",
            "accepted",
            "progressed",
            "step_begun",
            "step_completed",
            "close_out"
        ]
    );
    let events = bed.events(work.id).await;
    assert_eq!(events[0].event.actor.kind, ActorKind::Machine);
    assert_eq!(&*events[7].event.actor.id, "w");
    assert_eq!(events[7].event.at - events[0].event.at, 3_000);
    assert!(events.windows(2).all(|two| two[0].event.hash == two[1].event.prev_hash));
    assert!(events[1..].iter().all(|stored| stored.event.fence == Some(held.lease.fence)));

    let ended = bed.work(work.id).await;
    assert_eq!(ended.body.output, Some(Output::Inline { hash: payload(json!("done")).hash(), seq: 8 }));
    assert_eq!(ended.body.completed_at, Some(bed.now()));
    assert_eq!(ended.progress, Some(payload(json!({ "percent": 80 }))));
    assert_eq!((ended.lease, ended.due_at), (None, None));
    assert_eq!(bed.ledger.payload(work.id, 1).await.unwrap(), Some(payload(json!({ "ask": "whole" }))));
    assert_eq!(bed.ledger.payload(work.id, 7).await.unwrap(), Some(payload(json!("text"))));
    assert_eq!(bed.ledger.payload(work.id, 8).await.unwrap(), Some(payload(json!("done"))));
    assert_eq!(bed.ledger.payload(work.id, 2).await.unwrap(), None);

    let attempts = bed.ledger.attempts(work.id).await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].number, attempts[0].fence), (1, held.lease.fence));
    assert_eq!(attempts[0].end.as_ref().map(|end| end.outcome), Some(AttemptOutcome::ClosedOut));
    let steps = bed.ledger.steps(work.id).await.unwrap();
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].result, Some((work.id, 7)));
}

/// The same input gets the stored result; a different one is refused, and a restart voids the later steps.
pub async fn steps_are_reused_and_restarted(bed: &mut Bed) {
    let held = bed.held(job("steps"), "w").await;
    let w = bed.worker("w");
    for step in ["one", "two"] {
        let (begun, result) = w.begin_step(&held.lease, step, &json!(1), false).await.unwrap();
        assert_eq!((begun.completed_at, result), (None, None));
        w.complete_step(&held.lease, step, &json!(1), &json!(step)).await.unwrap();
    }
    let (again, result) = w.begin_step(&held.lease, "one", &json!(1), false).await.unwrap();
    assert!(again.completed_at.is_some());
    assert_eq!(result, Some(payload(json!("one"))));
    let before = bed.work(held.work.id).await;
    assert_eq!(before.seq, 6, "a reused step writes nothing");
    let twice = w.complete_step(&held.lease, "one", &json!(1), &json!("one")).await.unwrap();
    assert_eq!(twice.result, Some((held.work.id, 4)), "the same again is the same");
    let other = w.complete_step(&held.lease, "one", &json!(1), &json!("other")).await;
    assert_eq!(refused(other), Code::IdempotencyMismatch, "another result is not taken");

    assert_eq!(refused(w.begin_step(&held.lease, "one", &json!(2), false).await), Code::StepMismatch);
    let unknown = w.complete_step(&held.lease, "three", &json!(1), &json!(1)).await;
    assert_eq!(refused(unknown), Code::NotFound);

    w.begin_step(&held.lease, "one", &json!(2), true).await.unwrap();
    let steps = bed.ledger.steps(held.work.id).await.unwrap();
    let voided: Vec<(&str, bool)> = steps.iter().map(|step| (step.name.as_str(), step.voided)).collect();
    assert_eq!(voided, [("one", true), ("two", true), ("one", false)]);
    assert_eq!(bed.work(held.work.id).await.body.step.as_deref(), Some("one"));
    w.complete_step(&held.lease, "one", &json!(2), &json!("anew")).await.unwrap();

    w.release(&held.lease, None).await.unwrap();
    let next = bed.take(held.work.id, "v").await;
    let known: Vec<_> =
        next.steps.iter().map(|(step, result)| (step.name.as_str(), result.clone())).collect();
    assert_eq!(known, [("one", Some(payload(json!("anew"))))], "only what still counts is handed on");
}

pub async fn progress_is_idempotent(bed: &mut Bed) {
    let held = bed.held(job("progress"), "w").await;
    let w = bed.worker("w");
    let first = w.progress(&held.lease, &json!(1), Some("p1")).await.unwrap();
    let again = w.progress(&held.lease, &json!(1), Some("p1")).await.unwrap();
    assert_eq!(first, again);
    let next = w.progress(&held.lease, &json!(2), Some("p2")).await.unwrap();
    assert_eq!(next.seq, first.seq + 1);
    let late = w.progress(&held.lease, &json!(1), Some("p1")).await.unwrap();
    assert_eq!(late.seq, next.seq, "a late copy writes nothing");
    assert_eq!(bed.work(held.work.id).await.progress, Some(payload(json!(2))), "and takes nothing back");
    let other = w.progress(&held.lease, &json!(3), Some("p1")).await;
    assert_eq!(refused(other), Code::IdempotencyMismatch);
    assert_eq!(
        refused(w.progress(&held.lease, &json!("x".repeat(20_000)), None).await),
        Code::PayloadRefused
    );
}

/// A release does not count as a failure, and the next claim gets a new fence.
pub async fn release_hands_it_back(bed: &mut Bed) {
    let held = bed.held(job("release"), "w").await;
    let ack = bed.worker("w").release(&held.lease, Some("shutting down")).await.unwrap();
    assert_eq!(ack.state, State::Queued);
    let again = bed.worker("w").release(&held.lease, Some("shutting down")).await.unwrap();
    assert_eq!(ack, again, "the same release again gets its first reply");
    let next = bed.take(held.work.id, "v").await;
    assert_eq!((next.work.attempt, next.work.body.failures), (2, 0));
    assert!(next.lease.fence > held.lease.fence);
    assert_eq!(refused(bed.worker("w").close_out(&held.lease, success()).await), Code::LeaseLost);
}

/// A success needs its proof, and warnings must not be silent.
pub async fn warnings_need_words(bed: &mut Bed) {
    let held = bed.held(job("warnings"), "w").await;
    let w = bed.worker("w");
    let bare = w.close_out(&held.lease, CloseOut::new(State::Succeeded)).await;
    assert_eq!(refused(bare), Code::ResultMissing);
    let mute = CloseOut { no_output: true, ..CloseOut::new(State::CompletedWithWarnings) };
    assert_eq!(refused(w.close_out(&held.lease, mute.clone()).await), Code::Invalid);
    assert_eq!(refused(w.close_out(&held.lease, CloseOut::new(State::Running)).await), Code::Invalid);
    let said = CloseOut { warnings: vec!["two rows were skipped".to_owned()], ..mute };
    let ack = w.close_out(&held.lease, said).await.unwrap();
    assert_eq!(ack.state, State::CompletedWithWarnings);
    let ended = bed.work(held.work.id).await;
    assert_eq!(ended.body.warnings, ["two rows were skipped"]);
    assert_eq!(ended.body.output, Some(Output::NoOutput));
}

/// Text is returned exactly as it was sent: in every field with free text, and as evidence.
pub async fn words_survive(bed: &mut Bed) {
    let odd = "Ünïcödé 漢字 🦀 'single' \"double\" \\back %d ${x} ?1 $1 -- ; /* */ \u{202e}rtl";
    let long = "é".repeat(500);
    let evidence = vec![Evidence { kind: "trace".into(), reference: odd.into() }];
    let new = NewWork {
        source: Source { system: "manual".into(), id: odd.into(), run_id: long.clone() },
        kind: odd.into(),
        tenant: odd.into(),
        session: Some(odd.into()),
        correlation_id: Some(long.clone()),
        workflow: Some(Workflow { id: odd.into(), version: odd.into() }),
        evidence: evidence.clone(),
        priority: i16::MIN,
        ..job("x")
    };
    let held = bed.held(new.clone(), "w").await;
    let spec = bed.work(held.work.id).await.spec;
    assert_eq!((&spec.source, &spec.kind, &spec.tenant), (&new.source, &new.kind, &new.tenant));
    assert_eq!((&spec.session, &spec.workflow), (&new.session, &new.workflow));
    assert_eq!((&spec.correlation_id, spec.priority), (&long, i16::MIN));
    let w = bed.worker("w");
    let wait =
        NewWait { prompt: Some(format!("{odd}\nand a second line")), ..NewWait::new(WaitKind::User, odd) };
    w.wait(&held.lease, vec![wait], Some(odd)).await.unwrap();
    assert!(bed.waits(held.work.id).await[0].detail.prompt.as_ref().unwrap().ends_with("second line"));
    bed.machine().resolve(odd, odd, &json!(odd), None).await.unwrap();
    let filter = ClaimFilter { kinds: vec![odd.into()], tenants: vec![odd.into()], ..any(1) };
    let held = bed.claim("w", filter).await.remove(0);
    assert_eq!(held.answers[0].1, Some(payload(json!(odd))));
    let close = CloseOut { evidence: evidence.clone(), ..CloseOut::failed(ErrorClass::Unknown, odd) };
    w.close_out(&held.lease, close).await.unwrap();
    let events = bed.events(held.work.id).await;
    assert_eq!(events[0].event.evidence, evidence);
    let last = &events.last().unwrap().event;
    assert_eq!((last.message.as_deref(), &last.evidence), (Some(odd), &evidence));
    assert_eq!(bed.work(held.work.id).await.body.error.as_ref().unwrap().message.as_deref(), Some(odd));
}

/// An `auth` failure may wait for a reconnect: no failure, no lease, and then it continues.
pub async fn an_auth_failure_may_wait(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let wait = Some(WaitSpec {
        id: tenure_core::WaitId(uuid::Uuid::now_v7()),
        kind: WaitKind::Auth,
        reference: "mailbox".into(),
        prompt: None,
        assignee: None,
        timeout_ms: None,
        endless: false,
        on_timeout: OnTimeout::Fail,
        default: None,
        schema: None,
        command: None,
        judged: None,
    });
    let error = Failure::new(ErrorClass::Auth, "the token was revoked");
    let fail = Fail { holder: bed.ledger.holder(&held.lease), error, wait, usage: Vec::new() };
    bed.worker("w").submit(Action::Fail(fail)).await.unwrap();
    let row = bed.work(held.work.id).await;
    assert_eq!((row.state, row.body.failures), (State::WaitingAuth, 0));
    bed.person().resolve(super::TENANT, "mailbox", &json!("reconnected"), None).await.unwrap();
    bed.expect(held.work.id, State::Queued).await;
}

/// Every verb that ends an attempt may report usage; the work item has the sum.
pub async fn what_attempts_used_is_summed(bed: &mut Bed) {
    let used = |model: &str, input_tokens: u64| Usage {
        source: Some("provider".to_owned()),
        model: Some(model.to_owned()),
        input_tokens,
        ..Usage::default()
    };
    let id = bed.ingest(job("x")).await.id;
    let w = bed.worker("w");
    let held = bed.take(id, "w").await;
    let spender = w.clone().having_used(vec![used("large", 10)]);
    spender.release(&held.lease, None).await.unwrap();
    spender.release(&held.lease, None).await.expect("the same again counts once");
    let held = bed.take(id, "w").await;
    let spender = w.clone().having_used(vec![used("small", 7), used("large", 1)]);
    spender.wait(&held.lease, vec![NewWait::new(WaitKind::User, "q")], None).await.unwrap();
    bed.person().resolve(super::TENANT, "q", &json!("yes"), None).await.unwrap();
    // A wait that has its answer ends nothing: usage is reported at the end.
    let held = bed.take(id, "w").await;
    bed.person().resolve(super::TENANT, "early", &json!("yes"), None).await.unwrap();
    spender.wait(&held.lease, vec![NewWait::new(WaitKind::User, "early")], None).await.unwrap();
    bed.expect(id, State::Running).await;
    let failure = Failure::new(ErrorClass::Validation, "no");
    w.having_used(vec![used("large", 100)]).fail(&held.lease, failure).await.unwrap();

    let row = bed.work(id).await;
    assert_eq!(row.body.usage, [used("large", 111), used("small", 7)]);
    let attempts = bed.ledger.attempts(id).await.unwrap();
    let ends: Vec<_> = attempts.into_iter().map(|attempt| attempt.end.unwrap().usage).collect();
    assert_eq!(
        ends,
        [vec![used("large", 10)], vec![used("small", 7), used("large", 1)], vec![used("large", 100)]]
    );
}

/// The time changes with events that change the state, and not with others.
pub async fn it_says_since_when_it_stands_where_it_stands(bed: &mut Bed) {
    let work = bed.ingest(job("one")).await;
    let since = async |bed: &Bed| bed.work(work.id).await.body.state_since;
    assert_eq!(since(bed).await, Some(bed.now()));
    bed.clock.advance(1_000);
    let held = bed.take(work.id, "w").await;
    let claimed = bed.now();
    assert_eq!(since(bed).await, Some(claimed));
    bed.clock.advance(1_000);
    bed.worker("w").progress(&held.lease, &json!("half"), None).await.unwrap();
    bed.worker("w").renew(&[(held.lease.clone(), None)]).await.unwrap();
    assert_eq!(since(bed).await, Some(claimed), "progress is no move");
    bed.clock.advance(1_000);
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
    assert_eq!(since(bed).await, Some(bed.now()));
}
