//! Maps errors of the connection and the server to their effect on a group.

use tenure_core::{Code, Refusal};
use tokio_postgres::{Error as PgError, error::SqlState};

use crate::Error;

#[derive(Debug)]
pub(super) enum Fault {
    /// The connection is lost, or the server cannot serve now. Nothing was written before COMMIT.
    Lost(String),
    /// A conflict with another transaction, or missing information: roll back and retry.
    Again(String),
    /// The database refused a statement because of the data of one job in the group.
    Data(Error),
    /// The current server must not be used for a ledger.
    Unfit(Error),
    /// The disk or tablespace is full. The server has rolled back.
    Full(String),
    /// Writing has stopped.
    Stopped(String),
    /// The connection was lost during COMMIT.
    Unknown(String),
}

impl Fault {
    /// The error for a caller.
    pub fn error(&self) -> Error {
        match self {
            Fault::Lost(text) | Fault::Again(text) => Error::Unavailable(text.clone()),
            Fault::Data(error) | Fault::Unfit(error) => error.clone(),
            Fault::Full(text) | Fault::Stopped(text) => Error::Stopped(text.clone()),
            Fault::Unknown(text) => Error::OutcomeUnknown(text.clone()),
        }
    }

    /// The same fault, if COMMIT was among the statements sent.
    pub fn at_commit(self) -> Fault {
        match self {
            Fault::Lost(text) => Fault::Unknown(text),
            other => other,
        }
    }
}

impl From<PgError> for Fault {
    fn from(error: PgError) -> Self {
        let text = describe(&error);
        let Some(code) = error.code() else { return Fault::Lost(text) };
        let again = [
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::LOCK_NOT_AVAILABLE,
        ];
        if again.contains(code) {
            return Fault::Again(text);
        }
        match (&code.code()[..2], code.code()) {
            (_, "53100") => Fault::Full(format!("the disk of the database is full: {text}")),
            // A page or file that cannot be read concerns only the callers that need it. A server that cannot write its
            // log shuts itself down.
            ("58" | "XX", _) => Fault::Data(Error::Corrupt(text)),
            // Invalid data, a violated constraint, a raised exception, or a statement that does not fit this schema.
            (_, "22021") => Fault::Data(unprintable()),
            ("21" | "22" | "23" | "42" | "P0", _) => Fault::Data(Error::Corrupt(text)),
            // An earlier statement of the transaction failed; that fault is reported.
            ("25", _) => Fault::Again(text),
            _ => Fault::Lost(text),
        }
    }
}

/// A row that cannot be read concerns only the callers that need it.
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable(text) => Fault::Lost(text),
            Error::Stopped(text) => Fault::Stopped(text),
            Error::OutcomeUnknown(text) => Fault::Unknown(text),
            unfit @ (Error::WeakSettings(_) | Error::Unusable(_)) => Fault::Unfit(unfit),
            data @ (Error::Refused(_)
            | Error::NotDispatched(_)
            | Error::Corrupt(_)
            | Error::Newer(_)
            | Error::ReadTimeout) => Fault::Data(data),
        }
    }
}

/// PostgreSQL stores no NUL in text, so a name with NUL does not exist.
fn unprintable() -> Error {
    Refusal::new(Code::Invalid, "A text has a NUL character: remove it.").into()
}

pub(super) fn describe(error: &PgError) -> String {
    match error.as_db_error() {
        Some(db) => match db.constraint() {
            Some(constraint) => format!("{} ({constraint}, {})", db.message(), db.code().code()),
            None => format!("{} ({})", db.message(), db.code().code()),
        },
        None => {
            let cause = std::error::Error::source(error).map(|source| format!(": {source}"));
            format!("{error}{}", cause.unwrap_or_default())
        }
    }
}
