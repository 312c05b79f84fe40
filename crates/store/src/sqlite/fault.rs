//! What SQLite's errors mean for the jobs at hand and for those to come.

use std::fmt::Display;

use rusqlite::ErrorCode;

use crate::Error;

/// Why a group could not be written.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// One of the group cannot be stored, or met something stored that makes no sense. The others can.
    Data(Error),
    /// The file is locked, or memory ran out: nothing was written, later it may work.
    Busy(Error),
    /// The disk cannot be trusted: nothing more is written.
    Broken(String),
}

impl Fault {
    /// Something stored cannot be read back.
    pub fn stored(why: impl Display) -> Self {
        Fault::Data(Error::Corrupt(why.to_string()))
    }

    /// What a reader is told.
    pub fn into_error(self) -> Error {
        match self {
            Fault::Data(error) | Fault::Busy(error) => error,
            Fault::Broken(why) => Error::Stopped(why),
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
            Some(ErrorCode::OutOfMemory | ErrorCode::OperationInterrupted | ErrorCode::SchemaChanged) => {
                Fault::Busy(Error::Unavailable(text))
            }
            Some(ErrorCode::DiskFull) => Fault::Broken(format!("the disk is full ({text})")),
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseCorrupt
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
