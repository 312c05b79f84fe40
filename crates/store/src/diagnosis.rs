//! The state of a database: engine, version, durability settings, schema, log and backup.

use std::path::PathBuf;

use tenure_core::Millis;

/// What a store says about its database, for an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// `sqlite`, `postgres` or `memory`.
    pub engine: &'static str,
    /// The version of the database.
    pub version: String,
    /// None if there is nothing to migrate.
    pub schema: Option<Schema>,
    /// The settings that decide whether an acknowledged commit can be lost.
    pub settings: Vec<Setting>,
    /// None if the database manages its log itself.
    pub wal: Option<Wal>,
    /// None if the ledger is not a file.
    pub file: Option<PathBuf>,
    /// The backup in progress.
    pub backup: Option<Copied>,
}

/// The progress of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The bytes that were copied.
    pub bytes: u64,
    /// Zero until the first pages are copied.
    pub total: u64,
}

/// The newest migration that this program knows, and the newest one that is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The newest migration that this program knows.
    pub known: u32,
    /// The newest migration that the database has.
    pub applied: u32,
}

/// A setting of the database that decides whether a commit can be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, as the database writes it.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The value that is needed.
    pub wanted: &'static str,
    /// Whether acknowledged commits are durable with this value.
    pub safe: bool,
}

impl Setting {
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn new(name: &'static str, value: String, allowed: &[&'static str]) -> Self {
        let safe = allowed.iter().any(|fine| value.eq_ignore_ascii_case(fine));
        Self { name, value, wanted: allowed[0], safe }
    }

    /// Describes the unsafe settings. None: all are safe.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn weakness(settings: &[Self]) -> Option<String> {
        let weak = settings.iter().filter(|setting| !setting.safe);
        let weak: Vec<String> =
            weak.map(|it| format!("{} is {}, not {}", it.name, it.value, it.wanted)).collect();
        (!weak.is_empty()).then(|| weak.join(", "))
    }
}

/// The write-ahead log: commits that are not in the main file yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wal {
    /// The size of the write-ahead log.
    pub bytes: u64,
    /// When this process last moved all of it into the file. None: not since it was opened.
    pub checkpointed_at: Option<Millis>,
    /// Since when checkpoints leave a part of it behind, because they fail or a reader still needs it.
    pub behind_since: Option<Millis>,
    /// Why it is not written back to the file.
    pub failure: Option<CheckpointFailure>,
}

/// The failed checkpoints since the last successful one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFailure {
    /// Failures in a row.
    pub count: u64,
    /// When the first of them happened.
    pub since: Millis,
    /// The last error.
    pub why: String,
}
