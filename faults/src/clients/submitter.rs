//! Submits work items of unique sources, some of them more than once.

use std::sync::atomic::Ordering;

use serde_json::json;
use tenure_api::wire::{Disposition, Ingest, Jitter, LeaseTimings, RetryPolicy, Source, WorkPolicy};

use super::Hand;
use crate::history::Call;

/// The maximum number of unclaimed work items.
const AHEAD: u64 = 40;

pub async fn run(mut hand: Hand) {
    for number in 0.. {
        while hand.open.load(Ordering::Relaxed) >= AHEAD && !hand.is_stopped() {
            hand.pause().await;
        }
        if hand.is_stopped() {
            return;
        }
        let new = ingest(&mut hand, number);
        for _ in 0..if hand.dice.one_in(5) { 2 } else { 1 } {
            let client = hand.client.clone();
            let call = Call::Ingest(Box::new(new.clone()));
            let answer = hand.insist(call, || client.ingest(&new)).await;
            if answer.is_some_and(|answer| answer.created) {
                hand.open.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn ingest(hand: &mut Hand, number: u64) -> Ingest {
    let id = format!("{}-{number}", hand.name);
    let source = Source { system: "manual".into(), id, run_id: String::new() };
    let kind = ["plain", "plain", "effect", "wait"][hand.dice.below(4) as usize];
    let mut new = Ingest::new(source, kind, Disposition::Rerunnable, json!({ "number": number }));
    new.session = hand.dice.one_in(3).then(|| format!("session-{}", hand.dice.below(6)));
    // Leases are short, so that those of silent workers lapse within a run.
    new.policy = Some(WorkPolicy {
        lease: Some(LeaseTimings { ttl_ms: 900, renew_ms: 300, grace_ms: 300 }),
        retry: Some(RetryPolicy {
            max_attempts: Some(10),
            initial_ms: Some(50),
            max_ms: Some(200),
            jitter: Some(Jitter::None),
            ..RetryPolicy::default()
        }),
        ..WorkPolicy::default()
    });
    new
}
