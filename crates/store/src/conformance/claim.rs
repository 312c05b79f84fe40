//! Claims: order, filters, requests, ids, and long polls.

use std::time::Duration;

use serde_json::json;
use tenure_core::{
    Code, State, WorkId,
    action::{ClaimFilter, Claimant, Failure},
    model::{ErrorClass, Source, WaitKind, Worker},
};
use tokio::task::JoinSet;

use super::{
    Bed, PATIENCE, TENANT, any, claimant, job, owner_bound, payload, refused, request, said_in, success,
};
use crate::{Claimed, Error, NewWait, NewWork};

fn ids(claimed: &[Claimed]) -> Vec<WorkId> {
    claimed.iter().map(|one| one.work.id).collect()
}

/// Lower priority first, then age, then id.
pub async fn priority_then_age(bed: &mut Bed) {
    let mut expected = Vec::new();
    for (i, priority) in [3, 1, 5, 3, 1, -2].into_iter().enumerate() {
        let work = bed.ingest(NewWork { priority, ..job(&i.to_string()) }).await;
        expected.push((priority, i, work.id));
        if i % 2 == 1 {
            bed.clock.advance(10);
        }
    }
    expected.sort();
    let mut claimed = Vec::new();
    for _ in 0..6 {
        claimed.extend(ids(&bed.claim("w", any(1)).await));
    }
    assert_eq!(claimed, expected.iter().map(|(_, _, id)| *id).collect::<Vec<_>>());
    assert!(bed.claim("w", any(1)).await.is_empty());
}

pub async fn filters_restrict(bed: &mut Bed) {
    let source = Source { system: "control".to_owned(), id: "c".to_owned(), run_id: String::new() };
    let control = bed.ingest(NewWork { source, ..job("c") }).await.id;
    let mail = bed.ingest(NewWork { kind: "mail".to_owned(), ..job("m") }).await.id;
    let acme = bed.ingest(NewWork { tenant: "acme".to_owned(), ..job("a") }).await.id;
    let plain = bed.ingest(job("p")).await.id;
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();

    let nothing = ClaimFilter { kinds: names(&["fax"]), ..any(10) };
    assert!(bed.claim("w", nothing).await.is_empty());
    let crossed = ClaimFilter { sources: names(&["control"]), kinds: names(&["mail"]), ..any(10) };
    assert!(bed.claim("w", crossed).await.is_empty(), "every field must match");
    let by_source = ClaimFilter { sources: names(&["control", "scheduler"]), ..any(10) };
    assert_eq!(ids(&bed.claim("w", by_source).await), [control]);
    let by_tenant = ClaimFilter { tenants: names(&["acme"]), ..any(10) };
    assert_eq!(ids(&bed.claim("w", by_tenant).await), [acme]);
    let by_kind = ClaimFilter { kinds: names(&["mail", "fax"]), ..any(10) };
    assert_eq!(ids(&bed.claim("w", by_kind).await), [mail]);
    assert_eq!(ids(&bed.claim("w", any(10)).await), [plain]);
}

pub async fn max_is_respected(bed: &mut Bed) {
    for i in 0..10 {
        bed.ingest(job(&i.to_string())).await;
    }
    let sizes = [bed.claim("w", any(4)).await.len(), bed.claim("v", any(100)).await.len()];
    assert_eq!(sizes, [4, 6]);

    // Concurrent claims share the queue: every work item goes to exactly one of them.
    for i in 10..60 {
        bed.ingest(job(&i.to_string())).await;
    }
    let mut claims = JoinSet::new();
    for i in 0..20 {
        let caller = bed.worker(&format!("w{i}"));
        claims.spawn(async move {
            caller.claim(claimant(&format!("w{i}"), "share"), any(3), None).await.unwrap()
        });
    }
    let mut claimed: Vec<WorkId> = claims.join_all().await.iter().flat_map(|one| ids(one)).collect();
    assert_eq!(claimed.len(), 50, "20 claims of 3 empty a queue of 50");
    claimed.sort_unstable();
    claimed.dedup();
    assert_eq!(claimed.len(), 50);
}

/// Invariant 19: a repeated request gets its lost reply and no second lease.
pub async fn a_repeated_request_gets_its_leases_again(bed: &mut Bed) {
    for i in 0..3 {
        bed.ingest(job(&i.to_string())).await;
    }
    let w = bed.worker("w");
    let first = w.claim(claimant("w", "r1"), any(2), None).await.unwrap();
    let again = w.claim(claimant("w", "r1"), any(2), None).await.unwrap();
    let leases = |claimed: &[Claimed]| {
        let mut leases: Vec<_> = claimed.iter().map(|one| one.lease.clone()).collect();
        leases.sort_by_key(|lease| lease.work);
        leases
    };
    assert_eq!(leases(&first), leases(&again));
    assert!(again.iter().all(|one| one.input.is_some()));

    w.close_out(&first[0].lease, success()).await.unwrap();
    let third = w.claim(claimant("w", "r1"), any(2), None).await.unwrap();
    assert_eq!(ids(&third), [first[1].work.id], "never an ended one, and nothing new");

    let mut reborn = claimant("w", "r1");
    reborn.worker = Worker::new("w", "w-2");
    let other = w.claim(reborn, any(2), None).await.unwrap();
    assert_eq!(other.len(), 1, "another incarnation is another worker");

    assert!(w.claim(claimant("w", "r2"), any(2), None).await.unwrap().is_empty());
    bed.ingest(job("later")).await;
    let anew = w.claim(claimant("w", "r2"), any(2), None).await.unwrap();
    assert_eq!(anew.len(), 1, "a claim that gave nothing left no trace");
    let by_ids = w.claim_ids(claimant("w", "r2"), ids(&anew)).await.unwrap();
    assert_eq!(leases(&by_ids), leases(&anew), "the request is known, however it is repeated");
}

pub async fn ids_are_all_or_nothing(bed: &mut Bed) {
    let free = bed.ingest(job("free")).await.id;
    let also = bed.ingest(job("also")).await.id;
    let held = bed.held(job("held"), "busy-bee").await;
    let w = bed.worker("w");
    match w.claim_ids(claimant("w", "1"), vec![free, held.work.id]).await {
        Err(Error::Refused(refusal)) => {
            assert_eq!(refusal.code, Code::Busy);
            assert!(refusal.detail.contains("busy-bee"), "it names the holder: {}", refusal.detail);
        }
        other => panic!("one of them is held: {other:?}"),
    }
    bed.expect(free, State::Queued).await;
    let unknown = WorkId(uuid::Uuid::now_v7());
    assert_eq!(refused(w.claim_ids(claimant("w", "2"), vec![free, unknown]).await), Code::NotFound);
    assert_eq!(refused(w.claim_ids(claimant("w", "3"), vec![free, free]).await), Code::Invalid);
    assert_eq!(refused(w.claim_ids(claimant("w", "4"), Vec::new()).await), Code::Invalid);
    bed.expect(free, State::Queued).await;
    let both = w.claim_ids(claimant("w", "5"), vec![also, free]).await.unwrap();
    assert_eq!(ids(&both), [also, free]);
    bed.worker("busy-bee").close_out(&held.lease, success()).await.unwrap();
    assert_eq!(refused(w.claim_ids(claimant("w", "6"), vec![held.work.id]).await), Code::Terminal);
}

/// A long-polling claim in its own task.
fn park(
    bed: &Bed,
    worker: &str,
    filter: ClaimFilter,
) -> tokio::task::JoinHandle<Result<Vec<Claimed>, Error>> {
    let caller = bed.worker(worker);
    let claimant = claimant(worker, "parked");
    tokio::spawn(async move { caller.claim(claimant, filter, Some(PATIENCE)).await })
}

/// The claim is served whether it came before or just after the work item.
pub async fn a_parked_claim_is_served_by_an_ingest(bed: &mut Bed) {
    let parked = park(bed, "w", any(5));
    bed.claim("other", any(1)).await;
    let work = bed.ingest(job("late")).await;
    let claimed = parked.await.unwrap().unwrap();
    assert_eq!(ids(&claimed), [work.id]);
    assert_eq!(claimed[0].input, Some(payload(json!({ "ask": "late" }))));
    bed.worker("w").close_out(&claimed[0].lease, success()).await.unwrap();

    // However long it would wait.
    let caller = bed.worker("w");
    let patient = tokio::spawn(async move {
        caller.claim(claimant("w", "patient"), any(1), Some(Duration::MAX)).await.unwrap()
    });
    bed.claim("other", any(1)).await;
    let work = bed.ingest(job("awaited")).await;
    let claimed = patient.await.unwrap();
    assert_eq!(ids(&claimed), [work.id]);
    bed.worker("w").close_out(&claimed[0].lease, success()).await.unwrap();

    // Also served by a work item that returns to the queue.
    let held = bed.held(job("returns"), "v").await;
    let parked = park(bed, "x", any(5));
    bed.claim("other", any(1)).await;
    bed.worker("v").release(&held.lease, None).await.unwrap();
    assert_eq!(ids(&parked.await.unwrap().unwrap()), [held.work.id]);

    // Served by an answer, and by a retry that becomes due.
    let held = bed.held(job("answered"), "v").await;
    let wait = vec![NewWait::new(WaitKind::User, "q")];
    bed.worker("v").wait(&held.lease, wait, None).await.unwrap();
    let parked = park(bed, "y", any(5));
    bed.claim("other", any(1)).await;
    bed.machine().resolve("default", "q", &json!(1), None).await.unwrap();
    let served = parked.await.unwrap().unwrap();
    assert_eq!(served[0].answers[0].1, Some(payload(json!(1))), "it gets the answer as well");
    let failure = Failure::new(ErrorClass::Transport, "reset");
    bed.worker("y").fail(&served[0].lease, failure).await.unwrap();
    let parked = park(bed, "z", any(5));
    bed.claim("other", any(1)).await;
    bed.pass(1_000).await;
    assert_eq!(ids(&parked.await.unwrap().unwrap()), [held.work.id]);
}

/// Each of many long-polling claims is served once enough work items exist, and none twice.
pub async fn parked_claims_are_served_in_turn(bed: &mut Bed) {
    let parked: Vec<_> = (0..10).map(|i| park(bed, &format!("w{i}"), any(1))).collect();
    bed.claim("other", any(1)).await;
    let mut expected = Vec::new();
    for i in 0..10 {
        let session = (i % 3 == 0).then(|| format!("s{i}"));
        expected.push(bed.ingest(NewWork { session, ..job(&i.to_string()) }).await.id);
    }
    let mut claimed = Vec::new();
    for claim in parked {
        let served = claim.await.unwrap().unwrap();
        assert_eq!(served.len(), 1);
        claimed.extend(ids(&served));
    }
    claimed.sort_unstable();
    assert_eq!(claimed, expected);
}

pub async fn a_parked_claim_times_out_empty(bed: &mut Bed) {
    let wait = Some(Duration::from_millis(50));
    let began = std::time::Instant::now();
    let claimed = bed.worker("w").claim(claimant("w", "short"), any(1), wait).await.unwrap();
    assert!(claimed.is_empty());
    assert!(began.elapsed() >= Duration::from_millis(45), "it waited");
    let work = bed.ingest(job("after")).await;
    assert_eq!(bed.work(work.id).await.state, State::Queued, "a claim that is over takes nothing");
}

/// A claim whose caller has gone away must not take a lease.
pub async fn an_abandoned_parked_claim_takes_nothing(bed: &mut Bed) {
    let w = bed.worker("w");
    let asking = w.claim(claimant("w", "gone"), any(5), Some(PATIENCE));
    let gone = tokio::time::timeout(Duration::from_millis(30), asking).await;
    assert!(gone.is_err(), "an empty queue parks the claim");
    let work = bed.ingest(job("late")).await;
    assert_eq!(bed.state(work.id).await, State::Queued);
    assert_eq!(ids(&bed.claim("v", any(5)).await), [work.id]);
}

pub async fn a_parked_claim_minds_its_filter(bed: &mut Bed) {
    let mail = ClaimFilter { kinds: vec!["mail".to_owned()], ..any(5) };
    let parked = park(bed, "w", mail);
    bed.claim("other", any(1)).await;
    let plain = bed.ingest(job("plain")).await;
    let blocked = bed.held(said_in("chat", "first"), "v").await;
    let next = NewWork { kind: "mail".to_owned(), ..said_in("chat", "second") };
    let next = bed.ingest(next).await;
    bed.expect(plain.id, State::Queued).await;
    bed.expect(next.id, State::Queued).await;
    assert!(!parked.is_finished(), "the session is held");
    bed.worker("v").close_out(&blocked.lease, success()).await.unwrap();
    assert_eq!(ids(&parked.await.unwrap().unwrap()), [next.id], "its turn came with the close-out");
}

/// Invariant 5: also when the clock stops or goes back.
pub async fn fences_only_grow(bed: &mut Bed) {
    let work = bed.ingest(job("again")).await;
    let mut last = 0;
    for i in 0..6 {
        let held = bed.take(work.id, &format!("w{i}")).await;
        assert!(held.lease.fence > last);
        assert!(held.lease.fence < 1 << 53, "safe as a JSON number");
        last = held.lease.fence;
        bed.worker(&format!("w{i}")).release(&held.lease, None).await.unwrap();
        bed.clock.jump(if i % 2 == 0 { 0 } else { -3_600_000 });
    }
    let fences: Vec<u64> = bed.ledger.attempts(work.id).await.unwrap().iter().map(|a| a.fence).collect();
    assert_eq!(fences.len(), 6);
    assert!(fences.is_sorted());
}

/// Invariant 19 under concurrency: one request, sent ten times at once, is one claim.
pub async fn a_request_repeated_at_once_is_one_claim(bed: &mut Bed) {
    for i in 0..40 {
        bed.ingest(job(&i.to_string())).await;
    }
    let mut claims = JoinSet::new();
    for _ in 0..10 {
        let caller = bed.worker("w");
        claims.spawn(async move { caller.claim(claimant("w", "same"), any(3), None).await.unwrap() });
    }
    let answers = claims.join_all().await;
    let leases = |claimed: &[Claimed]| {
        let mut fences: Vec<_> = claimed.iter().map(|one| (one.work.id, one.lease.fence)).collect();
        fences.sort_unstable();
        fences
    };
    let first = leases(&answers[0]);
    assert_eq!(first.len(), 3);
    assert!(answers.iter().all(|one| leases(one) == first), "each answer is the same claim");
    let queued = bed.ledger.counts(&tenure_core::action::Tenants::All).await.unwrap()[&State::Queued];
    assert_eq!(queued, 37);
}

/// One order over all lanes: kinds, sources and tenants share the queue for a claim of everything. Tenants
/// alternate only at equal urgency, which does not occur here.
pub async fn the_order_holds_across_kinds_and_sources(bed: &mut Bed) {
    let mut expected = Vec::new();
    for i in 0..24_i16 {
        let system = ["manual", "control", "conversation"][i as usize % 3].to_owned();
        let source = Source { system, id: i.to_string(), run_id: String::new() };
        let (kind, tenant) = (format!("kind{}", i % 4), format!("tenant{}", i % 7 % 5));
        let priority = 10 - i % 7;
        let work = bed.ingest(NewWork { source, kind, tenant, priority, ..job("x") }).await;
        bed.clock.advance(1);
        expected.push((priority, work.spec.created_at, work.id));
    }
    expected.sort_unstable();
    let expected: Vec<WorkId> = expected.into_iter().map(|(_, _, id)| id).collect();
    let kinds = (0..4).map(|i| format!("kind{i}")).collect();
    let mut claimed = ids(&bed.claim("w", any(5)).await);
    claimed.extend(ids(&bed.claim("w", ClaimFilter { kinds, ..any(7) }).await));
    claimed.extend(ids(&bed.claim("w", any(100)).await));
    assert_eq!(claimed, expected);
}

/// A tenant with many queued work items is not served before another, even if it came first; the order within
/// a tenant is kept.
pub async fn tenants_take_turns_within_a_priority(bed: &mut Bed) {
    let of = |tenant: &str, id: String| NewWork { tenant: tenant.to_owned(), ..job(&id) };
    let mut flood = Vec::new();
    for i in 0..40 {
        let kind = format!("kind{}", i % 3);
        flood.push(bed.ingest(NewWork { kind, ..of("flood", i.to_string()) }).await.id);
        bed.clock.advance(1);
    }
    let mut quiet = Vec::new();
    for i in 0..2 {
        quiet.push(bed.ingest(of("quiet", i.to_string())).await.id);
        bed.clock.advance(1);
    }
    let urgent = bed.ingest(NewWork { priority: 1, ..of("flood", "urgent".to_owned()) }).await.id;

    let claimed = ids(&bed.claim("w", any(3)).await);
    assert_eq!(claimed[0], urgent, "priority comes first");
    assert_eq!(sorted(&claimed[1..]), sorted(&[flood[0], quiet[0]]));
    let claimed = ids(&bed.claim("w", any(4)).await);
    assert_eq!(sorted(&claimed[..2]), sorted(&[flood[1], quiet[1]]));
    assert_eq!(claimed[2..], flood[2..4], "the others go on alone");
    let tenants = vec!["flood".to_owned(), "quiet".to_owned(), "flood".to_owned()];
    assert_eq!(ids(&bed.claim("w", ClaimFilter { tenants, ..any(100) }).await), flood[4..]);
}

fn sorted(ids: &[WorkId]) -> Vec<WorkId> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}

/// A thousand claimed in one call and renewed in one call.
pub async fn a_thousand_at_once(bed: &mut Bed) {
    let mut ingests = JoinSet::new();
    for i in 0..1_000 {
        let caller = bed.machine();
        ingests.spawn(async move { caller.ingest(job(&i.to_string())).await.unwrap().created });
    }
    assert!(ingests.join_all().await.into_iter().all(|created| created));
    let claimed = bed.claim("w", any(1_000)).await;
    assert_eq!(claimed.len(), 1_000);
    bed.clock.advance(1_000);
    let leases: Vec<_> = claimed.iter().map(|one| (one.lease.clone(), Some(json!(1)))).collect();
    let renewals = bed.worker("w").renew(&leases).await.unwrap();
    assert!(renewals.iter().zip(&leases).all(|(renewal, (lease, _))| {
        renewal.work == lease.work && renewal.outcome.as_ref().unwrap().expires_at == bed.now() + 6_000
    }));
}

/// Another worker with the same incarnation name is a different owner, and is not blocked by work items that
/// wait for the first.
pub async fn an_incarnation_is_its_workers_own(bed: &mut Bed) {
    let by = |worker: &str| Claimant::new(Worker::new(worker, "boot-1"), &request());
    let bound = bed.ingest(owner_bound("bound")).await.id;
    let held = bed.worker("a").claim_ids(by("a"), vec![bound]).await.unwrap().remove(0);
    let ask = vec![NewWait::new(WaitKind::User, "colour")];
    bed.worker("a").wait(&held.lease, ask, None).await.unwrap();
    bed.person().resolve(TENANT, "colour", &json!("blue"), None).await.unwrap();
    bed.expect(bound, State::Queued).await;
    let mut free = Vec::new();
    for n in 0..3 {
        free.push(bed.ingest(job(&n.to_string())).await.id);
    }
    for id in &free {
        let claimed = bed.worker("b").claim(by("b"), any(1), None).await.unwrap();
        assert_eq!(ids(&claimed), [*id], "the first in the queue is not for it");
    }
    assert!(bed.worker("b").claim(by("b"), any(9), None).await.unwrap().is_empty());
    assert_eq!(ids(&bed.worker("a").claim(by("a"), any(9), None).await.unwrap()), [bound]);
}
