//! The errors of opening and closing a ledger; calls have the client's error.

use tenure_server::{ConfigError, StartError};

/// Why a ledger was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration has a mistake.
    #[error("{0}")]
    Config(#[source] ConfigError),
    /// The ledger cannot be opened, or its first credential cannot be created.
    #[error("{0}")]
    Start(#[source] StartError),
}

/// A ledger was not closed in order. Nothing that was acknowledged is lost.
#[derive(Debug, thiserror::Error)]
#[error("the ledger was not closed in order: {0}")]
pub struct CloseError(#[source] pub(crate) tenure_store::Error);

/// A row of the intake table cannot ask for this work item, for example because it is to be claimed too.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct IntakeError(#[source] pub(crate) tenure_store::Error);
