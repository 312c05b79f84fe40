//! Whether a ledger can do its work now, and if not, why.

use std::time::Duration;

use super::Ledger;
use crate::{CheckpointFailure, Damaged, Diagnosis, Error, writing::Stop};

/// The time limit of the test query.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A sweeper runs a pass every second; after this time without one it counts as stopped.
const SWEEP_LATE: Duration = Duration::from_secs(30);

/// Whether the ledger does what it should, for a health check.
#[derive(Clone, Debug)]
pub struct Health {
    /// Why the database cannot be read. None: it has just responded.
    pub unreachable: Option<String>,
    /// Why writing has stopped.
    pub stopped: Option<Stop>,
    /// Why the write-ahead log of an SQLite ledger keeps growing.
    pub checkpoints: Option<CheckpointFailure>,
    /// Work items and commands that cannot be read and are skipped.
    pub damaged: Vec<Damaged>,
    /// How long ago this process's sweeper finished a pass, or was started. None: it has no sweeper.
    pub swept: Option<Duration>,
}

impl Health {
    /// Why the ledger is not ready, in a sentence. None: it is ready.
    pub fn fault(&self) -> Option<String> {
        self.closed().or_else(|| self.asleep())
    }

    /// Why nothing can be written or read.
    pub fn closed(&self) -> Option<String> {
        let stopped = self.stopped.as_ref().map(|stop| format!("Writing has stopped: {}", stop.why));
        stopped.or_else(|| self.unreachable.clone())
    }

    /// Why leases and deadlines are not being judged.
    pub fn asleep(&self) -> Option<String> {
        let late = self.swept.filter(|ago| *ago > SWEEP_LATE)?;
        Some(format!("The sweeper has not finished a pass for {} s", late.as_secs()))
    }
}

impl Ledger {
    /// Runs a small query, and combines its result with the state of this process.
    pub async fn health(&self) -> Health {
        let asked = self.store().any_pruned();
        let unreachable = match tokio::time::timeout(TIMEOUT, asked).await {
            // Damage is reported by name: everything else continues.
            Ok(Ok(_)) => None,
            Ok(Err(error)) if error.is_of_stored() => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("The database does not respond".to_owned()),
        };
        Health {
            unreachable,
            stopped: self.stopped(),
            checkpoints: self.store().checkpoint_failure(),
            damaged: self.damaged(),
            swept: self.swept_ago(),
        }
    }

    /// Why writing has stopped, without a query.
    pub fn stopped(&self) -> Option<Stop> {
        self.store().stopped()
    }

    /// Work items and commands that cannot be read: everything else continues without them.
    pub fn damaged(&self) -> Vec<Damaged> {
        self.store().damaged().list()
    }

    /// The state of the database.
    pub async fn diagnosis(&self) -> Result<Diagnosis, Error> {
        self.store().diagnosis().await
    }
}
