//! What SQLite's errors mean for the jobs at hand and for those to come.

use std::fmt::Display;

use rusqlite::{ErrorCode, ffi};

use crate::{Error, writing::Cure};

/// Why a group could not be written.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// One of the group cannot be stored, or met something stored that makes no sense or a page that cannot be read.
    /// The others can.
    Data(Error),
    /// The file is locked, or memory ran out: nothing was written, later it may work.
    Busy(Error),
    /// The disk is full: nothing is written until the file was opened again.
    Full(String),
    /// The disk cannot be trusted: nothing is written until the file was opened again.
    Broken(String),
}

impl Fault {
    /// Something stored cannot be read back.
    pub fn stored(why: impl Display) -> Self {
        Fault::Data(Error::unread(why.to_string()))
    }

    /// Something stored that only a newer version knows.
    pub fn newer(what: impl Display) -> Self {
        Fault::Data(Error::Newer(what.to_string()))
    }

    /// Why a row cannot be read, if it is only that: then the others can.
    pub fn of_row(self) -> Result<Error, Self> {
        match self {
            Fault::Data(error) if error.is_of_stored() => Ok(error),
            other => Err(other),
        }
    }

    /// How the writing heals that this has stopped. None: it goes on.
    pub fn cure(&self) -> Option<Cure> {
        match self {
            Fault::Data(_) | Fault::Busy(_) => None,
            Fault::Full(_) => Some(Cure::Space),
            Fault::Broken(_) => Some(Cure::Reopening),
        }
    }

    /// What a reader is told.
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
            // Only a reader at its deadline is interrupted.
            Some(ErrorCode::OperationInterrupted) => Fault::Busy(Error::ReadTimeout),
            // A damaged page concerns only those who need it. Nothing was written by whoever met it.
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

/// Whether a page could not be read: a bad sector is damage, and no sign that writes are lost.
fn unread(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ | ffi::SQLITE_IOERR_CORRUPTFS))
}
