//! The seven lights: each has a glyph, a word and a colour, so that none of them is needed alone.

use tenure_api::wire::{Lease, LeaseLiveness, State, WaitKind, Word, Work};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Light {
    Idle,
    /// It ended without an outcome to look at: another glyph of the same light.
    Off,
    Alive,
    You,
    Wait,
    Risk,
    Fail,
    Done,
}

impl Light {
    pub fn of(work: &Work) -> Self {
        match Self::of_held(&work.state, work.lease.as_ref()) {
            Light::Alive if work.spinning_since.is_some() => Light::Risk,
            light => light,
        }
    }

    /// A running work item whose holder is late is at risk.
    pub fn of_held(state: &Word<State>, lease: Option<&Lease>) -> Self {
        let Some(state) = state.known() else { return Light::Idle };
        let late = lease.is_some_and(|lease| lease.missed > 0 || lease.liveness != LeaseLiveness::Alive);
        match state {
            State::Running if late => Light::Risk,
            _ => Self::of_state(state),
        }
    }

    pub fn of_state(state: State) -> Self {
        match state {
            State::Queued => Light::Idle,
            State::Cancelled | State::Abandoned => Light::Off,
            State::Running => Light::Alive,
            State::WaitingApproval | State::WaitingUser | State::WaitingAuth => Light::You,
            State::WaitingTool | State::WaitingExternal | State::RetryScheduled | State::CancelRequested => {
                Light::Wait
            }
            State::Stalled => Light::Risk,
            State::Failed | State::TimedOut | State::Quarantined => Light::Fail,
            State::Succeeded | State::CompletedWithWarnings => Light::Done,
        }
    }

    /// The light of an open wait, and of a work item that waits for it: [`Light::You`] if a person must answer.
    pub fn of_wait(kind: WaitKind) -> Self {
        match kind {
            WaitKind::Approval | WaitKind::User | WaitKind::Auth => Light::You,
            WaitKind::Tool | WaitKind::External => Light::Wait,
        }
    }

    pub fn glyph(self, ascii: bool) -> &'static str {
        match (self, ascii) {
            (Light::Idle, false) => "○",
            (Light::Off, false) => "⊘",
            (Light::Alive, false) => "●",
            (Light::You, false) => "◆",
            (Light::Wait, false) => "◷",
            (Light::Risk, false) => "▲",
            (Light::Fail, false) => "✕",
            (Light::Done, false) => "✓",
            (Light::Idle, true) => "o",
            (Light::Off, true) => "/",
            (Light::Alive, true) => "*",
            (Light::You, true) => "?",
            (Light::Wait, true) => "~",
            (Light::Risk, true) => "!",
            (Light::Fail, true) => "x",
            (Light::Done, true) => "+",
        }
    }

    /// Its colour in the terminal's palette, which fits the terminal's background.
    pub fn palette(self) -> Option<u8> {
        match self {
            Light::Idle | Light::Off => None,
            Light::Alive => Some(4),
            Light::You => Some(5),
            Light::Wait => Some(6),
            Light::Risk => Some(3),
            Light::Fail => Some(1),
            Light::Done => Some(2),
        }
    }

    pub fn paint(self, text: &str) -> String {
        match self.palette() {
            Some(colour) => format!("\x1b[3{colour}m{text}\x1b[0m"),
            None => text.to_owned(),
        }
    }
}
