//! Steps: checkpoints that are reused, refused or restarted.

use tenure_core::{Code, Reply, State, model::Step, reply::Ticked};

use crate::common::*;

fn step(reply: Reply) -> (Step, bool) {
    match reply {
        Reply::Step { step, reused } => (step, reused),
        other => panic!("{other:?}"),
    }
}

fn live(w: &World, lease: &Lease) -> Vec<String> {
    let steps = &w.records.steps[&lease.work];
    steps.iter().filter(|step| !step.voided).map(|step| step.name.clone()).collect()
}

#[test]
fn the_same_input_reuses_the_stored_result() {
    let mut w = World::default();
    let lease = w.held("a");
    let (begun, reused) = step(w.begin(&lease, "draft", "x", false).unwrap());
    assert!(!reused && begun.completed_at.is_none());
    let (done, _) = step(w.complete_step(&lease, "draft", "x").unwrap());
    assert_eq!(done.result, Some((lease.work, w.row(lease.work).seq)), "the result is that event's payload");
    let events = w.events();
    for reply in [w.begin(&lease, "draft", "x", false), w.complete_step(&lease, "draft", "x")] {
        assert_eq!(step(reply.unwrap()), (done.clone(), true));
    }
    assert_eq!(w.events(), events);
    assert_eq!(w.row(lease.work).body.step.as_deref(), Some("draft"));
}

#[test]
fn another_input_is_refused_unless_restarted() {
    let mut w = World::default();
    let lease = w.held("a");
    for name in ["one", "two", "three"] {
        w.begin(&lease, name, "x", false).unwrap();
        w.complete_step(&lease, name, "x").unwrap();
    }
    assert_eq!(w.begin(&lease, "two", "y", false).unwrap_err().code, Code::StepMismatch);
    assert_eq!(w.complete_step(&lease, "two", "y").unwrap_err().code, Code::StepMismatch);
    assert_eq!(live(&w, &lease), ["one", "two", "three"]);

    let (again, reused) = step(w.begin(&lease, "two", "y", true).unwrap());
    assert!(!reused && again.ordinal == 3);
    assert_eq!(live(&w, &lease), ["one", "two"], "a restart voids the step and every later one");
    let events = w.events();
    w.begin(&lease, "two", "y", true).unwrap();
    assert_eq!(w.events(), events, "a repeated restart voids nothing");
    w.complete_step(&lease, "two", "y").unwrap();
    w.begin(&lease, "two", "y", true).unwrap();
    assert_eq!(w.records.steps[&lease.work].len(), 5, "a completed one is voided again");
}

#[test]
fn a_step_is_begun_before_it_is_completed() {
    let mut w = World::default();
    let lease = w.held("a");
    assert_eq!(w.complete_step(&lease, "draft", "x").unwrap_err().code, Code::NotFound);
    assert_eq!(w.begin(&lease, "", "x", false).unwrap_err().code, Code::Invalid);
    assert_eq!(
        w.begin(&lease, "draft", "x", true).map(|r| step(r).1),
        Ok(false),
        "a first begin may restart"
    );
}

#[test]
fn the_next_holder_goes_on_from_the_last_checkpoint() {
    let mut w = World::default();
    let first = w.held("a");
    w.begin(&first, "draft", "x", false).unwrap();
    w.complete_step(&first, "draft", "x").unwrap();
    assert_eq!(w.after(LAPSE, first.work), Ticked::Acted);
    assert!(w.last(first.work).data.contains(r#""verdict":"resume""#), "{}", w.last(first.work).data);
    let second = w.claim(first.work, &w2());
    assert!(step(w.begin(&second, "draft", "x", false).unwrap()).1, "reused by the next attempt");
}

#[test]
fn steps_are_bounded() {
    let mut w = World::default();
    let lease = w.held("a");
    let row = w.records.steps.entry(lease.work).or_default();
    let hash = tenure_core::payload::Digest::of("x");
    *row = (0..1_000)
        .map(|ordinal| Step {
            work: lease.work,
            name: format!("s{ordinal}"),
            ordinal,
            input_hash: hash,
            begun_at: START,
            completed_at: None,
            result: None,
            voided: true,
        })
        .collect();
    let work = w.records.works.get_mut(&lease.work).unwrap();
    std::sync::Arc::make_mut(work).body.steps = 1_000;
    assert_eq!(w.begin(&lease, "one more", "x", false).unwrap_err().code, Code::LimitReached);
}

#[test]
fn a_rerun_takes_over_the_checkpoints_before_its_step() {
    let mut w = World::default();
    let lease = w.held("a");
    for name in ["one", "two", "three"] {
        w.begin(&lease, name, "x", false).unwrap();
        w.complete_step(&lease, name, "x").unwrap();
    }
    w.close(&lease, State::Failed).unwrap();
    assert_eq!(w.rerun(lease.work, Some("four")).unwrap_err().code, Code::NotFound);
    let again = w.rerun(lease.work, Some("three")).unwrap();
    let second = w.claim(again.id, &w2());
    let (taken, reused) = step(w.begin(&second, "two", "x", false).unwrap());
    assert!(reused);
    assert_eq!(taken.result.unwrap().0, lease.work, "the result stays in its event");
    assert!(!step(w.begin(&second, "three", "x", false).unwrap()).1);
}
