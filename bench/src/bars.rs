//! The bars that figures must reach. Bars that name other products need those products in the same run, and
//! are evaluated there.

use std::fmt;

use crate::{
    args::Store,
    report::{MIB, Row},
};

#[derive(Clone, Copy, Debug)]
enum Figure {
    PerS,
    OfRaw,
    OfBare,
    P50Ms,
    P99Ms,
    MaxMs,
    Ratio,
    Bytes,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Clone, Copy, Debug)]
pub struct Bar {
    bench: &'static str,
    store: Store,
    case: &'static str,
    submitters: Option<usize>,
    /// The `per_commit`, `claim` or `queued` of the line, if it has one. None for any.
    size: Option<usize>,
    figure: Figure,
    limit: Limit,
}

/// Of the default ttl.
const THIRD_OF_TTL_MS: f64 = 15_000.0;

const BARS: [Bar; 32] = {
    use Figure::{Bytes, MaxMs, OfBare, OfRaw, P50Ms, P99Ms, PerS, Ratio};
    use Limit::{AtLeast, AtMost};
    use Store::{Postgres, Sqlite};
    [
        bar(Sqlite, "raw", Some(1), Some(256), OfBare, AtLeast(0.33)),
        bar(Sqlite, "transition", Some(256), None, OfRaw, AtLeast(0.70)),
        bar(Sqlite, "transition", Some(1), None, OfRaw, AtLeast(0.80)),
        bar(Sqlite, "drain", Some(4), Some(100), PerS, AtLeast(20_000.0)),
        bar(Sqlite, "start_ms", None, None, P50Ms, AtMost(1.5)),
        bar(Sqlite, "claim_1m", None, None, Ratio, AtMost(1.5)),
        bar(Postgres, "raw", Some(1), Some(256), OfBare, AtLeast(0.60)),
        bar(Postgres, "transition", Some(256), None, OfRaw, AtLeast(0.60)),
        bar(Postgres, "transition", Some(1), None, OfRaw, AtLeast(0.60)),
        bar(Postgres, "drain", Some(16), Some(100), PerS, AtLeast(15_000.0)),
        bar(Postgres, "start_ms", None, None, P50Ms, AtMost(2.0)),
        bar(Postgres, "claim_1m", None, None, Ratio, AtMost(1.5)),
        over_http(Sqlite, "ingest", Some(64), PerS, AtLeast(8_000.0)),
        over_http(Sqlite, "start_ms", None, P50Ms, AtMost(4.0)),
        over_http(Sqlite, "memory_load", None, Bytes, AtMost(256.0 * MIB)),
        over_http(Sqlite, "memory", None, Bytes, AtMost(100.0 * MIB)),
        over_http(Sqlite, "cold_start", None, P50Ms, AtMost(200.0)),
        over_http(Postgres, "ingest", Some(64), PerS, AtLeast(8_000.0)),
        over_http(Postgres, "start_ms", None, P50Ms, AtMost(4.0)),
        over_http(Postgres, "memory_load", None, Bytes, AtMost(256.0 * MIB)),
        over_http(Postgres, "memory", None, Bytes, AtMost(100.0 * MIB)),
        over_http(Postgres, "cold_start", None, P50Ms, AtMost(200.0)),
        over_http(Sqlite, "reads_attacked", None, P99Ms, AtMost(250.0)),
        over_http(Sqlite, "renewals_attacked", None, MaxMs, AtMost(THIRD_OF_TTL_MS)),
        over_http(Sqlite, "memory_attacked", None, Bytes, AtMost(256.0 * MIB)),
        over_http(Postgres, "reads_attacked", None, P99Ms, AtMost(250.0)),
        over_http(Postgres, "renewals_attacked", None, MaxMs, AtMost(THIRD_OF_TTL_MS)),
        over_http(Postgres, "memory_attacked", None, Bytes, AtMost(256.0 * MIB)),
        of_commands(Sqlite, "command", Some(256), OfRaw, AtLeast(0.40)),
        of_commands(Sqlite, "relay", None, PerS, AtLeast(2_000.0)),
        of_commands(Postgres, "command", Some(256), OfRaw, AtLeast(0.40)),
        of_commands(Postgres, "relay", None, PerS, AtLeast(2_000.0)),
    ]
};

const fn bar(
    store: Store,
    case: &'static str,
    submitters: Option<usize>,
    size: Option<usize>,
    figure: Figure,
    limit: Limit,
) -> Bar {
    Bar { bench: "ledger", store, case, submitters, size, figure, limit }
}

const fn over_http(
    store: Store,
    case: &'static str,
    submitters: Option<usize>,
    figure: Figure,
    limit: Limit,
) -> Bar {
    Bar { bench: "http", ..bar(store, case, submitters, None, figure, limit) }
}

const fn of_commands(
    store: Store,
    case: &'static str,
    submitters: Option<usize>,
    figure: Figure,
    limit: Limit,
) -> Bar {
    Bar { bench: "commands", ..bar(store, case, submitters, None, figure, limit) }
}

/// The bar of a line, if it has one.
pub fn of(row: &Row) -> Option<&'static Bar> {
    let size = row.per_commit.or(row.claim);
    BARS.iter().find(|bar| {
        bar.bench == row.bench
            && bar.store == row.store
            && bar.case == row.case
            && bar.submitters == row.submitters
            && (bar.size.is_none() || bar.size == size)
            && bar.figure.of(row).is_some()
    })
}

impl Bar {
    /// None if the line does not have the figure.
    pub fn met(&self, row: &Row) -> Option<bool> {
        let value = self.figure.of(row)?;
        Some(match self.limit {
            Limit::AtLeast(limit) => value >= limit,
            Limit::AtMost(limit) => value <= limit,
        })
    }
}

impl Figure {
    fn of(self, row: &Row) -> Option<f64> {
        match self {
            Figure::PerS => row.per_s,
            Figure::OfRaw => row.of_raw,
            Figure::OfBare => row.of_bare,
            Figure::P50Ms => row.p50_ms,
            Figure::P99Ms => row.p99_ms,
            Figure::MaxMs => row.max_ms,
            Figure::Ratio => row.ratio,
            Figure::Bytes => row.bytes,
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Figure::PerS => format!("{value:.0}"),
            Figure::OfRaw | Figure::OfBare => format!("{:.0} %", value * 100.0),
            Figure::P50Ms | Figure::P99Ms | Figure::MaxMs => format!("{value} ms"),
            Figure::Ratio => format!("{value}"),
            Figure::Bytes => format!("{:.0} MiB", value / MIB),
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.figure {
            Figure::PerS => "per s",
            Figure::OfRaw => "of raw",
            Figure::OfBare => "of bare",
            Figure::P50Ms => "p50",
            Figure::P99Ms => "p99",
            Figure::MaxMs => "longest",
            Figure::Ratio => "ratio",
            Figure::Bytes => "memory",
        };
        match self.limit {
            Limit::AtLeast(limit) => write!(f, "{name} ≥ {}", self.figure.show(limit)),
            Limit::AtMost(limit) => write!(f, "{name} ≤ {}", self.figure.show(limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_finds_its_line_and_no_other() {
        let mut row = Row::new(Store::Sqlite, "drain");
        (row.submitters, row.claim, row.per_s) = (Some(4), Some(100), Some(19_999.0));
        let bar = of(&row).unwrap();
        assert_eq!((bar.met(&row), bar.to_string().as_str()), (Some(false), "per s ≥ 20000"));
        row.claim = Some(1);
        assert!(of(&row).is_none());
        row.store = Store::Postgres;
        assert!(of(&row).is_none());
    }

    #[test]
    fn raw_is_judged_by_the_row_that_256_submitters_are_held_against() {
        use crate::plan::Case;
        for store in Store::ALL {
            let commit = Case::Transition(256).against(store).unwrap();
            let mut row = Row::new(store, "raw");
            (row.per_commit, row.of_bare) = (Some(commit.size), Some(0.5));
            for connections in [1, 2] {
                row.submitters = Some(connections);
                assert_eq!(of(&row).is_some(), connections == commit.connections, "{store:?} {connections}");
            }
        }
    }

    #[test]
    fn every_bar_is_about_a_case_that_is_measured() {
        use crate::plan::{self, Case};
        for bar in BARS.iter().filter(|bar| bar.bench == "ledger" && bar.case != "claim_1m") {
            let size = |case: &Case| match *case {
                Case::Bare(commit) | Case::Raw(commit) => Some(commit.size),
                Case::Drain { claim, .. } => Some(claim),
                Case::Transition(_) | Case::Ingest(_) | Case::Renew(_) | Case::Start => None,
            };
            let measured = plan::round(bar.store).into_iter().any(|case| {
                case.name() == bar.case && case.submitters() == bar.submitters && size(&case) == bar.size
            });
            assert!(measured, "{bar:?}");
        }
    }

    #[test]
    fn latencies_and_ratios_must_stay_under_their_bars() {
        let mut row = Row::new(Store::Sqlite, "start_ms");
        for (p50, met) in [(1.4, true), (1.5, true), (1.6, false)] {
            row.p50_ms = Some(p50);
            assert_eq!(of(&row).unwrap().met(&row), Some(met));
        }
    }
}
