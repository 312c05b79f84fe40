//! The same seeded actions go to memory, SQLite and PostgreSQL: same replies, same rows, same logs.
//!
//! Many seeds run side by side in lockstep, each in a tenant of its own, so that the databases decide them
//! in groups while the memory store decides them one by one. `TENURE_SEEDS` and `TENURE_FIRST_SEED` choose
//! others, or more.

mod script;

use std::{collections::BTreeMap, sync::Arc};

use script::Script;
use tenure_core::{Command, Submission, Work, action::Tenants};
use tenure_store::{
    CommandFilter, Error, Ledger, LedgerReply, ManualClock, Options, StoredEvent, WaitFilter, WorkFilter,
};

const SEEDS: u64 = 1_024;
/// Seeds that share a ledger and its groups.
const ABREAST: u64 = 64;
const ROUNDS: usize = 60;
const START: i64 = 1_800_000_000_000;

/// What a caller sees of an answer.
#[derive(Debug, PartialEq)]
enum Seen {
    Reply(Box<tenure_core::Reply>, BTreeMap<String, String>),
    Refused(tenure_core::Refusal),
}

fn seen(answer: Result<LedgerReply, Error>) -> Seen {
    match answer {
        Ok(outcome) => {
            let payloads = script::payload_keys(&outcome.reply)
                .into_iter()
                .filter_map(|(work, seq)| {
                    Some((format!("{work}#{seq}"), outcome.payload(work, seq)?.text().to_owned()))
                })
                .collect();
            Seen::Reply(Box::new(outcome.reply), payloads)
        }
        Err(Error::Refused(refusal)) => Seen::Refused(refusal),
        Err(error) => panic!("a store failed: {error}"),
    }
}

async fn answers(ledger: &Ledger, round: &[Submission]) -> Vec<Seen> {
    let tasks: Vec<_> = round
        .iter()
        .map(|submission| {
            let (ledger, submission) = (ledger.clone(), submission.clone());
            tokio::spawn(async move { ledger.submit(submission).await })
        })
        .collect();
    let mut answers = Vec::with_capacity(tasks.len());
    for task in tasks {
        answers.push(seen(task.await.expect("a submission never panics")));
    }
    answers
}

struct Contents {
    works: Vec<Work>,
    events: Vec<tenure_core::Event>,
    commands: Vec<Command>,
    rest: String,
}

/// Everything that a tenant has, positions left out: they are each store's own.
async fn contents(ledger: &Ledger, tenant: &str) -> Contents {
    let tenants = Tenants::Only(vec![tenant.to_owned()]);
    let filter = WorkFilter { tenants: Some(tenants.clone()), ..WorkFilter::default() };
    let works = ledger.list(&filter, None, 1_000).await.unwrap().rows;
    let mut events = Vec::new();
    let mut rest = String::new();
    for work in &works {
        let log = ledger.events(work.id, 0, 1_000).await.unwrap();
        events.extend(log.into_iter().map(|StoredEvent { event, .. }| event));
        rest += &format!("{:?}\n", ledger.steps(work.id).await.unwrap());
        rest += &format!("{:?}\n", ledger.attempts(work.id).await.unwrap());
    }
    let commands = CommandFilter { tenants: Some(tenants.clone()), ..CommandFilter::default() };
    let commands = ledger.commands(&commands, None, 1_000).await.unwrap().rows;
    rest += &format!("{:?}\n", ledger.command_counts(&tenants).await.unwrap());
    rest += &format!("{:?}\n", ledger.budgets(&script::budgets(tenant)).await.unwrap());
    let waits = WaitFilter { tenants: Some(tenants.clone()), ..WaitFilter::default() };
    rest += &format!("{:?}\n", ledger.waits(&waits, 1_000).await.unwrap().rows);
    rest += &format!("{:?}\n", ledger.counts(&tenants).await.unwrap());
    Contents { works, events, commands, rest }
}

/// Runs a group of seeds against the oracle; answers what differed first, with its seed.
async fn compare(name: &str, first: u64, oracle: &Ledger, store: &Ledger, clock: &ManualClock) {
    let mut scripts: Vec<Script> = (first..first + ABREAST).map(Script::new).collect();
    for number in 0..ROUNDS {
        let round: Vec<Submission> = scripts.iter_mut().map(Script::next).collect();
        let expected = answers(oracle, &round).await;
        let got = answers(store, &round).await;
        for (((script, submission), expected), got) in scripts.iter_mut().zip(&round).zip(&expected).zip(&got)
        {
            assert_eq!(
                got, expected,
                "{name} differs from memory at seed {}, action {number}: {:?}",
                script.seed, submission.action
            );
            if let Seen::Reply(reply, _) = expected {
                script.learn(reply);
            }
        }
        clock.advance(script::pause(first, number));
    }
    for script in &scripts {
        let expected = contents(oracle, &script.tenant()).await;
        let got = contents(store, &script.tenant()).await;
        assert_eq!(got.works, expected.works, "{name}: rows differ at seed {}", script.seed);
        assert_eq!(got.events, expected.events, "{name}: logs differ at seed {}", script.seed);
        assert_eq!(got.commands, expected.commands, "{name}: commands differ at seed {}", script.seed);
        assert_eq!(
            got.rest, expected.rest,
            "{name}: steps, attempts, waits, budgets or counts differ at seed {}",
            script.seed
        );
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

async fn differential<F: Future<Output = Ledger>>(name: &str, open: impl Fn(Options) -> F) {
    let seeds = number("TENURE_SEEDS", SEEDS);
    let first = number("TENURE_FIRST_SEED", 0);
    let mut moves = 0;
    for group in (first..first + seeds).step_by(ABREAST as usize) {
        let clock = Arc::new(ManualClock::new(START));
        let options = Options { clock: Some(clock.clone()), lanes: 2, sweep: false, ..Options::default() };
        let oracle = Ledger::open_memory(options.clone()).await.unwrap();
        let store = open(options).await;
        compare(name, group, &oracle, &store, &clock).await;
        let report = store.verify().await.unwrap();
        assert_eq!(report.faults, [], "{name}, seeds from {group}");
        moves += report.events;
        store.close().await.unwrap();
    }
    // A script that is refused all the time would prove nothing.
    assert!(moves > seeds * 15, "only {moves} events in {seeds} seeds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_does_what_memory_does() {
    let folder = tempfile::tempdir().unwrap();
    let files = std::sync::atomic::AtomicU32::new(0);
    differential("SQLite", |options| {
        let number = files.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = folder.path().join(format!("ledger-{number}.db"));
        async move { Ledger::open_sqlite(path, options).await.unwrap() }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_does_what_memory_does() {
    differential("PostgreSQL", |options| async move {
        let url = tenure_testkit::shared().create_database();
        Ledger::open_postgres(&url, options).await.unwrap()
    })
    .await;
}

/// Two memories have differently seeded maps: what depends on their order would show here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_does_what_memory_does() {
    differential("another memory", |options| async { Ledger::open_memory(options).await.unwrap() }).await;
}
