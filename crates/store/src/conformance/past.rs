//! Work items as of a past moment, from their logs.

use serde_json::json;
use tenure_core::{
    Actor, Code, Millis, State, Work, WorkId,
    action::{Failure, Tenants},
    fold,
    model::{ErrorClass, WaitKind, WaitState},
};

use super::{Bed, TENANT, any, job, owner_bound, payload, refused, said_in, success};
use crate::{NewWait, NewWork, WorkFilter};

const HOUR: Millis = 3_600_000;

/// Every work item at some moments: as the rows were then.
type Then = Vec<(Millis, Vec<(Work, usize)>)>;

async fn remember(bed: &mut Bed, then: &mut Then) {
    let mut works = Vec::new();
    for work in bed.all().await {
        let waits = bed.waits(work.id).await;
        let open = waits.iter().filter(|wait| wait.state == WaitState::Open).count();
        works.push((work, open));
    }
    then.push((bed.now(), works));
    bed.skip(1_000).await;
}

/// Renewals, waits, an early answer, a lapse, a late write, a retry, ends: each with a moment after it.
async fn history(bed: &mut Bed) -> Then {
    let mut then = Vec::new();
    let held = bed.held(job("asks"), "w").await;
    remember(bed, &mut then).await;
    bed.worker("w").begin_step(&held.lease, "draft", &json!(1), false).await.unwrap();
    bed.worker("w").progress(&held.lease, &json!({ "done": 1 }), None).await.unwrap();
    remember(bed, &mut then).await;
    bed.machine().resolve(TENANT, "known", &json!("early"), None).await.unwrap();
    let waits = ["known", "first", "second"].map(|reference| NewWait::new(WaitKind::User, reference));
    bed.worker("w").wait(&held.lease, waits.to_vec(), Some("two questions")).await.unwrap();
    remember(bed, &mut then).await;
    let failing = bed.held(job("fails"), "v").await;
    bed.worker("v").fail(&failing.lease, Failure::new(ErrorClass::Transport, "reset")).await.unwrap();
    bed.machine().resolve(TENANT, "first", &json!(1), None).await.unwrap();
    remember(bed, &mut then).await;
    bed.machine().resolve(TENANT, "second", &json!(2), None).await.unwrap();
    bed.ingest(said_in("chat", "queued")).await;
    remember(bed, &mut then).await;
    let again = bed.take(held.work.id, "w").await;
    let bound = bed.held(owner_bound("silent"), "x").await;
    remember(bed, &mut then).await;
    bed.worker("w").close_out(&again.lease, success()).await.unwrap();
    bed.pass(12_000).await;
    bed.expect(bound.work.id, State::Stalled).await;
    remember(bed, &mut then).await;
    bed.person().request_abandon(bound.work.id, "given up").await.unwrap();
    remember(bed, &mut then).await;
    then
}

pub async fn a_work_item_is_shown_as_of_each_of_its_events(bed: &mut Bed) {
    let then = history(bed).await;
    let person = bed.person();
    for (at, works) in &then {
        for (row, open) in works {
            for moment in [*at, at + 999] {
                let past = person.work_at(row.id, moment).await.unwrap();
                assert!(fold::matches(row, &past.work), "{at}: {row:#?}\n{:#?}", past.work);
                assert_eq!(past.waits.len(), *open, "{at}: {:#?}", past.waits);
                assert!(
                    past.waits.iter().all(|wait| wait.state == WaitState::Open && wait.ended_at.is_none())
                );
            }
        }
    }
    let waited = then.iter().flat_map(|(_, works)| works).filter(|(_, open)| *open == 2);
    assert_eq!(waited.count(), 1, "an early answer leaves two of three waits open");
}

/// Each page is what the same filter found then.
pub async fn a_list_is_as_of_a_moment(bed: &mut Bed) {
    let then = history(bed).await;
    let filters = [
        WorkFilter::default(),
        WorkFilter { states: vec![State::Running, State::Stalled], ..WorkFilter::default() },
        WorkFilter { states: vec![State::WaitingUser], ..WorkFilter::default() },
        WorkFilter { owner: Some("x".into()), ..WorkFilter::default() },
        WorkFilter { session: Some("chat".into()), ..WorkFilter::default() },
        WorkFilter { phase: Some(tenure_core::Phase::Terminal), ..WorkFilter::default() },
    ];
    let person = bed.person();
    for (at, works) in &then {
        for filter in &filters {
            let expected: Vec<WorkId> = works
                .iter()
                .map(|(work, _)| work)
                .filter(|work| filter.matches(work))
                .map(|w| w.id)
                .collect();
            let mut found = Vec::new();
            let mut before = None;
            loop {
                let page = person.list_at(filter, *at, before, 1).await.unwrap();
                assert!(!page.pruned_since && page.unreadable.is_empty());
                found.extend(page.works.iter().map(|past| past.work.id));
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "{at}: {filter:?}");
        }
    }
    let theirs = bed.ledger.caller(Actor::person("eve")).within(vec!["acme".to_owned()]);
    let seen = theirs.list_at(&WorkFilter::default(), bed.now(), None, 10).await.unwrap();
    assert!(seen.works.is_empty(), "another tenant's work does not exist");
    let due = WorkFilter { due_before: Some(bed.now()), ..WorkFilter::default() };
    assert_eq!(refused(person.list_at(&due, bed.now(), None, 10).await.map(drop)), Code::Unsupported);
}

pub async fn times_that_nobody_knows_are_refused(bed: &mut Bed) {
    let person = bed.person();
    let all = WorkFilter { tenants: Some(Tenants::All), ..WorkFilter::default() };
    let empty = person.list_at(&all, bed.now(), None, 10).await.map(drop);
    assert_eq!(refused(empty), Code::BeforeLog, "there is no event yet");
    bed.skip(1_000).await;
    let born = bed.now();
    let work = bed.ingest(job("one")).await;
    bed.settled(crate::Position::default(), 1).await;
    for (at, code) in [(born - 1, Code::BeforeLog), (born + 1, Code::InFuture)] {
        assert_eq!(refused(person.work_at(work.id, at).await.map(drop)), code);
        assert_eq!(refused(person.list_at(&all, at, None, 10).await.map(drop)), code);
    }
    assert_eq!(person.work_at(work.id, born).await.unwrap().work.state, State::Queued);
    let foreign = bed.ledger.caller(Actor::person("eve")).within(vec!["acme".to_owned()]);
    assert_eq!(refused(foreign.work_at(work.id, born).await.map(drop)), Code::NotFound);
}

pub async fn what_was_pruned_is_told(bed: &mut Bed) {
    let old = bed.held(job("old"), "w").await;
    bed.worker("w").close_out(&old.lease, success()).await.unwrap();
    let kept = bed.ingest(NewWork { session: Some("s".into()), ..job("kept") }).await;
    let before = bed.now();
    bed.skip(3 * HOUR).await;
    let person = bed.person();
    let all = WorkFilter::default();
    let page = person.list_at(&all, before, None, 10).await.unwrap();
    assert_eq!((page.works.len(), page.pruned_since), (2, false));
    let pruned = bed.ledger.prune(&Actor::person("ada"), "too old", bed.now() - HOUR, 10).await.unwrap();
    assert_eq!(pruned.works, 1);
    let page = person.list_at(&all, before, None, 10).await.unwrap();
    let left: Vec<WorkId> = page.works.iter().map(|past| past.work.id).collect();
    assert_eq!((left, page.pruned_since), (vec![kept.id], true), "the list says that it lacks some");
    assert_eq!(refused(person.work_at(old.work.id, before).await.map(drop)), Code::NoLongerRetained);
    bed.skip(1_000).await;
    assert!(!person.list_at(&all, bed.now(), None, 10).await.unwrap().pruned_since);
    assert_eq!(bed.claim("w", any(1)).await.len(), 1);
    let past = person.work_at(kept.id, before).await.unwrap();
    assert_eq!((past.work.state, past.work.lease), (State::Queued, None));
    let input = bed.ledger.payload(kept.id, 1).await.unwrap();
    assert_eq!(input, Some(payload(json!({ "ask": "kept" }))));
}
