//! The three-ledger checker: the responses to clients, the log, and the provider's real calls are compared
//! with each other after random crashes, timeouts and repeats. Only the third can prove that no effect came
//! before its intent and that none was repeated without permission.

mod actors;
mod check;
mod dice;
mod truth;
mod world;

use std::sync::Arc;

use tempfile::TempDir;
use tenure_store::{Ledger, ManualClock, Options};

use crate::bed::START;
use check::check;
use world::{Covered, World};

/// Scenarios on one database: each is one command.
const SCENARIOS: usize = 2_000;
const SCENARIOS_OF_A_LEDGER: usize = 500;

async fn sqlite(options: Options) -> (Ledger, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open_sqlite(folder.path().join("ledger.db"), options).await.unwrap();
    (ledger, folder)
}

async fn postgres(options: Options) -> Ledger {
    let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await;
    Ledger::open_postgres(&made.unwrap(), options).await.unwrap()
}

fn clocked() -> (Arc<ManualClock>, Options) {
    let clock = Arc::new(ManualClock::new(START));
    let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
    (clock, options)
}

/// One ledger's scenarios, from the first intent to the last end.
async fn run(ledger: Ledger, clock: Arc<ManualClock>, seed: u64) -> Covered {
    let mut world = World::new(ledger, clock, seed).await;
    world.begin(SCENARIOS_OF_A_LEDGER).await;
    for _ in 0..10 {
        world.round(true).await;
    }
    world.end().await;
    let faults = check(&world).await;
    assert!(
        faults.is_empty(),
        "seed {seed}: {} faults, the first: {:#?}",
        faults.len(),
        &faults[..faults.len().min(5)]
    );
    let report = world.ledger.verify().await.unwrap();
    assert!(report.faults.is_empty(), "seed {seed}: {:#?}", report.faults);
    world.covered().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_effect_without_intent_and_none_repeated_on_sqlite() {
    let mut covered = Covered::default();
    for seed in 0..(SCENARIOS / SCENARIOS_OF_A_LEDGER) as u64 {
        let (clock, options) = clocked();
        let (ledger, folder) = sqlite(options).await;
        covered = covered.and(run(ledger, clock, seed).await);
        drop(folder);
    }
    covered.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_effect_without_intent_and_none_repeated_on_postgres() {
    let mut covered = Covered::default();
    for seed in 100..100 + (SCENARIOS / SCENARIOS_OF_A_LEDGER) as u64 {
        let (clock, options) = clocked();
        let ledger = postgres(options).await;
        covered = covered.and(run(ledger, clock, seed).await);
    }
    covered.check();
}

/// A checker that never finds anything proves nothing: it must detect each of these bugs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_bugs_are_found() {
    for (bug, found) in [
        ("call_before_dispatch", "before its dispatch was committed"),
        ("blind_retry", "before its dispatch was committed"),
        ("second_effect", "happened 2 times"),
        ("forged_receipt", "says succeeded, and the provider did nothing"),
        ("false_failure", "says failed, and the provider did it"),
        ("client_told_otherwise", "a client was told"),
        ("left_open", "has not ended"),
    ] {
        let (clock, options) = clocked();
        let ledger = Ledger::open_memory(options).await.unwrap();
        let mut world = World::new(ledger, clock, 7).await;
        world.plant(bug).await;
        let faults = check(&world).await;
        assert!(faults.iter().any(|fault| fault.contains(found)), "{bug}: {faults:#?}");
    }
}
