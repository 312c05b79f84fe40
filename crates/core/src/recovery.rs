//! The verdict on a work item whose holder lapsed: decided by its declared disposition, never by a guess.

use serde::{Deserialize, Serialize};

use crate::{liveness::Grade, model::Disposition, policy::OnExpiry};

/// How many consecutive lapses, or equal failures, make a work item poison.
pub const POISON: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Retry,
    Resume,
    Reconcile,
    Quarantine,
    Abandon,
    Leave,
    /// Ended as declared in advance: attempts exhausted, or `on_expiry: timeout`.
    Fail,
    TimeOut,
}

/// The knowledge about dispatched commands that have no receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    None,
    /// All can be sent again with the same provider key.
    AllNative,
    /// All can be looked up.
    AllLookup,
    Some,
}

impl Doubt {
    /// Whether nothing may be run again before the outcome is known.
    pub fn blocks_a_rerun(self) -> bool {
        match self {
            Doubt::None | Doubt::AllNative => false,
            Doubt::AllLookup | Doubt::Some => true,
        }
    }
}

/// The inputs of the verdict. The lease has lapsed, or its holder is proven dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecoveryFacts {
    pub abandon_requested: bool,
    pub disposition: Disposition,
    pub started: bool,
    pub grade: Grade,
    pub on_expiry: OnExpiry,
    pub doubt: Doubt,
    pub lapses: u32,
    pub failures: u32,
    pub max_attempts: u32,
    pub has_checkpoint: bool,
}

/// The first matching rule applies.
pub fn verdict(facts: &RecoveryFacts) -> Verdict {
    if facts.abandon_requested {
        return Verdict::Abandon;
    }
    match facts.disposition {
        Disposition::ExternallyOwned => return Verdict::Leave,
        Disposition::OwnerBound if facts.started => return owner_bound(facts),
        Disposition::OwnerBound | Disposition::Rerunnable => {}
    }
    match facts.doubt {
        // Sent again with the same key, but no more often than any other work is tried.
        Doubt::None | Doubt::AllNative => {}
        Doubt::AllLookup => return Verdict::Reconcile,
        Doubt::Some => return Verdict::Quarantine,
    }
    if facts.lapses >= POISON {
        Verdict::Quarantine
    } else if facts.failures >= facts.max_attempts {
        Verdict::Fail
    } else if facts.started && facts.has_checkpoint {
        Verdict::Resume
    } else {
        // Never started: the first execution is not a repeat. Started: it is declared rerunnable.
        Verdict::Retry
    }
}

/// An expired lease alone never ends started owner-bound work: only proof of death, or its own declaration.
fn owner_bound(facts: &RecoveryFacts) -> Verdict {
    match (facts.grade, facts.on_expiry, facts.doubt) {
        (Grade::Dead, _, _) => Verdict::Abandon,
        (_, OnExpiry::Timeout, Doubt::None) => Verdict::TimeOut,
        (Grade::Alive | Grade::Suspended | Grade::Silent, _, _) => Verdict::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RERUNNABLE: RecoveryFacts = RecoveryFacts {
        abandon_requested: false,
        disposition: Disposition::Rerunnable,
        started: true,
        grade: Grade::Silent,
        on_expiry: OnExpiry::Leave,
        doubt: Doubt::None,
        lapses: 1,
        failures: 1,
        max_attempts: 3,
        has_checkpoint: false,
    };
    const OWNER_BOUND: RecoveryFacts = RecoveryFacts { disposition: Disposition::OwnerBound, ..RERUNNABLE };

    #[test]
    fn the_first_matching_rule_wins() {
        let table = [
            ("rerunnable", RERUNNABLE, Verdict::Retry),
            ("with a checkpoint", RecoveryFacts { has_checkpoint: true, ..RERUNNABLE }, Verdict::Resume),
            (
                "never started",
                RecoveryFacts { started: false, has_checkpoint: true, ..RERUNNABLE },
                Verdict::Retry,
            ),
            (
                "abandon request first",
                RecoveryFacts { abandon_requested: true, lapses: 9, ..RERUNNABLE },
                Verdict::Abandon,
            ),
            (
                "externally owned",
                RecoveryFacts { disposition: Disposition::ExternallyOwned, lapses: 9, ..RERUNNABLE },
                Verdict::Leave,
            ),
            ("third lapse", RecoveryFacts { lapses: 3, ..RERUNNABLE }, Verdict::Quarantine),
            (
                "poison before exhaustion",
                RecoveryFacts { lapses: 3, failures: 3, ..RERUNNABLE },
                Verdict::Quarantine,
            ),
            ("exhausted", RecoveryFacts { failures: 3, ..RERUNNABLE }, Verdict::Fail),
            ("native doubt", RecoveryFacts { doubt: Doubt::AllNative, ..RERUNNABLE }, Verdict::Retry),
            (
                "native doubt, third lapse",
                RecoveryFacts { doubt: Doubt::AllNative, lapses: 3, failures: 3, ..RERUNNABLE },
                Verdict::Quarantine,
            ),
            (
                "native doubt, exhausted",
                RecoveryFacts { doubt: Doubt::AllNative, lapses: 2, failures: 3, ..RERUNNABLE },
                Verdict::Fail,
            ),
            ("lookup doubt", RecoveryFacts { doubt: Doubt::AllLookup, ..RERUNNABLE }, Verdict::Reconcile),
            ("other doubt", RecoveryFacts { doubt: Doubt::Some, ..RERUNNABLE }, Verdict::Quarantine),
            ("owner silent", OWNER_BOUND, Verdict::Leave),
            ("owner suspended", RecoveryFacts { grade: Grade::Suspended, ..OWNER_BOUND }, Verdict::Leave),
            (
                "owner silent for the ninth time",
                RecoveryFacts { lapses: 9, failures: 9, ..OWNER_BOUND },
                Verdict::Leave,
            ),
            ("owner dead", RecoveryFacts { grade: Grade::Dead, ..OWNER_BOUND }, Verdict::Abandon),
            (
                "declared timeout",
                RecoveryFacts { on_expiry: OnExpiry::Timeout, ..OWNER_BOUND },
                Verdict::TimeOut,
            ),
            (
                "declared timeout with doubt",
                RecoveryFacts { on_expiry: OnExpiry::Timeout, doubt: Doubt::Some, ..OWNER_BOUND },
                Verdict::Leave,
            ),
            ("owner-bound, not started", RecoveryFacts { started: false, ..OWNER_BOUND }, Verdict::Retry),
        ];
        for (name, facts, expected) in table {
            assert_eq!(verdict(&facts), expected, "{name}");
        }
    }
}
