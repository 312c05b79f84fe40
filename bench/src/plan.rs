//! The plan of a run: the cases of a round, how long each runs, and the number of rounds.

use std::time::Duration;

use crate::args::Store;

/// A commit's shape without a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    pub connections: usize,
    /// Transitions in each commit.
    pub size: usize,
}

/// A case that runs for one slice of time in every round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Row update + event insert on two plain tables.
    Bare(Commit),
    /// The same on the ledger's own tables, with the ledger's own statements.
    Raw(Commit),
    /// `progress` by this many concurrent submitters.
    Transition(usize),
    Ingest(usize),
    Renew(usize),
    /// Claim and close-out by this many workers, with this many work items for each claim.
    Drain {
        workers: usize,
        claim: usize,
    },
    /// From before an ingest to the return of a long-polling claim, at a light load.
    Start,
}

/// The group size that a busy ledger's commits are compared with.
const GROUP: usize = 256;

impl Case {
    pub fn name(self) -> &'static str {
        match self {
            Case::Bare(_) => "bare",
            Case::Raw(_) => "raw",
            Case::Transition(_) => "transition",
            Case::Ingest(_) => "ingest",
            Case::Renew(_) => "renew",
            Case::Drain { .. } => "drain",
            Case::Start => "start_ms",
        }
    }

    pub fn submitters(self) -> Option<usize> {
        match self {
            Case::Bare(commit) | Case::Raw(commit) => Some(commit.connections),
            Case::Transition(n) | Case::Ingest(n) | Case::Renew(n) => Some(n),
            Case::Drain { workers, .. } => Some(workers),
            Case::Start => None,
        }
    }

    /// The transitions counted for each item: a drained one was claimed and closed out.
    pub fn transitions(self) -> f64 {
        match self {
            Case::Drain { .. } => 2.0,
            _ => 1.0,
        }
    }

    /// How long it runs before it is counted. A case that waits for each commit makes few of them: it takes
    /// some hundreds until SQLite first checkpoints its log, and syncs take longer while the log grows.
    pub fn warm_up(self, plan: &Plan) -> Duration {
        match self {
            Case::Raw(Commit { size: 1, .. }) | Case::Transition(1) => plan.slice * 3 / 2,
            _ => plan.slice / 4,
        }
    }

    /// The commit without a ledger that this case is compared with. A single submitter waits for each commit;
    /// many share commits, on as many connections as they could fill: 256 of them fill one commit at a time.
    pub fn against(self, store: Store) -> Option<Commit> {
        let filled = |calls: usize| (calls / GROUP).clamp(1, connections(store));
        match self {
            Case::Bare(commit) | Case::Raw(commit) => Some(commit),
            Case::Transition(1) | Case::Ingest(1) | Case::Renew(1) => {
                Some(Commit { connections: 1, size: 1 })
            }
            Case::Transition(calls) | Case::Ingest(calls) | Case::Renew(calls) => {
                Some(Commit { connections: filled(calls), size: GROUP })
            }
            Case::Drain { workers, claim } => {
                Some(Commit { connections: filled(workers * claim), size: GROUP })
            }
            Case::Start => None,
        }
    }
}

/// Connections that write concurrently without a ledger. Two keep two cores busy, which is the database's
/// best throughput.
pub fn connections(store: Store) -> usize {
    match store {
        Store::Sqlite => 1,
        Store::Postgres => 2,
    }
}

/// The cases of one round, in their order.
pub fn round(store: Store) -> Vec<Case> {
    let workers = match store {
        Store::Sqlite => 4,
        Store::Postgres => 16,
    };
    let mut commits = vec![
        Commit { connections: connections(store), size: GROUP },
        Commit { connections: 1, size: GROUP },
        Commit { connections: 1, size: 1 },
    ];
    commits.dedup();
    let mut cases: Vec<Case> = commits.iter().map(|commit| Case::Bare(*commit)).collect();
    cases.extend(commits.iter().map(|commit| Case::Raw(*commit)));
    cases.extend([1, 16, 256, 1_024].map(Case::Transition));
    cases.extend([1, 16, 64, 256, 1_024].map(Case::Ingest));
    cases.extend([256, 1_024].map(Case::Renew));
    cases.extend([1, 100].map(|claim| Case::Drain { workers, claim }));
    cases.push(Case::Start);
    cases
}

/// The same in a quick run: a checkpoint's cost depends on how far dirty pages spread, on bare tables most.
const ROWS: usize = 10_240;

/// Sizes and durations.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub rounds: usize,
    pub slice: Duration,
    /// The light load of `start_ms` needs longer slices for enough samples, and a drain to be more than the
    /// first and last claims of its workers.
    pub long_slice: Duration,
    /// Rows that transitions cycle through, in the bare tables as in the ledger's.
    pub rows: usize,
    /// Queue lengths at which claims are compared.
    pub queued: [usize; 2],
    /// Single claims timed at each length.
    pub claims: usize,
    /// Work items whose bytes on disk are measured.
    pub stored: usize,
}

impl Plan {
    pub fn full() -> Plan {
        Plan {
            rounds: 5,
            slice: Duration::from_millis(700),
            long_slice: Duration::from_secs(2),
            rows: ROWS,
            queued: [1_000, 1_000_000],
            claims: 2_000,
            stored: 10_000,
        }
    }

    pub fn quick() -> Plan {
        Plan {
            rounds: 3,
            slice: Duration::from_millis(150),
            long_slice: Duration::from_millis(400),
            rows: ROWS,
            queued: [1_000, 30_000],
            claims: 200,
            stored: 2_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_measured_against_runs_in_the_same_round() {
        for store in Store::ALL {
            let cases = round(store);
            for commit in cases.iter().filter_map(|case| case.against(store)) {
                assert!(cases.contains(&Case::Bare(commit)), "{store:?} {commit:?}");
                assert!(cases.contains(&Case::Raw(commit)), "{store:?} {commit:?}");
            }
        }
    }

    #[test]
    fn no_case_runs_twice_in_a_round() {
        for store in Store::ALL {
            let cases = round(store);
            assert!(cases.iter().enumerate().all(|(i, case)| !cases[..i].contains(case)), "{store:?}");
        }
    }
}
