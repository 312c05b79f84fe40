//! Retention: what has ended and is old enough may be pruned, by whoever asks for it and never by itself.
//!
//! A pruned work leaves a tombstone: its identity is never run again. Its events leave their places and hashes
//! in the feed: an anchor made before still holds. An identity is pruned whole, with all its generations, and
//! not while an open work has one of them as its parent or waits for it.

use tenure_core::Millis;

/// What ended later cannot be pruned: whoever repeats a call still finds its first answer.
pub(crate) const FLOOR_MS: Millis = 3_600_000;

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

/// A work that was pruned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub tenant: String,
    pub pruned_at: Millis,
}
