//! Dry runs: decided and answered as usual, and nothing is written.

use serde_json::json;
use tenure_core::{Code, State, model::WaitKind};

use super::{
    Bed, TENANT, any, claimant, external, forged, job, payload, refused, request, schedules, success,
};
use crate::{Caller, NewWait, NewWork};

fn trying(caller: Caller) -> Caller {
    caller.trying(true)
}

pub async fn what_would_be_recorded_is_told(bed: &mut Bed) {
    let gateway = trying(bed.machine());
    let new = gateway.ingest(job("one")).await.unwrap();
    assert!(new.created && new.work.state == State::Queued);
    assert!(bed.all().await.is_empty(), "it names a work that is not there");
    assert!(gateway.ingest(external("one")).await.unwrap().completion_token.is_some());

    let work = bed.ingest(job("one")).await;
    let before = bed.snapshot().await;
    let again = gateway.ingest(job("one")).await.unwrap();
    assert_eq!((again.created, again.work.id), (false, work.id), "the same again is what is there");
    let other = NewWork { input: json!("other"), ..job("one") };
    assert_eq!(refused(gateway.ingest(other).await), Code::IdempotencyMismatch);
    assert_eq!(refused(gateway.ingest(NewWork { kind: String::new(), ..job("two") }).await), Code::Invalid);
    assert_eq!(bed.snapshot().await, before);
    assert!(bed.claim("w", any(9)).await.iter().all(|claimed| claimed.work.id == work.id));
}

pub async fn verbs_answer_as_they_would(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let (lease, id) = (&held.lease, held.work.id);
    let before = bed.snapshot().await;
    let (ada, worker) = (trying(bed.person()), trying(bed.worker("w")));

    assert_eq!(worker.close_out(lease, success()).await.unwrap().state, State::Succeeded);
    assert_eq!(worker.release(lease, None).await.unwrap().state, State::Queued);
    assert_eq!(refused(worker.close_out(&forged(lease), success()).await), Code::LeaseLost);
    assert!(worker.begin_step(lease, "draft", &json!(1), false).await.is_ok());
    assert!(worker.progress(lease, &json!("half"), Some("p1")).await.is_ok());
    let renewed = worker.renew(&[(lease.clone(), None), (forged(lease), None)]).await.unwrap();
    assert_eq!(renewed.iter().map(|one| one.outcome.is_ok()).collect::<Vec<_>>(), [true, false]);
    assert_eq!(ada.cancel(id, "enough", None).await.unwrap().state, State::CancelRequested);
    assert_eq!(ada.quarantine(id, "odd").await.unwrap().state, State::Quarantined);
    assert_eq!(refused(ada.cancel(id, "", None).await), Code::ReasonMissing);
    assert_eq!(refused(ada.rerun(id, None, "again").await), Code::IllegalState);
    assert_eq!(
        refused(trying(bed.person().having_seen(Some(1))).cancel(id, "late", None).await),
        Code::StateChanged
    );
    assert_eq!(bed.snapshot().await, before, "nothing was written");

    // A dry run does not count as an earlier request: the real call is the first.
    let done = bed.worker("w").close_out(lease, success()).await.unwrap();
    assert_eq!((done.state, done.seq), (State::Succeeded, held.work.seq + 1));
    let before = bed.snapshot().await;
    let rerun = ada.rerun(id, None, "again").await.unwrap();
    assert!(rerun.created && rerun.work.spec.rerun_of == Some(id));
    assert_eq!(bed.snapshot().await, before);
    let real = bed.person().rerun(id, None, "again").await.unwrap();
    assert!(real.created);
    let repeated = ada.rerun(id, None, "again").await.unwrap();
    assert_eq!((repeated.created, repeated.work.id), (false, real.work.id));
}

pub async fn answers_are_tried_on_what_waits(bed: &mut Bed) {
    let held = bed.held(job("one"), "w").await;
    let (ada, worker) = (bed.person(), bed.worker("w"));
    assert!(trying(ada.clone()).resolve(TENANT, "colour", &json!("red"), None).await.unwrap().kept);
    let tried = trying(worker.clone());
    let wait = || vec![NewWait::new(WaitKind::User, "colour")];
    let before = bed.snapshot().await;
    let waiting = tried.wait(&held.lease, wait(), None).await.unwrap();
    assert_eq!(waiting.ack.state, State::WaitingUser, "no answer was kept");
    assert_eq!(bed.snapshot().await, before);

    assert!(ada.resolve(TENANT, "colour", &json!("blue"), None).await.unwrap().kept);
    let early = tried.wait(&held.lease, wait(), None).await.unwrap();
    assert_eq!(early.answers[0].1, Some(payload(json!("blue"))), "the answer that is there is shown");
    let early = worker.wait(&held.lease, wait(), None).await.unwrap();
    assert_eq!(early.answers[0].1, Some(payload(json!("blue"))), "and was not taken by the look");

    let size = vec![NewWait::new(WaitKind::User, "size")];
    worker.wait(&held.lease, size, None).await.unwrap();
    let answered = trying(ada.clone()).resolve(TENANT, "size", &json!("L"), None).await.unwrap();
    assert_eq!(answered.answers[0].1, Some(payload(json!("L"))));
    bed.expect(held.work.id, State::WaitingUser).await;
    let first = ada.resolve(TENANT, "size", &json!("S"), None).await.unwrap();
    assert!(first.answers[0].0.first, "what was tried answered nothing");
    let second = trying(ada).resolve(TENANT, "size", &json!("L"), None).await.unwrap();
    assert_eq!((second.answers[0].0.first, second.answers[0].1.clone()), (false, Some(payload(json!("S")))));
}

/// An unrecorded token could be taken for that of a later holder.
pub async fn leases_are_never_tried(bed: &mut Bed) {
    let work = bed.ingest(job("one")).await;
    let worker = trying(bed.worker("w"));
    let by_filter = worker.claim(claimant("w", &request()), any(1), Some(super::PATIENCE)).await;
    assert_eq!(refused(by_filter), Code::Unsupported);
    assert_eq!(refused(worker.claim_ids(claimant("w", &request()), vec![work.id]).await), Code::Unsupported);
    let claim = Some(claimant("w", &request()));
    let claiming = NewWork { claim: claim.clone(), ..job("one") };
    assert_eq!(refused(trying(bed.machine()).ingest(claiming).await), Code::Unsupported);
    let resolved = trying(bed.person()).resolve(TENANT, "colour", &json!(1), claim).await;
    assert_eq!(refused(resolved), Code::Unsupported);
    bed.expect(work.id, State::Queued).await;
}

pub async fn schedules_are_tried_too(bed: &mut Bed) {
    let ada = trying(bed.person());
    let (schedule, new) = ada.set_schedule(schedules::minutely("digest"), "asked for").await.unwrap();
    assert!(new && schedule.next_at.is_some());
    assert_eq!(refused(ada.schedule(TENANT, "digest").await), Code::NotFound);
    let kept = bed.person().set_schedule(schedules::minutely("digest"), "asked for").await.unwrap().0;
    assert_eq!(kept, schedule);
    assert!(ada.pause_schedule(TENANT, "digest", "loud").await.unwrap().paused);
    let run = ada.run_schedule(TENANT, "digest", "r1", "now").await.unwrap();
    assert_eq!(run.pending[0].run_id, "request:r1");
    assert_eq!(refused(ada.delete_schedule(TENANT, "other", "gone").await), Code::NotFound);
    ada.delete_schedule(TENANT, "digest", "gone").await.unwrap();
    assert_eq!(bed.person().schedule(TENANT, "digest").await.unwrap(), kept);
    assert_eq!(bed.person().schedule_changes(TENANT, "digest", 9).await.unwrap().len(), 1);
    assert!(bed.all().await.is_empty(), "nothing ran");
}
