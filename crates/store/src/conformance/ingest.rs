//! Recording work items: identity, content, tenants, and externally owned work items.

use serde_json::json;
use tenure_core::{
    Actor, Code, Payload, State,
    action::{ClaimFilter, CloseOut, Tenants},
    model::{Output, Source},
    policy::{LeaseTimings, PolicyOverrides},
};
use tokio::task::JoinSet;

use super::{Bed, TENANT, claimant, external, job, payload, refused, success};
use crate::{NewWork, WorkFilter};

pub async fn the_same_again_is_the_same_work(bed: &mut Bed) {
    let first = bed.ingest(job("one")).await;
    let again = bed.machine().ingest(job("one")).await.unwrap();
    assert!(!again.created);
    assert_eq!(again.work, first);
    let other_run = Source { run_id: "2".to_owned(), ..job("one").source };
    let second = bed.ingest(NewWork { source: other_run, ..job("one") }).await;
    assert_ne!(second.id, first.id, "another run is another work");

    let held = bed.take(first.id, "w").await;
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
    let late = bed.machine().ingest(job("one")).await.unwrap();
    assert!(!late.created, "a late delivery does not run it again");
    assert_eq!((late.work.id, late.work.state), (first.id, State::Succeeded));
}

pub async fn other_content_is_a_mismatch(bed: &mut Bed) {
    let work = bed.ingest(job("one")).await;
    let before = bed.snapshot().await;
    let input = NewWork { input: json!("other"), ..job("one") };
    let kind = NewWork { kind: "other".to_owned(), ..job("one") };
    for new in [input, kind, super::owner_bound("one")] {
        assert_eq!(refused(bed.machine().ingest(new).await), Code::IdempotencyMismatch);
    }
    assert_eq!(bed.snapshot().await, before);
    let calmer = NewWork { priority: 9, ..job("one") };
    let again = bed.machine().ingest(calmer).await.unwrap();
    assert_eq!(again.work, work, "priority is not content: the first delivery's stands");
}

/// Invariant 16 under concurrency: half of them claim as well.
pub async fn fifty_deliveries_make_one_work(bed: &mut Bed) {
    let mut deliveries = JoinSet::new();
    for i in 0..50 {
        let caller = bed.machine();
        let claim = (i % 2 == 0).then(|| claimant(&format!("w{i}"), "once"));
        deliveries.spawn(async move { caller.ingest(NewWork { claim, ..job("one") }).await.unwrap() });
    }
    let answers = deliveries.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.created).count(), 1);
    assert!(answers.iter().filter(|answer| answer.lease.is_some()).count() <= 1);
    assert!(answers.iter().all(|answer| answer.work.id == answers[0].work.id));
    assert_eq!(bed.all().await.len(), 1);
}

/// Everything outside of a caller's tenants does not exist for it.
pub async fn a_tenant_is_a_world_of_its_own(bed: &mut Bed) {
    let here = bed.ingest(job("one")).await;
    let there = bed.ingest(NewWork { tenant: "acme".to_owned(), ..job("one") }).await;
    assert_ne!(here.id, there.id, "identities are per tenant");

    let acme = bed.person().within(vec!["acme".to_owned()]);
    assert_eq!(refused(acme.ingest(job("two")).await), Code::NotFound);
    assert_eq!(refused(acme.cancel(here.id, "why not", None).await), Code::NotFound);
    let ids = acme.claim_ids(claimant("a", "ids"), vec![here.id]).await;
    assert_eq!(refused(ids), Code::NotFound);
    let claimed = acme.claim(claimant("a", "all"), super::any(10), None).await.unwrap();
    assert_eq!(claimed.iter().map(|one| one.work.id).collect::<Vec<_>>(), [there.id]);
    bed.worker("a").release(&claimed[0].lease, None).await.unwrap();
    let theirs = ClaimFilter { tenants: vec![TENANT.to_owned()], ..super::any(10) };
    let claimed = acme.claim(claimant("a", "theirs"), theirs, None).await.unwrap();
    assert!(claimed.is_empty(), "who asks for others' works is given none, not its own");
    let foreign = refused(acme.resolve(TENANT, "question", &json!(1), None).await);
    assert_eq!(foreign, Code::NotFound);
    let child = NewWork { tenant: "acme".to_owned(), parent: Some(here.id), ..job("child") };
    assert_eq!(refused(acme.ingest(child).await), Code::NotFound);

    let mine = WorkFilter { tenants: Some(Tenants::Only(vec!["acme".to_owned()])), ..WorkFilter::default() };
    let listed = bed.ledger.list(&mine, None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|work| work.id).collect::<Vec<_>>(), [there.id]);
}

pub async fn malformed_works_are_refused(bed: &mut Bed) {
    let source = |system: &str, id: &str| Source { system: system.into(), id: id.into(), run_id: "".into() };
    let impossible = LeaseTimings { ttl_ms: 2_000, renew_ms: 1_000, grace_ms: 0 };
    let policy = PolicyOverrides { lease: Some(impossible), ..PolicyOverrides::default() };
    for (new, code) in [
        (NewWork { source: source("fax", "1"), ..job("x") }, Code::UnknownSource),
        (NewWork { source: source("scheduler", "nightly"), ..job("x") }, Code::Invalid),
        (NewWork { source: source("manual", ""), ..job("x") }, Code::Invalid),
        (NewWork { kind: "a\nb".to_owned(), ..job("x") }, Code::Invalid),
        (NewWork { kind: "a\0b".to_owned(), ..job("x") }, Code::Invalid),
        (NewWork { source: source("manual", "a\0b"), ..job("x") }, Code::Invalid),
        (NewWork { tenant: "a\0b".to_owned(), ..job("x") }, Code::Invalid),
        (NewWork { session: Some("a\0b".to_owned()), ..job("x") }, Code::Invalid),
        (NewWork { session: Some(String::new()), ..job("x") }, Code::Invalid),
        (NewWork { policy, ..job("x") }, Code::ImpossibleTimings),
        (NewWork { session: Some("s".to_owned()), ..external("x") }, Code::Invalid),
        (NewWork { born: Some(CloseOut::new(State::Failed)), ..job("x") }, Code::Invalid),
    ] {
        assert_eq!(refused(bed.machine().ingest(new).await), code);
    }
    assert!(bed.all().await.is_empty());
}

pub async fn payloads_are_bounded(bed: &mut Bed) {
    let large = NewWork { input: json!("x".repeat(1024 * 1024)), ..job("large") };
    assert_eq!(refused(bed.machine().ingest(large).await), Code::PayloadRefused);
    let mut deep = json!(1);
    for _ in 0..70 {
        deep = json!([deep]);
    }
    assert_eq!(
        refused(bed.machine().ingest(NewWork { input: deep, ..job("deep") }).await),
        Code::PayloadRefused
    );
    let huge = NewWork { input: json!(9_007_199_254_740_993_u64), ..job("huge") };
    assert_eq!(refused(bed.machine().ingest(huge).await), Code::PayloadRefused);

    // The largest that fits, with what databases like to trip over, comes back as it went in.
    let odd = "äöü 漢字 🦀 'quoted' \"double\" \\ \u{7f} \u{feff} %s ${x} --";
    let input = json!({ "odd": odd, "fill": "x".repeat(1_000_000), "f": 0.1, "e": 1e300, "neg": -0.0 });
    let held = bed.held(NewWork { input: input.clone(), ..job("full") }, "w").await;
    assert_eq!(held.input, Some(Payload::new(&input).unwrap()));
    let result = payload(json!({ "odd": odd }));
    bed.worker("w").close_out(&held.lease, CloseOut::succeeded(result.clone())).await.unwrap();
    assert_eq!(bed.ledger.payload(held.work.id, 3).await.unwrap(), Some(result));

    let crowd: Vec<_> = (0..1_001).map(|_| held.lease.clone()).map(|lease| (lease, None)).collect();
    assert_eq!(refused(bed.worker("w").renew(&crowd).await), Code::Invalid);
    let too_many = bed.worker("w").claim(claimant("w", "many"), super::any(1_001), None).await;
    assert_eq!(refused(too_many), Code::Invalid);
    assert_eq!(
        refused(bed.worker("w").claim(claimant("w", "none"), super::any(0), None).await),
        Code::Invalid
    );
}

pub async fn externally_owned_work_ends_by_its_token(bed: &mut Bed) {
    let ingested = bed.machine().ingest(external("job")).await.unwrap();
    let id = ingested.work.id;
    assert_eq!(ingested.work.state, State::WaitingExternal);
    let token = ingested.completion_token.expect("its owner needs a token");
    let again = bed.machine().ingest(external("job")).await.unwrap();
    assert_eq!(again.completion_token.as_ref(), Some(&token), "a lost reply can be given again");
    for other in [bed.worker("w"), bed.person(), bed.ledger.caller(Actor::machine("another"))] {
        let theirs = other.ingest(external("job")).await.unwrap();
        assert_eq!((theirs.created, theirs.completion_token), (false, None), "only who recorded it ends it");
    }

    assert!(bed.claim("w", super::any(10)).await.is_empty(), "nobody here runs it");
    let grabbed = bed.worker("w").claim_ids(claimant("w", "ids"), vec![id]).await;
    assert_eq!(refused(grabbed), Code::NotClaimable);
    assert_eq!(refused(bed.machine().complete(id, "guess", success()).await), Code::TokenRefused);
    let ack = bed.machine().complete(id, &token, success()).await.unwrap();
    assert_eq!(ack.state, State::Succeeded);
    assert_eq!(bed.machine().complete(id, &token, success()).await.unwrap(), ack, "the same again");
    let other = bed.machine().complete(id, &token, CloseOut::new(State::Failed)).await;
    assert_eq!(refused(other), Code::Terminal);

    let lost = bed.ingest(external("lost")).await;
    let ack = bed.person().request_abandon(lost.id, "its owner is gone").await.unwrap();
    assert_eq!(ack.state, State::Abandoned);
    assert_eq!(refused(bed.person().rerun(lost.id, None, "again").await), Code::IllegalState);
}

pub async fn detached_work_is_born_terminal(bed: &mut Bed) {
    let close = CloseOut { result_ref: Some("s3://bucket/out".into()), ..CloseOut::new(State::Succeeded) };
    let ingested = bed.machine().ingest(NewWork { born: Some(close), ..external("detached") }).await.unwrap();
    let work = bed.work(ingested.work.id).await;
    assert_eq!((work.state, work.seq, work.due_at), (State::Succeeded, 1, None));
    assert_eq!(work.body.output, Some(Output::Reference("s3://bucket/out".into())));
    assert_eq!(work.body.completed_at, Some(bed.now()));
    assert_eq!(ingested.completion_token, None);
    assert_eq!(refused(bed.person().cancel(work.id, "too late", None).await), Code::Terminal);
}

pub async fn ingest_claims_in_the_same_act(bed: &mut Bed) {
    let new = || NewWork { claim: Some(claimant("w", "now")), ..job("one") };
    let ingested = bed.machine().ingest(new()).await.unwrap();
    let lease = ingested.lease.expect("nothing stands against it");
    assert_eq!(ingested.work.state, State::Running);
    assert_eq!(lease.input, Some(payload(json!({ "ask": "one" }))));
    let again = bed.machine().ingest(new()).await.unwrap();
    assert!(!again.created);
    assert_eq!(again.lease.expect("the same request gets its lease again").lease, lease.lease);
    let stranger = NewWork { claim: Some(claimant("v", "now")), ..job("one") };
    assert!(bed.machine().ingest(stranger).await.unwrap().lease.is_none());
    bed.worker("w").close_out(&lease.lease, success()).await.unwrap();
    assert!(bed.machine().ingest(new()).await.unwrap().lease.is_none(), "an ended lease is not given again");

    let second = bed.machine().ingest(new_in_session("a")).await.unwrap();
    assert!(second.lease.is_some());
    let third = bed.machine().ingest(new_in_session("b")).await.unwrap();
    assert!(third.lease.is_none(), "the session is held: it is recorded and waits its turn");
    assert_eq!(third.work.state, State::Queued);
}

fn new_in_session(id: &str) -> NewWork {
    NewWork { claim: Some(claimant("w", id)), ..super::said_in("chat", id) }
}
