//! The relay and the reconciler over a real ledger, with a provider that records its calls.

mod anchors;
mod bed;
mod checker;
mod lookups;
mod metrics;
#[path = "../common/names.rs"]
mod names;
mod sends;
