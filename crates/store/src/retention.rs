//! Retention: work items that ended long enough ago may be pruned, on request and never automatically.
//!
//! A pruned work item leaves a tombstone, so that its identity is never run again, and its events leave their
//! positions and hashes, so that earlier anchors still verify. All generations of an identity are pruned
//! together, and not while an open work item has one of them as its parent or waits for it.

use tenure_core::{Actor, Identity, Millis, WorkId};

/// The minimum age: a repeated call must still find its first reply.
pub(crate) const FLOOR_MS: Millis = 3_600_000;

/// The minimum age of a work item with commands: a provider may respond days later, and the key and the
/// receipt must still be found then.
pub(crate) const RECEIPTS_FLOOR_MS: Millis = 7 * 24 * 3_600_000;

/// The cutoff for pruning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    pub any: Millis,
    pub with_commands: Millis,
}

/// The limit on work items of one call, not counting other generations of the last one.
pub(crate) const PRUNE_MAX: usize = 10_000;

/// The result of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Work items that were removed.
    pub works: u64,
    /// Events that were removed.
    pub events: u64,
    /// Whether more may be pruned: call again.
    pub more: bool,
}

/// The record of a pruning: who and why. Its tombstones have the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pruning {
    /// When it was done.
    pub at: Millis,
    /// Who did it.
    pub actor: Actor,
    /// Why.
    pub reason: String,
    /// Work items that had ended before this time were removed.
    pub ended_before: Millis,
    /// The number of selected work items.
    pub works: u64,
}

/// A pruned work item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub work: WorkId,
    pub identity: Identity,
    pub generation: u32,
    pub pruned_at: Millis,
}
