//! Whether a ledger can do its work right now, and why not.

use std::time::Duration;

use super::Ledger;
use crate::{Diagnosis, Error};

/// How long the database may take to answer a small question.
const PATIENCE: Duration = Duration::from_secs(2);

/// A sweeper looks every second; one that was not heard of for so long does not sweep.
const SWEEP_LATE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Health {
    /// Why the database cannot be read; None: it answered just now.
    pub unreachable: Option<String>,
    /// Why nothing is written any more until the ledger is opened again.
    pub stopped: Option<String>,
    /// How long ago this process's sweeper finished a look, or was started. None: it has no sweeper.
    pub swept: Option<Duration>,
}

impl Health {
    /// Why the ledger is not ready, in a sentence. None: it is.
    pub fn fault(&self) -> Option<String> {
        self.closed().or_else(|| self.asleep())
    }

    /// Why nothing can be written or read.
    pub fn closed(&self) -> Option<String> {
        let stopped = self.stopped.as_ref().map(|why| format!("Writing has stopped: {why}"));
        stopped.or_else(|| self.unreachable.clone())
    }

    /// Why nobody judges leases and deadlines.
    pub fn asleep(&self) -> Option<String> {
        let late = self.swept.filter(|ago| *ago > SWEEP_LATE)?;
        Some(format!("The sweeper has not finished a look for {} s", late.as_secs()))
    }
}

impl Ledger {
    /// Asks the database something small, and looks at what this process knows of itself.
    pub async fn health(&self) -> Health {
        let unreachable = match tokio::time::timeout(PATIENCE, self.store().next_due()).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("The database does not answer".to_owned()),
        };
        Health { unreachable, stopped: self.store().stopped(), swept: self.swept_ago() }
    }

    /// What the database says of itself.
    pub async fn diagnosis(&self) -> Result<Diagnosis, Error> {
        self.store().diagnosis().await
    }
}
