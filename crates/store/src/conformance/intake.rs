//! The intake: paused by people, for one tenant or for all; existing work items continue, and repeated
//! requests get their earlier replies.

use tenure_core::{Code, State, schedule::SkipReason};

use super::{Bed, TENANT, any, job, refused, schedules, success};
use crate::{NewWork, Scheduler};

fn elsewhere(id: &str) -> NewWork {
    NewWork { tenant: "elsewhere".to_owned(), ..job(id) }
}

pub async fn a_pause_lets_nothing_new_in_and_what_is_here_goes_on(bed: &mut Bed) {
    let person = bed.person();
    let old = bed.ingest(job("old")).await;
    let held = bed.held(job("held"), "w").await;
    let standing = person.pause_intake(None, "the database moves").await.unwrap();
    assert_eq!(standing.len(), 1);
    assert_eq!((standing[0].tenant.as_deref(), &*standing[0].reason), (None, "the database moves"));
    assert_eq!(person.pause_intake(None, "again").await.unwrap(), standing, "it stands as it was made");

    let paused = bed.machine().ingest(job("new")).await.unwrap_err().to_string();
    assert!(paused.contains(&*person.actor().id) && paused.contains("the database moves"), "{paused}");
    assert!(paused.contains("`tenure intake resume`"), "{paused}");
    assert_eq!(refused(bed.machine().ingest(elsewhere("new")).await), Code::IntakePaused);
    let again = bed.machine().ingest(job("old")).await.unwrap();
    assert_eq!((again.work.id, again.created), (old.id, false), "what is here is answered");
    let other = NewWork { kind: "other".to_owned(), ..job("old") };
    assert_eq!(refused(bed.machine().ingest(other).await), Code::IdempotencyMismatch);

    bed.worker("w").renew(&[(held.lease.clone(), None)]).await.unwrap();
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
    assert_eq!(bed.claim("w", any(1)).await[0].work.id, old.id);
    let again = person.rerun(held.work.id, None, "wanted once more").await.unwrap();
    assert_eq!(again.work.state, State::Queued, "a rerun is an operator's own");

    assert_eq!(person.resume_intake(None, "it has moved").await.unwrap(), []);
    assert!(bed.machine().ingest(job("new")).await.unwrap().created);
    let changes = person.intake_changes(9).await.unwrap();
    let told: Vec<_> = changes.iter().map(|change| (change.paused, &*change.reason)).collect();
    assert_eq!(told, [(false, "it has moved"), (true, "the database moves")]);
    assert_eq!(changes[0].actor, *person.actor());
    assert_eq!(refused(person.pause_intake(None, " ").await), Code::ReasonMissing);
}

pub async fn a_pause_of_one_tenant_leaves_the_others_alone(bed: &mut Bed) {
    let own = bed.person().within(vec![TENANT.to_owned()]);
    assert_eq!(refused(own.pause_intake(None, "all").await), Code::Invalid);
    assert_eq!(refused(own.pause_intake(Some("elsewhere"), "theirs").await), Code::NotFound);
    own.pause_intake(Some(TENANT), "ours").await.unwrap();
    bed.person().pause_intake(Some("third"), "theirs").await.unwrap();
    assert_eq!(refused(bed.machine().ingest(job("new")).await), Code::IntakePaused);
    assert!(bed.machine().ingest(elsewhere("new")).await.unwrap().created);
    let seen: Vec<_> = own.intake().await.unwrap().into_iter().filter_map(|pause| pause.tenant).collect();
    assert_eq!(seen, [TENANT], "another's is none of its business");
    assert_eq!(own.intake_changes(9).await.unwrap().len(), 1);

    bed.person().pause_intake(None, "all").await.unwrap();
    let left = bed.person().resume_intake(None, "all but those").await.unwrap();
    assert_eq!(left.len(), 2, "each pause is ended by itself");
    assert_eq!(refused(bed.machine().ingest(job("new")).await), Code::IntakePaused);
    own.resume_intake(Some(TENANT), "ours again").await.unwrap();
    assert!(bed.machine().ingest(job("new")).await.unwrap().created);
}

pub async fn a_pause_is_tried_without_a_trace(bed: &mut Bed) {
    let trying = bed.person().trying(true);
    assert_eq!(trying.pause_intake(Some(TENANT), "a look").await.unwrap().len(), 1);
    assert_eq!(bed.person().intake().await.unwrap(), []);
    assert_eq!(bed.person().intake_changes(9).await.unwrap(), []);
    assert!(bed.machine().ingest(job("new")).await.unwrap().created);
    bed.person().pause_intake(Some(TENANT), "now").await.unwrap();
    assert_eq!(refused(bed.machine().trying(true).ingest(job("newer")).await), Code::IntakePaused);
}

pub async fn schedules_wait_while_intake_is_paused(bed: &mut Bed) {
    let person = bed.person();
    let other = crate::NewSchedule { tenant: "elsewhere".to_owned(), ..schedules::minutely("other") };
    for new in [schedules::minutely("m"), other] {
        person.set_schedule(new, "wanted").await.unwrap();
    }
    person.pause_intake(Some(TENANT), "the database moves").await.unwrap();
    bed.skip(60_000).await;
    let look = async || Scheduler.run_once(&bed.ledger).await.unwrap();
    let fired = look().await;
    assert_eq!((fired.fired, fired.refused, fired.skipped), (1, 0, 0), "the other tenant's alone");
    assert_eq!(
        refused(person.run_schedule(TENANT, "m", "r1", "now").await),
        Code::IntakePaused,
        "nor by hand"
    );
    person.pause_intake(None, "everything moves").await.unwrap();
    assert_eq!(look().await.fired, 0);
    bed.skip(10 * 60_000).await;
    person.resume_intake(None, "done").await.unwrap();
    person.resume_intake(Some(TENANT), "done").await.unwrap();
    let fired = Scheduler.run_once(&bed.ledger).await.unwrap();
    assert!(fired.fired >= 1 && fired.refused == 0, "{fired:?}");
    let caught_up = person.schedule(TENANT, "m").await.unwrap();
    assert!(caught_up.last_work().is_some() && caught_up.last_error.is_none());
    let reason = caught_up.last_skip.expect("a run that is too old is skipped").reason;
    assert!(matches!(reason, SkipReason::Overlap | SkipReason::Late), "{reason:?}");
}
