//! The complete data of a finished run, as the checker needs it.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};
use tenure_api::wire::{Command, CommandId, Event, Timestamp, Work, WorkId};

use crate::history::Record;

/// The history of the clients, the ledger as read back over HTTP, and the provider's calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub history: Vec<Record>,
    /// The work items, read before the log: the log reaches at least as far.
    pub works: Vec<Work>,
    /// The whole feed, in its order.
    pub log: Vec<Event>,
    pub commands: Vec<Command>,
    /// Every call that reached the provider, in its order.
    pub effects: Vec<Effect>,
    /// The events that each reader of the feed saw, in its order.
    pub followed: Vec<Vec<Seen>>,
    /// The faults that the ledger's own verification found.
    pub faults: Vec<String>,
}

/// A call that reached the provider, with the dispatch that its caller had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    pub at_us: u64,
    /// The provider's idempotency key.
    pub key: String,
    pub command: CommandId,
    pub fence: u64,
    pub dispatched_at: Timestamp,
}

/// One event, as a reader of the feed saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seen {
    pub work: WorkId,
    pub seq: u64,
    pub hash: String,
}

impl Seen {
    pub fn of(event: &Event) -> Self {
        Self { work: event.work.clone(), seq: event.seq, hash: event.hash.clone() }
    }
}

impl Run {
    /// Writes the run beside its history, for examining a violation.
    pub fn save(&self, folder: &Path) -> std::io::Result<()> {
        fs::write(folder.join("run.json"), serde_json::to_vec_pretty(self)?)
    }
}
