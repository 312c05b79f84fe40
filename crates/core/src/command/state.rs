//! The states of a command and the one table of moves between them.

use serde::{Deserialize, Serialize};

/// The state of a command. The numbers are stored; they never change meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum CommandState {
    /// Recorded and allowed; not dispatched.
    Pending = 0,
    /// Stopped by policy, a missing approval or a budget.
    Blocked = 1,
    /// A person approved exactly this content, for one dispatch and a limited time.
    Approved = 2,
    /// Its call was permitted: the effect may have happened.
    Dispatched = 3,
    /// It is unknown whether the effect happened.
    Uncertain = 4,
    /// The effect happened, with evidence.
    Succeeded = 5,
    /// The effect did not happen.
    Failed = 6,
    /// The effect never happened, as far as is known, and will not.
    Cancelled = 7,
}

use CommandState::{Approved, Blocked, Cancelled, Dispatched, Failed, Pending, Succeeded, Uncertain};

/// One row of the table: from these states, to these, and why.
pub struct Moves {
    pub from: &'static [CommandState],
    pub to: &'static [CommandState],
    pub cause: &'static str,
}

const fn moves(from: &'static [CommandState], to: &'static [CommandState], cause: &'static str) -> Moves {
    Moves { from, to, cause }
}

/// The initial states of a command.
pub const BORN: &[(CommandState, &str)] = &[
    (Pending, "reserve, allowed by policy"),
    (Blocked, "reserve, stopped by policy or a missing approval"),
    (Succeeded, "reserve in a rerun, with the receipt of an earlier run"),
];

/// The table. The diagram, the databases' checks and every decision are derived from it.
pub const TABLE: &[Moves] = &[
    moves(&[Pending, Approved], &[Dispatched], "dispatch"),
    moves(&[Pending, Approved], &[Blocked], "policy, approval or budget at dispatch"),
    moves(&[Blocked], &[Approved], "a person approved"),
    moves(&[Blocked], &[Pending], "policy and budget now allow it"),
    moves(
        &[Pending, Blocked, Approved],
        &[Cancelled],
        "cancelled, rejected, superseded, or its work item ended",
    ),
    moves(&[Dispatched, Uncertain], &[Succeeded], "receipt, lookup, or a person's record"),
    moves(
        &[Pending, Blocked, Approved, Failed, Cancelled],
        &[Succeeded],
        "late receipt of an earlier dispatch",
    ),
    moves(&[Dispatched], &[Failed], "refused by the provider, or its attempts are exhausted"),
    moves(&[Dispatched], &[Pending], "proven unsent"),
    moves(&[Dispatched], &[Uncertain], "ambiguous error, lapse, deadline, or its work item ended"),
    moves(
        &[Uncertain],
        &[Pending],
        "lookup says absent, proven unsent, or sent again with the same provider key",
    ),
    moves(&[Uncertain], &[Blocked], "lookup says absent at high risk: fresh approval"),
    moves(
        &[Uncertain],
        &[Failed],
        "a person, or the relay that dispatched it, reports that it did not happen",
    ),
    moves(&[Failed], &[Pending], "replay"),
    moves(&[Failed], &[Blocked], "replay that needs a fresh approval"),
];

impl CommandState {
    pub const ALL: [CommandState; 8] =
        [Pending, Blocked, Approved, Dispatched, Uncertain, Succeeded, Failed, Cancelled];

    /// The stored number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Pending => "pending",
            Blocked => "blocked",
            Approved => "approved",
            Dispatched => "dispatched",
            Uncertain => "uncertain",
            Succeeded => "succeeded",
            Failed => "failed",
            Cancelled => "cancelled",
        }
    }

    /// Not sent, but may yet be.
    pub const fn is_idle(self) -> bool {
        matches!(self, Pending | Blocked | Approved)
    }

    /// Sent, with an unknown outcome.
    pub const fn is_unsettled(self) -> bool {
        matches!(self, Dispatched | Uncertain)
    }

    /// Not settled yet.
    pub const fn is_open(self) -> bool {
        self.is_idle() || self.is_unsettled()
    }

    /// Whether an event may move a command from `self` to `to`. Staying in a state is not a move and always
    /// allowed.
    pub fn may_become(self, to: CommandState) -> bool {
        self == to || TABLE.iter().any(|row| row.from.contains(&self) && row.to.contains(&to))
    }
}

impl std::fmt::Display for CommandState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_one_to_one() {
        for state in CommandState::ALL {
            assert_eq!(CommandState::from_code(state.code()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert_eq!(CommandState::from_code(8), None);
    }

    #[test]
    fn a_success_is_final_and_a_cancelled_command_can_only_succeed() {
        for to in CommandState::ALL {
            assert_eq!(Succeeded.may_become(to), to == Succeeded, "succeeded -> {to}");
            assert_eq!(Cancelled.may_become(to), matches!(to, Cancelled | Succeeded), "cancelled -> {to}");
        }
    }

    #[test]
    fn nothing_in_doubt_is_sent_again_directly() {
        assert!(!Uncertain.may_become(Dispatched), "never retried blindly");
        assert!(!Failed.may_become(Dispatched), "a replay is a decision of its own");
        assert!(!Blocked.may_become(Dispatched));
        assert!(!Dispatched.may_become(Cancelled), "after dispatch only evidence or a person ends it");
        assert!(!Uncertain.may_become(Cancelled));
    }
}
