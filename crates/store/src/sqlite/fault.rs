//! Maps SQLite's errors to their effect on the current jobs and on later ones.

use std::fmt::Display;

use rusqlite::{ErrorCode, ffi};

use crate::{Error, writing::Cure};

/// Why a group was not written.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// One job of the group cannot be stored, or met inconsistent data or a damaged page. The other jobs can go on.
    Data(Error),
    /// The file is locked, or memory ran out. Nothing was written; a retry can succeed.
    Busy(Error),
    /// The disk is full. Nothing is written until the file has been reopened.
    Full(String),
    /// The disk cannot be trusted. Nothing is written until the file has been reopened.
    Broken(String),
}

impl Fault {
    /// Stored data that cannot be read.
    pub fn stored(why: impl Display) -> Self {
        Fault::Data(Error::unread(why.to_string()))
    }

    /// Stored data that only a newer version knows.
    pub fn newer(what: impl Display) -> Self {
        Fault::Data(Error::Newer(what.to_string()))
    }

    /// The reason why a row cannot be read, if the fault concerns that row only.
    pub fn of_row(self) -> Result<Error, Self> {
        match self {
            Fault::Data(error) if error.is_of_stored() => Ok(error),
            other => Err(other),
        }
    }

    /// How writing resumes after this fault. None: it does not stop.
    pub fn cure(&self) -> Option<Cure> {
        match self {
            Fault::Data(_) | Fault::Busy(_) => None,
            Fault::Full(_) => Some(Cure::Space),
            Fault::Broken(_) => Some(Cure::Reopening),
        }
    }

    /// The error for the caller of a read.
    pub fn into_error(self) -> Error {
        match self {
            Fault::Data(error) | Fault::Busy(error) => error,
            Fault::Full(why) | Fault::Broken(why) => Error::Stopped(why),
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Fault::Busy(Error::Unavailable(format!("another process holds the file's lock ({text})")))
            }
            Some(ErrorCode::OutOfMemory | ErrorCode::SchemaChanged) => Fault::Busy(Error::Unavailable(text)),
            // Only a read that exceeds its time limit is interrupted.
            Some(ErrorCode::OperationInterrupted) => Fault::Busy(Error::ReadTimeout),
            // A damaged page concerns only the callers that need it. They have written nothing.
            Some(ErrorCode::DatabaseCorrupt) => Fault::stored(text),
            Some(ErrorCode::SystemIoFailure) if unread(&error) => Fault::stored(text),
            Some(ErrorCode::DiskFull) => Fault::Full(format!("the disk is full ({text})")),
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::NotADatabase
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::NoLargeFileSupport,
            ) => Fault::Broken(text),
            _ => Fault::stored(text),
        }
    }
}

/// Whether a page could not be read. A bad sector is damage, and does not mean that writes are lost.
fn unread(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ | ffi::SQLITE_IOERR_CORRUPTFS))
}
