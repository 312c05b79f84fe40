//! The errors of the store, and whether a retry can help.

use std::time::Duration;

use tenure_core::{Command, Payload, Refusal, Retryable};

/// The time limit of a read on behalf of a tenant, its time in the queue included: far more than a read with
/// an index takes, and short enough that the reads queued behind it do not time out.
pub(crate) const READ_WITHIN: Duration = Duration::from_secs(5);

/// A refused dispatch: the call must not be made.
#[derive(Clone, Debug)]
pub struct NotDispatched {
    /// The reason.
    pub refusal: Refusal,
    /// The command as it is now.
    pub command: Command,
    /// The provider's response, if the effect has happened before.
    pub response: Option<Payload>,
}

/// Why a call to the ledger failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The rules refuse it; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The rules do not allow the call now. If the refusal blocked the command, that is committed.
    #[error("{}", .0.refusal)]
    NotDispatched(Box<NotDispatched>),
    /// The database cannot be reached or is busy; nothing was written.
    #[error(
        "the database is not available: {0}. Nothing was written: retry the same request. If the error persists, check that the database runs and that the daemon has its address"
    )]
    Unavailable(String),
    /// A read on behalf of a tenant exceeded its time limit and was stopped.
    #[error(
        "the read took longer than {} s and was stopped. Read less at a time: use a narrower filter or a smaller limit", READ_WITHIN.as_secs()
    )]
    ReadTimeout,
    /// The commit was sent and no response came: it may or may not be committed.
    #[error("the outcome is unknown: {0}. Retry the same action: it is idempotent")]
    OutcomeUnknown(String),
    /// A write or sync failed before. Nothing is written until the disk can be trusted again, including this.
    #[error(
        "writing has stopped: {0}. Nothing of this request was written. Check the disk, and retry the same request once writing has resumed"
    )]
    Stopped(String),
    /// The settings of the database do not make commits durable. Checked at the start.
    #[error("the database is not durable enough: {0}")]
    WeakSettings(String),
    /// The file or database cannot be opened as a ledger.
    #[error("this is not a ledger that this version can open: {0}")]
    Unusable(String),
    /// The stored data is inconsistent, or a decision would have made it inconsistent; nothing was written.
    #[error("the ledger is inconsistent: {0}. Keep a copy of the database, and run verify")]
    Corrupt(String),
    /// A newer version wrote the record, in a way that this version does not know; nothing was written.
    #[error("written by a newer version of Tenure: {0}. Upgrade this daemon. Everything else goes on")]
    Newer(String),
}

impl Error {
    /// The refusal, if the rules refused it.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Error::Refused(refusal) => Some(refusal),
            Error::NotDispatched(not) => Some(&not.refusal),
            Error::Unavailable(_)
            | Error::ReadTimeout
            | Error::OutcomeUnknown(_)
            | Error::Stopped(_)
            | Error::WeakSettings(_)
            | Error::Unusable(_)
            | Error::Corrupt(_)
            | Error::Newer(_) => None,
        }
    }

    /// Something stored cannot be read: `why` is what the parser said of it.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn unread(why: String) -> Self {
        if tenure_core::newer::is_newer(&why) { Error::Newer(why) } else { Error::Corrupt(why) }
    }

    /// One row or page cannot be read. Everything else can.
    pub(crate) fn is_of_stored(&self) -> bool {
        matches!(self, Error::Corrupt(_) | Error::Newer(_))
    }

    /// Whether repeating the call can help.
    pub fn retryable(&self) -> Retryable {
        match self {
            Error::Refused(refusal) => refusal.retryable(),
            Error::NotDispatched(not) => not.refusal.retryable(),
            Error::Unavailable(_) | Error::ReadTimeout | Error::Stopped(_) => Retryable::Yes,
            // Another replica may be newer than this one.
            Error::OutcomeUnknown(_) | Error::Newer(_) => Retryable::Unknown,
            Error::WeakSettings(_) | Error::Unusable(_) | Error::Corrupt(_) => Retryable::No,
        }
    }
}
