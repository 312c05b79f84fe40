//! Work items that depend on each other: parents and children, and waits for work items.

use serde_json::json;
use tenure_core::{
    Code, State, WorkId,
    action::CloseOut,
    model::{OnParentClose, WaitKind},
    records::reference_to,
};

use super::{Bed, job, payload, refused, success};
use crate::{Claimed, NewWait, NewWork, WorkFilter};

fn child(parent: WorkId, id: &str, on_parent_close: OnParentClose) -> NewWork {
    NewWork { parent: Some(parent), on_parent_close, ..job(id) }
}

async fn wait_for(bed: &Bed, held: &Claimed, targets: &[WorkId]) -> crate::Waiting {
    let waits =
        targets.iter().map(|id| NewWait::new(WaitKind::External, &reference_to(*id))).collect::<Vec<_>>();
    bed.worker("w").wait(&held.lease, waits, None).await.unwrap()
}

/// Closing a parent cancels the children that declare it, in any state.
pub async fn children_follow_their_parent_if_they_asked(bed: &mut Bed) {
    let parent = bed.held(job("parent"), "w").await;
    let id = parent.work.id;
    let queued = bed.ingest(child(id, "queued", OnParentClose::Cancel)).await.id;
    let running = bed.held(child(id, "running", OnParentClose::Cancel), "v").await;
    let waiting = bed.held(child(id, "waiting", OnParentClose::Cancel), "w").await;
    let wait = vec![NewWait::new(WaitKind::User, "q")];
    bed.worker("w").wait(&waiting.lease, wait, None).await.unwrap();
    let left = bed.ingest(child(id, "left", OnParentClose::Leave)).await.id;
    let grandchild = bed.ingest(child(queued, "grandchild", OnParentClose::Cancel)).await.id;
    let set_aside = bed.ingest(child(id, "set aside", OnParentClose::Cancel)).await.id;
    bed.person().quarantine(set_aside, "odd").await.unwrap();

    bed.worker("w").close_out(&parent.lease, success()).await.unwrap();
    bed.expect(queued, State::Queued).await;
    for _ in 0..3 {
        bed.pass(1_000).await;
    }
    bed.expect(queued, State::Cancelled).await;
    bed.expect(waiting.work.id, State::Cancelled).await;
    bed.expect(grandchild, State::Cancelled).await;
    bed.expect(left, State::Queued).await;
    bed.expect(set_aside, State::Quarantined).await;
    bed.expect(running.work.id, State::CancelRequested).await;
    let last = bed.events(queued).await.pop().unwrap().event;
    assert_eq!(&*last.actor.id, "sweeper");
    assert!(last.message.unwrap().contains("its parent"));
    bed.worker("v").release(&running.lease, None).await.unwrap();
    bed.expect(running.work.id, State::Cancelled).await;

    let filter = WorkFilter { parent: Some(id), ..WorkFilter::default() };
    assert_eq!(bed.ledger.list(&filter, None, 10).await.unwrap().len(), 5);
    let orphan = bed.machine().ingest(child(id, "orphan", OnParentClose::Cancel)).await;
    assert_eq!(refused(orphan), Code::ParentClosed);
    bed.ingest(child(id, "late", OnParentClose::Leave)).await;
}

/// `work:ID`: the end of one work item is the answer for another.
pub async fn a_work_waits_for_others(bed: &mut Bed) {
    let first = bed.held(job("first"), "w").await;
    let second = bed.held(job("second"), "w").await;
    let waiter = bed.held(job("waiter"), "w").await;
    let waiting = wait_for(bed, &waiter, &[first.work.id, second.work.id]).await;
    assert_eq!(waiting.ack.state, State::WaitingExternal);
    bed.pass(1_000).await;
    bed.expect(waiter.work.id, State::WaitingExternal).await;

    bed.worker("w").close_out(&first.lease, success()).await.unwrap();
    bed.pass(1_000).await;
    assert_eq!(bed.work(waiter.work.id).await.open_waits, 1);
    bed.worker("w").close_out(&second.lease, CloseOut::new(State::Failed)).await.unwrap();
    bed.pass(1_000).await;
    bed.expect(waiter.work.id, State::Queued).await;
    let next = bed.take(waiter.work.id, "v").await;
    let ends: Vec<_> = next.answers.iter().map(|(_, answer)| answer.clone()).collect();
    let end = |id: WorkId, state: State| Some(payload(json!({ "work": id, "state": state })));
    assert_eq!(ends, [end(first.work.id, State::Succeeded), end(second.work.id, State::Failed)]);
}

/// Several awaited work items end at the same moment: every wait is answered.
pub async fn ends_at_the_same_moment(bed: &mut Bed) {
    let mut targets = Vec::new();
    for i in 0..4 {
        targets.push(bed.held(job(&i.to_string()), "w").await);
    }
    let waiter = bed.held(job("waiter"), "w").await;
    let ids: Vec<WorkId> = targets.iter().map(|target| target.work.id).collect();
    wait_for(bed, &waiter, &ids).await;
    for target in &targets {
        bed.worker("w").close_out(&target.lease, success()).await.unwrap();
    }
    for _ in 0..4 {
        bed.pass(1_000).await;
    }
    bed.expect(waiter.work.id, State::Queued).await;
}

/// A work item that has already ended is an immediate answer: the lease continues.
pub async fn an_ended_work_answers_at_once(bed: &mut Bed) {
    let ended = bed.held(job("ended"), "w").await;
    bed.worker("w").close_out(&ended.lease, success()).await.unwrap();
    let waiter = bed.held(job("waiter"), "w").await;
    let waiting = wait_for(bed, &waiter, &[ended.work.id]).await;
    assert_eq!(waiting.ack.state, State::Running);
    let end = json!({ "work": ended.work.id, "state": "succeeded" });
    assert_eq!(waiting.answers[0].1, Some(payload(end)));
    bed.worker("w").close_out(&waiter.lease, success()).await.unwrap();

    let acme = bed.ingest(NewWork { tenant: "acme".to_owned(), ..job("acme") }).await;
    let waiter = bed.held(job("curious"), "w").await;
    let waits = vec![NewWait::new(WaitKind::External, &reference_to(acme.id))];
    assert_eq!(refused(bed.worker("w").wait(&waiter.lease, waits, None).await), Code::NotFound);
}

/// Two that wait for each other wait until their deadlines; nothing hangs.
pub async fn works_that_wait_for_each_other(bed: &mut Bed) {
    let one = bed.held(job("one"), "w").await;
    let two = bed.held(job("two"), "w").await;
    wait_for(bed, &one, &[two.work.id]).await;
    bed.pass(1_000).await;
    wait_for(bed, &two, &[one.work.id]).await;
    bed.skip(2 * 3_600_000 - 1_000).await;
    bed.expect(one.work.id, State::TimedOut).await;
    bed.pass(1_000).await;
    bed.expect(two.work.id, State::Queued).await;
}
