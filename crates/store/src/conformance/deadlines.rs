//! Waits without an answer: the declared behaviour at the deadline.

use serde_json::json;
use tenure_core::{
    Code, State,
    model::{OnTimeout, WaitKind, WaitState},
};
use tokio::task::JoinSet;

use super::{Bed, TENANT, job, payload, refused, success};
use crate::NewWait;

fn within(ms: u64, reference: &str, on_timeout: OnTimeout) -> NewWait {
    NewWait { timeout_ms: Some(ms), on_timeout, ..NewWait::new(WaitKind::User, reference) }
}

async fn waiting(bed: &Bed, id: &str, waits: Vec<NewWait>) -> tenure_core::WorkId {
    let held = bed.held(job(id), "w").await;
    bed.worker("w").wait(&held.lease, waits, None).await.unwrap();
    held.work.id
}

pub async fn each_policy_has_its_end(bed: &mut Bed) {
    for (on_timeout, state) in [
        (OnTimeout::TimeOut, State::TimedOut),
        (OnTimeout::Fail, State::Failed),
        (OnTimeout::Warn, State::CompletedWithWarnings),
        (OnTimeout::Cancel, State::Cancelled),
    ] {
        let name = format!("{on_timeout:?}");
        let other = NewWait::new(WaitKind::Tool, &format!("{name} other"));
        let id = waiting(bed, &name, vec![within(5_000, &name, on_timeout), other]).await;
        bed.skip(4_999).await;
        bed.expect(id, State::WaitingUser).await;
        bed.skip(1).await;
        bed.expect(id, state).await;
        let waits = bed.waits(id).await;
        assert_eq!((waits[0].state, waits[1].state), (WaitState::TimedOut, WaitState::Cancelled));
        let person = bed.person();
        let late = person.resolve_wait(waits[0].id, None, None, &json!(1), None).await;
        assert_eq!(refused(late), Code::IllegalState, "exactly one of answer and timeout wins");
    }
}

/// The default is the answer.
pub async fn a_default_answers(bed: &mut Bed) {
    let wait = NewWait { default: Some(json!("tea")), ..within(5_000, "drink", OnTimeout::Default) };
    let other = NewWait { default: Some(json!("no")), ..within(9_000, "cake", OnTimeout::Default) };
    let id = waiting(bed, "one", vec![wait, other]).await;
    bed.skip(5_000).await;
    bed.expect(id, State::WaitingUser).await;
    bed.skip(4_000).await;
    bed.expect(id, State::Queued).await;
    let next = bed.take(id, "v").await;
    let answers: Vec<_> = next.answers.iter().map(|(wait, answer)| (wait.state, answer.clone())).collect();
    let default = |value: &str| (WaitState::TimedOut, Some(payload(json!(value))));
    assert_eq!(answers, [default("tea"), default("no")]);
    bed.worker("v").close_out(&next.lease, success()).await.unwrap();
}

/// It keeps waiting with a new deadline each time, and an answer still counts.
pub async fn an_escalation_waits_on(bed: &mut Bed) {
    let wait = NewWait { assignee: Some("ada".into()), ..within(60_000, "approve", OnTimeout::Escalate) };
    let id = waiting(bed, "one", vec![wait]).await;
    for escalations in 1..=3 {
        bed.skip(60_000).await;
        bed.expect(id, State::WaitingUser).await;
        let row = bed.waits(id).await.remove(0);
        assert_eq!((row.state, row.detail.escalations), (WaitState::Open, escalations));
        assert_eq!(row.deadline_at, Some(bed.now() + 60_000));
        bed.sweep().await;
        assert_eq!(bed.work(id).await.due_at, row.deadline_at, "the next look arms it");
    }
    let story = bed.story(id).await;
    assert_eq!(story.iter().filter(|kind| **kind == "wait_escalated").count(), 3);
    bed.machine().resolve(TENANT, "approve", &json!(true), None).await.unwrap();
    bed.expect(id, State::Queued).await;
}

pub async fn an_endless_wait_has_no_deadline(bed: &mut Bed) {
    let wait = NewWait { endless: true, ..NewWait::new(WaitKind::External, "some day") };
    let id = waiting(bed, "one", vec![wait]).await;
    assert_eq!(bed.work(id).await.due_at, None);
    bed.skip(400 * 24 * 3_600_000).await;
    bed.expect(id, State::WaitingExternal).await;
    bed.machine().resolve(TENANT, "some day", &json!(true), None).await.unwrap();
    bed.expect(id, State::Queued).await;
}

/// Several deadlines at once are all handled, one after another.
pub async fn deadlines_at_the_same_moment(bed: &mut Bed) {
    let default =
        |name: &str| NewWait { default: Some(json!(name)), ..within(5_000, name, OnTimeout::Default) };
    let id = waiting(bed, "one", vec![default("a"), default("b"), default("c")]).await;
    bed.skip(5_000).await;
    for _ in 0..3 {
        bed.pass(1_000).await;
    }
    bed.expect(id, State::Queued).await;
    assert!(bed.waits(id).await.iter().all(|wait| wait.state == WaitState::TimedOut));
}

/// Invariant 18: answers race with the deadline; the second to come changes nothing.
pub async fn answers_race_with_the_deadline(bed: &mut Bed) {
    let mut works = Vec::new();
    for i in 0..20 {
        let name = format!("q{i}");
        works.push(waiting(bed, &name, vec![within(5_000, &name, OnTimeout::Fail)]).await);
    }
    bed.clock.advance(5_000);
    let mut answers = JoinSet::new();
    for (i, work) in works.iter().copied().enumerate() {
        let (machine, ledger) = (bed.machine(), bed.ledger.clone());
        answers.spawn(async move {
            let wait = ledger
                .waits(&crate::WaitFilter { work: Some(work), ..crate::WaitFilter::default() }, 1)
                .await
                .unwrap()
                .rows
                .remove(0);
            let token = ledger.wait_token(wait.id);
            (work, machine.resolve_wait(wait.id, Some(&token), None, &json!(i), None).await.is_ok())
        });
    }
    bed.sweep().await;
    for (work, answered) in answers.join_all().await {
        bed.expect(work, if answered { State::Queued } else { State::Failed }).await;
        assert_eq!(bed.story(work).await.len(), 4);
    }
}
