//! Pruning: what is deleted, what is kept, and what is known afterwards.

use serde_json::json;
use tenure_core::{Actor, Code, Millis, State, WorkId, model::WaitKind, records::reference_to};

use super::{Bed, job, refused, success};
use crate::{Anchor, NewWait, NewWork, Position, Pruned, Pruning};

const HOUR: Millis = 3_600_000;

/// A succeeded work item with a step, a wait and two attempts.
async fn ended(bed: &Bed, new: NewWork) -> WorkId {
    let held = bed.held(new, "w").await;
    let worker = bed.worker("w");
    worker.begin_step(&held.lease, "s", &json!(1), false).await.unwrap();
    worker.complete_step(&held.lease, "s", &json!(1), &json!(2)).await.unwrap();
    let reference = held.work.id.to_string();
    worker.wait(&held.lease, vec![NewWait::new(WaitKind::User, &reference)], None).await.unwrap();
    bed.machine().resolve("default", &reference, &json!(3), None).await.unwrap();
    let again = bed.take(held.work.id, "w").await;
    worker.close_out(&again.lease, success()).await.unwrap();
    held.work.id
}

pub async fn what_ended_long_ago_is_pruned(bed: &mut Bed) {
    let old = ended(bed, job("old")).await;
    let red = ended(bed, NewWork { tenant: "default".into(), ..job("red") }).await;
    let events = bed.events(old).await.len() + bed.events(red).await.len();
    let open = bed.ingest(job("open")).await.id;
    bed.skip(3 * HOUR).await;
    let young = ended(bed, job("young")).await;
    let cutoff = bed.now() - HOUR;
    assert_eq!(
        refused(bed.ledger.prune(&Actor::person("ada"), "too old", cutoff + 1, 100).await),
        Code::Invalid,
        "not what ended just now"
    );

    assert_eq!(bed.ledger.prunable(cutoff, 100).await.unwrap(), [old, red]);
    let pruned = bed.ledger.prune(&Actor::person("ada"), "too old", cutoff, 100).await.unwrap();
    assert_eq!(pruned, Pruned { works: 2, events: events as u64, more: false });
    let recorded = Pruning {
        at: bed.now(),
        actor: Actor::person("ada"),
        reason: "too old".to_owned(),
        ended_before: cutoff,
        works: 2,
    };
    let reasonless = bed.ledger.prune(&Actor::person("ada"), " ", cutoff, 100).await;
    assert_eq!(refused(reasonless), Code::ReasonMissing);
    assert_eq!(
        bed.ledger.prune(&Actor::person("ada"), "too old", cutoff, 100).await.unwrap(),
        Pruned::default(),
        "nothing is left to do"
    );
    assert_eq!(bed.ledger.prunings(10).await.unwrap(), [recorded], "who did it and why stays");

    let left: Vec<WorkId> = bed.all().await.iter().map(|work| work.id).collect();
    assert_eq!(left, [young, open]);
    assert_eq!(refused(bed.ledger.work(old).await), Code::NoLongerRetained);
    assert_eq!(refused(bed.machine().events(old, 0, 10).await), Code::NoLongerRetained);
    let stranger = bed.machine().within(vec!["other".to_owned()]);
    assert_eq!(refused(stranger.work(old).await), Code::NotFound, "not even that it was there");
    assert!(bed.ledger.attempts(old).await.unwrap().is_empty());
    assert!(bed.ledger.steps(old).await.unwrap().is_empty());
    assert!(bed.waits(old).await.is_empty());

    assert_eq!(refused(bed.machine().ingest(job("old")).await), Code::NoLongerRetained, "never run again");
    let other = NewWork { input: json!("other"), ..job("old") };
    assert_eq!(refused(bed.machine().ingest(other).await), Code::NoLongerRetained, "whatever it says");
    assert!(bed.machine().ingest(NewWork { tenant: "other".into(), ..job("old") }).await.unwrap().created);
    assert!(!bed.machine().ingest(job("open")).await.unwrap().created);
}

pub async fn what_something_open_needs_stays(bed: &mut Bed) {
    let parent = ended(bed, job("parent")).await;
    let child = bed.ingest(NewWork { parent: Some(parent), ..job("child") }).await.id;
    let first = ended(bed, job("twice")).await;
    let second = bed.person().rerun(first, Some("s"), "again").await.unwrap().work.id;
    let third = ended(bed, job("thrice")).await;
    let fourth = bed.person().rerun(third, None, "again").await.unwrap().work.id;
    let held = bed.take(fourth, "w").await;
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
    bed.skip(3 * HOUR).await;
    let cutoff = bed.now() - HOUR;
    let pruned = bed.ledger.prune(&Actor::person("ada"), "too old", cutoff, 1).await.unwrap();
    assert_eq!((pruned.works, pruned.more), (2, true), "an identity goes whole");
    for gone in [third, fourth] {
        assert_eq!(refused(bed.ledger.work(gone).await), Code::NoLongerRetained);
    }
    for (id, state) in [(parent, State::Succeeded), (first, State::Succeeded), (second, State::Queued)] {
        bed.expect(id, state).await;
    }
    assert_eq!(refused(bed.person().rerun(third, None, "again").await), Code::NotFound);
    bed.person().cancel(child, "no longer needed", None).await.unwrap();
    bed.person().cancel(second, "no longer needed", None).await.unwrap();
    bed.skip(3 * HOUR).await;
    let pruned = bed.ledger.prune(&Actor::person("ada"), "too old", bed.now() - HOUR, 100).await.unwrap();
    assert_eq!((pruned.works, pruned.more), (4, false));
    assert!(bed.all().await.is_empty());
    let waits = bed.held(job("waits"), "w").await;
    let wait = NewWait::new(WaitKind::External, &reference_to(first));
    let waited = bed.worker("w").wait(&waits.lease, vec![wait], None).await;
    assert_eq!(refused(waited), Code::NotFound, "nobody waits for what is gone");
}

pub async fn a_call_is_bounded(bed: &mut Bed) {
    for number in 0..5 {
        ended(bed, job(&number.to_string())).await;
    }
    bed.skip(3 * HOUR).await;
    let cutoff = bed.now() - HOUR;
    let mut calls = Vec::new();
    loop {
        let pruned = bed.ledger.prune(&Actor::person("ada"), "too old", cutoff, 2).await.unwrap();
        calls.push(pruned.works);
        if !pruned.more {
            break;
        }
    }
    assert_eq!(calls, [2, 2, 1]);
}

pub async fn anchors_hold_over_what_was_pruned(bed: &mut Bed) {
    let old = ended(bed, job("old")).await;
    let events = bed.events(old).await.len();
    bed.settled(Position::default(), events).await;
    let before = bed.ledger.extend_anchor(Anchor::default()).await.unwrap();
    assert_eq!(before.events, events as u64);
    let copy = bed.ledger.signed_anchor().await.unwrap();
    bed.skip(3 * HOUR).await;
    let kept = ended(bed, job("kept")).await;
    assert_eq!(
        bed.ledger.prune(&Actor::person("ada"), "too old", bed.now() - HOUR, 100).await.unwrap().works,
        1
    );
    assert!(bed.ledger.verify_anchor(&before).await.unwrap(), "their places and hashes are kept");
    assert_eq!(bed.ledger.verify_with(Some(&copy)).await.unwrap().faults, [], "also for a copy from before");
    let feed = bed.settled(Position::default(), events).await;
    assert!(feed.iter().all(|stored| stored.event.work == kept), "the feed has what is left");
    let after = bed.ledger.extend_anchor(before).await.unwrap();
    assert_eq!(after, bed.ledger.extend_anchor(Anchor::default()).await.unwrap());
    assert_eq!(after.events, 2 * events as u64);
}
