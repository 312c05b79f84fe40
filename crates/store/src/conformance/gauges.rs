//! Figures for metrics and alerts: what is open, who holds it, what this process did.

use tenure_core::{
    State,
    action::ClaimFilter,
    liveness::{Grade, Liveness},
    model::WaitKind,
};

use super::{Bed, PATIENCE, START, any, claimant, job, owner_bound, request, said_in, success};
use crate::{Caller, Gauges, LeaseRef, NewWait, NewWork, SourceGauges, StateGauges, WaitGauges};

fn source(gauges: &Gauges, kind: &str) -> SourceGauges {
    gauges.sources.iter().find(|source| source.kind == kind).cloned().unwrap_or_default()
}

pub async fn open_works_and_waits_are_counted(bed: &mut Bed) {
    assert_eq!(bed.ledger.gauges().await.unwrap(), Gauges { at: START, ..Gauges::default() });
    let of = |kind: &str| NewWork { kind: kind.to_owned(), ..job(&request()) };
    bed.ingest(of("a")).await;
    bed.clock.advance(10);
    bed.ingest(of("a")).await;
    bed.ingest(of("b")).await;
    // Only the head of a session can be claimed; the one behind it is queued all the same.
    bed.ingest(NewWork { kind: "s".into(), ..said_in("chat", "1") }).await;
    bed.ingest(NewWork { kind: "s".into(), ..said_in("chat", "2") }).await;
    bed.held(of("b"), "w").await;
    let stalled = bed.held(NewWork { kind: "o".into(), ..owner_bound("lost") }, "v").await;
    let cancelled = bed.held(of("c"), "w").await;
    bed.person().cancel(cancelled.work.id, "enough", None).await.unwrap();
    for (kind, timeout_ms) in [(WaitKind::User, Some(90_000)), (WaitKind::User, None), (WaitKind::Tool, None)]
    {
        let held = bed.held(of("w"), "w").await;
        let wait = NewWait { timeout_ms, endless: kind == WaitKind::Tool, ..NewWait::new(kind, "r") };
        bed.worker("w").wait(&held.lease, vec![wait], None).await.unwrap();
    }
    let done = bed.held(of("d"), "w").await;
    bed.worker("w").close_out(&done.lease, success()).await.unwrap();

    let gauges = bed.ledger.gauges().await.unwrap();
    assert_eq!(gauges.at, START + 10);
    let counted: Vec<(State, u64)> = gauges.states.iter().map(|(state, it)| (*state, it.works)).collect();
    let expected = [
        (State::Queued, 5),
        (State::Running, 2),
        (State::WaitingUser, 2),
        (State::WaitingTool, 1),
        (State::CancelRequested, 1),
    ];
    assert_eq!(counted, expected, "what has ended is not counted");
    assert_eq!(gauges.states[&State::Queued], StateGauges { works: 5, oldest: START });
    assert_eq!(gauges.oldest_open(), Some(START));
    let a = SourceGauges { ready: 2, oldest_ready: Some(START), ..SourceGauges::default() };
    let named = |kind: &str, gauges: SourceGauges| SourceGauges {
        system: "manual".to_owned(),
        kind: kind.to_owned(),
        ..gauges
    };
    assert_eq!(source(&gauges, "a"), named("a", a));
    let b = SourceGauges { ready: 1, oldest_ready: Some(START + 10), running: 1, ..SourceGauges::default() };
    assert_eq!(source(&gauges, "b"), named("b", b));
    assert_eq!(source(&gauges, "s").ready, 1);
    assert_eq!(source(&gauges, "c").cancel_requested, 1);
    assert_eq!(source(&gauges, "w"), SourceGauges::default(), "nobody can work on what waits");
    let user = WaitGauges { open: 2, nearest_deadline: Some(START + 10 + 90_000) };
    assert_eq!(gauges.waits[&WaitKind::User], user);
    assert_eq!(gauges.waits[&WaitKind::Tool], WaitGauges { open: 1, nearest_deadline: None });
    assert_eq!(gauges.expired_leases(), 0);

    bed.clock.advance(super::LEASE.ttl_ms as i64 + 1);
    assert_eq!(bed.ledger.gauges().await.unwrap().expired_leases(), 3, "and nobody has looked yet");
    bed.pass(super::LAPSE_MS).await;
    let gauges = bed.ledger.gauges().await.unwrap();
    bed.expect(stalled.work.id, State::Stalled).await;
    assert_eq!((gauges.works(State::Stalled), source(&gauges, "o").stalled), (1, 1));
    assert_eq!(source(&gauges, "o").expired, 0, "a lapse that was found is no longer an expired lease");
}

pub async fn workers_show_by_their_leases(bed: &mut Bed) {
    let first = bed.held(job("1"), "ann").await;
    bed.clock.advance(2_500);
    bed.held(job("2"), "ann").await;
    bed.held(NewWork { tenant: "red".into(), ..job("3") }, "bob").await;
    let mut worker = claimant("cid", &request());
    worker.worker.liveness = crate::local_process().unwrap_or(Liveness::Opaque);
    let fourth = bed.ingest(job("4")).await;
    bed.worker("cid").claim_ids(worker, vec![fourth.id]).await.unwrap();

    let seen = bed.machine().workers().await.unwrap();
    assert!(seen.complete);
    let [ann, bob, cid] = &seen.workers[..] else { panic!("three workers, not {:#?}", seen.workers) };
    assert_eq!((ann.id.as_str(), ann.incarnation.as_str(), ann.leases), ("ann", "ann-1", 2));
    assert_eq!((ann.oldest_renewal, ann.missed, ann.grade), (Some(START), 1, Grade::Alive));
    assert_eq!(ann.next_expiry, Some(first.expires_at));
    assert_eq!((ann.evidence.as_ref(), &ann.liveness), (None, &Liveness::Opaque));
    assert_eq!((bob.leases, bob.missed), (1, 0));
    assert!(cid.evidence.as_ref().is_some_and(|seen| seen.contains("it runs")), "{cid:?}");

    let red = bed.machine().within(vec!["red".to_owned()]).workers().await.unwrap();
    assert_eq!(red.workers, std::slice::from_ref(bob), "others' workers do not exist for it");

    let until_expiry = first.expires_at - START - 2_500;
    bed.clock.advance(until_expiry);
    let half = bed.machine().workers().await.unwrap();
    assert_eq!(half.workers[0].grade, Grade::Silent, "the worst of its leases, though it renews another");
    bed.clock.advance(10_000 - until_expiry);
    let late = bed.machine().workers().await.unwrap();
    assert_eq!((late.workers[0].grade, late.workers[0].missed), (Grade::Silent, 6));
}

/// A claim that waits is known until its answer, and only to readers of one of its tenants.
pub async fn idle_workers_show_by_their_claims(bed: &mut Bed) {
    let park = |worker: &str, caller: Caller, filter: ClaimFilter| {
        let claimant = claimant(worker, &request());
        tokio::spawn(async move { caller.claim(claimant, filter, Some(PATIENCE)).await.unwrap() })
    };
    let of = |kinds: &[&str]| ClaimFilter {
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        ..any(1)
    };
    let within = |worker: &str, tenant: &str| bed.worker(worker).within(vec![tenant.to_owned()]);
    let busy = bed.held(job("1"), "ann").await;
    let ann = park("ann", bed.worker("ann"), of(&["reply", "digest"]));
    let red = park("rex", within("rex", "red"), of(&["reply"]));
    let blue = park("bea", within("bea", "blue"), any(1));
    let all = bed.machine();
    let seen = loop {
        let seen = all.workers().await.unwrap().workers;
        if seen.iter().map(|worker| worker.idle.len()).sum::<usize>() == 3 {
            break seen;
        }
        tokio::task::yield_now().await;
    };
    let names: Vec<(&str, usize)> = seen.iter().map(|one| (one.id.as_str(), one.leases)).collect();
    assert_eq!(names[0], ("ann", 1), "who holds leases comes first: {names:?}");
    assert_eq!((seen[0].idle[0].kinds.join(","), &seen[0].idle[0].tenants), ("reply,digest".into(), &None));
    assert_eq!(seen[0].next_expiry, Some(busy.expires_at));
    let rex = seen.iter().find(|one| one.id == "rex").unwrap();
    assert_eq!((rex.leases, rex.grade, rex.oldest_renewal), (0, Grade::Alive, None));
    let counts = bed.ledger.idle_by_kind();
    let count = |kind: Option<&str>| counts.get(&kind.map(str::to_owned)).copied();
    assert_eq!((count(Some("reply")), count(Some("digest")), count(None)), (Some(2), Some(1), Some(1)));

    // A reader of one tenant sees the workers that serve it, and no other tenant's name.
    let theirs = bed.machine().within(vec!["red".to_owned()]).workers().await.unwrap().workers;
    let mut names: Vec<(&str, usize)> = theirs.iter().map(|one| (one.id.as_str(), one.leases)).collect();
    names.sort_unstable();
    assert_eq!(names, [("ann", 0), ("rex", 0)], "ann serves every tenant; what she holds is not red's");
    assert!(theirs.iter().all(|one| one.idle[0].tenants == Some(vec!["red".to_owned()])), "{theirs:?}");

    // A queued work item of a kind that nobody claims says so; of foreign workers it says nothing.
    let lonely = bed.ingest(NewWork { kind: "lonely".into(), tenant: "red".into(), ..job("2") }).await;
    let said = bed.machine().within(vec!["red".to_owned()]).explain(lonely.id).await.unwrap();
    for words in ["1 idle worker claims `reply`", "claims `reply` or `digest`", "none claims `lonely`"] {
        assert!(said.sentence.contains(words), "{words}: {}", said.sentence);
    }

    // A claim that is answered is listed no more.
    for (parked, tenant, kind) in [(ann, "default", "digest"), (red, "red", "reply"), (blue, "blue", "any")] {
        bed.ingest(NewWork { kind: kind.into(), tenant: tenant.into(), ..job(&request()) }).await;
        assert_eq!(parked.await.unwrap().len(), 1, "{tenant}");
    }
    assert!(all.workers().await.unwrap().workers.iter().all(|one| one.idle.is_empty()));

    // A claim whose caller has gone away waits no more.
    let gone = park("gus", bed.worker("gus"), of(&["other"]));
    while all.idle_claims().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    assert!(all.idle_claims().await.unwrap().is_empty());
}

pub async fn what_this_process_did_is_counted(bed: &mut Bed) {
    let before = bed.ledger.stats();
    let held = bed.held(job("1"), "w").await;
    let lost = LeaseRef { fence: held.lease.fence + 1, ..held.lease.clone() };
    let renewed = bed.worker("w").renew(&[(held.lease, None), (lost, None)]).await.unwrap();
    assert_eq!(renewed.iter().filter(|renewal| renewal.outcome.is_err()).count(), 1);
    assert_eq!(bed.claim("w", any(1)).await.len(), 0);
    let after = bed.ledger.stats();
    assert!(after.groups > before.groups && after.submissions >= before.submissions + 3);
    assert_eq!((after.renewals_refused, after.queued), (before.renewals_refused + 1, 0));
    assert!(after.group_time >= before.group_time + after.last_group);
}

pub async fn the_database_tells_of_itself(bed: &mut Bed) {
    let told = bed.ledger.diagnosis().await.unwrap();
    assert!(!told.version.is_empty(), "{told:?}");
    if let Some(schema) = told.schema {
        assert!(schema.known > 0, "{told:?}");
        assert_eq!(schema.known, schema.applied, "a ledger that was just made has everything");
    }
    let names: Vec<&str> = told.settings.iter().map(|setting| setting.name).collect();
    let expected: &[&str] = match told.engine {
        "sqlite" => &["journal_mode", "synchronous"],
        "postgres" => &["fsync", "full_page_writes", "synchronous_commit"],
        _ => &[],
    };
    assert_eq!(names, expected);
    assert_eq!(told.wal.is_some(), told.engine == "sqlite");
}
