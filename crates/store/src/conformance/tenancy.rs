//! The view of a caller that is bound to tenants: its own data, and nothing about others.

use serde_json::json;
use tenure_core::{
    Actor, Code, State, WorkId,
    action::Tenants,
    model::{WaitKind, Workflow},
};

use super::{Bed, any, claimant, job, refused, request};
use crate::{Caller, NewWait, NewWork, Position, WaitFilter, WorkFilter};

/// A caller in each of two tenants, and a work item of each with a step, an open wait and an attempt.
async fn two(bed: &Bed) -> [(Caller, WorkId); 2] {
    let mut both = Vec::new();
    for tenant in ["red", "blue"] {
        let new = NewWork { tenant: tenant.to_owned(), ..job(&request()) };
        let held = bed.held(new, tenant).await;
        let worker = bed.worker(tenant);
        worker.begin_step(&held.lease, "first", &json!(1), false).await.unwrap();
        worker.complete_step(&held.lease, "first", &json!(1), &json!(2)).await.unwrap();
        let waits = vec![NewWait::new(WaitKind::User, tenant)];
        worker.wait(&held.lease, waits, None).await.unwrap();
        both.push((bed.machine().within(vec![tenant.to_owned()]), held.work.id));
    }
    both.try_into().unwrap_or_else(|_| panic!("two tenants"))
}

pub async fn a_foreign_work_does_not_exist(bed: &mut Bed) {
    let [(red, own), (_, foreign)] = two(bed).await;
    assert_eq!(red.work(own).await.unwrap().id, own);
    assert_eq!(red.steps(own).await.unwrap().len(), 1);
    assert_eq!(red.attempts(own).await.unwrap().len(), 1);
    assert!(red.payload(own, 1).await.unwrap().is_some());
    assert_eq!(red.events(own, 0, 100).await.unwrap().rows, bed.events(own).await);
    assert_eq!(red.explain(own).await.unwrap(), bed.ledger.explain(own).await.unwrap());

    let unknown = WorkId(uuid::Uuid::now_v7());
    for id in [foreign, unknown] {
        let told = |error: crate::Error| error.to_string().replace(&id.to_string(), "ID");
        let expected = "not_found: There is no work item ID. Check the id.";
        assert_eq!(told(red.work(id).await.unwrap_err()), expected);
        assert_eq!(told(red.events(id, 0, 10).await.unwrap_err()), expected);
        assert_eq!(told(red.payload(id, 1).await.unwrap_err()), expected);
        assert_eq!(told(red.steps(id).await.unwrap_err()), expected);
        assert_eq!(told(red.attempts(id).await.unwrap_err()), expected);
        assert_eq!(told(red.explain(id).await.unwrap_err()), expected);
    }
}

pub async fn lists_keep_to_the_callers_tenants(bed: &mut Bed) {
    let [(red, own), (blue, other)] = two(bed).await;
    let works = async |caller: &Caller, filter: WorkFilter| -> Vec<WorkId> {
        caller.list(&filter, None, 10).await.unwrap().iter().map(|work| work.id).collect()
    };
    let asked = |tenant: &str| Some(Tenants::Only(vec![tenant.to_owned()]));
    assert_eq!(works(&red, WorkFilter::default()).await, [own]);
    assert_eq!(works(&red, WorkFilter { tenants: Some(Tenants::All), ..Default::default() }).await, [own]);
    assert_eq!(works(&red, WorkFilter { tenants: asked("red"), ..Default::default() }).await, [own]);
    assert!(works(&red, WorkFilter { tenants: asked("blue"), ..Default::default() }).await.is_empty());
    assert_eq!(works(&blue, WorkFilter::default()).await, [other]);
    let everybody = bed.machine();
    assert_eq!(works(&everybody, WorkFilter::default()).await, [other, own]);
    assert_eq!(red.counts().await.unwrap().values().sum::<u64>(), 1);
    assert_eq!(everybody.counts().await.unwrap().values().sum::<u64>(), 2);

    let waits = red.waits(&WaitFilter::default(), 10).await.unwrap();
    assert_eq!(waits.iter().map(|wait| wait.work).collect::<Vec<_>>(), [own]);
    let by_id = WaitFilter { id: Some(waits[0].id), ..WaitFilter::default() };
    assert_eq!(red.waits(&by_id, 10).await.unwrap().rows, waits.rows);
    assert!(blue.waits(&by_id, 10).await.unwrap().is_empty());
    let first = everybody.waits(&WaitFilter::default(), 1).await.unwrap();
    let after = WaitFilter { after: Some((first[0].opened_at, first[0].id)), ..WaitFilter::default() };
    let second = everybody.waits(&after, 10).await.unwrap();
    assert_eq!((second.len(), second[0].id == first[0].id), (1, false));
}

/// Callers may use any correlation or workflow name, including those of other tenants.
pub async fn what_tenants_share_a_name_for_stays_their_own(bed: &mut Bed) {
    let mut works = Vec::new();
    for (n, tenant) in ["red", "blue", "red"].into_iter().enumerate() {
        let workflow = Some(Workflow { id: "flow".to_owned(), version: "1".to_owned() });
        let correlation_id = works.first().map(|first: &WorkId| first.to_string());
        let new = NewWork { tenant: tenant.to_owned(), workflow, correlation_id, ..job(&n.to_string()) };
        works.push(bed.ingest(new).await.id);
    }
    let within =
        |tenants: &[&str]| bed.machine().within(tenants.iter().map(|tenant| (*tenant).to_owned()).collect());
    let (first, foreign, last) = (works[0], works[1], works[2]);
    for (tenants, expected) in [
        (&["red"][..], vec![last, first]),
        (&["blue", "blue"], vec![foreign]),
        (&["red", "blue"], vec![last, foreign, first]),
        (&["green"], vec![]),
    ] {
        for states in [vec![], vec![State::Queued, State::Running]] {
            let by_correlation = WorkFilter {
                correlation_id: Some(first.to_string()),
                states: states.clone(),
                ..WorkFilter::default()
            };
            let by_workflow =
                WorkFilter { workflow: Some("flow".to_owned()), states, ..WorkFilter::default() };
            for filter in [by_correlation, by_workflow] {
                let found = within(tenants).list(&filter, None, 10).await.unwrap();
                let found: Vec<WorkId> = found.iter().map(|work| work.id).collect();
                assert_eq!(found, expected, "{tenants:?} {filter:?}");
                let second = within(tenants).list(&filter, expected.first().copied(), 1).await.unwrap();
                assert_eq!(second.first().map(|work| work.id), expected.get(1).copied());
            }
        }
    }
}

pub async fn the_feed_keeps_to_the_callers_tenants(bed: &mut Bed) {
    let [(red, own), (_, other)] = two(bed).await;
    let count = bed.events(own).await.len() + bed.events(other).await.len();
    let all = bed.settled(Position::default(), count).await;
    let expected: Vec<_> = all.iter().filter(|stored| stored.event.work == own).cloned().collect();
    let mut seen = Vec::new();
    let mut after = Position::default();
    loop {
        let page = red.feed(after, 3).await.unwrap();
        seen.extend(page.events);
        if page.next == after {
            break;
        }
        after = page.next;
    }
    assert_eq!(seen, expected);
    let one = red.feed(Position::default(), expected.len()).await.unwrap();
    assert_eq!(one.events, expected, "what is foreign takes no place on a page");
    assert_eq!(Some(after), all.last().map(|stored| stored.position), "the cursor passes what is foreign");
}

pub async fn works_are_found_by_the_beginning_of_their_id(bed: &mut Bed) {
    let [(red, own), (blue, other)] = two(bed).await;
    let (own_text, other_text) = (own.to_string(), other.to_string());
    let same = own_text.bytes().zip(other_text.bytes()).take_while(|(a, b)| a == b).count();
    let shared = &own_text[..same];
    assert_eq!(red.find_work(&own_text).await.unwrap(), own);
    assert_eq!(red.find_work(shared).await.unwrap(), own, "the other one does not exist for it");
    assert_eq!(blue.find_work(shared).await.unwrap(), other);
    let everybody = bed.machine();
    assert_eq!(refused(everybody.find_work(shared).await), Code::Ambiguous);
    assert_eq!(everybody.find_work(&own_text[..=same]).await.unwrap(), own);
    assert_eq!(refused(red.find_work(&other_text).await), Code::NotFound);
    assert_eq!(refused(red.find_work("w_ffff").await), Code::NotFound);
    assert_eq!(refused(red.find_work("nonsense").await), Code::Invalid);
}

pub async fn text_that_nobody_can_have_is_refused(bed: &mut Bed) {
    let nul = || Some("a\0b".to_owned());
    let tenants = Some(Tenants::Only(vec!["a\0b".to_owned()]));
    for filter in [
        WorkFilter { system: nul(), ..WorkFilter::default() },
        WorkFilter { session: nul(), ..WorkFilter::default() },
        WorkFilter { correlation_id: nul(), ..WorkFilter::default() },
        WorkFilter { tenants, ..WorkFilter::default() },
    ] {
        assert_eq!(refused(bed.ledger.list(&filter, None, 10).await), Code::Invalid, "{filter:?}");
    }
    let filter = WaitFilter { reference: nul(), ..WaitFilter::default() };
    assert_eq!(refused(bed.ledger.waits(&filter, 10).await), Code::Invalid);
    for actor in ["a\0b", ""] {
        let caller = bed.ledger.caller(Actor::machine(actor));
        assert_eq!(refused(caller.ingest(job("x")).await), Code::Invalid, "{actor:?}");
    }
}

/// Two independent fleets may use the same request ids.
pub async fn workers_of_other_tenants_may_have_the_same_names(bed: &mut Bed) {
    let mut leases = Vec::new();
    for tenant in ["red", "blue"] {
        bed.ingest(NewWork { tenant: tenant.to_owned(), ..job("same") }).await;
        let worker = bed.worker("w").within(vec![tenant.to_owned()]);
        for _ in 0..2 {
            let claimed = worker.claim(claimant("w", "request-1"), any(1), None).await.unwrap();
            assert_eq!(claimed.len(), 1, "{tenant}");
            assert_eq!(claimed[0].work.spec.tenant, tenant);
            leases.push(claimed[0].lease.clone());
        }
    }
    assert_eq!((&leases[0], &leases[2]), (&leases[1], &leases[3]), "a repeat is its own");
    assert_ne!(leases[0], leases[2]);
}
