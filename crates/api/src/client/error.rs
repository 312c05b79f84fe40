//! What a call can fail with, and whether sending it again can help.

use std::sync::Arc;

use crate::wire::{Code, Command, Problem};

/// What an [`Error`] was caused by.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused the call, and says why.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// Nothing was sent: there is no connection.
    #[error(
        "{server} cannot be reached: {}. Check the URL, and that the daemon runs: `tenure serve` starts one",
        deepest(cause)
    )]
    Unreachable {
        /// The server's URL, or another name of it.
        server: String,
        /// Why there is no connection.
        #[source]
        cause: Cause,
    },
    /// It was sent and no answer came: it may or may not have been done.
    #[error(
        "no answer from {server}: {}. It may or may not have been done; sending the same again is safe where the call is idempotent",
        deepest(cause)
    )]
    NoAnswer {
        /// The server's URL, or another name of it.
        server: String,
        /// Why no answer came.
        #[source]
        cause: Cause,
    },
    /// What answered does not speak this protocol.
    #[error("what answered is no Tenure of this version: {detail}")]
    Protocol {
        /// What was answered.
        detail: String,
        /// Why it cannot be read.
        #[source]
        cause: Option<Cause>,
    },
    /// The client was set up wrongly.
    #[error("{detail}")]
    Setup {
        /// What is wrong, and what to do.
        detail: String,
        /// What it was found by.
        #[source]
        cause: Option<Cause>,
    },
    /// A value of this program cannot be written as JSON, or JSON from the ledger is not the value that was asked for.
    #[error("{what}: {cause}")]
    Json {
        /// Which value.
        what: String,
        /// What does not fit.
        #[source]
        cause: Arc<serde_json::Error>,
    },
}

impl Error {
    /// Nothing was sent to this server.
    pub fn unreachable(server: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unreachable { server: server.to_owned(), cause: Arc::from(cause.into()) }
    }

    /// A call was sent to this server, and no answer came.
    pub fn no_answer(server: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::NoAnswer { server: server.to_owned(), cause: Arc::from(cause.into()) }
    }

    /// The answer is not one of this protocol.
    pub fn protocol(detail: impl Into<String>) -> Self {
        Self::Protocol { detail: detail.into(), cause: None }
    }

    pub(crate) fn unreadable(what: &str, cause: serde_json::Error) -> Self {
        Self::Protocol { detail: format!("{what}: {cause}"), cause: Some(Arc::new(cause)) }
    }

    pub(super) fn setup(detail: impl Into<String>) -> Self {
        Self::Setup { detail: detail.into(), cause: None }
    }

    pub(crate) fn json(what: impl Into<String>, cause: serde_json::Error) -> Self {
        Self::Json { what: what.into(), cause: Arc::new(cause) }
    }

    /// Sending the very same call again can help, and cannot do anything twice.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Problem(problem) => problem.retryable == Some(true),
            Error::Unreachable { .. } => true,
            Error::NoAnswer { .. } | Error::Protocol { .. } | Error::Setup { .. } | Error::Json { .. } => {
                false
            }
        }
    }

    /// Sending the very same call again cannot help. Neither this nor retryable: nobody knows.
    pub fn is_terminal(&self) -> bool {
        match self {
            Error::Problem(problem) => problem.retryable == Some(false),
            Error::Protocol { .. } | Error::Setup { .. } | Error::Json { .. } => true,
            Error::Unreachable { .. } | Error::NoAnswer { .. } => false,
        }
    }

    /// The command whose call must not be made, where a dispatch was refused.
    pub fn command(&self) -> Option<&Command> {
        match self {
            Error::Problem(problem) => problem.command.as_deref(),
            _ => None,
        }
    }

    /// The problem's code, where the server answered with one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Problem(problem) => problem.code.known(),
            _ => None,
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(cause: serde_json::Error) -> Self {
        Self::json("a value is not JSON", cause)
    }
}

/// The cause that says most: a library's own words are general.
fn deepest(cause: &Cause) -> &dyn std::error::Error {
    let mut error: &dyn std::error::Error = &**cause;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}
