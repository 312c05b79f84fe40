//! Many callers at once: every acknowledged write exists afterwards, and nothing else.

use std::{collections::HashMap, time::Duration};

use serde_json::json;
use tenure_core::{
    Ack, WorkId,
    action::{CloseOut, Failure},
    model::{AcceptStrength, ErrorClass, WaitKind},
    payload::Digest,
};
use tokio::task::JoinSet;

use super::{Bed, PATIENCE, TENANT, any, claimant, job, payload, request, success};
use crate::{Caller, Error, LeaseRef, Ledger, NewWait, NewWork};

const WORKS: usize = 50;
const TASKS: usize = 200;

/// The replies of one task: the states and event numbers on which it may rely.
#[derive(Default)]
struct Told(Vec<Ack>);

impl Told {
    /// A refusal is a valid reply; any other error is a failure of the store.
    fn note(&mut self, answer: Result<Ack, Error>) {
        match answer {
            Ok(ack) => self.0.push(ack),
            Err(Error::Refused(_)) => {}
            Err(other) => panic!("the store failed: {other}"),
        }
    }
}

/// 200 tasks with every verb on 50 work items; every acknowledged write is in the log afterwards.
pub async fn no_acknowledged_write_is_lost(bed: &mut Bed) {
    let mut works = Vec::new();
    for i in 0..WORKS {
        let session = (i % 3 == 0).then(|| format!("chat{}", i % 12));
        works.push(bed.ingest(NewWork { session, ..job(&i.to_string()) }).await.id);
    }
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (ledger, works) = (bed.ledger.clone(), works.clone());
        tasks.spawn(async move { play(&ledger, task, &works).await });
    }
    for _ in 0..20 {
        bed.pass(1_000).await;
    }
    let told: Vec<Ack> = tasks.join_all().await.into_iter().flat_map(|told| told.0).collect();
    assert!(told.len() > TASKS, "the crowd got something done: {}", told.len());

    let mut logs = HashMap::new();
    for id in &works {
        logs.insert(*id, bed.events(*id).await);
    }
    for ack in &told {
        let event = &logs[&ack.work][ack.seq as usize - 1].event;
        assert_eq!((event.seq, event.to), (ack.seq, ack.state), "an acknowledged write stands");
    }
    assert_eq!(bed.all().await.len(), WORKS, "and nothing else came to be");
    let events: usize = logs.values().map(Vec::len).sum();
    let feed = bed.settled(crate::Position::default(), events).await;
    let mut hashes: Vec<Digest> = feed.iter().map(|stored| stored.event.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), events, "the feed tells each once");
}

/// A few rounds of actions that depend on the task's number. Deterministic, so that a failure can be
/// reproduced.
async fn play(ledger: &Ledger, task: usize, works: &[WorkId]) -> Told {
    let me = format!("w{}", task % 20);
    let caller = ledger.caller(tenure_core::Actor::worker(&me));
    let person = ledger.caller(tenure_core::Actor::person("ada"));
    let mut told = Told::default();
    for round in 0..4 {
        let dice = task * 31 + round * 17;
        let target = works[dice % works.len()];
        match dice % 10 {
            0 => told.note(person.cancel(target, "enough", Some(1_000)).await),
            1 => told.note(person.quarantine(target, "odd").await),
            2 => {
                let decision = tenure_core::action::Decide::Requeue;
                told.note(person.decide(target, "looked at it", decision).await);
            }
            3 => told.note(person.retry_now(target, "go").await),
            4 => {
                let answer = caller.resolve(TENANT, &format!("q{}", dice % 7), &json!(dice), None).await;
                assert!(matches!(answer, Ok(_) | Err(Error::Refused(_))), "the store failed: {answer:?}");
            }
            _ => {
                let claim = claimant(&me, &request());
                for held in caller.claim(claim, any(2), None).await.expect("a claim is answered") {
                    hold(&caller, &held.lease, dice, &mut told).await;
                }
            }
        }
    }
    told
}

/// The actions of a holder with its lease.
async fn hold(caller: &Caller, lease: &LeaseRef, dice: usize, told: &mut Told) {
    told.note(caller.accept(lease, AcceptStrength::Strong).await);
    let renewed = caller.renew(&[(lease.clone(), Some(json!(dice)))]).await.expect("renewals are answered");
    assert_eq!(renewed.len(), 1);
    told.note(caller.progress(lease, &json!({ "at": dice }), Some("p")).await);
    if caller.begin_step(lease, "s", &json!(1), false).await.is_ok() {
        let done = caller.complete_step(lease, "s", &json!(1), &json!(dice)).await;
        assert!(matches!(done, Ok(_) | Err(Error::Refused(_))), "the store failed: {done:?}");
    }
    match dice % 6 {
        0 => {
            let failure = Failure::new(ErrorClass::Transport, &format!("failure {dice}"));
            told.note(caller.fail(lease, failure).await);
        }
        1 => {
            let wait = NewWait::new(WaitKind::Tool, &format!("q{}", dice % 7));
            told.note(caller.wait(lease, vec![wait], None).await.map(|waiting| waiting.ack));
        }
        2 => told.note(caller.release(lease, None).await),
        3 => {} // Forgotten: the sweeper finds it.
        4 => told.note(caller.close_out(lease, CloseOut::succeeded(payload(json!(dice)))).await),
        _ => told.note(caller.close_out(lease, success()).await),
    }
}

/// 100 claims of one work item: one gets it.
pub async fn one_work_many_claimants(bed: &mut Bed) {
    let work = bed.ingest(job("one")).await.id;
    let mut claims = JoinSet::new();
    for i in 0..100 {
        let caller = bed.worker(&format!("w{i}"));
        claims.spawn(async move {
            let claimant = claimant(&format!("w{i}"), "now");
            match i % 2 {
                0 => caller.claim(claimant, any(1), None).await.unwrap().len(),
                _ => caller.claim_ids(claimant, vec![work]).await.map_or(0, |held| held.len()),
            }
        });
    }
    assert_eq!(claims.join_all().await.into_iter().sum::<usize>(), 1);
    assert_eq!(bed.ledger.attempts(work).await.unwrap().len(), 1);
}

/// A closed ledger has answered everything that it took, including long-polling claims, and takes nothing
/// more.
pub async fn close_answers_everybody(bed: &mut Bed) {
    let w = bed.worker("w");
    let mut parked = std::pin::pin!(w.claim(claimant("w", "parked"), any(1), Some(PATIENCE)));
    let early = tokio::time::timeout(Duration::from_millis(30), &mut parked).await;
    assert!(early.is_err(), "an empty queue parks the claim");
    bed.close().await;
    assert!(parked.await.expect("it is answered").is_empty());
    match bed.machine().ingest(job("late")).await {
        Err(Error::Unavailable(_)) => {}
        other => panic!("a closed ledger takes nothing: {other:?}"),
    }
}
