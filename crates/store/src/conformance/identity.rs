//! Identity: an actor is known by its id, displayed by its name, and restricted by its credential.

use serde_json::json;
use tenure_core::{
    Actor, Code, WorkId,
    action::{ClaimFilter, Kinds},
    command::{CallError, Effect, ReplayLimits},
    model::{ErrorClass, WaitKind},
};

use super::{Bed, TENANT, any, claimant, job, owner_bound, refused};
use crate::{Caller, NewSchedule, NewWait, NewWork, Scheduler, WorkFilter};

fn ana() -> Actor {
    Actor::worker("p_1").named("ana")
}

/// Another principal with the same name.
fn namesake() -> Actor {
    Actor::worker("p_2").named("ana")
}

pub async fn a_colleague_is_not_given_the_leases_of_a_repeated_claim(bed: &mut Bed) {
    let first = bed.ingest(job("a")).await.id;
    let second = bed.ingest(job("b")).await.id;
    let (me, colleague) = (bed.ledger.caller(ana()), bed.ledger.caller(namesake()));
    let request = || claimant("w", "the same request");
    let mine = me.claim(request(), any(1), None).await.unwrap();
    assert_eq!(mine[0].work.id, first);
    let theirs = colleague.claim(request(), any(1), None).await.unwrap();
    assert_eq!(theirs[0].work.id, second, "it is a request of its own");
    let by_ids = colleague.claim_ids(claimant("w", "other"), vec![first]).await;
    assert_eq!(refused(by_ids), Code::Busy);
    let again = me.claim(request(), any(1), None).await.unwrap();
    assert_eq!((again[0].work.id, &again[0].lease), (first, &mine[0].lease));

    let ingest = |id: &str| NewWork { claim: Some(request()), ..job(id) };
    let held = me.ingest(ingest("c")).await.unwrap();
    assert!(held.lease.is_some());
    assert!(me.ingest(ingest("c")).await.unwrap().lease.is_some(), "its own repeat is given it again");
    assert!(colleague.ingest(ingest("c")).await.unwrap().lease.is_none());
}

pub async fn only_its_actor_claims_owner_bound_work_again(bed: &mut Bed) {
    let (me, colleague) = (bed.ledger.caller(ana()), bed.ledger.caller(namesake()));
    let work = bed.ingest(owner_bound("a")).await.id;
    let held = me.claim_ids(claimant("w", "r1"), vec![work]).await.unwrap().remove(0);
    me.wait(&held.lease, vec![NewWait::new(WaitKind::User, "q")], None).await.unwrap();
    me.resolve(TENANT, "q", &json!(1), None).await.unwrap();
    let stolen = colleague.claim_ids(claimant("w", "r2"), vec![work]).await;
    assert_eq!(refused(stolen), Code::OwnerBound);
    assert!(colleague.claim(claimant("w", "r3"), any(1), None).await.unwrap().is_empty());
    let returned = me.claim(claimant("w", "r4"), any(1), None).await.unwrap();
    assert_eq!(returned[0].work.id, work);
    let owner = returned[0].work.body.first_started.as_ref().unwrap();
    assert_eq!(owner.by.as_deref(), Some("p_1"));
}

pub async fn events_keep_the_name_beside_the_id(bed: &mut Bed) {
    let work = bed.ingest(job("a")).await.id;
    let person = bed.ledger.caller(Actor::person("p_7").named("änne"));
    person.cancel(work, "not needed", None).await.unwrap();
    let events = bed.events(work).await;
    let last = &events.last().unwrap().event;
    assert_eq!((&*last.actor.id, last.actor.label()), ("p_7", "änne"));
    assert_eq!(events[0].event.actor.name, None);
    let explained = bed.ledger.explain(work).await.unwrap().sentence;
    assert!(explained.contains("änne") && !explained.contains("p_7"), "{explained}");
    bed.verify().await;
}

pub async fn other_kinds_do_not_exist_for_who_is_bound_to_some(bed: &mut Bed) {
    let mail = bed.ingest(NewWork { kind: "mail".to_owned(), ..job("m") }).await.id;
    let other = bed.ingest(job("o")).await.id;
    let bound = bed.machine().of_kinds(Kinds::Only(vec!["mail".to_owned(), "fax".to_owned()]));
    assert_eq!(listed(&bound).await, [mail]);
    assert_eq!(refused(bound.work(other).await), Code::NotFound);
    assert_eq!(refused(bound.cancel(other, "no", None).await), Code::NotFound);
    assert_eq!(refused(bound.ingest(job("new")).await), Code::Forbidden);
    assert!(bound.ingest(NewWork { kind: "fax".to_owned(), ..job("f") }).await.unwrap().created);

    assert_eq!(refused(bound.claim_ids(claimant("w", "r1"), vec![other]).await), Code::NotFound);
    let beyond = ClaimFilter { kinds: vec!["mail".to_owned(), "job".to_owned()], ..any(10) };
    assert_eq!(refused(bound.claim(claimant("w", "r2"), beyond, None).await), Code::Forbidden);
    let claimed = bound.claim(claimant("w", "r3"), any(10), None).await.unwrap();
    assert!(claimed.iter().all(|one| one.work.spec.kind != "job"), "{claimed:?}");
    assert_eq!(claimed.len(), 2);

    let held = bed.take(other, "v").await;
    bed.worker("v").wait(&held.lease, vec![NewWait::new(WaitKind::User, "q")], None).await.unwrap();
    let answer = bound.resolve(TENANT, "q", &json!(1), None).await;
    assert_eq!(refused(answer), Code::NotFound, "neither answered nor kept");
    let open = bed.waits(other).await;
    assert_eq!(
        refused(bound.resolve_wait(open[0].id, None, None, &json!(1), None).await),
        Code::TokenRefused
    );
}

async fn listed(caller: &Caller) -> Vec<WorkId> {
    let works = caller.list(&WorkFilter::default(), None, 10).await.unwrap();
    works.iter().map(|work| work.id).collect()
}

pub async fn who_is_bound_to_a_worker_claims_for_no_other(bed: &mut Bed) {
    bed.ingest(job("a")).await;
    let bound = bed.machine().only_for(Some("w1"));
    assert_eq!(refused(bound.claim(claimant("w2", "r1"), any(1), None).await), Code::Forbidden);
    let ingest = NewWork { claim: Some(claimant("w2", "r2")), ..job("b") };
    assert_eq!(refused(bound.ingest(ingest).await), Code::Forbidden);
    assert_eq!(listed(&bound).await.len(), 1, "nothing was taken in");
    assert_eq!(bound.claim(claimant("w1", "r3"), any(1), None).await.unwrap().len(), 1);

    // A command without a work item gets one, with a lease.
    let mail =
        || super::commands::mail("hi", super::commands::evaluation(Effect::Allow, super::commands::lookup()));
    let alone = |worker: &str| NewWork { claim: Some(claimant(worker, "r4")), ..job("c") };
    assert_eq!(refused(bound.reserve_alone(alone("w2"), mail()).await), Code::Forbidden);
    assert!(bound.reserve_alone(alone("w1"), mail()).await.unwrap().lease.is_some());
}

/// Four eyes exclude the people behind a schedule: they count as submitters of its work items.
pub async fn who_set_or_ran_a_schedule_submitted_its_works(bed: &mut Bed) {
    let ledger = bed.ledger.clone();
    let person = |id: &str| ledger.caller(Actor::person(id));
    let new = || super::schedules::minutely("report");
    person("sue").set_schedule(new(), "wanted").await.unwrap();
    person("ben").pause_schedule(TENANT, "report", "not now").await.unwrap();
    // Setting the same plan again does not make that person its author.
    let running = NewSchedule { paused: Some(false), ..new() };
    person("ria").set_schedule(running, "go on").await.unwrap();
    bed.skip(60_000).await;
    Scheduler.run_once(&bed.ledger).await.unwrap();
    let work = bed.all().await.remove(0);
    assert_eq!(sorted(&work.spec.submitters), ["ria", "sue"]);
    bed.person().cancel(work.id, "done with", None).await.unwrap();
    person("pia").run_schedule(TENANT, "report", "now", "at once").await.unwrap();
    let work = bed.all().await.remove(0);
    assert_eq!(sorted(&work.spec.submitters), ["pia", "ria", "sue"]);
}

fn sorted(people: &[std::sync::Arc<str>]) -> Vec<&str> {
    let mut people: Vec<&str> = people.iter().map(|id| &**id).collect();
    people.sort_unstable();
    people
}

pub async fn four_eyes_know_submitters_reservers_and_replayers(bed: &mut Bed) {
    let tool = super::commands::lookup();
    let ask = || super::commands::evaluation(Effect::NeedsApproval, tool.clone());
    let person = |id: &str| bed.ledger.caller(Actor::person(id));
    let work = person("sue").ingest(job("a")).await.unwrap().work.id;
    let held = bed.take(work, "w").await;
    let mail = || super::commands::mail("hi", ask());
    let first = person("ria").reserve(&held.lease, mail()).await.unwrap();
    let again = person("rob").reserve(&held.lease, mail()).await.unwrap();
    assert_eq!((again.command.id, again.fresh), (first.command.id, false));
    let id = first.command.id;
    let approve = async |who: &str| {
        let seal = bed.ledger.command(id).await.unwrap().seal();
        person(who).approve(id, seal, true, "it is right").await
    };
    for who in ["sue", "ria", "rob"] {
        assert_eq!(refused(approve(who).await), Code::FourEyes, "{who}");
    }
    approve("ben").await.unwrap();
    bed.worker("w").dispatch(&held.lease, id, ask(), None).await.unwrap();
    let no = CallError { class: ErrorClass::Validation, message: "no".into(), retry_after_ms: None };
    bed.worker("w").fail_command(&held.lease, id, no, false).await.unwrap();
    person("pia").replay(id, ask(), ReplayLimits::default(), "fixed").await.unwrap();
    for who in ["sue", "ria", "rob", "pia"] {
        assert_eq!(refused(approve(who).await), Code::FourEyes, "{who}");
    }
    approve("ben").await.unwrap();
    bed.verify().await;
}

/// Neither by its whole id nor by a prefix.
pub async fn foreign_kinds_are_found_by_no_beginning(bed: &mut Bed) {
    let held = bed.held(job("o"), "w").await;
    let mail =
        super::commands::mail("hi", super::commands::evaluation(Effect::Allow, super::commands::lookup()));
    let id = bed.worker("w").reserve(&held.lease, mail).await.unwrap().command.id;
    let bound = bed.machine().of_kinds(Kinds::Only(vec!["mail".to_owned()]));
    let (work, command) = (held.work.id.to_string(), id.to_string());
    for short in [&command[..], &command[..command.len() - 1]] {
        assert_eq!(bed.machine().find_command(short).await.unwrap().id, id);
        assert_eq!(refused(bound.find_command(short).await), Code::NotFound, "{short}");
    }
    for short in [&work[..], &work[..work.len() - 1]] {
        assert_eq!(bed.machine().find_work(short).await.unwrap(), held.work.id);
        assert_eq!(refused(bound.find_work(short).await), Code::NotFound, "{short}");
    }
}
