//! When something has to be done about a command, and by which part: the sweeper, the relay, or a reconciler.

use crate::{Millis, limits};

use super::{
    model::{BlockCode, Command, Idempotency},
    state::CommandState,
};

/// The part that acts when a command is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Duty {
    /// The sweeper: the passing of time changes something.
    Tick = 0,
    /// The relay: it is to be sent.
    Send = 1,
    /// A reconciler: the provider is to be asked whether it happened.
    Lookup = 2,
}

impl Duty {
    pub const ALL: [Duty; 3] = [Duty::Tick, Duty::Send, Duty::Lookup];

    /// The stored number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// The part that acts next, given the command's state. None if nothing happens by itself.
pub fn duty(command: &Command) -> Option<Duty> {
    next(command).map(|(duty, _)| duty)
}

/// When something is due, and for which part.
pub fn next(command: &Command) -> Option<(Duty, Millis)> {
    let body = &command.body;
    let relay = !command.is_worker();
    match command.state {
        CommandState::Pending if relay => Some((Duty::Send, body.next_at.unwrap_or(command.updated_at))),
        CommandState::Approved if relay => Some((Duty::Send, body.next_at.unwrap_or(command.updated_at))),
        CommandState::Approved => body.approval.as_ref().map(|approval| (Duty::Tick, approval.expires_at)),
        // It has no holder that would retry: the relay does, because policies change and budget periods end.
        CommandState::Blocked if relay && body.blocked != Some(BlockCode::ApprovalRequired) => {
            Some((Duty::Send, command.updated_at + limits::ASK_AGAIN_MS))
        }
        CommandState::Dispatched => {
            let deadline = body.dispatch.as_ref().and_then(|dispatch| dispatch.deadline_at);
            deadline.map(|at| (Duty::Tick, at))
        }
        CommandState::Uncertain if body.needs_person => None,
        CommandState::Uncertain => match body.tool.idempotency {
            Idempotency::Lookup => Some((Duty::Lookup, body.next_at.unwrap_or(command.updated_at))),
            // The relay sends it again by itself; for a worker's command, only the end of the window is due.
            Idempotency::Native => {
                let until = command.native_until()?;
                let again = body.next_at.filter(|at| relay && *at < until);
                Some(again.map_or((Duty::Tick, until), |at| (Duty::Send, at)))
            }
            Idempotency::None => None,
        },
        CommandState::Pending
        | CommandState::Blocked
        | CommandState::Succeeded
        | CommandState::Failed
        | CommandState::Cancelled => None,
    }
}
