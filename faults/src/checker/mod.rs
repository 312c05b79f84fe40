//! The checker compares the clients' responses, the log and the provider's calls with each other.
//!
//! A pure function from a run to a list of violations. It knows the contract of the HTTP API and nothing of
//! the ledger's storage.

mod answers;
mod effects;
mod feed;
mod index;
mod leases;
mod log;

use std::fmt;

use serde::Serialize;

use crate::run::Run;
use index::Index;
pub use leases::expired;

/// The rules, each with the number of its invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    LostWrite,
    AnswerDiffers,
    RowDiffers,
    BrokenChain,
    IllegalMove,
    TerminalChanged,
    TwoHolders,
    FenceRepeated,
    StaleWrite,
    LivingHolderExpired,
    EffectWithoutIntent,
    UnlicensedRepeat,
    TwoWorks,
    TwoWinners,
    ClaimNotRepeated,
    CursorSkipped,
    RefusedWrote,
    NotVerified,
}

impl Rule {
    /// The number of the invariant, and its sentence.
    pub fn invariant(self) -> (u8, &'static str) {
        match self {
            Rule::LostWrite => (1, "an acknowledged write is stored"),
            Rule::AnswerDiffers => (1, "a response matches the stored data"),
            Rule::RowDiffers => (2, "a row is the sum of its events"),
            Rule::BrokenChain => (3, "events are numbered without a gap and each hashes its predecessor"),
            Rule::IllegalMove => (4, "an event starts where the one before it ended"),
            Rule::TerminalChanged => (4, "a terminal state never changes"),
            Rule::TwoHolders => {
                (5, "at most one unsuperseded lease per work item, one held work item per session")
            }
            Rule::FenceRepeated => (5, "fences strictly increase and are never granted twice"),
            Rule::StaleWrite => (6, "a write is accepted only under the current fence"),
            Rule::LivingHolderExpired => (9, "no clock jump, outage or restart expires a renewing holder"),
            Rule::EffectWithoutIntent => (13, "no external effect without an earlier committed intent"),
            Rule::UnlicensedRepeat => (14, "an effect is repeated only with permission"),
            Rule::TwoWorks => (16, "one ingress identity is exactly one work item"),
            Rule::TwoWinners => (18, "a wait has one winner"),
            Rule::ClaimNotRepeated => (19, "claims are idempotent by request id"),
            Rule::CursorSkipped => (20, "cursors never skip"),
            Rule::RefusedWrote => (24, "refused calls change nothing"),
            Rule::NotVerified => (3, "the ledger's own verification finds no fault"),
        }
    }
}

/// One contradiction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub rule: Rule,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, sentence) = self.rule.invariant();
        write!(f, "invariant {number} ({sentence}): {}", self.what)
    }
}

/// Whether acknowledged writes may be lost. Only an asynchronous failover may lose some, and then they are
/// counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    Forbidden,
    Counted,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub violations: Vec<Violation>,
    /// Acknowledged writes, intents of effects and followed events that were lost, if the fault may lose
    /// some.
    pub lost: usize,
}

pub fn check(run: &Run, losses: Losses) -> Report {
    let index = Index::new(run);
    let mut judge = Judge { losses, report: Report::default() };
    log::check(run, &index, &mut judge);
    leases::check(run, &index, &mut judge);
    answers::check(run, &index, &mut judge);
    effects::check(run, &index, &mut judge);
    feed::check(run, &mut judge);
    for fault in &run.faults {
        judge.broken(Rule::NotVerified, fault.clone());
    }
    judge.report
}

/// Collects the findings of the rules.
struct Judge {
    losses: Losses,
    report: Report,
}

impl Judge {
    fn broken(&mut self, rule: Rule, what: String) {
        self.report.violations.push(Violation { rule, what });
    }

    /// An acknowledged write is missing.
    fn lost(&mut self, rule: Rule, what: String) {
        match self.losses {
            Losses::Forbidden => self.broken(rule, what),
            Losses::Counted => self.report.lost += 1,
        }
    }
}
