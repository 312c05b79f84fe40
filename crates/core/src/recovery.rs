//! The verdict on a work item whose holder lapsed: decided by its declared disposition, never by a guess.

use serde::{Deserialize, Serialize};

use crate::{
    event::{Actor, ActorKind},
    liveness::Grade,
    model::Disposition,
    policy::OnExpiry,
    refusal::{Code, Refusal},
};

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

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Retry => "retry",
            Verdict::Resume => "resume",
            Verdict::Reconcile => "reconcile",
            Verdict::Quarantine => "quarantine",
            Verdict::Abandon => "abandon",
            Verdict::Leave => "leave",
            Verdict::Fail => "fail",
            Verdict::TimeOut => "time_out",
        }
    }
}

/// The actions that a person may choose for a row of a recovery plan instead of its verdict. Nothing that the operators' own
/// verbs do not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Instead {
    /// Set aside for a person.
    Quarantine,
    /// A request to abandon, which takes effect once the lease has lapsed.
    Abandon,
}

/// Whether the actor may decide otherwise than a recovery plan.
pub fn may_override(actor: &Actor) -> Result<(), Refusal> {
    if actor.kind == ActorKind::Person {
        return Ok(());
    }
    Err(Refusal::new(
        Code::PersonRequired,
        "Only a person may decide otherwise than the recovery plan. Use a person's credential.",
    ))
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

/// The rules of the verdict, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    AbandonRequested,
    ExternallyOwned,
    OwnerDead,
    DeclaredTimeout,
    OwnerMayReturn,
    LookUpFirst,
    InDoubt,
    Poison,
    Exhausted,
    Checkpoint,
    NeverStarted,
    Rerunnable,
}

impl Rule {
    pub fn verdict(self) -> Verdict {
        match self {
            Rule::AbandonRequested | Rule::OwnerDead => Verdict::Abandon,
            Rule::ExternallyOwned | Rule::OwnerMayReturn => Verdict::Leave,
            Rule::DeclaredTimeout => Verdict::TimeOut,
            Rule::LookUpFirst => Verdict::Reconcile,
            Rule::InDoubt | Rule::Poison => Verdict::Quarantine,
            Rule::Exhausted => Verdict::Fail,
            Rule::Checkpoint => Verdict::Resume,
            Rule::NeverStarted | Rule::Rerunnable => Verdict::Retry,
        }
    }

    /// The rule in a sentence, for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Rule::AbandonRequested => "A person asked to abandon it, and its lease has ended.",
            Rule::ExternallyOwned => "Externally owned work is closed by its owner alone.",
            Rule::OwnerDead => "Started owner-bound work whose owner is proven dead is abandoned.",
            Rule::DeclaredTimeout => {
                "It declared `on_expiry: timeout` for a lost owner, and nothing is in doubt."
            }
            Rule::OwnerMayReturn => {
                "Started owner-bound work is left to its owner until its death is proven or a person asks to abandon it."
            }
            Rule::LookUpFirst => "Every command in doubt can be looked up, and is looked up first.",
            Rule::InDoubt => {
                "A command may have taken effect, and no lookup can tell: a person must find out."
            }
            Rule::Poison => "A work item that lost three holders in a row is set aside for a person.",
            Rule::Exhausted => "Its failures are exhausted.",
            Rule::Checkpoint => "Rerunnable work goes on after its last completed step.",
            Rule::NeverStarted => "It was never started: a first execution repeats nothing.",
            Rule::Rerunnable => "It is declared rerunnable, and no command in doubt forbids it.",
        }
    }
}

pub fn verdict(facts: &RecoveryFacts) -> Verdict {
    rule(facts).verdict()
}

/// The first rule that applies.
pub fn rule(facts: &RecoveryFacts) -> Rule {
    if facts.abandon_requested {
        return Rule::AbandonRequested;
    }
    match facts.disposition {
        Disposition::ExternallyOwned => return Rule::ExternallyOwned,
        Disposition::OwnerBound if facts.started => return owner_bound(facts),
        Disposition::OwnerBound | Disposition::Rerunnable => {}
    }
    match facts.doubt {
        // Sent again with the same key, but no more often than any other work is tried.
        Doubt::None | Doubt::AllNative => {}
        Doubt::AllLookup => return Rule::LookUpFirst,
        Doubt::Some => return Rule::InDoubt,
    }
    if facts.lapses >= POISON {
        Rule::Poison
    } else if facts.failures >= facts.max_attempts {
        Rule::Exhausted
    } else if !facts.started {
        Rule::NeverStarted
    } else if facts.has_checkpoint {
        Rule::Checkpoint
    } else {
        Rule::Rerunnable
    }
}

/// An expired lease alone never ends started owner-bound work: only proof of death, or its own declaration.
fn owner_bound(facts: &RecoveryFacts) -> Rule {
    match (facts.grade, facts.on_expiry, facts.doubt) {
        (Grade::Dead, _, _) => Rule::OwnerDead,
        (_, OnExpiry::Timeout, Doubt::None) => Rule::DeclaredTimeout,
        (Grade::Alive | Grade::Suspended | Grade::Silent, _, _) => Rule::OwnerMayReturn,
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
