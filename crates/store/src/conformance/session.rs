//! Sessions: work items of one session never run in parallel, and continue in the order in which they were
//! recorded.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use serde_json::json;
use tenure_core::{
    Code, State, WorkId,
    action::{Failure, Tenants},
    model::{ErrorClass, WaitKind},
};
use tokio::task::JoinSet;

use super::{Bed, LAPSE_MS, any, claimant, job, refused, request, said_in, success};
use crate::{Claimed, NewWait, NewWork};

async fn claimed(bed: &Bed, worker: &str) -> Vec<WorkId> {
    bed.claim(worker, any(10)).await.iter().map(|one| one.work.id).collect()
}

async fn close(bed: &Bed, held: &Claimed) {
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
}

/// Invariant 5: one is held at a time, the oldest first, regardless of its priority.
pub async fn one_at_a_time_oldest_first(bed: &mut Bed) {
    let first = bed.ingest(NewWork { priority: 9, ..said_in("chat", "1") }).await.id;
    bed.clock.advance(5);
    let second = bed.ingest(NewWork { priority: 1, ..said_in("chat", "2") }).await.id;
    let elsewhere = bed.ingest(NewWork { priority: 5, ..said_in("other", "3") }).await.id;
    let acme = NewWork { tenant: "acme".to_owned(), priority: 6, ..said_in("chat", "4") };
    let acme = bed.ingest(acme).await.id;

    let early = bed.worker("w").claim_ids(claimant("w", "early"), vec![second]).await;
    assert_eq!(refused(early), Code::Busy, "an older work of the session comes first");
    let got = bed.claim("w", any(10)).await;
    let ids: Vec<WorkId> = got.iter().map(|one| one.work.id).collect();
    assert_eq!(ids, [elsewhere, acme, first], "each session's head; sessions are per tenant");
    let busy = bed.worker("w").claim_ids(claimant("w", "busy"), vec![second]).await;
    assert_eq!(refused(busy), Code::Busy);
    assert!(claimed(bed, "v").await.is_empty());
    close(bed, &got[2]).await;
    assert_eq!(claimed(bed, "v").await, [second], "the next head is claimable after the close-out");
}

/// A head that waits for its retry keeps its place.
pub async fn a_scheduled_retry_blocks_its_session(bed: &mut Bed) {
    let first = bed.held(said_in("chat", "1"), "w").await;
    let second = bed.ingest(said_in("chat", "2")).await.id;
    let failure = Failure::new(ErrorClass::Transport, "connection reset");
    let ack = bed.worker("w").fail(&first.lease, failure).await.unwrap();
    assert_eq!(ack.state, State::RetryScheduled);
    assert!(claimed(bed, "v").await.is_empty());
    bed.pass(1_000).await;
    assert_eq!(claimed(bed, "v").await, [first.work.id]);
    bed.expect(second, State::Queued).await;
}

/// Waiting and quarantined works hold no session; an answered one takes its place by age.
pub async fn waiting_does_not_block(bed: &mut Bed) {
    let first = bed.held(said_in("chat", "1"), "w").await;
    bed.clock.advance(5);
    let second = bed.ingest(said_in("chat", "2")).await.id;
    bed.clock.advance(5);
    let third = bed.ingest(said_in("chat", "3")).await.id;
    let wait = NewWait::new(WaitKind::User, "which");
    bed.worker("w").wait(&first.lease, vec![wait], None).await.unwrap();
    let held = bed.take(second, "w").await;

    bed.machine().resolve("default", "which", &json!("this one"), None).await.unwrap();
    bed.expect(first.work.id, State::Queued).await;
    let busy = bed.worker("w").claim_ids(claimant("w", "back"), vec![first.work.id]).await;
    assert_eq!(refused(busy), Code::Busy, "the session is held meanwhile");
    close(bed, &held).await;
    assert_eq!(claimed(bed, "w").await, [first.work.id], "older than the third");

    bed.person().quarantine(first.work.id, "looks odd").await.unwrap();
    assert_eq!(claimed(bed, "w").await, [third], "set aside, it blocks nobody");
}

/// A stalled owner-bound work item holds its session: its owner may still be running.
pub async fn a_stalled_work_holds_its_session(bed: &mut Bed) {
    let new = NewWork { session: Some("chat".to_owned()), ..super::owner_bound("1") };
    let first = bed.held(new, "w").await;
    let second = bed.ingest(said_in("chat", "2")).await.id;
    bed.pass(LAPSE_MS).await;
    bed.expect(first.work.id, State::Stalled).await;
    assert!(claimed(bed, "v").await.is_empty());
    close(bed, &first).await;
    assert_eq!(claimed(bed, "v").await, [second]);
}

/// A lapsed holder without a successor comes back to a session that another work item holds by now.
pub async fn a_lapsed_holder_cannot_take_back_a_taken_session(bed: &mut Bed) {
    let older = bed.held(said_in("chat", "1"), "w").await;
    bed.worker("w").wait(&older.lease, vec![NewWait::new(WaitKind::User, "q")], None).await.unwrap();
    bed.clock.advance(5);
    let lapsed = bed.held(said_in("chat", "2"), "w").await;
    bed.pass(LAPSE_MS).await;
    bed.expect(lapsed.work.id, State::Queued).await;
    bed.machine().resolve("default", "q", &json!(1), None).await.unwrap();
    let held = bed.take(older.work.id, "v").await;
    let before = bed.snapshot().await;
    assert_eq!(refused(bed.worker("w").close_out(&lapsed.lease, success()).await), Code::LeaseLost);
    assert_eq!(bed.snapshot().await, before);
    close(bed, &held).await;
    let ack = bed.worker("w").close_out(&lapsed.lease, success()).await.unwrap();
    assert_eq!(ack.state, State::Succeeded, "the session is free again, and nobody took this one over");
}

/// A lapsed holder that renews in time holds its session again.
pub async fn a_late_write_takes_the_session_back(bed: &mut Bed) {
    let first = bed.held(said_in("chat", "1"), "w").await;
    bed.pass(LAPSE_MS).await;
    bed.expect(first.work.id, State::Queued).await;
    bed.worker("w").renew(&[(first.lease.clone(), None)]).await.unwrap()[0].outcome.clone().unwrap();
    bed.expect(first.work.id, State::Running).await;
    let second = bed.ingest(said_in("chat", "2")).await.id;
    assert!(claimed(bed, "v").await.is_empty(), "it holds its session again");
    bed.worker("w").close_out(&first.lease, success()).await.unwrap();
    assert_eq!(claimed(bed, "v").await, [second]);
}

/// Many workers over many sessions: no two hold work items of one session, and each session continues in
/// order.
pub async fn many_sessions_under_many_workers(bed: &mut Bed) {
    for turn in 0..6 {
        for chat in 0..5 {
            bed.ingest(said_in(&format!("chat{chat}"), &format!("{chat}.{turn}"))).await;
        }
        bed.ingest(job(&format!("loose {turn}"))).await;
    }
    // The work items that each session has seen, and whether one is held.
    let chats: Arc<Chats> = Arc::default();
    let mut workers = JoinSet::new();
    for i in 0..8 {
        let (caller, ledger, chats) = (bed.worker(&format!("w{i}")), bed.ledger.clone(), chats.clone());
        workers.spawn(async move {
            loop {
                let held = caller.claim(claimant(&format!("w{i}"), &request()), any(2), None).await.unwrap();
                for one in &held {
                    enter(&chats, one);
                }
                for one in &held {
                    tokio::task::yield_now().await;
                    leave(&chats, one);
                    caller.close_out(&one.lease, success()).await.unwrap();
                }
                let left = ledger.counts(&Tenants::All).await.unwrap();
                if left.keys().all(|state| state.is_terminal()) {
                    break;
                }
            }
        });
    }
    workers.join_all().await;
    let chats = chats.lock().unwrap();
    assert_eq!(chats.len(), 5);
    for (_, seen) in chats.values() {
        assert!(seen.len() == 6 && seen.is_sorted(), "said and done in the same order: {seen:?}");
    }
}

type Chats = Mutex<HashMap<String, (bool, Vec<String>)>>;

fn enter(chats: &Chats, held: &Claimed) {
    let Some(session) = &held.work.spec.session else { return };
    let mut chats = chats.lock().unwrap();
    let (busy, seen) = chats.entry(session.clone()).or_default();
    assert!(!*busy, "{session} is held twice");
    *busy = true;
    seen.push(held.work.spec.source.id.clone());
}

fn leave(chats: &Chats, held: &Claimed) {
    let Some(session) = &held.work.spec.session else { return };
    chats.lock().unwrap().entry(session.clone()).or_default().0 = false;
}

pub async fn a_queued_work_names_who_keeps_it_waiting(bed: &mut Bed) {
    let held = bed.held(said_in("chat", "1"), "w").await;
    let second = bed.ingest(said_in("chat", "2")).await;
    let third = bed.ingest(said_in("chat", "3")).await;
    let alone = bed.ingest(said_in("other", "4")).await;
    let says = async |work: &tenure_core::Work| bed.ledger.explain(work.id).await.unwrap().sentence;
    let names = |said: &str, id: WorkId| said.contains(&id.to_string());
    for work in [&second, &third] {
        let said = says(work).await;
        assert!(names(&said, held.work.id) && said.contains("w holds its session `chat`"), "{said}");
    }
    assert!(says(&alone).await.contains("nobody has claimed it yet"));
    bed.worker("w").close_out(&held.lease, success()).await.unwrap();
    assert!(says(&second).await.contains("nobody has claimed it yet"));
    let said = says(&third).await;
    assert!(names(&said, second.id) && said.contains("comes first in its session"), "{said}");
}
