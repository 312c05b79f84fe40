//! What a database says of itself: which one it is, whether its commits last, which schema it has.

use std::path::PathBuf;

use tenure_core::Millis;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// `sqlite`, `postgres` or `memory`.
    pub engine: &'static str,
    pub version: String,
    /// Absent where there is nothing to migrate.
    pub schema: Option<Schema>,
    /// Those that decide whether an answered commit can be lost.
    pub settings: Vec<Setting>,
    /// Absent where the database keeps its log for itself.
    pub wal: Option<Wal>,
    /// Absent where the ledger is no file.
    pub file: Option<PathBuf>,
    /// The backup that is being made.
    pub backup: Option<Copied>,
}

/// How far a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    pub bytes: u64,
    /// Zero until the first pages are copied.
    pub total: u64,
}

/// The newest migration that this program knows, and the newest that the ledger has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    pub known: u32,
    pub applied: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    pub wanted: &'static str,
    /// Under it, what was answered lasts.
    pub safe: bool,
}

impl Setting {
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn new(name: &'static str, value: String, allowed: &[&'static str]) -> Self {
        let safe = allowed.iter().any(|fine| value.eq_ignore_ascii_case(fine));
        Self { name, value, wanted: allowed[0], safe }
    }

    /// What could be lost by, in words. None: nothing.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn weakness(settings: &[Self]) -> Option<String> {
        let weak = settings.iter().filter(|setting| !setting.safe);
        let weak: Vec<String> =
            weak.map(|it| format!("{} is {}, not {}", it.name, it.value, it.wanted)).collect();
        (!weak.is_empty()).then(|| weak.join(", "))
    }
}

/// The log of commits that are not in the file yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wal {
    pub bytes: u64,
    /// When all of it was last moved into the file, by this process. None: not since it was opened.
    pub checkpointed_at: Option<Millis>,
    /// Since when a checkpoint has left some of it behind: it failed, or a reader still needs that.
    pub behind_since: Option<Millis>,
    pub failure: Option<CheckpointFailure>,
}

/// Checkpoints that failed since the last that did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFailure {
    pub count: u64,
    pub since: Millis,
    pub why: String,
}
