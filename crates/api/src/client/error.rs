//! The errors of a call, and whether repeating it can help.

use std::sync::Arc;

use crate::wire::{Code, Command, Problem};

/// The cause of an [`Error`].
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused the call; the problem has the reason.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// There is no connection: nothing was sent.
    #[error(
        "{server} cannot be reached: {}. Check the URL, and that the daemon runs: `tenure serve` starts one",
        deepest(cause)
    )]
    Unreachable {
        /// The server's URL or name.
        server: String,
        /// Why there is no connection.
        #[source]
        cause: Cause,
    },
    /// The call was sent and no response came: it may or may not have been done.
    #[error(
        "no response from {server}: {}. It may or may not have been done; repeating the call is safe if it \
         is idempotent",
        deepest(cause)
    )]
    NoResponse {
        /// The server's URL or name.
        server: String,
        /// Why no response came.
        #[source]
        cause: Cause,
    },
    /// The response is not of this protocol.
    #[error("the server is not a Tenure of a compatible version: {detail}")]
    Protocol {
        /// How the response differs.
        detail: String,
        /// Why it cannot be read.
        #[source]
        cause: Option<Cause>,
    },
    /// The client is configured wrongly.
    #[error("{detail}")]
    Setup {
        /// The fault, and what to do about it.
        detail: String,
        /// The underlying error.
        #[source]
        cause: Option<Cause>,
    },
    /// A value of this program cannot be written as JSON, or JSON from the ledger does not have the requested
    /// type.
    #[error("{what}: {cause}")]
    Json {
        /// Which value.
        what: String,
        /// The underlying error.
        #[source]
        cause: Arc<serde_json::Error>,
    },
}

impl Error {
    /// Nothing was sent to this server.
    pub fn unreachable(server: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unreachable { server: server.to_owned(), cause: Arc::from(cause.into()) }
    }

    /// A call was sent to this server, and no response came.
    pub fn no_response(server: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::NoResponse { server: server.to_owned(), cause: Arc::from(cause.into()) }
    }

    /// The response is not of this protocol.
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

    /// Whether repeating the identical call can help, and cannot have a second effect.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Problem(problem) => problem.retryable == Some(true),
            Error::Unreachable { .. } => true,
            Error::NoResponse { .. } | Error::Protocol { .. } | Error::Setup { .. } | Error::Json { .. } => {
                false
            }
        }
    }

    /// Whether repeating the identical call cannot help. If it is neither this nor retryable, that is
    /// unknown.
    pub fn is_terminal(&self) -> bool {
        match self {
            Error::Problem(problem) => problem.retryable == Some(false),
            Error::Protocol { .. } | Error::Setup { .. } | Error::Json { .. } => true,
            Error::Unreachable { .. } | Error::NoResponse { .. } => false,
        }
    }

    /// The command whose call must not be made, if a dispatch was refused.
    pub fn command(&self) -> Option<&Command> {
        match self {
            Error::Problem(problem) => problem.command.as_deref(),
            _ => None,
        }
    }

    /// The problem's code, if the server responded with a problem.
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

/// The innermost cause, which is the most specific: libraries wrap it in general words.
fn deepest(cause: &Cause) -> &dyn std::error::Error {
    let mut error: &dyn std::error::Error = &**cause;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}
