//! One store from start to end: rounds of all cases in turn, then growth and bytes, then the figures.

use std::time::{Duration, Instant};

use futures_util::future::{try_join, try_join_all};

use crate::{
    Result,
    args::{Common, Store},
    bare::Bare,
    cases::{
        bytes,
        drain::Drain,
        growth, start,
        steady::{Steady, ingest},
    },
    plan::{self, Case, Commit, Plan},
    raw::Raw,
    report::Row,
    site::{Site, settle},
    stats::{median, percentile, ratio},
    subject::Subject,
};

pub async fn store(store: Store, args: &Common, plan: &Plan) -> Result<Vec<Row>> {
    let began = Instant::now();
    let say = |what: &str| eprintln!("{}: {what} ({:.0} s)", store.name(), began.elapsed().as_secs_f64());
    let site = Site::new(store, args)?;
    let cases = plan::round(store);
    let mut bench = Bench::open(&site, plan, &cases, plan::connections(store)).await?;
    settle()?;
    say("ready");

    let mut tallies = vec![Tally::default(); cases.len()];
    // A short round that is not counted, to warm caches and prepare statements.
    for case in &cases {
        bench.measure(*case, case.warm_up(plan), plan.slice / 4).await?;
    }
    for round in 1..=plan.rounds {
        settle()?;
        for (case, tally) in cases.iter().zip(&mut tallies) {
            let (rate, samples) = bench.measure(*case, plan.slice, plan.long_slice).await?;
            tally.rates.extend(rate);
            tally.samples.extend(samples);
        }
        say(&format!("round {round} of {}", plan.rounds));
    }
    bench.close().await?;

    let mut rows = figures(store, &cases, &tallies);
    rows.extend(growth::run(store, &site, plan).await?);
    say("claims from a long queue");
    let mut row = Row::new(store, "bytes");
    row.bytes = Some(bytes::run(&site.empty("bytes"), plan.stored).await?);
    rows.push(row);
    say("done");
    Ok(rows)
}

/// Everything that a round needs, open at once. Tables become slower with the number of their events, so each
/// commit size of raw and each number of submitters has a database of its own: compared databases have the
/// same age. Ingests and drains use a separate one.
struct Bench {
    bare: Bare,
    raw: Vec<(Commit, Raw)>,
    transitions: Vec<(usize, Steady)>,
    renewals: Steady,
    growing: Subject,
    drain: Drain,
}

impl Bench {
    async fn open(site: &Site, plan: &Plan, cases: &[Case], lanes: usize) -> Result<Bench> {
        let raw = cases.iter().filter_map(|case| match case {
            Case::Raw(commit) => Some(*commit),
            _ => None,
        });
        let raw = raw.map(async |commit| {
            let place = site.empty(&format!("raw-{}x{}", commit.connections, commit.size));
            Result::Ok((commit, Raw::transitions(&place, plan.rows, commit.connections).await?))
        });
        let transitions = cases.iter().filter_map(|case| match case {
            Case::Transition(submitters) => Some(*submitters),
            _ => None,
        });
        let transitions = transitions.map(async |submitters| {
            let subject = Subject::new(site.empty(&format!("transitions-{submitters}")).ledger().await?)?;
            Result::Ok((submitters, Steady::new(subject, plan.rows).await?))
        });
        let (raw, transitions) = try_join(try_join_all(raw), try_join_all(transitions)).await?;
        let growing = Subject::new(site.empty("growing").ledger().await?)?;
        let renewed = Subject::new(site.empty("renewals").ledger().await?)?;
        Ok(Bench {
            bare: Bare::open(&site.empty("bare"), plan.rows, lanes).await?,
            raw,
            transitions,
            renewals: Steady::new(renewed, plan.rows).await?,
            drain: Drain::new(growing.clone()),
            growing,
        })
    }

    async fn close(self) -> Result<()> {
        for (_, steady) in &self.transitions {
            steady.close().await?;
        }
        self.renewals.close().await?;
        self.growing.close().await
    }

    /// A rate, or samples of a latency in milliseconds.
    async fn measure(
        &mut self,
        case: Case,
        slice: Duration,
        long_slice: Duration,
    ) -> Result<(Option<f64>, Vec<f64>)> {
        let rate = match case {
            Case::Bare(commit) => self.bare.run(commit, slice).await?,
            Case::Raw(commit) => own(&mut self.raw, commit).run(commit, slice).await?,
            Case::Transition(submitters) => {
                own(&mut self.transitions, submitters).transition(submitters, slice).await?
            }
            Case::Ingest(submitters) => ingest(&self.growing, submitters, slice).await?,
            Case::Renew(submitters) => self.renewals.renew(submitters, slice).await?,
            Case::Drain { workers, claim } => self.drain.run(workers, claim, long_slice).await?,
            Case::Start => return Ok((None, start::run(&self.growing, long_slice).await?)),
        };
        Ok((Some(rate.per_s()), Vec::new()))
    }
}

/// The database opened for this case.
fn own<K: PartialEq + std::fmt::Debug, T>(all: &mut [(K, T)], key: K) -> &mut T {
    let found = all.iter_mut().find(|(of, _)| *of == key);
    &mut found.unwrap_or_else(|| panic!("nothing was opened for {key:?}")).1
}

/// The result of a case: one rate for each round, or the samples of all rounds.
#[derive(Clone, Debug, Default)]
struct Tally {
    rates: Vec<f64>,
    samples: Vec<f64>,
}

fn figures(store: Store, cases: &[Case], tallies: &[Tally]) -> Vec<Row> {
    let rates_of = |wanted: Case| {
        let at = cases.iter().position(|case| *case == wanted)?;
        Some(tallies[at].rates.as_slice())
    };
    let figure = |(case, tally): (&Case, &Tally)| {
        let transitions: Vec<f64> = tally.rates.iter().map(|rate| rate * case.transitions()).collect();
        let of = |base: Option<Case>| ratio(&transitions, rates_of(base?)?);
        let is_bare = matches!(case, Case::Bare(_));
        let is_raw = matches!(case, Case::Raw(_));
        let against = case.against(store);
        let mut row = Row::new(store, case.name());
        row.submitters = case.submitters();
        row.per_s = median(&tally.rates);
        row.of_raw = of(against.filter(|_| !is_bare && !is_raw).map(Case::Raw));
        row.of_bare = of(against.filter(|_| !is_bare).map(Case::Bare));
        row.p50_ms = percentile(&tally.samples, 50.0);
        row.p99_ms = percentile(&tally.samples, 99.0);
        match case {
            Case::Bare(commit) | Case::Raw(commit) => row.per_commit = Some(commit.size),
            Case::Drain { claim, .. } => row.claim = Some(*claim),
            Case::Transition(_) | Case::Ingest(_) | Case::Renew(_) | Case::Start => {}
        }
        row
    };
    cases.iter().zip(tallies).map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_each_round() {
        let cases = plan::round(Store::Sqlite);
        // Every case does 100, 50 and 10 a second in the three rounds; transitions by 256 do half of it.
        let rates = |case: &Case| {
            let share = if *case == Case::Transition(256) { 0.5 } else { 1.0 };
            [100.0, 50.0, 10.0].map(|rate| rate * share).to_vec()
        };
        let tallies: Vec<Tally> =
            cases.iter().map(|case| Tally { rates: rates(case), samples: Vec::new() }).collect();
        let rows = figures(Store::Sqlite, &cases, &tallies);
        let row = |case: Case| &rows[cases.iter().position(|other| *other == case).unwrap()];

        let transition = row(Case::Transition(256));
        assert_eq!(
            (transition.per_s, transition.of_raw, transition.of_bare),
            (Some(25.0), Some(0.5), Some(0.5))
        );
        let drain = row(Case::Drain { workers: 4, claim: 100 });
        assert_eq!((drain.per_s, drain.of_raw, drain.claim), (Some(50.0), Some(2.0), Some(100)));
        let bare = rows.iter().find(|row| row.case == "bare").unwrap();
        assert_eq!((bare.of_raw, bare.of_bare, bare.per_commit), (None, None, Some(256)));
        let raw = rows.iter().find(|row| row.case == "raw").unwrap();
        assert_eq!((raw.of_raw, raw.of_bare), (None, Some(1.0)));
    }
}
