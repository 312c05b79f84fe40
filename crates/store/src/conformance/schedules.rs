//! Schedules: changes are recorded, runs fire once with any number of schedulers, and are skipped where the
//! plan says so.

use serde_json::json;
use tenure_core::{
    Code, Millis, Work,
    action::Tenants,
    model::Disposition,
    policy::PolicyOverrides,
    schedule::{Act, Cron, Overlap, Plan, RunOutcome, Schedule, SkipReason, Template, Timing, rfc3339},
};

use super::{Bed, LEASE, TENANT, refused, success};
use crate::{Fired, NewSchedule, NewWork, Scheduler, zone::Named};

const MINUTE: Millis = 60_000;

fn template() -> Template {
    Template {
        kind: "digest".to_owned(),
        title: None,
        disposition: Disposition::Rerunnable,
        input: json!({ "of": "yesterday", "ratio": 0.1 }),
        priority: 2,
        session: Some("digests".to_owned()),
        correlation_id: None,
        workflow: None,
        policy: PolicyOverrides { lease: Some(LEASE), ..PolicyOverrides::default() },
    }
}

/// Every minute, by the clocks of Berlin.
pub(super) fn minutely(name: &str) -> NewSchedule {
    let timing = Timing::Cron { cron: Cron::parse("* * * * *").unwrap(), zone: "europe/berlin".to_owned() };
    let plan = Plan { timing, template: template(), overlap: Overlap::Skip, catch_up_ms: 3 * MINUTE as u64 };
    NewSchedule { tenant: TENANT.to_owned(), name: name.to_owned(), plan, paused: None }
}

fn allowing(name: &str) -> NewSchedule {
    let new = minutely(name);
    NewSchedule { plan: Plan { overlap: Overlap::Allow, ..new.plan }, ..new }
}

async fn set(bed: &Bed, new: NewSchedule) -> Schedule {
    bed.person().set_schedule(new, "wanted").await.expect("it is kept").0
}

async fn look(bed: &Bed) -> Fired {
    Scheduler.run_once(&bed.ledger).await.expect("a look reaches the store")
}

async fn now_is(bed: &Bed, name: &str) -> Schedule {
    bed.person().schedule(TENANT, name).await.expect("it is there")
}

/// The work items of a schedule, oldest first.
async fn runs(bed: &Bed, name: &str) -> Vec<Work> {
    let all = bed.all().await.into_iter().rev();
    all.filter(|work| work.spec.source.system == "scheduler" && work.spec.source.id == name).collect()
}

pub async fn schedules_are_kept_with_their_changes(bed: &mut Bed) {
    let ada = bed.person();
    let (kept, new) = ada.set_schedule(minutely("digest"), "asked for").await.unwrap();
    assert!(new);
    assert_eq!(kept.plan.timing, {
        let cron = Cron::parse("* * * * *").unwrap();
        Timing::Cron { cron, zone: "Europe/Berlin".to_owned() }
    });
    assert_eq!(now_is(bed, "digest").await, kept);
    let (again, new) = ada.set_schedule(minutely("digest"), "asked again").await.unwrap();
    assert_eq!((again, new), (kept.clone(), false), "the same again changes nothing");

    bed.clock.advance(1_000);
    let paused = ada.pause_schedule(TENANT, "digest", "too loud").await.unwrap();
    assert_eq!((paused.paused, paused.next_at, paused.updated_at), (true, None, bed.now()));
    assert_eq!(ada.pause_schedule(TENANT, "digest", "too loud").await.unwrap(), paused);
    let changed = set(bed, allowing("digest")).await;
    assert!(changed.paused, "another plan starts nothing");
    let resumed = ada.resume_schedule(TENANT, "digest", "calm again").await.unwrap();
    assert_eq!(resumed.next_at, Some((bed.now() / MINUTE + 1) * MINUTE));
    assert_eq!(now_is(bed, "digest").await, resumed);

    ada.delete_schedule(TENANT, "digest", "nobody reads it").await.unwrap();
    assert_eq!(refused(ada.schedule(TENANT, "digest").await), Code::NotFound);
    assert_eq!(refused(ada.delete_schedule(TENANT, "digest", "again").await), Code::NotFound);
    let trail = ada.schedule_changes(TENANT, "digest", 10).await.unwrap();
    let told: Vec<_> = trail.iter().map(|change| (change.act, change.reason.as_str())).collect();
    let expected = [
        (Act::Delete, "nobody reads it"),
        (Act::Resume, "calm again"),
        (Act::Set, "wanted"),
        (Act::Pause, "too loud"),
        (Act::Set, "asked for"),
    ];
    assert_eq!(told, expected, "newest first, and it outlives the schedule");
    assert_eq!(trail[4].plan.as_ref(), Some(&kept.plan));
    assert_eq!((&*trail[0].actor.id, trail[0].at, &trail[0].plan), ("ada", bed.now(), &None));
    assert_eq!(set(bed, minutely("digest")).await.revision, 1, "it can be set anew");
}

pub async fn schedules_are_listed_by_name(bed: &mut Bed) {
    for (tenant, name) in [("b", "one"), (TENANT, "two"), (TENANT, "Three"), ("b", "äther"), (TENANT, "zero")]
    {
        set(bed, NewSchedule { tenant: tenant.to_owned(), ..minutely(name) }).await;
    }
    let list = async |caller: &crate::Caller, tenants: Option<&Tenants>, after, limit| {
        let page = caller.schedules(tenants, after, limit).await.unwrap();
        page.into_iter().map(|one| format!("{}/{}", one.tenant, one.name)).collect::<Vec<_>>()
    };
    let ada = bed.person();
    assert_eq!(list(&ada, None, None, 3).await, ["b/one", "b/äther", "default/Three"]);
    assert_eq!(list(&ada, None, Some((TENANT, "Three")), 3).await, ["default/two", "default/zero"]);
    let b = Tenants::Only(vec!["b".to_owned()]);
    assert_eq!(list(&ada, Some(&b), None, 10).await, ["b/one", "b/äther"]);

    let stranger = bed.person().within(vec!["b".to_owned()]);
    assert_eq!(list(&stranger, None, None, 10).await, ["b/one", "b/äther"]);
    assert_eq!(refused(stranger.schedule(TENANT, "two").await), Code::NotFound);
    assert_eq!(refused(stranger.set_schedule(minutely("mine"), "x").await), Code::NotFound);
    assert_eq!(refused(stranger.pause_schedule(TENANT, "two", "x").await), Code::NotFound);
    assert_eq!(refused(stranger.resume_schedule(TENANT, "two", "x").await), Code::NotFound);
    assert_eq!(refused(stranger.run_schedule(TENANT, "two", "r", "x").await), Code::NotFound);
    assert_eq!(refused(stranger.delete_schedule(TENANT, "two", "x").await), Code::NotFound);
    assert!(stranger.schedule_changes(TENANT, "two", 10).await.unwrap().is_empty());
}

pub async fn malformed_schedules_are_refused(bed: &mut Bed) {
    let with = |change: fn(&mut NewSchedule)| {
        let mut new = minutely("x");
        change(&mut new);
        new
    };
    for (wrong, code) in [
        (with(|new| new.name.clear()), Code::Invalid),
        (with(|new| new.name = "a/b".to_owned()), Code::Invalid),
        (with(|new| new.name = "a\0b".to_owned()), Code::Invalid),
        (with(|new| new.plan.template.kind.clear()), Code::Invalid),
        (with(|new| new.plan.timing = Timing::EveryMs(10)), Code::ImpossibleTimings),
        (with(|new| new.plan.template.input = json!("x".repeat(2_000_000))), Code::PayloadRefused),
        (with(|new| new.plan.template.disposition = Disposition::ExternallyOwned), Code::Invalid),
        (
            with(|new| {
                let cron = Cron::parse("* * * * *").unwrap();
                new.plan.timing = Timing::Cron { cron, zone: "Mars/Base".to_owned() };
            }),
            Code::Invalid,
        ),
    ] {
        assert_eq!(refused(bed.person().set_schedule(wrong.clone(), "x").await), code, "{wrong:?}");
    }
    let ada = bed.person();
    for (tenant, name) in [("a\0b", "x"), (TENANT, "a\0b"), ("", "x"), (TENANT, "")] {
        assert_eq!(refused(ada.schedule(tenant, name).await), Code::NotFound);
        assert_eq!(refused(ada.run_schedule(tenant, name, "r", "x").await), Code::NotFound);
        assert!(ada.schedule_changes(tenant, name, 1).await.unwrap().is_empty());
    }
    let nobody = Tenants::Only(vec!["a\0b".to_owned()]);
    assert_eq!(refused(ada.schedules(Some(&nobody), None, 1).await), Code::Invalid);
    assert_eq!(refused(ada.schedules(None, Some(("a\0", "b")), 1).await), Code::Invalid);
    assert_eq!(refused(ada.set_schedule(minutely("x"), " ").await), Code::ReasonMissing);
    assert_eq!(refused(ada.pause_schedule(TENANT, "x", "").await), Code::ReasonMissing);
    assert!(ada.schedules(None, None, 10).await.unwrap().is_empty());
}

pub async fn a_due_run_is_a_work_like_any_other(bed: &mut Bed) {
    let first = set(bed, minutely("digest")).await.next_at.unwrap();
    assert_eq!(look(bed).await, Fired::default(), "nothing is due, nor soon");
    bed.clock.advance(first - bed.now() - 400);
    assert_eq!(look(bed).await.next_in_ms, Some(400));
    bed.clock.advance(400);
    assert_eq!(look(bed).await.fired, 1);
    assert_eq!(look(bed).await, Fired::default(), "once");

    let [work] = &runs(bed, "digest").await[..] else { panic!("one run, one work") };
    assert_eq!(work.spec.source.run_id, rfc3339(first));
    assert_eq!((work.spec.kind.as_str(), work.spec.priority), ("digest", 2));
    assert_eq!((work.spec.session.as_deref(), work.spec.policy.lease), (Some("digests"), LEASE));
    let stored = bed.ledger.payload(work.id, 1).await.unwrap().unwrap();
    assert_eq!(stored.value(), template().input);
    assert_eq!(bed.events(work.id).await[0].event.actor, tenure_core::Actor::system("scheduler"));

    let now = now_is(bed, "digest").await;
    let last = now.last_run.clone().unwrap();
    assert_eq!((last.outcome, last.due_at, last.at), (RunOutcome::Ingested(work.id), first, first));
    assert_eq!((now.next_at, now.fired, now.pending.len()), (Some(first + MINUTE), 1, 0));
    assert_eq!(bed.ledger.upcoming(&now, 3).unwrap(), [1, 2, 3].map(|n| first + n * MINUTE));
    assert_eq!(bed.ledger.stats().runs_fired, 1);
}

pub async fn a_run_is_skipped_while_the_last_is_open(bed: &mut Bed) {
    set(bed, minutely("digest")).await;
    bed.clock.advance(MINUTE);
    look(bed).await;
    let work = runs(bed, "digest").await[0].id;
    bed.clock.advance(MINUTE);
    assert_eq!(look(bed).await, Fired { skipped: 1, ..Fired::default() });
    let now = now_is(bed, "digest").await;
    assert_eq!((now.skipped, now.last_skip.unwrap().reason), (1, SkipReason::Overlap));
    assert_eq!(bed.ledger.stats().runs_skipped, 1);

    let held = bed.take(work, "w").await;
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
    bed.clock.advance(MINUTE);
    assert_eq!(look(bed).await.fired, 1, "the last one has ended");
    set(bed, allowing("digest")).await;
    bed.clock.advance(MINUTE);
    assert_eq!(look(bed).await.fired, 1, "overlaps are allowed now");
    assert_eq!(runs(bed, "digest").await.len(), 3);
}

pub async fn missed_runs_are_caught_up_within_bounds(bed: &mut Bed) {
    let first = set(bed, allowing("digest")).await.next_at.unwrap();
    bed.clock.advance(first + 10 * MINUTE - bed.now());
    let fired = look(bed).await;
    assert_eq!((fired.fired, fired.skipped), (4, 7));
    let due: Vec<String> =
        runs(bed, "digest").await.into_iter().map(|work| work.spec.source.run_id.clone()).collect();
    assert_eq!(due, [7, 8, 9, 10].map(|n| rfc3339(first + n * MINUTE)));
    let skip = now_is(bed, "digest").await.last_skip.unwrap();
    assert_eq!((skip.reason, skip.due_at), (SkipReason::Late, first + 6 * MINUTE));
}

pub async fn many_schedulers_fire_each_run_once(bed: &mut Bed) {
    for n in 0..30 {
        set(bed, allowing(&format!("s{n}"))).await;
    }
    for _ in 0..3 {
        bed.clock.advance(MINUTE);
        let looks = (0..8).map(|_| {
            let ledger = bed.ledger.clone();
            tokio::spawn(async move { Scheduler.run_once(&ledger).await.unwrap().fired })
        });
        let mut fired = 0;
        for look in looks.collect::<Vec<_>>() {
            fired += look.await.unwrap();
        }
        assert_eq!(fired, 30);
    }
    for n in 0..30 {
        let name = format!("s{n}");
        assert_eq!((runs(bed, &name).await.len(), now_is(bed, &name).await.fired), (3, 3));
    }
}

pub async fn a_refused_run_shows_and_blocks_nobody(bed: &mut Bed) {
    let first = set(bed, allowing("taken")).await.next_at.unwrap();
    set(bed, allowing("well")).await;
    let mut other = NewWork::new("scheduler", "taken", "other", Disposition::Rerunnable, json!(1));
    other.source.run_id = rfc3339(first);
    bed.ingest(other).await;
    bed.clock.advance(MINUTE);
    let fired = look(bed).await;
    assert_eq!((fired.fired, fired.refused), (1, 1));
    let taken = now_is(bed, "taken").await;
    let error = taken.last_error.unwrap();
    assert_eq!((error.code, error.run_id), (Code::IdempotencyMismatch, rfc3339(first)));
    assert!(error.detail.contains("exists already"), "{}", error.detail);
    assert_eq!(now_is(bed, "well").await.fired, 1);
    bed.clock.advance(MINUTE);
    assert_eq!(look(bed).await.fired, 2);
    assert_eq!(now_is(bed, "taken").await.last_error, None, "the next run is taken");
}

pub async fn what_was_decided_is_done_by_whoever_comes(bed: &mut Bed) {
    let kept = set(bed, minutely("digest")).await;
    bed.clock.advance(MINUTE);
    // A process decides, saves its decision, and dies.
    let zone = Named::of(&kept.plan.timing).unwrap();
    let decided = kept.looked_at(&zone, false, bed.now());
    let saves = bed.ledger.store().save_schedules(std::slice::from_ref(&decided)).await.unwrap();
    assert_eq!(saves.len(), 1);
    let again = bed.ledger.store().save_schedules(std::slice::from_ref(&decided)).await.unwrap();
    assert!(again.is_empty(), "nobody saves what somebody else has changed");
    assert_eq!(look(bed).await.fired, 1);
    assert_eq!(runs(bed, "digest").await.len(), 1);

    // Another process dies, and the plan is changed before the next pass. The earlier decision follows the
    // old plan.
    let kept = set(bed, allowing("digest")).await;
    bed.clock.advance(MINUTE);
    let decided = kept.looked_at(&zone, false, bed.now());
    bed.ledger.store().save_schedules(&[decided]).await.unwrap();
    let mut changed = allowing("digest");
    changed.plan.template.kind = "report".to_owned();
    assert_eq!(set(bed, changed).await.fired, 2);
    assert_eq!(runs(bed, "digest").await[1].spec.kind, "digest");
}

pub async fn a_person_runs_a_schedule_now(bed: &mut Bed) {
    set(bed, NewSchedule { paused: Some(true), ..minutely("digest") }).await;
    let ada = bed.person();
    let ran = ada.run_schedule(TENANT, "digest", "r-1", "cannot wait").await.unwrap();
    assert_eq!(ada.run_schedule(TENANT, "digest", "r-1", "cannot wait").await.unwrap(), ran);
    let [work] = &runs(bed, "digest").await[..] else { panic!("one request, one work") };
    assert_eq!(work.spec.source.run_id, "request:r-1");
    assert_eq!(bed.events(work.id).await[0].event.actor, tenure_core::Actor::person("ada"));
    assert_eq!((ran.fired, ran.paused, ran.last_work()), (1, true, Some(work.id)));
    assert_eq!(refused(ada.run_schedule(TENANT, "digest", "r-2", "once more").await), Code::Busy);
    ada.cancel(work.id, "enough", None).await.unwrap();
    ada.run_schedule(TENANT, "digest", "r-2", "once more").await.unwrap();
    let trail = ada.schedule_changes(TENANT, "digest", 10).await.unwrap();
    assert_eq!(trail.iter().map(|change| change.act).collect::<Vec<_>>(), [Act::Run, Act::Run, Act::Set]);
    assert_eq!(refused(ada.run_schedule(TENANT, "none", "r", "x").await), Code::NotFound);
}
