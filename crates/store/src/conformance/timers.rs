//! Time as declared: backoff, execution, start and overall deadlines.

use tenure_core::{
    Code, Fact, State,
    action::Failure,
    event::Deadline,
    model::ErrorClass,
    policy::{PolicyOverrides, RetryPolicy, Timeouts},
};

use super::{Bed, job, refused, success};
use crate::NewWork;

fn timed(id: &str, timeouts: Timeouts) -> NewWork {
    NewWork { policy: PolicyOverrides { timeouts: Some(timeouts), ..job(id).policy }, ..job(id) }
}

fn only() -> Timeouts {
    Timeouts::default()
}

async fn fail(bed: &Bed, work: tenure_core::WorkId, failure: Failure) -> tenure_core::Ack {
    let held = bed.take(work, "w").await;
    bed.worker("w").fail(&held.lease, failure).await.unwrap()
}

/// Each delay doubles; the last failure is the end.
pub async fn retries_back_off_and_exhaust(bed: &mut Bed) {
    let retry = RetryPolicy { max_attempts: 4, ..job("x").policy.retry.unwrap() };
    let policy = PolicyOverrides { retry: Some(retry), ..job("x").policy };
    let work = bed.ingest(NewWork { policy, ..job("one") }).await;
    for (failure, delay) in [1_000, 2_000, 4_000].into_iter().enumerate() {
        let message = format!("failure {failure}");
        let ack = fail(bed, work.id, Failure::new(ErrorClass::Unavailable, &message)).await;
        assert_eq!((ack.state, ack.next_retry_at), (State::RetryScheduled, Some(bed.now() + delay)));
        bed.pass(delay - 1_000).await;
        bed.expect(work.id, State::RetryScheduled).await;
        bed.pass(1_000).await;
        bed.expect(work.id, State::Queued).await;
        assert_eq!(bed.work(work.id).await.next_retry_at, None);
    }
    let ack = fail(bed, work.id, Failure::new(ErrorClass::Unavailable, "the last")).await;
    assert_eq!((ack.state, ack.next_retry_at), (State::Failed, None));
    assert_eq!(bed.work(work.id).await.body.error.as_ref().unwrap().message.as_deref(), Some("the last"));
}

pub async fn classes_decide_about_retries(bed: &mut Bed) {
    for (class, state) in [
        (ErrorClass::RateLimited, State::RetryScheduled),
        (ErrorClass::Unknown, State::RetryScheduled),
        (ErrorClass::Validation, State::Failed),
        (ErrorClass::Auth, State::Failed),
        (ErrorClass::Quota, State::Failed),
        (ErrorClass::PolicyDenied, State::Failed),
    ] {
        let work = bed.ingest(job(&format!("{class:?}"))).await;
        assert_eq!(fail(bed, work.id, Failure::new(class, "why")).await.state, state);
    }
    let work = bed.ingest(job("patient")).await;
    let failure =
        Failure { retry_after_ms: Some(90_000), ..Failure::new(ErrorClass::RateLimited, "slow down") };
    let ack = fail(bed, work.id, failure).await;
    assert_eq!(ack.next_retry_at, Some(bed.now() + 90_000), "the provider knows better");
    bed.skip(89_000).await;
    bed.expect(work.id, State::RetryScheduled).await;
    bed.skip(1_000).await;
    bed.expect(work.id, State::Queued).await;
}

pub async fn retry_now_cuts_the_backoff_short(bed: &mut Bed) {
    let work = bed.ingest(job("one")).await;
    assert_eq!(refused(bed.person().retry_now(work.id, "go").await), Code::IllegalState);
    fail(bed, work.id, Failure::new(ErrorClass::Transport, "reset")).await;
    assert_eq!(refused(bed.person().retry_now(work.id, " ").await), Code::ReasonMissing);
    let ack = bed.person().retry_now(work.id, "the network is back").await.unwrap();
    assert_eq!(ack.state, State::Queued);
    let held = bed.take(work.id, "w").await;
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
}

/// It was not started in time: not retried.
pub async fn a_start_deadline(bed: &mut Bed) {
    let start = Timeouts { start_ms: Some(30_000), ..only() };
    let late = bed.ingest(timed("late", start)).await;
    let begun = bed.held(timed("begun", start), "w").await;
    bed.worker("w").release(&begun.lease, None).await.unwrap();
    assert_eq!(late.due_at, Some(bed.now() + 30_000));
    bed.skip(29_999).await;
    bed.expect(late.id, State::Queued).await;
    bed.skip(1).await;
    bed.expect(late.id, State::TimedOut).await;
    bed.expect(begun.work.id, State::Queued).await;
}

/// Per attempt, even if it renews; then the retry policy applies.
pub async fn an_execution_deadline(bed: &mut Bed) {
    let work = bed.ingest(timed("one", Timeouts { execution_ms: Some(5_000), ..only() })).await;
    for attempt in 1..=3 {
        let held = bed.take(work.id, "w").await;
        for _ in 0..4 {
            bed.pass(1_000).await;
            bed.worker("w").renew(&[(held.lease.clone(), None)]).await.unwrap()[0].outcome.clone().unwrap();
        }
        bed.expect(work.id, State::Running).await;
        bed.pass(1_000).await;
        let expected = if attempt < 3 { State::RetryScheduled } else { State::TimedOut };
        bed.expect(work.id, expected).await;
        assert_eq!(refused(bed.worker("w").close_out(&held.lease, success()).await), Code::LeaseLost);
        bed.pass(4_000).await;
    }
    let last = bed.events(work.id).await.pop().unwrap().event;
    assert!(matches!(&last.fact, Fact::TimeoutMarked(marked) if marked.deadline == Deadline::Execution));
}

/// The overall deadline ends a work item in any state.
pub async fn an_overall_deadline(bed: &mut Bed) {
    let overall = Timeouts { overall_ms: Some(20_000), ..only() };
    let queued = bed.ingest(timed("queued", overall)).await.id;
    let running = bed.held(timed("running", overall), "w").await;
    let retrying = bed.ingest(timed("retrying", overall)).await.id;
    let failure = Failure { retry_after_ms: Some(90_000), ..Failure::new(ErrorClass::Timeout, "slow") };
    fail(bed, retrying, failure).await;
    let waiting = bed.held(timed("waiting", overall), "w").await;
    let wait = crate::NewWait::new(tenure_core::model::WaitKind::User, "q");
    bed.worker("w").wait(&waiting.lease, vec![wait], None).await.unwrap();
    let outside = NewWork { policy: timed("x", overall).policy, ..super::external("outside") };
    let outside = bed.ingest(outside).await.id;
    for _ in 0..9 {
        bed.pass(2_000).await;
        bed.worker("w").renew(&[(running.lease.clone(), None)]).await.unwrap()[0].outcome.clone().unwrap();
    }
    for id in [queued, retrying, waiting.work.id, outside, running.work.id] {
        assert!(!bed.state(id).await.is_terminal());
    }
    bed.pass(2_000).await;
    for id in [queued, retrying, waiting.work.id, outside, running.work.id] {
        bed.expect(id, State::TimedOut).await;
    }
    let waits = bed.waits(waiting.work.id).await;
    assert_eq!(waits[0].state, tenure_core::model::WaitState::Cancelled);
    assert_eq!(bed.ledger.next_due().await.unwrap(), None, "nothing is armed any more");
}

/// Deadlines and delays follow the time that passed, independent of the clock.
pub async fn a_clock_jump_ends_nothing_early_and_delays_nothing(bed: &mut Bed) {
    const HOUR: i64 = 3_600_000;
    let limits = Timeouts { execution_ms: Some(60_000), overall_ms: Some(90_000), ..only() };
    let held = bed.held(timed("held", limits), "w").await;
    let month = 720 * HOUR;
    let hours = [2, -2, -2, 2, 10, 10, 10, -30].map(|hours| hours * HOUR);
    let jumps = hours.into_iter().chain([month, -month, 9_000, -9_000]);
    for (number, jump) in jumps.enumerate() {
        bed.pass(1_000).await;
        let before = bed.ledger.now().await.unwrap();
        bed.clock.jump(jump);
        assert_eq!(bed.ledger.now().await.unwrap(), before, "the ledger's time goes on");
        let failed = bed.ingest(job(&number.to_string())).await.id;
        let failure = Failure { retry_after_ms: Some(1_500), ..Failure::new(ErrorClass::Transport, "x") };
        fail(bed, failed, failure).await;
        for _ in 0..3 {
            bed.pass(1_000).await;
            let renewal = bed.worker("w").renew(&[(held.lease.clone(), None)]).await.unwrap().remove(0);
            renewal.outcome.expect("its holder goes on");
        }
        bed.expect(failed, State::Queued).await;
    }
    assert_eq!(bed.ledger.stats().clock_jumps, 12);
    for _ in 0..20 {
        bed.pass(1_000).await;
        bed.worker("w").renew(&[(held.lease.clone(), None)]).await.unwrap();
    }
    assert!(bed.story(held.work.id).await.contains(&"timeout_marked"), "its minute is over");
}
