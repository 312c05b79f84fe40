//! What a call can fail with, and whether sending it again can help.

use crate::wire::{Code, Command, Problem};

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The server answered no.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// Nothing was sent: there is no connection.
    #[error("{0} cannot be reached: {1}. Check the URL, and that the daemon runs: `tenure serve` starts one")]
    Unreachable(String, String),
    /// It was sent and no answer came: it may or may not have been done.
    #[error(
        "no answer from {0}: {1}. It may or may not have been done; sending the same again is safe where the call is idempotent"
    )]
    NoAnswer(String, String),
    /// What answered does not speak this protocol.
    #[error("what answered is no Tenure of this version: {0}")]
    Protocol(String),
    /// The client was set up wrongly.
    #[error("{0}")]
    Setup(String),
}

impl Error {
    /// Sending the very same call again can help, and cannot do anything twice.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Problem(problem) => problem.retryable == Some(true),
            Error::Unreachable(..) => true,
            Error::NoAnswer(..) | Error::Protocol(_) | Error::Setup(_) => false,
        }
    }

    /// Sending the very same call again cannot help. Neither this nor retryable: nobody knows.
    pub fn is_terminal(&self) -> bool {
        match self {
            Error::Problem(problem) => problem.retryable == Some(false),
            Error::Protocol(_) | Error::Setup(_) => true,
            Error::Unreachable(..) | Error::NoAnswer(..) => false,
        }
    }

    /// The command whose call must not be made, where a dispatch was refused.
    pub fn command(&self) -> Option<&Command> {
        match self {
            Error::Problem(problem) => problem.command.as_deref(),
            Error::Unreachable(..) | Error::NoAnswer(..) | Error::Protocol(_) | Error::Setup(_) => None,
        }
    }

    /// The problem's code, where the server answered with one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Problem(problem) => problem.code.known(),
            Error::Unreachable(..) | Error::NoAnswer(..) | Error::Protocol(_) | Error::Setup(_) => None,
        }
    }
}
