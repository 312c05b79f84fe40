//! Commands: the cost of intent, dispatch and receipt compared with the raw ones of the same run, and the
//! number of webhooks per second that the relay sends to a sink on this machine.

mod relay;
mod sink;

use std::time::{Duration, Instant};

use tenure_store::Ledger;

use crate::{
    Result,
    args::{Common, Store},
    bare::Bare,
    cases::{at_once, turns::Turns},
    plan::{Commit, Plan},
    raw::Raw,
    report::Row,
    site::{Site, settle},
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
    let mut raw = Raw::transitions(&site.empty("raw"), plan.rows, 1).await?;
    let mut raw_lives = Raw::commands(&site.empty("raw_commands"), plan.rows).await?;
    let lives = Lives::new(site.empty("commands").ledger().await?, plan.rows).await?;
    let mut outbox = Outbox::new(site.empty("relay").ledger().await?).await?;
    say("ready");
    let sends = if args.quick { 3_000 } else { 10_000 };
    let mut rates: [Vec<f64>; 5] = Default::default();
    // The first round warms up.
    for round in 0..=plan.rounds {
        settle()?;
        let taken = [
            bare.run(GROUP, plan.slice).await?,
            raw.run(GROUP, plan.slice).await?,
            raw_lives.run(GROUP, plan.long_slice).await?,
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

fn rows(store: Store, [bare, raw, raw_lives, lives, relay]: &[Vec<f64>; 5]) -> Vec<Row> {
    let row = |case, submitters, rates: &[f64]| {
        let mut row = Row::new(store, case);
        (row.bench, row.submitters, row.per_s) = ("commands", submitters, median(rates));
        row
    };
    let life = |case, submitters, rates: &[f64]| {
        let transitions: Vec<f64> = rates.iter().map(|rate| rate * TRANSITIONS).collect();
        let mut row = row(case, submitters, rates);
        (row.of_work_raw, row.of_bare) = (ratio(&transitions, raw), ratio(&transitions, bare));
        row
    };
    let mut transition = row("raw", Some(1), raw);
    (transition.per_commit, transition.of_bare) = (Some(GROUP.size), ratio(raw, bare));
    let mut limit = life("raw_command", Some(1), raw_lives);
    limit.per_commit = Some(GROUP.size);
    let mut command = life("command", Some(SUBMITTERS), lives);
    command.of_raw = ratio(lives, raw_lives);
    vec![transition, limit, command, row("relay", None, relay)]
}

/// Workers that reserve, dispatch and deliver receipts.
struct Lives {
    subject: Subject,
    turns: Turns,
}

impl Lives {
    async fn new(ledger: Ledger, rows: usize) -> Result<Self> {
        let subject = Subject::new(ledger)?;
        let turns = Turns::new(subject.hold("commands", rows).await?);
        Ok(Self { subject, turns })
    }

    async fn run(&self, submitters: usize, slice: Duration) -> Result<Rate> {
        let (subject, turns) = (self.subject.clone(), self.turns.clone());
        at_once(submitters, slice, move |_, _| {
            let (subject, turns) = (subject.clone(), turns.clone());
            async move {
                let lease = turns.next();
                let id = subject.reserve(lease).await?;
                subject.dispatch(lease, id).await?;
                subject.receipt(lease, id).await
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
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
    fn a_command_is_held_against_raw_commands_and_against_three_transitions_of_a_work() {
        let rates = [vec![400.0], vec![200.0], vec![50.0], vec![40.0], vec![3_000.0]];
        let rows = rows(Store::Sqlite, &rates);
        let figures = |row: &Row| (row.case, row.per_s, row.of_raw, row.of_work_raw, row.of_bare);
        assert_eq!(figures(&rows[0]), ("raw", Some(200.0), None, None, Some(0.5)));
        assert_eq!(figures(&rows[1]), ("raw_command", Some(50.0), None, Some(0.75), Some(0.375)));
        assert_eq!(figures(&rows[2]), ("command", Some(40.0), Some(0.8), Some(0.6), Some(0.3)));
        assert_eq!(figures(&rows[3]), ("relay", Some(3_000.0), None, None, None));
    }
}
