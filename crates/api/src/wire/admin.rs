//! Housekeeping: prune, verify, backup, and what the database says of itself.

use serde::{Deserialize, Serialize};

use super::{Actor, Timestamp, WorkId};

/// Forgets works that ended before a time. Their identities stay, so that nothing runs again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Prune {
    /// Works that ended before it.
    pub before: Timestamp,
    /// At most so many in this call, from 1 to 1,000; 1,000 unless told otherwise.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Counts and touches nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Kept in the ledger.
    pub reason: String,
}

/// That somebody pruned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pruning {
    /// When.
    pub at: Timestamp,
    /// Who did it.
    pub by: Actor,
    /// Why, as it was given.
    pub reason: String,
    /// Only works that ended earlier.
    pub before: Timestamp,
    /// How many were chosen.
    pub works: u64,
}

/// What a pruning removed, or would remove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneReport {
    /// Works that were removed.
    pub works: u64,
    /// Events that were removed with them.
    pub events: u64,
    /// More are old enough: call again.
    pub more: bool,
}

/// Something stored that cannot be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fault {
    /// Absent where it is of no single work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// What contradicts itself, in a sentence.
    pub what: String,
}

/// What reading everything back found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VerifyReport {
    /// Works that were read.
    pub works: u64,
    /// Events that were read.
    pub events: u64,
    /// Everything that contradicts itself; empty for a sound ledger.
    pub faults: Vec<Fault>,
}

/// Copies the ledger, while it is in use, to a new file in the daemon's folder of backups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// A plain file name that is not taken: letters, digits, spaces and `-_.:+`.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 200))]
    pub name: String,
}

/// A backup that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BackupReport {
    /// On the daemon's machine.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

/// What the database says of itself: whether its commits last, which schema it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Database {
    /// `sqlite`, `postgres` or `memory`
    pub engine: String,
    /// The version of the database software.
    pub version: String,
    /// Absent where there is nothing to migrate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
    /// Those that decide whether an answered commit can be lost.
    pub settings: Vec<Setting>,
    /// Absent where the database keeps its log for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<Wal>,
    /// Absent where the ledger is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<DatabaseFile>,
    /// Absent where an older daemon does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<LedgerClock>,
    /// What commits of this daemon took. Absent until there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commits: Option<Commits>,
    /// The backup that is being made now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupProgress>,
    /// Works and commands that cannot be read. Everything else goes on without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
}

/// How far a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BackupProgress {
    /// Bytes that are copied.
    pub bytes: u64,
    /// Zero until the first pages are copied.
    pub total_bytes: u64,
}

/// What is stored of it cannot be read, so it is passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Damaged {
    /// The id of a work or of a command, or the name of a list that could not be read to its end.
    pub id: String,
    /// Why it cannot be read.
    pub why: String,
    /// When the daemon first found it so.
    pub since: Timestamp,
}

/// A ledger's file, on the daemon's machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DatabaseFile {
    /// Its path on the daemon's machine.
    pub path: String,
    /// Who may read and write it, in octal: `600` is its owner alone.
    pub mode: String,
    /// What is left on its disk.
    pub free_bytes: u64,
}

/// What commits took, from their first read to the end of their sync; calls that come together share one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Commits {
    /// How many there were.
    pub count: u64,
    /// How long one took on average, in milliseconds.
    pub mean_ms: u64,
}

/// Migrations by number: the newest that the daemon knows, and the newest that the ledger has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schema {
    /// The newest migration that the daemon knows.
    pub known: u32,
    /// The newest migration that the ledger has.
    pub applied: u32,
}

/// A setting of the database, beside the value that keeps every answered commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Setting {
    /// Its name in the database.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The value that is safe.
    pub wanted: String,
    /// Under it, what was answered lasts.
    pub safe: bool,
}

/// The log of commits that are not in the file yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Wal {
    /// Its size.
    pub bytes: u64,
    /// When the daemon last moved all of it into the file; absent until it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpointed_at: Option<Timestamp>,
    /// Since when checkpoints have left some of it behind: they failed, or a reader still needs that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_since: Option<Timestamp>,
    /// Checkpoints that failed since the last that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<CheckpointFailure>,
}

/// Checkpoints that failed in a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckpointFailure {
    /// How many failed.
    pub count: u64,
    /// When the first of them failed.
    pub since: Timestamp,
    /// Why the last of them failed.
    pub why: String,
}

/// The ledger's time: its clock without the jumps that the daemon noticed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LedgerClock {
    /// Jumps that the daemon noticed since it was started.
    pub jumps: u64,
    /// How far the ledger's time is ahead of the clock. It comes back slowly.
    pub offset_ms: i64,
}
