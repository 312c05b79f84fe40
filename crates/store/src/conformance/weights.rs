//! Byte limits: no work item, claim or page carries more than its limit.

use serde_json::{Value, json};
use tenure_core::{
    Code, State, WorkId,
    action::CloseOut,
    limits::{self, PAGE_BYTES, WORK_BYTES},
    model::{OnTimeout, WaitKind},
};

use super::{Bed, any, claimant, job, payload, refused, success};
use crate::{Claimed, NewWait, NewWork, WaitFilter, WorkFilter};

/// Nearly the largest payload.
const LARGE: usize = 1_000_000;

fn large() -> Value {
    json!("x".repeat(LARGE))
}

/// Completes as many large steps as a work item can store.
async fn fill(bed: &Bed, held: &Claimed) {
    let worker = bed.worker("w");
    for n in 0..WORK_BYTES / LARGE {
        worker.begin_step(&held.lease, &n.to_string(), &json!(1), false).await.unwrap();
        worker.complete_step(&held.lease, &n.to_string(), &json!(1), &large()).await.unwrap();
    }
}

/// A step that exceeds the limit is refused when it is sent, and stored ones are returned whole, repeatedly.
pub async fn a_work_keeps_so_many_bytes_and_gives_them_all(bed: &mut Bed) {
    let held = bed.held(NewWork { input: large(), ..job("one") }, "w").await;
    fill(bed, &held).await;
    let worker = bed.worker("w");
    worker.begin_step(&held.lease, "more", &json!(1), false).await.unwrap();
    let more = worker.complete_step(&held.lease, "more", &json!(1), &large()).await;
    assert_eq!(refused(more), Code::LimitReached);
    worker.complete_step(&held.lease, "more", &json!(1), &json!("elsewhere")).await.unwrap();
    let (_, result) = worker.begin_step(&held.lease, "0", &json!(1), false).await.unwrap();
    assert_eq!(result, Some(payload(large())), "a completed one is reused with its result");
    worker.release(&held.lease, None).await.unwrap();
    let again = bed.take(held.work.id, "w").await;
    assert_eq!(again.input, Some(payload(large())));
    assert_eq!(again.steps.len(), WORK_BYTES / LARGE + 1);
    assert!(again.steps.iter().all(|(step, result)| step.result.is_some() == result.is_some()));
}

/// A filter finds all of them, and returns as many as fit the byte limit.
pub async fn heavy_works_come_a_few_at_a_time(bed: &mut Bed) {
    let mut works = Vec::new();
    for n in 0..4 {
        let held = bed.held(job(&n.to_string()), "w").await;
        fill(bed, &held).await;
        bed.worker("w").release(&held.lease, None).await.unwrap();
        works.push(held.work.id);
    }
    let filter = any(10);
    let some = bed.worker("w").claim(claimant("w", "some"), filter.clone(), None).await.unwrap();
    let ids = |claimed: &[Claimed]| -> Vec<WorkId> { claimed.iter().map(|one| one.work.id).collect() };
    assert_eq!(ids(&some), works[..3], "the third brings them to a page");
    let again = bed.worker("w").claim(claimant("w", "some"), filter.clone(), None).await.unwrap();
    assert_eq!(ids(&again), ids(&some));
    assert!(again.iter().flat_map(|one| &one.steps).all(|(_, result)| result.is_some()));
    let rest = bed.worker("w").claim(claimant("w", "rest"), filter, None).await.unwrap();
    assert_eq!(ids(&rest), works[3..]);
}

/// Pages of waits end at a byte limit of schemas and defaults; `next` leads through all of them.
pub async fn a_page_of_heavy_waits_ends_early(bed: &mut Bed) {
    const WORKS: usize = 10;
    for n in 0..WORKS {
        let held = bed.held(job(&n.to_string()), "w").await;
        let wait = NewWait {
            on_timeout: OnTimeout::Default,
            default: Some(large()),
            ..NewWait::new(WaitKind::User, "q")
        };
        bed.worker("w").wait(&held.lease, vec![wait], None).await.unwrap();
    }
    let (mut filter, mut seen) = (WaitFilter::default(), 0);
    loop {
        let page = bed.ledger.waits(&filter, 1_000).await.unwrap();
        let bytes: usize = page.iter().map(|wait| wait.detail.bytes()).sum();
        assert!(bytes <= PAGE_BYTES + 2 * LARGE, "{bytes}");
        seen += page.len();
        filter.after = page.next().copied();
        if filter.after.is_none() {
            assert!(bytes < PAGE_BYTES);
            break;
        }
    }
    assert_eq!(seen, WORKS);
    // Even if a page ends early, an answer is checked against the schemas of all its waits.
    let picky = NewWait { schema: Some(json!({ "type": "object" })), ..NewWait::new(WaitKind::User, "q") };
    let held = bed.held(job("picky"), "w").await;
    bed.worker("w").wait(&held.lease, vec![picky], None).await.unwrap();
    let answered = bed.machine().resolve(super::TENANT, "q", &json!("no object"), None).await;
    assert_eq!(refused(answered), Code::AnswerMismatch);
}

/// The same for work items, by the size of their rows.
pub async fn a_page_of_heavy_works_ends_early(bed: &mut Bed) {
    const WARNINGS: usize = limits::WARNINGS * limits::TEXT_CHARS;
    const WORKS: usize = PAGE_BYTES / WARNINGS + 3;
    for n in 0..WORKS {
        let held = bed.held(job(&n.to_string()), "w").await;
        let close = CloseOut {
            state: State::CompletedWithWarnings,
            warnings: vec!["x".repeat(limits::TEXT_CHARS); limits::WARNINGS],
            ..success()
        };
        bed.worker("w").close_out(&held.lease, close).await.unwrap();
    }
    let (mut before, mut pages, mut seen) = (None, 0, Vec::new());
    loop {
        let page = bed.ledger.list(&WorkFilter::default(), before, 1_000).await.unwrap();
        pages += 1;
        seen.extend(page.iter().map(|work| work.id));
        before = page.next().copied();
        if before.is_none() {
            break;
        }
    }
    assert_eq!((pages, seen.len()), (2, WORKS));
    assert!(seen.is_sorted_by(|a, b| a > b), "newest first, each once");
}
