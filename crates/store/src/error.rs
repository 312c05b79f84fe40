//! What can go wrong besides a refusal, and whether sending the same thing again can help.

use tenure_core::{Refusal, Retryable};

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The rules say no; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database cannot be reached or is busy; nothing was written.
    #[error(
        "the database is not available: {0}. Nothing was written: send the same again; if it stays so, check that the database runs and that the daemon has its address"
    )]
    Unavailable(String),
    /// The commit was sent and its answer was lost: it may or may not stand.
    #[error("the outcome is unknown: {0}. Send the same action again: it is idempotent")]
    OutcomeUnknown(String),
    /// A write or sync failed. Nothing more is written until the ledger is opened again.
    #[error("writing has stopped: {0}. Look at the disk, then open the ledger again")]
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
}

impl Error {
    pub fn retryable(&self) -> Retryable {
        match self {
            Error::Refused(refusal) => refusal.retryable(),
            Error::Unavailable(_) => Retryable::Yes,
            Error::OutcomeUnknown(_) => Retryable::Unknown,
            Error::Stopped(_) | Error::WeakSettings(_) | Error::Unusable(_) | Error::Corrupt(_) => {
                Retryable::No
            }
        }
    }
}
