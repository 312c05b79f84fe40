//! Work items that do not progress: the same are found in every store, each with its cause.

use tenure_core::{
    Code, State, WorkId,
    action::{ClaimFilter, Failure},
    model::{ErrorClass, WaitKind},
    policy::{KindPolicy, OnSpinning, OnStalled, Settings, Spinning},
    records::reference_to,
    stuck::{Cause, Patience},
};

use super::{Bed, LAPSE_MS, any, claimant, job, owner_bound, request, said_in};
use crate::{Caller, NewWait, NewWork, StuckReport};

const PATIENCE: Patience = Patience { idle_ms: 5_000, retry_ms: 5_000 };

fn causes(report: &StuckReport) -> Vec<(Cause, WorkId)> {
    report.works.iter().map(|(work, stuck)| (stuck.cause, work.id)).collect()
}

async fn stuck(caller: &Caller) -> StuckReport {
    caller.stuck(None, PATIENCE).await.expect("they can be read")
}

/// Beside each stuck one stands one that is not.
pub async fn each_cause_is_found_with_its_evidence(bed: &mut Bed) {
    let all = bed.machine();
    let report = stuck(&all).await;
    assert_eq!((report.open, report.complete, report.works.len()), (0, true, 0));

    // Poison: one that failed three times alike.
    let poison = bed.ingest(job("poison")).await.id;
    for _ in 0..3 {
        let held = bed.take(poison, "p").await;
        bed.worker("p").fail(&held.lease, Failure::new(ErrorClass::Unknown, "boom")).await.unwrap();
        bed.pass(60_000).await;
    }
    bed.expect(poison, State::Quarantined).await;
    // A lost lease: started, owner-bound, and silent.
    let lost = bed.held(owner_bound("lost"), "o").await.work.id;
    bed.pass(LAPSE_MS).await;
    bed.expect(lost, State::Stalled).await;
    // Waits: a circle of two, one that nobody is assigned to, and one that ana answers.
    let [a, b] = [bed.held(job("a"), "w").await, bed.held(job("b"), "w").await];
    for (one, other) in [(&a, &b), (&b, &a)] {
        let wait = NewWait::new(WaitKind::External, &reference_to(other.work.id));
        bed.worker("w").wait(&one.lease, vec![wait], None).await.unwrap();
    }
    let mut endless = Vec::new();
    for (id, assignee) in [("nobody", None), ("ana", Some("ana".to_owned()))] {
        let held = bed.held(job(id), "w").await;
        let wait = NewWait { endless: true, assignee, ..NewWait::new(WaitKind::User, id) };
        bed.worker("w").wait(&held.lease, vec![wait], None).await.unwrap();
        endless.push(held.work.id);
    }
    // An overdue retry: no sweeper runs while the clock advances.
    let retry = bed.held(job("retry"), "r").await;
    bed.worker("r").fail(&retry.lease, Failure::new(ErrorClass::Transport, "reset")).await.unwrap();
    // No worker: only the first of a session could be claimed, and of a busy kind none counts.
    let lonely = bed.ingest(NewWork { kind: "lonely".into(), ..said_in("s", "1") }).await.id;
    bed.ingest(NewWork { kind: "lonely".into(), ..said_in("s", "2") }).await;
    bed.clock.advance(PATIENCE.idle_ms + 2_000);
    let busy = bed.held(job("busy"), "w").await;
    bed.ingest(job("behind")).await;

    let report = stuck(&all).await;
    let expected = [
        (Cause::Poison, poison),
        (Cause::CircularWait, a.work.id),
        (Cause::CircularWait, b.work.id),
        (Cause::UnansweredWait, endless[0]),
        (Cause::LeaseLost, lost),
        (Cause::RetryOverdue, retry.work.id),
        (Cause::NoWorker, lonely),
    ];
    assert_eq!(causes(&report), expected, "{:#?}", report.works);
    assert!(report.complete && report.works.iter().all(|(_, stuck)| !stuck.evidence.is_empty()));
    let open = bed.all().await.iter().filter(|work| !work.state.is_terminal()).count() as u64;
    assert_eq!((report.open, report.at), (open, bed.now()));

    // A worker that was there a moment ago is not missing.
    let other = bed.claim("idle", ClaimFilter { kinds: vec!["other".into()], ..any(1) });
    assert!(other.await.is_empty());
    assert_eq!(causes(&stuck(&all).await), expected);
    assert_eq!(bed.worker("busy").renew(&[(busy.lease, None)]).await.unwrap().len(), 1);
    bed.sweep().await;
    bed.expect(retry.work.id, State::Queued).await;
    assert!(!causes(&stuck(&all).await).contains(&(Cause::RetryOverdue, retry.work.id)));
}

/// Nothing of a foreign tenant shows, not even its number.
pub async fn stuck_works_of_other_tenants_do_not_exist(bed: &mut Bed) {
    let mut ids = Vec::new();
    for tenant in ["red", "red", "blue"] {
        let new = NewWork { tenant: tenant.into(), ..job(&request()) };
        let held = bed.held(new, "w").await;
        let wait = NewWait { endless: true, ..NewWait::new(WaitKind::User, "q") };
        bed.worker("w").wait(&held.lease, vec![wait], None).await.unwrap();
        ids.push(held.work.id);
        ids.push(bed.ingest(NewWork { tenant: tenant.into(), ..job(&request()) }).await.id);
    }
    bed.clock.advance(PATIENCE.idle_ms + 2_000);
    let red = bed.machine().within(vec!["red".to_owned()]);
    let report = stuck(&red).await;
    let expected = [
        (Cause::UnansweredWait, ids[0]),
        (Cause::UnansweredWait, ids[2]),
        (Cause::NoWorker, ids[1]),
        (Cause::NoWorker, ids[3]),
    ];
    assert_eq!((causes(&report), report.open), (expected.to_vec(), 4));
    let blue = bed.machine().stuck(Some("blue"), PATIENCE).await.unwrap();
    assert_eq!((causes(&blue).len(), blue.open), (2, 2));
    let none = red.stuck(Some("blue"), PATIENCE).await.unwrap();
    assert_eq!((causes(&none).len(), none.open), (0, 0));
    // A worker of blue is no worker of red, and one that waits for red is.
    bed.worker("b").within(vec!["blue".to_owned()]).claim(claimant("b", "1"), none_of(), None).await.unwrap();
    assert_eq!(causes(&stuck(&red).await), expected);
    bed.worker("r").within(vec!["red".to_owned()]).claim(claimant("r", "1"), of("job"), None).await.unwrap();
    assert_eq!(
        causes(&stuck(&red).await),
        expected[..2],
        "it was given the first, and will come to the other"
    );
}

fn of(kind: &str) -> ClaimFilter {
    ClaimFilter { kinds: vec![kind.to_owned()], ..any(1) }
}

fn none_of() -> ClaimFilter {
    of("another")
}

/// A holder that renews and shows nothing is found; what it shows is stored with its renewals, without an event.
pub async fn a_spinning_holder_is_found(bed: &mut Bed) {
    let judged = |then| KindPolicy {
        spinning: Some(Spinning { after_ms: 20_000, then }),
        stalled: Some(OnStalled::Page),
    };
    let settings = Settings::default().with_kind("manual", "job", judged(OnSpinning::Alert)).unwrap();
    let settings = settings.with_kind("manual", "strict", judged(OnSpinning::StopRenewing)).unwrap();
    bed.ledger.set_settings(settings);
    let (lazy, strict) = (
        bed.held(job("lazy"), "l").await,
        bed.held(NewWork { kind: "strict".into(), ..job("strict") }, "s").await,
    );
    let eager = bed.held(job("eager"), "e").await;
    let bound = bed.held(NewWork { kind: "strict".into(), ..owner_bound("bound") }, "b").await;
    let bound_lease = bound.lease.clone();
    let mut refused = Vec::new();
    for page in 0..12 {
        bed.pass(2_000).await;
        let progress = Some(serde_json::json!({ "page": page }));
        bed.worker("l").renew(&[(lazy.lease.clone(), None)]).await.unwrap();
        bed.worker("e").renew(&[(eager.lease.clone(), progress)]).await.unwrap();
        for lease in [&strict.lease, &bound_lease] {
            let renewed = bed.worker("s").renew(std::slice::from_ref(&(lease.clone(), None))).await.unwrap();
            refused.extend(renewed.into_iter().filter_map(|renewal| renewal.outcome.err()));
        }
    }
    assert!(refused.iter().all(|refusal| refusal.code == Code::Spinning));
    assert!(!refused.is_empty(), "after 20 s");
    let report = stuck(&bed.machine()).await;
    let spinning: Vec<WorkId> =
        causes(&report).iter().filter(|(cause, _)| *cause == Cause::Spinning).map(|(_, id)| *id).collect();
    assert!(spinning.contains(&lazy.work.id) && !spinning.contains(&eager.work.id), "{report:#?}");
    let (row, seen) = (bed.work(eager.work.id).await, bed.work(lazy.work.id).await);
    assert_eq!(row.lease.unwrap().progressed_at, Some(bed.now()));
    assert_eq!((row.seq, seen.seq), (2, 2), "renewals append no event");
    assert_eq!(seen.lease.unwrap().progressed_at, None);
    let told: Vec<WorkId> = bed.ledger.to_tell().await.unwrap().iter().map(|work| work.id).collect();
    assert!(told.contains(&lazy.work.id) && !told.contains(&eager.work.id));

    // The refused ones lapse: recovery queues what may run again, and leaves what only its owner can end.
    for _ in 0..6 {
        bed.pass(2_000).await;
        let keep = [(lazy.lease.clone(), None), (eager.lease.clone(), None)];
        bed.worker("l").renew(&keep).await.unwrap();
    }
    bed.expect(strict.work.id, State::Queued).await;
    bed.expect(bound.work.id, State::Stalled).await;
    let told: Vec<WorkId> = bed.ledger.to_tell().await.unwrap().iter().map(|work| work.id).collect();
    assert!(told.contains(&bound.work.id), "its kind asks to be told of stalled ones");
    let again = Some(serde_json::json!("page 2"));
    let renewed = bed.worker("b").renew(&[(bound_lease, again)]).await.unwrap();
    assert!(renewed[0].outcome.is_ok(), "{renewed:?}");
    bed.expect(bound.work.id, State::Running).await;
}
