//! Quotas of callers that are bound to tenants, through every verb; requests for existing work items are
//! answered all the same.

use serde_json::json;
use tenure_core::{
    Code,
    policy::Settings,
    quota::Quota,
    schedule::{Overlap, Plan, RunOutcome},
};

use super::{Bed, TENANT, any, claimant, commands, job, refused, request, schedules, success};
use crate::{Caller, NewSchedule, NewWork, Scheduler};

fn limited(bed: &Bed, quota: Quota) -> Caller {
    bed.ledger.set_settings(Settings::default().with_quota(quota));
    bed.person().within(vec![TENANT.to_owned()])
}

fn of_works(open_works: u64) -> Quota {
    Quota { open_works, ..Quota::default() }
}

fn overlapping(name: &str) -> NewSchedule {
    let new = schedules::minutely(name);
    let mut plan = Plan { overlap: Overlap::Allow, ..new.plan };
    plan.template.session = None;
    NewSchedule { plan, ..new }
}

pub async fn no_door_passes_the_quota_of_open_works(bed: &mut Bed) {
    let ended = bed.held(job("ended"), "w").await;
    bed.worker("w").close_out(&ended.lease, success()).await.unwrap();
    bed.person().set_schedule(overlapping("m"), "wanted").await.unwrap();
    let bound = limited(bed, of_works(2));
    bound.ingest(job("a")).await.unwrap();
    bound.ingest(job("b")).await.unwrap();

    assert_eq!(refused(bound.ingest(job("c")).await), Code::QuotaReached);
    assert_eq!(refused(bound.clone().trying(true).ingest(job("c")).await), Code::QuotaReached);
    let alone = NewWork { claim: Some(claimant("w", &request())), ..job("alone") };
    let mail = commands::mail("hi", commands::allow());
    assert_eq!(refused(bound.reserve_alone(alone, mail).await), Code::QuotaReached);
    assert_eq!(refused(bound.rerun(ended.work.id, None, "again").await), Code::QuotaReached);
    assert_eq!(refused(bound.run_schedule(TENANT, "m", "r", "now").await), Code::QuotaReached);
    let told = bound.ingest(job("c")).await.unwrap_err().to_string();
    assert!(told.contains("2 open work items") && told.contains("quotas.open_works"), "{told}");

    bed.machine().ingest(job("the operator's")).await.unwrap();
    let elsewhere = NewWork { tenant: "elsewhere".to_owned(), ..job("c") };
    bed.person().within(vec!["elsewhere".to_owned()]).ingest(elsewhere).await.unwrap();
}

pub async fn what_is_there_is_answered_at_the_quota(bed: &mut Bed) {
    let bound = limited(bed, of_works(2));
    for _ in 0..4 {
        bound.clone().trying(true).ingest(job("tried")).await.unwrap();
        bound.ingest(job("a")).await.unwrap();
    }
    let claimed = bound.claim(claimant("w", &request()), any(1), None).await.unwrap().remove(0);
    bound.close_out(&claimed.lease, success()).await.unwrap();
    let rerun = bound.rerun(claimed.work.id, None, "again").await.unwrap();
    assert!(rerun.created, "neither a repeat nor a dry run takes room");
    let full = limited(bed, of_works(1));
    assert!(!full.ingest(job("a")).await.unwrap().created);
    assert!(!full.rerun(claimed.work.id, None, "again").await.unwrap().created);
    let other = NewWork { kind: "other".to_owned(), ..job("a") };
    assert_eq!(refused(full.ingest(other).await), Code::IdempotencyMismatch);
}

pub async fn a_schedule_cannot_pass_the_quota_by_itself(bed: &mut Bed) {
    let schedule = bed.person().set_schedule(overlapping("m"), "wanted").await.unwrap().0;
    limited(bed, of_works(1));
    let first = schedule.next_at.unwrap();
    for at in [first, first + 60_000] {
        bed.clock.advance(at - bed.now());
        Scheduler.run_once(&bed.ledger).await.unwrap();
    }
    assert_eq!(bed.all().await.len(), 1);
    let seen = bed.person().schedule(TENANT, "m").await.unwrap();
    assert_eq!(seen.last_run.unwrap().outcome, RunOutcome::Refused(Code::QuotaReached));
}

pub async fn urgency_is_bounded_for_schedules_too(bed: &mut Bed) {
    let bound = limited(bed, Quota { priority: 3, ..Quota::default() });
    let urgent = NewWork { priority: 2, ..job("urgent") };
    assert_eq!(refused(bound.ingest(urgent.clone()).await), Code::Forbidden);
    bound.ingest(NewWork { priority: 3, ..job("patient") }).await.unwrap();
    // The template's priority is 2.
    assert_eq!(refused(bound.set_schedule(overlapping("m"), "wanted").await), Code::Forbidden);
    bed.person().set_schedule(overlapping("m"), "the operator's own").await.unwrap();
    bound.run_schedule(TENANT, "m", "r", "now").await.unwrap();
    bed.machine().ingest(urgent.clone()).await.unwrap();
    assert!(!bound.ingest(urgent).await.unwrap().created, "it is there already");
}

pub async fn inputs_are_bounded_by_their_bytes(bed: &mut Bed) {
    let bound = limited(bed, Quota { input_bytes: 1 << 20, ..Quota::default() });
    let large = |id: &str| NewWork { input: json!("x".repeat(900 << 10)), ..job(id) };
    bound.clone().trying(true).ingest(large("a")).await.unwrap();
    bound.ingest(large("a")).await.unwrap();
    assert_eq!(refused(bound.ingest(large("b")).await), Code::QuotaReached);
    assert!(!bound.ingest(large("a")).await.unwrap().created);
    bound.ingest(job("small")).await.unwrap();
    bed.machine().ingest(large("b")).await.unwrap();
}
