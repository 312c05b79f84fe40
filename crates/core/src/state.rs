//! The states of a work item and the one table of moves between them.

use serde::{Deserialize, Serialize};

/// Writes the enum [`State`] and everything that holds for each state by itself, from one row per state.
macro_rules! states {
    ($($variant:ident = $code:literal, $name:tt $(| $alias:tt)*, $meaning:tt;)*) => {
        /// The state of a work item. The numbers are stored; they never change meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum State {
            $(#[doc = $meaning] #[serde(rename = $name $(, alias = $alias)*)] $variant = $code,)*
        }

        use State::{$($variant),*};

        impl State {
            /// Every state, in the order of the numbers.
            pub const ALL: [State; [$($code),*].len()] = [$($variant),*];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $($variant => $name,)*
                }
            }

            /// The meaning of the state, for `docs/state_machine.md`.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $($variant => $meaning,)*
                }
            }
        }
    };
}

// The stored number, the name, other runtimes' names for it, the meaning. A new state gets the next number.
states! {
    Queued = 0, "queued", "ready to be claimed";
    Running = 1, "running", "a worker holds it under a lease";
    WaitingUser = 2, "waiting_user" | "waiting_on_user", "paused until a user answers";
    WaitingApproval = 3, "waiting_approval" | "waiting_on_approval", "paused until a person approves";
    WaitingAuth = 4, "waiting_auth" | "waiting_on_auth", "paused until an account is connected again";
    WaitingTool = 5, "waiting_tool" | "waiting_on_tool", "paused until a tool reports";
    WaitingExternal = 6, "waiting_external" | "waiting_on_external",
        "paused until an external system reports, or owned externally";
    RetryScheduled = 7, "retry_scheduled", "failed; queued again at a known time";
    Stalled = 8, "stalled", "it is not known whether its holder is alive; not failed";
    CancelRequested = 9, "cancel_requested", "its holder was asked to stop";
    Quarantined = 10, "quarantined", "set aside until a person decides";
    Succeeded = 11, "succeeded" | "done", "succeeded, with its output or a declaration that there is none";
    CompletedWithWarnings = 12, "completed_with_warnings", "succeeded, with warnings";
    Failed = 13, "failed", "failed, with its error";
    TimedOut = 14, "timed_out" | "timeout", "ended by a declared deadline";
    Cancelled = 15, "cancelled" | "canceled", "ended because a cancel was requested";
    Abandoned = 16, "abandoned", "given up: its outcome cannot be known";
}

/// Lists the waiting states once: as a constant, and as the pattern `waiting!()` for matches over states.
macro_rules! waiting_states {
    ($($state:ident),*) => {
        /// Every waiting state, in the order of precedence when several waits are open.
        pub const WAITING: [State; [$(State::$state),*].len()] = [$(State::$state),*];

        /// A pattern: any of [`WAITING`].
        macro_rules! waiting {
            () => { $($crate::State::$state)|* };
        }
        pub(crate) use waiting;
    };
}

waiting_states!(WaitingApproval, WaitingAuth, WaitingUser, WaitingTool, WaitingExternal);

/// The group that a state belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Pending,
    Active,
    Waiting,
    Stuck,
    Terminal,
}

impl Phase {
    pub const ALL: [Phase; 5] =
        [Phase::Pending, Phase::Active, Phase::Waiting, Phase::Stuck, Phase::Terminal];

    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "pending",
            Phase::Active => "active",
            Phase::Waiting => "waiting",
            Phase::Stuck => "stuck",
            Phase::Terminal => "terminal",
        }
    }
}

/// One row of the table: from these states, to these, and why.
pub struct Moves {
    pub from: &'static [State],
    pub to: &'static [State],
    pub cause: &'static str,
}

const fn moves(from: &'static [State], to: &'static [State], cause: &'static str) -> Moves {
    Moves { from, to, cause }
}

/// The initial states of a work item.
pub const BORN: &[(State, &str)] = &[
    (Queued, "ingest"),
    (WaitingExternal, "ingest of externally owned work"),
    (Succeeded, "detached work, recorded when it was over"),
    (CompletedWithWarnings, "detached work, recorded when it was over"),
    (Failed, "detached work, recorded when it was over"),
    (TimedOut, "detached work, recorded when it was over"),
    (Cancelled, "detached work, recorded when it was over"),
    (Abandoned, "detached work, recorded when it was over"),
];

/// The table. The databases' checks, the diagram and every decision are derived from it.
pub const TABLE: &[Moves] = &[
    moves(&[Queued], &[Running], "claim"),
    moves(
        &[Queued, RetryScheduled, Stalled],
        &[Running],
        "late write of a lapsed holder that was not \
     superseded",
    ),
    moves(&[RetryScheduled], &[Queued], "retry due, or retried by an operator"),
    moves(&[Queued, RetryScheduled], &[Cancelled], "cancel"),
    moves(&[Queued, RetryScheduled], &[TimedOut], "start or overall deadline"),
    moves(&[Queued, RetryScheduled], &[Quarantined], "operator"),
    moves(
        &[Queued],
        &[Stalled],
        "started owner-bound work whose owner did not come back, or a command in doubt when its waits ended",
    ),
    moves(&[Running], &WAITING, "wait"),
    moves(&[Running], &[RetryScheduled], "failure with retries left"),
    moves(
        &[Running],
        &[Succeeded, CompletedWithWarnings, Failed, TimedOut],
        "close-out, failure or deadline",
    ),
    moves(&[Running], &[CancelRequested], "cancel"),
    moves(&[Running], &[Queued], "release"),
    moves(&[Running], &[Stalled], "lease lapsed, holder dead, or ended with a command in doubt"),
    moves(&[Running], &[Quarantined], "poison, or operator"),
    moves(&[Running], &[Abandoned], "owner's drain"),
    moves(&WAITING, &[Queued], "every wait answered"),
    moves(&WAITING, &[Running], "answered and claimed in one transaction"),
    moves(&WAITING, &WAITING, "another wait is still open"),
    moves(&WAITING, &[Cancelled], "cancel, or the wait's deadline"),
    moves(&WAITING, &[Quarantined], "operator"),
    moves(&WAITING, &[TimedOut, Failed, CompletedWithWarnings], "the wait's or the overall deadline"),
    moves(
        &[WaitingExternal],
        &[Succeeded, CompletedWithWarnings, Failed, TimedOut, Cancelled],
        "its external owner completes it",
    ),
    moves(&[WaitingExternal], &[Abandoned], "abandon request on externally owned work"),
    moves(&[Stalled], &[Running], "its starting incarnation claims it"),
    moves(&[Stalled], &[CancelRequested], "its holder renews after a cancel"),
    moves(&[Stalled], &[Queued], "verdict retry or resume"),
    moves(&[Stalled], &[Quarantined, Abandoned, Failed, TimedOut], "verdict, or overall deadline"),
    moves(&[Stalled], &[Cancelled], "cancel, never started or rerunnable with nothing in doubt"),
    moves(&[CancelRequested], &[Cancelled], "the holder stopped, or lapsed with nothing in doubt"),
    moves(&[CancelRequested], &[Succeeded, CompletedWithWarnings, Failed], "it ended first"),
    moves(&[CancelRequested], &[Abandoned], "lapsed after the cancel deadline"),
    moves(&[Quarantined], &[Queued, Succeeded, Failed, Cancelled, Abandoned], "a person decided"),
];

const fn has(states: &[State], state: State) -> bool {
    let mut i = 0;
    while i < states.len() {
        if states[i] as u8 == state as u8 {
            return true;
        }
        i += 1;
    }
    false
}

const STATES: usize = State::ALL.len();

const fn masks() -> [u32; STATES] {
    let mut masks = [0u32; STATES];
    let mut from = 0;
    while from < STATES {
        let mut row = 0;
        while row < TABLE.len() {
            if has(TABLE[row].from, State::ALL[from]) {
                let mut to = 0;
                while to < STATES {
                    if has(TABLE[row].to, State::ALL[to]) {
                        masks[from] |= 1 << to;
                    }
                    to += 1;
                }
            }
            row += 1;
        }
        from += 1;
    }
    masks
}

const LEGAL: [u32; STATES] = masks();

impl State {
    /// The stored number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<State> {
        State::ALL.get(usize::from(code)).copied()
    }

    pub const fn phase(self) -> Phase {
        match self {
            Queued | RetryScheduled => Phase::Pending,
            Running | CancelRequested => Phase::Active,
            waiting!() => Phase::Waiting,
            Stalled | Quarantined => Phase::Stuck,
            Succeeded | CompletedWithWarnings | Failed | TimedOut | Cancelled | Abandoned => Phase::Terminal,
        }
    }

    pub const fn is_terminal(self) -> bool {
        matches!(self.phase(), Phase::Terminal)
    }

    pub const fn is_waiting(self) -> bool {
        matches!(self.phase(), Phase::Waiting)
    }

    /// Success of either kind.
    pub const fn is_success(self) -> bool {
        matches!(self, Succeeded | CompletedWithWarnings)
    }

    /// Held: the work item occupies its session.
    pub const fn holds_session(self) -> bool {
        matches!(self, Running | CancelRequested | Stalled)
    }

    /// Pending: the work item is in the queue of its session.
    pub const fn awaits_session(self) -> bool {
        matches!(self.phase(), Phase::Pending)
    }

    /// Whether an event may move a work item from `self` to `to`. Staying in a state is not a move and always
    /// allowed.
    pub const fn may_become(self, to: State) -> bool {
        self as u8 == to as u8 || LEGAL[self as usize] & (1 << to as u8) != 0
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_never_change() {
        for from in State::ALL.into_iter().filter(|s| s.is_terminal()) {
            for to in State::ALL {
                assert_eq!(from.may_become(to), from == to, "{from} -> {to}");
            }
        }
    }

    #[test]
    fn codes_and_names_are_one_to_one() {
        for state in State::ALL {
            assert_eq!(State::from_code(state.code()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert_eq!(State::from_code(STATES as u8), None);
        for phase in Phase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
        }
    }

    #[test]
    fn other_runtimes_names_are_understood_on_input() {
        for (alias, state) in [
            ("done", Succeeded),
            ("timeout", TimedOut),
            ("canceled", Cancelled),
            ("waiting_on_user", WaitingUser),
        ] {
            assert_eq!(serde_json::from_value::<State>(alias.into()).unwrap(), state);
        }
    }

    #[test]
    fn every_open_state_leads_to_a_terminal() {
        let mut leads: Vec<State> = State::ALL.into_iter().filter(|s| s.is_terminal()).collect();
        loop {
            let more: Vec<State> = State::ALL
                .into_iter()
                .filter(|s| !leads.contains(s) && leads.iter().any(|to| s.may_become(*to)))
                .collect();
            if more.is_empty() {
                break;
            }
            leads.extend(more);
        }
        assert_eq!(leads.len(), State::ALL.len());
    }

    #[test]
    fn a_running_work_never_resumes_around_the_queue() {
        assert!(!RetryScheduled.may_become(Stalled));
        assert!(!Running.may_become(Cancelled), "running work is asked to stop first");
        assert!(!Quarantined.may_become(Running));
        assert!(!CancelRequested.may_become(Running));
    }
}
