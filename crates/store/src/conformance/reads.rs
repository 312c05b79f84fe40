//! Reads: lists, pages, counts, the feed, explanations, anchors.

use serde_json::json;
use tenure_core::{
    Code, Millis, Phase, State, Work, WorkId,
    action::{Failure, Tenants},
    model::{ErrorClass, Source, WaitKind, Workflow},
};
use tokio::task::JoinSet;

use super::{Bed, LAPSE_MS, claimant, job, owner_bound, refused, said_in, success};
use crate::{Anchor, NewWait, NewWork, Position, SignedAnchor, WorkFilter};

/// One work item in each of several states, differing in every field that a filter has.
async fn populate(bed: &Bed) -> Vec<Work> {
    let parent = bed.ingest(job("parent")).await.id;
    bed.clock.advance(10);
    let source = Source { system: "control".into(), id: "c1".into(), run_id: String::new() };
    bed.ingest(NewWork { source, kind: "stop".into(), ..job("x") }).await;
    bed.clock.advance(10);
    let workflow = Some(Workflow { id: "triage".into(), version: "3".into() });
    let correlation_id = Some("trace-1".into());
    bed.ingest(NewWork { workflow, correlation_id, parent: Some(parent), ..job("flow") }).await;
    bed.clock.advance(10);
    bed.held(said_in("chat", "talk"), "w").await;
    bed.ingest(NewWork { tenant: "acme".into(), ..said_in("chat", "theirs") }).await;
    bed.clock.advance(10);
    let waiting = bed.held(NewWork { correlation_id: Some("trace-1".into()), ..job("waits") }, "v").await;
    let waits = vec![NewWait::new(WaitKind::Approval, "q")];
    bed.worker("v").wait(&waiting.lease, waits, None).await.unwrap();
    let retrying = bed.held(job("retries"), "v").await;
    let failure = Failure::new(ErrorClass::Transport, "reset");
    bed.worker("v").fail(&retrying.lease, failure).await.unwrap();
    let done = bed.held(job("done"), "v").await;
    bed.worker("v").close_out(&done.lease, success()).await.unwrap();
    bed.held(owner_bound("held"), "v").await;
    let odd = bed.ingest(job("odd")).await;
    bed.person().quarantine(odd.id, "odd").await.unwrap();
    bed.all().await
}

/// Every field has the meaning of [`WorkFilter::matches`], alone and combined, page by page.
pub async fn every_filter_means_its_predicate(bed: &mut Bed) {
    let works = populate(bed).await;
    let start = super::START;
    let one = |tenant: &str| Some(Tenants::Only(vec![tenant.to_owned()]));
    let all = WorkFilter::default;
    let mut filters = vec![
        (WorkFilter { tenants: one("acme"), ..all() }, 1),
        (WorkFilter { tenants: one("nobody"), ..all() }, 0),
        (WorkFilter { tenants: Some(Tenants::Only(Vec::new())), ..all() }, 0),
        (WorkFilter { tenants: Some(Tenants::All), ..all() }, 10),
        (WorkFilter { states: vec![State::Running, State::Quarantined], ..all() }, 3),
        (WorkFilter { states: vec![State::Running], phase: Some(Phase::Terminal), ..all() }, 0),
        (WorkFilter { system: Some("control".into()), ..all() }, 1),
        (WorkFilter { source_id: Some("flow".into()), ..all() }, 1),
        (WorkFilter { kind: Some("stop".into()), ..all() }, 1),
        (WorkFilter { workflow: Some("triage".into()), ..all() }, 1),
        (WorkFilter { session: Some("chat".into()), ..all() }, 2),
        (WorkFilter { owner: Some("v".into()), ..all() }, 1),
        (WorkFilter { parent: works.last().map(|work| work.id), ..all() }, 1),
        (WorkFilter { correlation_id: Some("trace-1".into()), ..all() }, 2),
        (WorkFilter { correlation_id: Some(works[0].spec.correlation_id.clone()), ..all() }, 1),
        (WorkFilter { created_after: Some(start + 10), ..all() }, 8),
        (WorkFilter { created_before: Some(start + 10), ..all() }, 1),
        (WorkFilter { due_before: Some(bed.now() + 3_600_000), ..all() }, 3),
        (WorkFilter { session: Some("chat".into()), tenants: one("acme"), ..all() }, 1),
        (WorkFilter { owner: Some("v".into()), system: Some("control".into()), ..all() }, 0),
    ];
    filters.extend(Phase::ALL.map(|phase| {
        let expected = works.iter().filter(|work| work.state.phase() == phase).count();
        (WorkFilter { phase: Some(phase), ..all() }, expected)
    }));
    for (filter, count) in filters {
        let expected: Vec<WorkId> = works.iter().filter(|w| filter.matches(w)).map(|w| w.id).collect();
        assert_eq!(expected.len(), count, "the case itself: {filter:?}");
        for page in [1, 3, 100] {
            assert_eq!(paged(bed, &filter, page).await, expected, "{filter:?} in pages of {page}");
        }
    }
}

async fn paged(bed: &Bed, filter: &WorkFilter, page: usize) -> Vec<WorkId> {
    let mut ids: Vec<WorkId> = Vec::new();
    loop {
        let works = bed.ledger.list(filter, ids.last().copied(), page).await.unwrap();
        assert!(works.len() <= page);
        if works.is_empty() {
            return ids;
        }
        ids.extend(works.iter().map(|work| work.id));
    }
}

pub async fn counts_follow_the_states(bed: &mut Bed) {
    let works = populate(bed).await;
    for tenants in [Tenants::All, Tenants::Only(vec!["acme".to_owned()]), Tenants::Only(Vec::new())] {
        let counts = bed.ledger.counts(&tenants).await.unwrap();
        for state in State::ALL {
            let there = works.iter().filter(|w| w.state == state && tenants.allow(&w.spec.tenant)).count();
            assert_eq!(counts.get(&state).copied().unwrap_or(0), there as u64, "{state} of {tenants:?}");
        }
    }
}

pub async fn works_and_events_by_key(bed: &mut Bed) {
    let works = populate(bed).await;
    let ids = [works[3].id, WorkId(uuid::Uuid::now_v7()), works[1].id];
    let mut found = bed.ledger.works(&ids).await.unwrap();
    found.sort_by_key(|work| std::cmp::Reverse(work.id));
    assert_eq!(found, [works[1].clone(), works[3].clone()], "what does not exist is left out");
    assert!(bed.ledger.works(&[]).await.unwrap().is_empty());
    let unknown = bed.ledger.work(ids[1]).await;
    assert_eq!(super::refused(unknown), tenure_core::Code::NotFound);

    let waiting = works.iter().find(|work| work.state == State::WaitingApproval).unwrap();
    let all = bed.events(waiting.id).await;
    assert_eq!(all.len(), 3);
    assert_eq!(bed.ledger.events(waiting.id, 1, 1).await.unwrap().rows, all[1..2]);
    assert!(bed.ledger.events(waiting.id, 3, 10).await.unwrap().is_empty());
    assert!(bed.ledger.events(waiting.id, u64::MAX, 10).await.unwrap().is_empty());
    assert!(bed.ledger.events(ids[1], 0, 10).await.unwrap().is_empty());
    assert!(bed.ledger.attempts(ids[1]).await.unwrap().is_empty());
    assert!(bed.ledger.steps(ids[1]).await.unwrap().is_empty());
    assert_eq!(bed.ledger.payload(waiting.id, 99).await.unwrap(), None);
    let feed = bed.settled(Position::default(), works.iter().map(|w| w.seq as usize).sum()).await;
    let same: Vec<_> = feed.into_iter().filter(|stored| stored.event.work == waiting.id).collect();
    assert_eq!(same, all, "the feed tells the same");
    for stored in same {
        assert_eq!(stored.position.to_string().parse::<Position>().unwrap(), stored.position);
    }
}

/// Invariant 20: a reader that follows while others write sees every event once, in order.
pub async fn a_cursor_never_skips(bed: &mut Bed) {
    const WRITERS: usize = 8;
    const WORKS: usize = 12;
    let mut writers = JoinSet::new();
    for w in 0..WRITERS {
        let caller = bed.worker(&format!("w{w}"));
        writers.spawn(async move {
            for i in 0..WORKS {
                let claim = Some(claimant(&format!("w{w}"), &i.to_string()));
                let new = NewWork { claim, ..job(&format!("{w}.{i}")) };
                let held = caller.ingest(new).await.unwrap().lease.unwrap();
                caller.progress(&held.lease, &json!(i), None).await.unwrap();
                caller.close_out(&held.lease, success()).await.unwrap();
            }
        });
    }
    let feed = bed.settled(Position::default(), WRITERS * WORKS * 4).await;
    writers.join_all().await;
    assert!(feed.windows(2).all(|two| two[0].position < two[1].position), "no repeats, no steps back");
    let mut seen = std::collections::HashMap::new();
    for stored in &feed {
        let seq = seen.entry(stored.event.work).or_insert(0);
        assert_eq!(stored.event.seq, *seq + 1, "each work's events come in order, none is missing");
        *seq = stored.event.seq;
    }
    assert_eq!(seen.len(), WRITERS * WORKS);
    let end = feed.last().unwrap().position;
    let page = bed.ledger.feed(end, 10).await.unwrap();
    assert_eq!((page.events.len(), page.next), (0, end), "at the end the cursor stays");
    assert_eq!(bed.ledger.tail().await.unwrap(), end, "whoever starts at the tail sees only what comes");
}

pub async fn explanations_say_what_to_do(bed: &mut Bed) {
    let works = populate(bed).await;
    bed.pass(LAPSE_MS).await;
    let explained = async |id: &str| {
        let work = works.iter().find(|work| work.spec.source.id == id).unwrap();
        bed.ledger.explain(work.id).await.unwrap()
    };
    for (id, begins, advice) in [
        ("flow", "Queued 10 s: nobody has claimed it yet", "nothing"),
        ("waits", "Waiting 10 s: an approver must answer `q`", "approve it"),
        ("held", "Stalled", "abandon it"),
        ("odd", "Quarantined 10 s: an operator set it aside (odd)", "decide"),
        ("done", "Succeeded 10 s ago in one attempt: its result is in event 3", "nothing"),
        ("retries", "Queued 9 s: its retry is due", "nothing"),
        ("talk", "Queued", "nothing"),
    ] {
        let explanation = explained(id).await;
        assert!(explanation.sentence.starts_with(begins), "{id}: {}", explanation.sentence);
        assert!(explanation.advice.starts_with(advice), "{id}: {}", explanation.advice);
    }
}

/// An anchor that is stored elsewhere reveals truncation and changes.
pub async fn anchors_cover_the_feed(bed: &mut Bed) {
    let events = |works: &[Work]| works.iter().map(|work| work.seq as usize).sum();
    bed.settled(Position::default(), events(&populate(bed).await)).await;
    let first = bed.ledger.extend_anchor(Anchor::default()).await.unwrap();
    assert_eq!(first.events as usize, events(&bed.all().await));
    assert!(bed.ledger.verify_anchor(&first).await.unwrap());
    assert_eq!(bed.ledger.extend_anchor(first).await.unwrap(), first, "nothing happened since");

    let held = bed.held(job("more"), "w").await;
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
    bed.settled(first.position, 3).await;
    let second = bed.ledger.extend_anchor(first).await.unwrap();
    assert_eq!(second.events, first.events + 3);
    assert_eq!(bed.ledger.extend_anchor(Anchor::default()).await.unwrap(), second, "in one go or in two");
    assert!(
        bed.ledger.verify_anchor(&first).await.unwrap() && bed.ledger.verify_anchor(&second).await.unwrap()
    );
    let mut cut = second;
    cut.events += 1;
    assert!(!bed.ledger.verify_anchor(&cut).await.unwrap(), "a tail that is not there");
    let mut other = second;
    other.digest.0[0] ^= 1;
    assert!(!bed.ledger.verify_anchor(&other).await.unwrap());
}

/// A copy that is stored elsewhere is checked before it is compared: it is this ledger's, and as this ledger made it.
pub async fn a_signed_anchor_is_of_this_ledger(bed: &mut Bed) {
    let events = populate(bed).await.iter().map(|work| work.seq).sum::<u64>();
    bed.settled(Position::default(), events as usize).await;
    let copy = bed.ledger.signed_anchor().await.unwrap();
    assert_eq!(
        (copy.anchor.events, copy.at),
        (events, bed.now()),
        "over what no sweeper has anchored yet, too"
    );
    assert_eq!(copy.ledger, bed.ledger.id());
    assert_eq!(bed.ledger.verify_with(Some(&copy)).await.unwrap().faults, []);
    bed.ingest(job("more")).await;
    assert_eq!(bed.ledger.verify_with(Some(&copy)).await.unwrap().faults, [], "a ledger may go on");

    let refused_as = async |change: &dyn Fn(&mut SignedAnchor), code| {
        let mut other = copy.clone();
        change(&mut other);
        assert_eq!(refused(bed.ledger.verify_with(Some(&other)).await), code, "{other:?}");
    };
    refused_as(&|copy| copy.ledger.replace_range(4..6, "zz"), Code::OtherLedger).await;
    refused_as(&|copy| copy.at += 1, Code::AnchorForged).await;
    refused_as(&|copy| copy.anchor = Anchor::default(), Code::AnchorForged).await;
    refused_as(&|copy| copy.anchor.events -= 1, Code::AnchorForged).await;
    refused_as(&|copy| copy.anchor.digest.0[31] ^= 1, Code::AnchorForged).await;
    refused_as(&|copy| copy.mac = copy.anchor.digest, Code::AnchorForged).await;
}

/// The store uses the injected clock, also to find due dates.
pub async fn time_is_the_stores(bed: &mut Bed) {
    assert_eq!(bed.ledger.now().await.unwrap(), super::START);
    let held = bed.held(job("one"), "w").await;
    let due: Millis = bed.now() + 9_000;
    assert_eq!(bed.ledger.next_due().await.unwrap(), Some(due));
    assert!(bed.ledger.due(due - 1, None, 10).await.unwrap().is_empty());
    assert_eq!(bed.ledger.due(due, None, 10).await.unwrap(), [(due, held.work.id)]);
    assert!(bed.ledger.due(due, Some((due, held.work.id)), 10).await.unwrap().is_empty());
    assert_eq!(bed.ledger.leased(None, 10).await.unwrap(), [held.work.id]);
    assert!(bed.ledger.leased(Some(held.work.id), 10).await.unwrap().is_empty());
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
    assert!(bed.ledger.leased(None, 10).await.unwrap().is_empty());
    assert_eq!(bed.ledger.next_due().await.unwrap(), None);
}

pub async fn the_sweeper_advances_the_ledgers_own_anchor(bed: &mut Bed) {
    assert_eq!(bed.ledger.anchor().await.unwrap(), Anchor::default());
    let works = populate(bed).await;
    let events = works.iter().map(|work| work.seq).sum::<u64>();
    bed.settled(Position::default(), events as usize).await;
    bed.pass(10_000).await;
    let anchor = bed.ledger.anchor().await.unwrap();
    assert!(anchor.events >= events, "{anchor:?}");
    assert!(bed.ledger.verify_anchor(&anchor).await.unwrap());
    bed.ingest(job("more")).await;
    bed.settled(anchor.position, 1).await;
    bed.pass(10_000).await;
    assert!(bed.ledger.anchor().await.unwrap().events > anchor.events);
}
