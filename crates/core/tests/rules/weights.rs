//! Sizes: the payloads that one work item stores for its holder are limited, and so are those that one claim
//! returns.

use serde_json::json;
use tenure_core::{
    Action, Code, Payload, Reply, Step, WorkId,
    action::{ClaimBy, StepAction, StepVerb},
    limits::{PAGE_BYTES, WORK_BYTES},
    model::{OnTimeout, WaitKind},
    payload::Digest,
};

use crate::common::*;

/// Almost the largest payload.
const LARGE: usize = 1_000_000;

fn large() -> Payload {
    Payload::new(&json!("x".repeat(LARGE))).unwrap()
}

fn complete(w: &mut World, lease: &Lease, name: &str, result: Payload) -> Result<Step, Code> {
    w.begin(lease, name, "x", false).unwrap();
    let verb = StepVerb::Complete { result };
    let input_hash = Digest::of("x");
    let action = StepAction { holder: lease.holder(), step: name.to_owned(), input_hash, verb };
    match w.by(lease, Action::Step(action)) {
        Ok(Reply::Step { step, .. }) => Ok(step),
        Ok(other) => panic!("{other:?}"),
        Err(refusal) => Err(refusal.code),
    }
}

/// Completes steps until no more fit, and returns how many did.
fn fill(w: &mut World, lease: &Lease) -> usize {
    (0..100).take_while(|n| complete(w, lease, &n.to_string(), large()).is_ok()).count()
}

#[test]
fn a_thousand_large_step_results_do_not_come_with_one_claim() {
    let mut w = World::default();
    let lease = w.held("a");
    let kept = fill(&mut w, &lease);
    assert_eq!(kept, WORK_BYTES / LARGE, "the next is refused");
    let events = w.events();
    assert_eq!(complete(&mut w, &lease, "100", large()), Err(Code::LimitReached));
    assert_eq!(w.events(), events + 1, "only its beginning was recorded");
    assert!(complete(&mut w, &lease, "100", payload("by reference")).is_ok());
    assert!(w.row(lease.work).weight() <= WORK_BYTES);
    w.close(&lease, tenure_core::State::Succeeded).unwrap();
    // A rerun takes over as much data; one from the start begins empty.
    let rerun = w.rerun(lease.work, Some("2")).unwrap();
    assert_eq!(rerun.body.payload_bytes, w.row(lease.work).body.payload_bytes);
}

#[test]
fn answers_count_towards_the_size_of_the_work() {
    let mut w = World::default();
    let lease = w.held("a");
    fill(&mut w, &lease);
    let mut heavy = w.spec("heavy", WaitKind::User);
    (heavy.on_timeout, heavy.default) = (OnTimeout::Default, Some(large()));
    assert_eq!(w.wait_for(&lease, vec![heavy]).unwrap_err().code, Code::LimitReached);
    w.wait(&lease, "q");
    let answer = |w: &mut World, answer: &str| w.resolve("q", answer);
    assert_eq!(answer(&mut w, &"x".repeat(LARGE)).unwrap_err().code, Code::LimitReached);
    answer(&mut w, "stored elsewhere").unwrap();
}

#[test]
fn an_early_answer_counts_when_it_is_matched() {
    let mut w = World::default();
    let lease = w.held("a");
    fill(&mut w, &lease);
    w.resolve("q", &"x".repeat(LARGE)).unwrap();
    let spec = w.spec("q", WaitKind::User);
    assert_eq!(w.wait_for(&lease, vec![spec]).unwrap_err().code, Code::LimitReached);
}

/// Work items with this many large step results, free to be claimed.
fn heavy(w: &mut World, count: usize) -> Vec<WorkId> {
    let each = |n: usize| {
        let lease = w.held(&format!("heavy {n}"));
        fill(w, &lease);
        w.release(&lease).unwrap();
        lease.work
    };
    (0..count).map(each).collect()
}

#[test]
fn a_claim_is_cut_at_the_size_of_its_step_results() {
    let mut w = World::default();
    let works = heavy(&mut w, 6);
    let all = w.claim_as(&claimant(&w1(), "all"), ClaimBy::Ids(works.clone()));
    assert_eq!(all.unwrap_err().code, Code::Invalid);
    let some = w.claim_as(&claimant(&w1(), "some"), ClaimBy::Chosen(works)).unwrap();
    assert_eq!(some.len(), PAGE_BYTES.div_ceil(WORK_BYTES / LARGE * LARGE));
    let again = w.claim_as(&claimant(&w1(), "some"), ClaimBy::Chosen(Vec::new())).unwrap();
    assert_eq!(again.len(), some.len(), "its repeat gives the same");
}

#[test]
fn the_repeat_of_a_claim_is_limited_in_size() {
    let mut w = World::default();
    let works: Vec<WorkId> = (0..6).map(|n| w.ingest(&n.to_string())).collect();
    let first = w.claim_as(&claimant(&w1(), "r"), ClaimBy::Chosen(works)).unwrap();
    assert_eq!(first.len(), 6);
    for grant in &first {
        fill(&mut w, &lease(grant));
    }
    let again = w.claim_as(&claimant(&w1(), "r"), ClaimBy::Chosen(Vec::new())).unwrap();
    let weight: usize = again.iter().map(|grant| grant.work.weight()).sum();
    assert!(!again.is_empty() && weight <= PAGE_BYTES + WORK_BYTES, "{weight}");
}
