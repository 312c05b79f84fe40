//! What can go wrong besides a refusal, and whether sending the same thing again can help.

use std::time::Duration;

use tenure_core::{Command, Payload, Refusal, Retryable, newer::is_newer};

/// What a read on behalf of a tenant may take, its turn included: far above any that is answered by an index, and short
/// enough that whoever waits behind it is not given up.
pub(crate) const READ_WITHIN: Duration = Duration::from_secs(5);

/// A dispatch that did not go out: the call must not be made.
#[derive(Clone, Debug)]
pub struct NotDispatched {
    /// Why.
    pub refusal: Refusal,
    /// As it stands now.
    pub command: Command,
    /// The provider's response, where it happened before.
    pub response: Option<Payload>,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The rules say no; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The rules say that a call must not be made now. Where that blocked the command, it is committed.
    #[error("{}", .0.refusal)]
    NotDispatched(Box<NotDispatched>),
    /// The database cannot be reached or is busy; nothing was written.
    #[error(
        "the database is not available: {0}. Nothing was written: send the same again; if it stays so, check that the database runs and that the daemon has its address"
    )]
    Unavailable(String),
    /// A read on behalf of a tenant did not end in time, and was stopped.
    #[error(
        "the read took longer than {} s and was stopped. Ask for less at a time: a narrower filter, or a smaller limit", READ_WITHIN.as_secs()
    )]
    ReadTimeout,
    /// The commit was sent and its answer was lost: it may or may not stand.
    #[error("the outcome is unknown: {0}. Send the same action again: it is idempotent")]
    OutcomeUnknown(String),
    /// A write or sync failed before. Nothing is written until the disk can be trusted again; nothing of this was.
    #[error(
        "writing has stopped: {0}. Nothing of this was written. Look at the disk; once writing goes on, send the same again"
    )]
    Stopped(String),
    /// Start-up found settings under which a commit is not durable.
    #[error("the database is not durable enough: {0}")]
    WeakSettings(String),
    /// The file or database cannot be opened as a ledger.
    #[error("this is no ledger that this version can open: {0}")]
    Unusable(String),
    /// What is stored contradicts itself, or a decision would have made it so; nothing was written.
    #[error("the ledger contradicts itself: {0}. Run verify, and keep a copy of the database")]
    Corrupt(String),
    /// A newer version wrote the record, in a way that this version does not know; nothing was written.
    #[error("written by a newer version of Tenure: {0}. Upgrade this daemon. Everything else goes on")]
    Newer(String),
}

impl Error {
    /// Why the rules say no, where they do.
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
        if is_newer(&why) { Error::Newer(why) } else { Error::Corrupt(why) }
    }

    /// One row or page cannot be read. Everything else can.
    pub(crate) fn is_of_stored(&self) -> bool {
        matches!(self, Error::Corrupt(_) | Error::Newer(_))
    }

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
