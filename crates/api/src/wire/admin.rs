//! Housekeeping: prune, verify, backup, and what the database says of itself.

use serde::{Deserialize, Serialize};

use super::{Timestamp, WorkId};

/// Forgets works that ended before a time. Their identities stay, so that nothing runs again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Prune {
    pub before: Timestamp,
    /// At most so many in this call, from 1 to 1,000; 1,000 unless told otherwise.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Counts and touches nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Why, for the daemon's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneReport {
    pub works: u64,
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
    pub what: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VerifyReport {
    pub works: u64,
    pub events: u64,
    pub faults: Vec<Fault>,
}

/// Copies the ledger, while it is in use, to a new file on the server's machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Backup {
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BackupReport {
    pub path: String,
    pub bytes: u64,
}

/// What the database says of itself: whether its commits last, which schema it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Database {
    /// `sqlite`, `postgres` or `memory`
    pub engine: String,
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
    /// What commits of this daemon took. Absent until there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commits: Option<Commits>,
}

/// A ledger's file, on the daemon's machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DatabaseFile {
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
    pub count: u64,
    pub mean_ms: u64,
}

/// Migrations by number: the newest that the daemon knows, and the newest that the ledger has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schema {
    pub known: u32,
    pub applied: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Setting {
    pub name: String,
    pub value: String,
    pub wanted: String,
    /// Under it, what was answered lasts.
    pub safe: bool,
}

/// The log of commits that are not in the file yet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Wal {
    pub bytes: u64,
    /// When the daemon last moved all of it into the file; absent until it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpointed_at: Option<Timestamp>,
}
