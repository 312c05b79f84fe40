//! Related work items: parents and children, work items that wait for others, reruns.

use tenure_core::{
    Code, Reply, State, WorkId,
    action::{Ingest, Target, TokenCheck},
    model::{OnParentClose, WaitState},
    records::reference_to,
    reply::Ticked,
};

use crate::common::*;

fn child_of(parent: WorkId, on_close: OnParentClose) -> impl FnOnce(&mut Ingest) {
    move |ingest| {
        ingest.parent = Some(parent);
        ingest.on_parent_close = on_close;
    }
}

#[test]
fn closing_a_parent_only_arms_its_children_and_their_ticks_act() {
    let mut w = World::default();
    let parent = w.held("p");
    let queued = w.ingest_with("a", child_of(parent.work, OnParentClose::Cancel));
    let running = w.held_with("b", child_of(parent.work, OnParentClose::Cancel));
    let waiting = w.held_with("c", child_of(parent.work, OnParentClose::Cancel));
    w.wait(&waiting, "ref");
    let left = w.ingest_with("d", child_of(parent.work, OnParentClose::Leave));
    let alone = w.ingest("e");

    assert_eq!(w.tick(queued), Ticked::Nothing, "its parent is open");
    w.close(&parent, State::Succeeded).unwrap();
    for id in [queued, running.work, waiting.work, left] {
        assert_eq!(w.row(id).due_at, Some(w.now));
        assert!(!w.state(id).is_terminal(), "closing changes no other work item's state");
    }
    assert_eq!(w.row(alone).due_at, None);
    for (id, state) in [
        (queued, State::Cancelled),
        (running.work, State::CancelRequested),
        (waiting.work, State::Cancelled),
        (left, State::Queued),
    ] {
        w.tick(id);
        assert_eq!(w.state(id), state);
    }
    assert_eq!(w.records.waits[&waiting.work][0].state, WaitState::Cancelled);
    assert!(w.renew(&running).unwrap().cancel_requested);
}

#[test]
fn a_woken_child_is_not_forgotten_by_what_it_does_first() {
    let mut w = World::default();
    let parent = w.held("p");
    let child = w.ingest_with("a", child_of(parent.work, OnParentClose::Cancel));
    w.close(&parent, State::Failed).unwrap();
    w.pass(SECOND);
    let lease = w.claim(child, &w1());
    w.renew(&lease).unwrap();
    assert!(w.row(child).due_at <= Some(w.now), "the claim keeps the date that its parent set");
    w.tick(child);
    assert_eq!(w.state(child), State::CancelRequested);
}

#[test]
fn a_child_needs_a_parent_of_its_tenant_that_is_open() {
    let mut w = World::default();
    let unknown = w.work_id();
    let refused = w.try_ingest("a", child_of(unknown, OnParentClose::Leave)).unwrap_err();
    assert_eq!(refused.code, Code::NotFound);
    let foreign = w.ingest_with("b", |i| i.tenant = "globex".into());
    let refused = w.try_ingest("a", child_of(foreign, OnParentClose::Leave)).unwrap_err();
    assert_eq!(refused.code, Code::NotFound);

    let parent = w.held("p");
    w.close(&parent, State::Succeeded).unwrap();
    let refused = w.try_ingest("a", child_of(parent.work, OnParentClose::Cancel)).unwrap_err();
    assert_eq!(refused.code, Code::ParentClosed);
    w.ingest_with("a", child_of(parent.work, OnParentClose::Leave));
}

#[test]
fn a_wait_for_a_work_is_answered_by_its_end() {
    let mut w = World::default();
    let (waiter, target) = (w.held("a"), w.held("b"));
    let reference = reference_to(target.work);
    let wait = w.wait(&waiter, &reference);
    assert_eq!(w.state(waiter.work), State::WaitingUser);
    assert_eq!(w.resolve(&reference, "x").unwrap_err().code, Code::ReferenceReserved);
    let by_id = Target::Wait { id: wait, token: TokenCheck::Genuine, seal: None };
    let refused = w.resolve_as(tenure_core::Actor::person("ana"), by_id, "x", None).unwrap_err();
    assert_eq!(refused.code, Code::ReferenceReserved, "only the record itself answers");

    w.close(&target, State::Failed).unwrap();
    assert_eq!(w.row(waiter.work).due_at, Some(w.now));
    assert_eq!(w.tick(waiter.work), Ticked::Acted);
    assert_eq!(w.state(waiter.work), State::Queued);
    let answer = w.last(waiter.work).payload.as_ref().unwrap().value();
    assert_eq!(answer["state"], "failed");
}

#[test]
fn a_wait_for_several_works_needs_several_ticks_and_misses_none() {
    let mut w = World::default();
    let (waiter, b, c) = (w.held("a"), w.held("b"), w.held("c"));
    let specs = [b.work, c.work].map(|id| w.spec(&reference_to(id), tenure_core::model::WaitKind::Tool));
    w.wait_for(&waiter, specs.into()).unwrap();
    w.close(&b, State::Succeeded).unwrap();
    w.close(&c, State::Succeeded).unwrap();
    assert_eq!(w.tick(waiter.work), Ticked::Acted);
    assert!(w.row(waiter.work).due_at <= Some(w.now), "the other one is found by the next tick");
    assert_eq!(w.tick(waiter.work), Ticked::Acted);
    assert_eq!(w.state(waiter.work), State::Queued);
}

#[test]
fn a_wait_for_a_work_that_has_ended_keeps_its_lease() {
    let mut w = World::default();
    let (waiter, target) = (w.held("a"), w.held("b"));
    w.close(&target, State::Succeeded).unwrap();
    let reply = w.wait_with(&waiter, &reference_to(target.work), |_| {}).unwrap();
    let Reply::Waiting { ack, answers } = reply else { panic!("{reply:?}") };
    assert_eq!((ack.state, answers.len()), (State::Running, 1));
}

#[test]
fn a_work_cannot_wait_for_itself_another_tenant_or_nothing() {
    let mut w = World::default();
    let lease = w.held("a");
    let foreign = w.ingest_with("b", |i| i.tenant = "globex".into());
    let unknown = w.work_id();
    for target in [lease.work, foreign, unknown] {
        let refused = w.wait_with(&lease, &reference_to(target), |_| {}).unwrap_err();
        assert_eq!(refused.code, Code::NotFound);
    }
    assert_eq!(w.state(lease.work), State::Running);
}

#[test]
fn a_rerun_is_a_new_work_and_the_old_one_never_changes() {
    let mut w = World::default();
    let lease = w.held("a");
    assert_eq!(w.rerun(lease.work, None).unwrap_err().code, Code::IllegalState);
    w.close(&lease, State::Failed).unwrap();
    let before = w.row(lease.work).clone();
    let again = w.rerun(lease.work, None).unwrap();
    assert_eq!((again.spec.generation, again.spec.rerun_of), (2, Some(lease.work)));
    assert_eq!((again.state, again.attempt), (State::Queued, 0));
    assert_eq!(w.log[&again.id][0].payload, Some(payload("hello")), "with the same input");
    assert_eq!(w.row(lease.work), &before);

    assert_eq!(w.rerun(lease.work, None).unwrap().id, again.id, "repeated, run once");
    let second = w.claim(again.id, &w2());
    w.close(&second, State::Failed).unwrap();
    let third = w.rerun(again.id, None).unwrap();
    assert_eq!(third.spec.generation, 3);
    assert_eq!(w.rerun(lease.work, None).unwrap_err().code, Code::IllegalState, "the newest is rerun");
    assert_eq!(w.ingest("a"), third.id, "16: the identity is the newest generation's");
}

#[test]
fn work_that_cannot_be_rerun() {
    let mut w = World::default();
    let outside = w.ingest_with("a", external);
    w.complete(outside, close(State::Succeeded)).unwrap();
    assert_eq!(w.rerun(outside, None).unwrap_err().code, Code::IllegalState);
    let lease = w.held("b");
    w.close(&lease, State::Succeeded).unwrap();
    w.records.inputs.insert(lease.work, None);
    assert_eq!(w.rerun(lease.work, None).unwrap_err().code, Code::NotFound, "its input was erased");
}

#[test]
fn a_rerun_outlives_a_parent_that_ended_before_it() {
    let mut w = World::default();
    let parent = w.held("p");
    let child = w.held_with("a", child_of(parent.work, OnParentClose::Cancel));
    w.close(&child, State::Failed).unwrap();
    let early = w.rerun(child.work, None).unwrap();
    assert_eq!(early.spec.on_parent_close, OnParentClose::Cancel, "its parent is open");
    let lease = w.claim(early.id, &w1());
    w.close(&lease, State::Failed).unwrap();
    w.close(&parent, State::Succeeded).unwrap();
    let late = w.rerun(early.id, None).unwrap();
    w.claim(late.id, &w1());
    w.tick(late.id);
    assert_eq!(w.state(late.id), State::Running);
}
