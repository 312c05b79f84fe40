//! Mechanisms that exist only for speed. The results of a ledger are the same without them. For each: the gain, the target
//! of `tenure-bench` that needs it, and when it can go.
//!
//! - `polling`: the SQLite writer, and a caller that is alone, poll for a moment instead of sleeping (ADR 11). To be woken takes
//!   40 to 60 µs beside a commit of some 200. Target: SQLite, one submitter. It can go when that is met without it.
//! - `recent`: the work items that this process wrote last are not read and parsed again (ADR 8), which costs about as much as
//!   the decision; on SQLite also the immutable parts of work items. Targets: 256 submitters on both databases. It can go when
//!   both are met without it.
//! - `responder`: a thread replies to the callers of large batches and frees the memory of the batch while the SQLite writer
//!   goes on. Targets: SQLite, 256 submitters and the drain. It can go when both are met without it.
//!
//! Others are part of one database's code: `postgres/cache.rs` proves by a row's `xmin` that a remembered work item is
//! unchanged, `postgres/queue.rs` leaves a small queue to grow while other lanes are busy (ADR 8), `postgres/selection.rs`
//! lets two claim lanes work (ADR 12), and `sqlite/checkpoint.rs` moves the WAL on a thread of its own (ADR 11).

mod polling;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
// Each of the two databases uses some of it.
#[cfg_attr(not(all(feature = "sqlite", feature = "postgres")), allow(dead_code))]
mod recent;
#[cfg(feature = "sqlite")]
mod responder;

pub(crate) use polling::PollingCallers;
#[cfg(feature = "sqlite")]
pub(crate) use polling::PollingWriter;
#[cfg(feature = "sqlite")]
pub(crate) use recent::Recent;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use recent::{RecentWorks, Remembered};
#[cfg(feature = "sqlite")]
pub(crate) use responder::Responder;
