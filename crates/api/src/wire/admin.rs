//! Housekeeping: prune, verify, backup, and the state of the database.

use serde::{Deserialize, Serialize};

use super::{Actor, Timestamp, WorkId};

/// Deletes work items that ended before a given time. Their identities are kept, so that none is run again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Prune {
    /// Deletes work items that ended before this time.
    pub before: Timestamp,
    /// How many to delete in this call, from 1 to 1,000; default 1,000.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// A preview: counts what would be deleted and deletes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The reason; it is recorded.
    pub reason: String,
}

/// Erases the content of ended work items: inputs, results, step results, answers, arguments, responses, prompts and messages.
/// Names `work`, or `tenant`, or `tenant` and `session`. Open work items keep theirs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Erase {
    /// One work item, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// All ended work items of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only those of this session of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The `next` of the previous call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// How many work items to look at in this call, from 1 to 1,000; default 1,000.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The reason; it is recorded in the log of each work item.
    pub reason: String,
}

/// The result of an erasure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EraseReport {
    /// Work items whose content was erased, or would be.
    pub works: u64,
    /// Work items that keep their content, because they are open or have open commands.
    pub kept: u64,
    /// Early answers that were deleted, with the first page of a whole tenant.
    pub early_answers: u64,
    /// Nothing of the erased content is left in the ledger's own files. False on PostgreSQL, where VACUUM overwrites it,
    /// and while a reader such as a backup still needs the write-ahead log: then call again.
    pub overwritten: bool,
    /// There are more work items to look at: call again with this as `cursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The record of a pruning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pruning {
    /// When it was done.
    pub at: Timestamp,
    /// The actor.
    pub by: Actor,
    /// The reason that was given.
    pub reason: String,
    /// Only work items that ended before this time were deleted.
    pub before: Timestamp,
    /// How many work items were selected.
    pub works: u64,
}

/// The result of a pruning or of its preview.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneReport {
    /// Work items that were deleted.
    pub works: u64,
    /// Events that were deleted with them.
    pub events: u64,
    /// There are more work items to delete: call again.
    pub more: bool,
}

/// A signed copy of the ledger's anchor, a running digest over all events. Store it outside the ledger's machine: it shows
/// later whether the ledger still has every event that it had then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// The version of this format: 1.
    pub format: u32,
    /// The id of the ledger. A backup of it has the same.
    pub ledger: String,
    /// When the copy was made.
    pub at: Timestamp,
    /// The position in the feed up to which it covers events.
    pub position: String,
    /// How many events it covers.
    pub events: u64,
    /// The running SHA-256 over their positions and hashes.
    pub digest: String,
    /// HMAC-SHA256 over the other fields, under the ledger's key.
    pub mac: String,
}

impl Anchor {
    /// The version of the format that this library reads and writes.
    pub const FORMAT: u32 = 1;
}

/// Verifies the ledger.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// A copy of the anchor that was stored elsewhere: the ledger must still contain the events that it covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
}

/// An inconsistency in the stored data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fault {
    /// The work item; absent if it concerns none in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkId>,
    /// The inconsistency, in a sentence.
    pub what: String,
}

/// The result of reading the whole ledger back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VerifyReport {
    /// Work items that were read.
    pub works: u64,
    /// Events that were read.
    pub events: u64,
    /// Work items with events or rows of a newer version. Their hash chains are checked as far as this version can read
    /// them; the changes that only the newer version knows are not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub newer: u64,
    /// How many events the given anchor covers; absent if none was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchored: Option<u64>,
    /// The inconsistencies; empty for a sound ledger.
    pub faults: Vec<Fault>,
    /// Checks that could not be made, each with the way to make it. They are no faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_checked: Vec<String>,
}

/// Copies the ledger, while it is in use, to a new file in the daemon's backup directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// The name of a file that does not exist yet: letters, digits, spaces and `-_.:+`.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 200))]
    pub name: String,
}

/// A completed backup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BackupReport {
    /// Its path on the daemon's machine.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The state of the database: its durability settings and its schema version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Database {
    /// `sqlite`, `postgres` or `memory`
    pub engine: String,
    /// The version of the database software.
    pub version: String,
    /// Absent if the engine has no migrations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
    /// The settings that decide whether an acknowledged commit can be lost.
    pub settings: Vec<Setting>,
    /// The write-ahead log; absent if the database manages its log itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<Wal>,
    /// Absent if the ledger is not a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<DatabaseFile>,
    /// The state of the ledger's clock; absent from older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<LedgerClock>,
    /// Commit latency of this daemon. Absent before the first commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commits: Option<Commits>,
    /// The backup that is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupProgress>,
    /// Work items and commands that cannot be read. They are skipped; everything else goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
    /// The rows of `tenure_intake`. Absent if the daemon is older than the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intake: Option<IntakeTable>,
}

/// The rows that applications inserted into the table `tenure_intake`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IntakeTable {
    /// Rows that wait to become work items, counted up to 10,000.
    pub waiting: u64,
    /// When the first of them was inserted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_at: Option<Timestamp>,
    /// Rows that were rejected, counted up to 10,000. They stay until somebody corrects or deletes them.
    pub rejected: u64,
    /// The reason of the last rejected one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_reason: Option<String>,
}

/// The progress of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BackupProgress {
    /// Bytes copied so far.
    pub bytes: u64,
    /// The total size; zero until the first pages are copied.
    pub total_bytes: u64,
}

/// A work item, command or list whose stored data cannot be read; it is skipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Damaged {
    /// The id of a work item or command, or the name of a list that could not be read to its end.
    pub id: String,
    /// Why it cannot be read.
    pub why: String,
    /// When the daemon first noticed it.
    pub since: Timestamp,
    /// A newer version wrote it: there is no damage, and the newer daemon reads it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newer: bool,
}

/// The ledger's file on the daemon's machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DatabaseFile {
    /// Its path on the daemon's machine.
    pub path: String,
    /// The file's permissions in octal: `600` means only its owner can read and write it.
    pub mode: String,
    /// Free space on its disk, in bytes.
    pub free_bytes: u64,
}

/// Commit latency, from the first read to the end of the sync; concurrent calls share one commit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Commits {
    /// How many commits there were.
    pub count: u64,
    /// The mean duration of a commit, in milliseconds.
    pub mean_ms: u64,
}

/// The newest migration that the daemon knows, and the newest that is applied to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schema {
    /// The newest migration that the daemon knows.
    pub known: u32,
    /// The newest migration that is applied to the ledger.
    pub applied: u32,
}

/// A setting of the database, and the value at which no acknowledged commit is lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Setting {
    /// Its name in the database.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The value that is safe.
    pub wanted: String,
    /// Whether acknowledged commits are durable under this value.
    pub safe: bool,
}

/// The write-ahead log: commits that are not in the main file yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Wal {
    /// Its size in bytes.
    pub bytes: u64,
    /// When the last complete checkpoint was made; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpointed_at: Option<Timestamp>,
    /// Since when checkpoints have been incomplete: they failed, or a reader still needs a part of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_since: Option<Timestamp>,
    /// Checkpoints that have failed since the last successful one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<CheckpointFailure>,
}

/// Consecutive checkpoints that failed.
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

/// The ledger's clock: the system clock, corrected for the jumps that the daemon noticed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LedgerClock {
    /// Clock jumps that the daemon noticed since it was started.
    pub jumps: u64,
    /// How far the ledger's time is ahead of the system clock. The difference is reduced slowly.
    pub offset_ms: i64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
