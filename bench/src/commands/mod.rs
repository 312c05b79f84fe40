//! Commands: what an intent, its dispatch and its receipt cost beside three raw transitions of the same run, and how
//! many webhooks a second the relay sends to a sink on this machine.

mod relay;
mod sink;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use serde_json::json;
use tenure_core::{
    Actor, Payload,
    command::{Arguments, Effect, Gate, Proof, ToolFacts, Verdict},
};
use tenure_store::{Caller, LeaseRef, Ledger, NewCommand};

use crate::{
    Result,
    args::{Common, Store},
    bare::Bare,
    cases::at_once,
    plan::{Commit, Plan},
    raw::Raw,
    report::Row,
    site::Site,
    stats::{Rate, median, ratio},
    subject::Subject,
};
use relay::Outbox;

const SUBMITTERS: usize = 256;
const GROUP: Commit = Commit { connections: 1, size: 256 };
/// A command is reserved, dispatched and receipted.
const TRANSITIONS: f64 = 3.0;

pub async fn run(args: &Common) -> Result<Vec<Row>> {
    let plan = if args.quick { Plan::quick() } else { Plan::full() };
    let mut rows = Vec::new();
    for store in args.stores() {
        rows.extend(measure(store, args, &plan).await?);
    }
    Ok(rows)
}

async fn measure(store: Store, args: &Common, plan: &Plan) -> Result<Vec<Row>> {
    let began = Instant::now();
    let say = |what: &str| eprintln!("{}: {what} ({:.0} s)", store.name(), began.elapsed().as_secs_f64());
    let site = Site::new(store, args)?;
    let mut bare = Bare::open(&site.empty("bare"), plan.rows, 1).await?;
    let mut raw = Raw::open(&site.empty("raw"), plan.rows, 1).await?;
    let lives = Lives::new(site.empty("commands").ledger().await?, plan.rows).await?;
    let mut outbox = Outbox::new(site.empty("relay").ledger().await?).await?;
    say("ready");
    let sends = if args.quick { 3_000 } else { 10_000 };
    let mut rates: [Vec<f64>; 4] = Default::default();
    // The first round warms up.
    for round in 0..=plan.rounds {
        let taken = [
            bare.run(GROUP, plan.slice).await?,
            raw.run(GROUP, plan.slice).await?,
            lives.run(SUBMITTERS, plan.long_slice).await?,
            outbox.run(sends).await?,
        ];
        if round > 0 {
            rates.iter_mut().zip(taken).for_each(|(all, rate)| all.push(rate.per_s()));
            say(&format!("round {round} of {}", plan.rounds));
        }
    }
    Ok(rows(store, &rates))
}

fn rows(store: Store, [bare, raw, commands, relay]: &[Vec<f64>; 4]) -> Vec<Row> {
    let row = |case, submitters, rates: &[f64]| {
        let mut row = Row::new(store, case);
        (row.bench, row.submitters, row.per_s) = ("commands", submitters, median(rates));
        row
    };
    let mut limit = row("raw", Some(1), raw);
    (limit.per_commit, limit.of_bare) = (Some(GROUP.size), ratio(raw, bare));
    let mut life = row("command", Some(SUBMITTERS), commands);
    let transitions: Vec<f64> = commands.iter().map(|rate| rate * TRANSITIONS).collect();
    (life.of_raw, life.of_bare) = (ratio(&transitions, raw), ratio(&transitions, bare));
    vec![limit, life, row("relay", None, relay)]
}

/// Workers that reserve, dispatch and deliver receipts, each on works of its own.
struct Lives {
    worker: Caller,
    held: Arc<Vec<LeaseRef>>,
    next: Arc<AtomicU64>,
}

impl Lives {
    async fn new(ledger: Ledger, rows: usize) -> Result<Self> {
        let worker = ledger.caller(Actor::worker("bench"));
        let held = Subject::new(ledger)?.hold("commands", rows).await?;
        Ok(Self { worker, held: Arc::new(held), next: Arc::default() })
    }

    async fn run(&self, submitters: usize, slice: std::time::Duration) -> Result<Rate> {
        let (worker, held, next) = (self.worker.clone(), self.held.clone(), self.next.clone());
        at_once(submitters, slice, move |submitter, number| {
            let (worker, held) = (worker.clone(), held.clone());
            let slot = next.fetch_add(1, Ordering::Relaxed);
            async move {
                let each = held.len() / submitters;
                life(&worker, &held[number % each * submitters + submitter], slot).await
            }
        })
        .await
    }
}

async fn life(worker: &Caller, lease: &LeaseRef, slot: u64) -> Result<()> {
    let gate = Gate::new(Verdict::new(Effect::Allow, "bench"), ToolFacts::default());
    let arguments = json!({ "to": "bob@example.com", "subject": "Your order", "text": "It is on its way." });
    let mut new = NewCommand::new(
        "send_email",
        "bob@example.com",
        Arguments::whole(Payload::new(&arguments)?),
        gate.clone(),
    );
    new.slot = Some(slot.to_string());
    let id = worker.reserve(lease, new).await?.command.id;
    worker.dispatch(lease, id, gate, Some("go")).await?;
    worker.receipt(lease, id, Proof::provider("m-4711")).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_store::Options;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn both_cases_get_something_done() {
        let ledger = Ledger::open_memory(Options::default()).await.unwrap();
        let lives = Lives::new(ledger, 8).await.unwrap();
        assert!(lives.run(4, Duration::from_millis(30)).await.unwrap().count > 0);
        let ledger = Ledger::open_memory(Options::default()).await.unwrap();
        let mut outbox = Outbox::new(ledger).await.unwrap();
        assert_eq!(outbox.run(250).await.unwrap().count, 250);
        assert_eq!(outbox.run(50).await.unwrap().count, 50);
    }

    #[test]
    fn a_command_counts_as_three_transitions() {
        let rates = [vec![400.0], vec![200.0], vec![40.0], vec![3_000.0]];
        let rows = rows(Store::Sqlite, &rates);
        assert_eq!((rows[1].case, rows[1].per_s, rows[1].of_raw), ("command", Some(40.0), Some(0.6)));
        assert_eq!((rows[2].case, rows[2].per_s), ("relay", Some(3_000.0)));
    }
}
