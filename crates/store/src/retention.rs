//! Retention: what has ended and is old enough may be pruned, by whoever asks for it and never by itself.
//!
//! A pruned work leaves a tombstone: its identity is never run again. Its events leave their places and hashes
//! in the feed: an anchor made before still holds. An identity is pruned whole, with all its generations, and
//! not while an open work has one of them as its parent or waits for it.

use tenure_core::{Actor, Identity, Millis, WorkId};

/// What ended later cannot be pruned: whoever repeats a call still finds its first answer.
pub(crate) const FLOOR_MS: Millis = 3_600_000;

/// What ended later and has commands cannot be pruned either: a provider may answer days later, and whoever asks whether
/// something happened still finds its key and its receipt.
pub(crate) const RECEIPTS_FLOOR_MS: Millis = 7 * 24 * 3_600_000;

/// When a work must have ended to be pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    pub any: Millis,
    pub with_commands: Millis,
}

/// Works of one call, but for the other generations of the last of them.
pub(crate) const PRUNE_MAX: usize = 10_000;

/// What a call pruned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub works: u64,
    pub events: u64,
    /// Whether there may be more to prune: call again.
    pub more: bool,
}

/// That somebody pruned, and why. What it took has the same moment in its tombstones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pruning {
    pub at: Millis,
    pub actor: Actor,
    pub reason: String,
    pub ended_before: Millis,
    /// How many works were chosen.
    pub works: u64,
}

/// A work that was pruned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub work: WorkId,
    pub identity: Identity,
    pub generation: u32,
    pub pruned_at: Millis,
}
