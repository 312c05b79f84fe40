//! Whether a ledger can do its work right now, and why not.

use std::time::Duration;

use super::Ledger;
use crate::{CheckpointFailure, Damaged, Diagnosis, Error, writing::Stop};

/// How long the database may take to answer a small question.
const PATIENCE: Duration = Duration::from_secs(2);

/// A sweeper looks every second; one that was not heard of for so long does not sweep.
const SWEEP_LATE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Health {
    /// Why the database cannot be read; None: it answered just now.
    pub unreachable: Option<String>,
    /// Why nothing is written now.
    pub stopped: Option<Stop>,
    /// Why the write-ahead log of an SQLite ledger only grows.
    pub checkpoints: Option<CheckpointFailure>,
    /// What cannot be read, and is passed over.
    pub damaged: Vec<Damaged>,
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
        let stopped = self.stopped.as_ref().map(|stop| format!("Writing has stopped: {}", stop.why));
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
        let asked = self.store().any_pruned();
        let unreachable = match tokio::time::timeout(PATIENCE, asked).await {
            // Damage is told by name: everything else goes on.
            Ok(Ok(_)) => None,
            Ok(Err(error)) if error.is_of_stored() => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("The database does not answer".to_owned()),
        };
        Health {
            unreachable,
            stopped: self.stopped(),
            checkpoints: self.store().checkpoint_failure(),
            damaged: self.damaged(),
            swept: self.swept_ago(),
        }
    }

    /// Why nothing is written now. Asks nobody.
    pub fn stopped(&self) -> Option<Stop> {
        self.store().stopped()
    }

    /// Works and commands that cannot be read: everything else goes on without them.
    pub fn damaged(&self) -> Vec<Damaged> {
        self.store().damaged().list()
    }

    /// What the database says of itself.
    pub async fn diagnosis(&self) -> Result<Diagnosis, Error> {
        self.store().diagnosis().await
    }
}
