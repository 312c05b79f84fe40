//! Exit codes, and the failures that lead to them.

use std::process::ExitCode;

use tenure_api::{Error, wire::Code};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    Error = 1,
    Usage = 2,
    NotFound = 3,
    Refused = 4,
    /// The work item has changed since it was read; nothing was done.
    StateChanged = 5,
    /// Only some of several were done.
    Partial = 6,
    /// The work item did not succeed, or something needs attention.
    Unsuccessful = 7,
    WaitTimedOut = 8,
    Unreachable = 9,
}

/// For `--help`.
pub const CODES: &str = "Exit codes: 0 ok · 1 error · 2 usage · 3 not found · 4 refused · 5 state changed · \
6 partly done · 7 ended unsuccessfully · 8 wait timed out · 9 unreachable";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why a verb failed.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    /// The code of the problem, if the server returned one.
    pub code: Option<Code>,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), code: None }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { code: error.code(), ..Self::new(exit_of(&error), error.to_string()) }
    }
}

/// A mistake in the file is an error of the check; one in a flag is wrong usage.
impl From<tenure_server::ConfigError> for Failure {
    fn from(error: tenure_server::ConfigError) -> Self {
        let exit = if error.place.starts_with("--") { Exit::Usage } else { Exit::Refused };
        Self::new(exit, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        // The reader of our output has closed it.
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Ok, "");
        }
        Self::new(Exit::Error, error.to_string())
    }
}

fn exit_of(error: &Error) -> Exit {
    match error {
        Error::Unreachable { .. } | Error::NoResponse { .. } => Exit::Unreachable,
        Error::Setup { .. } => Exit::Usage,
        Error::Problem(problem) => match problem.code.known() {
            Some(Code::NotFound | Code::NoLongerRetained) => Exit::NotFound,
            Some(Code::Ambiguous) => Exit::Usage,
            Some(Code::StateChanged | Code::PlanStale) => Exit::StateChanged,
            Some(Code::Unavailable | Code::OutcomeUnknown) => Exit::Unreachable,
            Some(Code::Stopped | Code::NewerVersion | Code::Corrupt | Code::Internal) => Exit::Error,
            Some(_) => Exit::Refused,
            None => Exit::Error,
        },
        _ => Exit::Error,
    }
}
