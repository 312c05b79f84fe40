//! A private PostgreSQL for tests and benchmarks, a provider that misbehaves on request, a
//! disk that loses power, and a tenant that tries to use up a daemon.
//!
//! Owns finding the server's programs, starting a cluster in a temporary folder, and leaving nothing behind.
//! It must not know the ledger: it provides URLs of empty databases and of a server that records its calls,
//! and sends a daemon only requests that any client could send. The checks of the whole repository (tidiness,
//! the purity of the core) are this crate's tests.

mod cluster;
mod disk;
mod keeper;
mod neighbour;
mod programs;
mod provider;

use std::sync::OnceLock;

pub use cluster::{Cluster, free_port};
pub use disk::{Change, Disk, FileCall};
pub use neighbour::Neighbour;
pub use provider::{Call, Provider, Reply};

/// Names the server that [`shared`] uses instead of starting one: a URL without a database, as in
/// `postgres://tenure@127.0.0.1:5555`.
pub const OUTER_SERVER: &str = "TENURE_TEST_POSTGRES";

/// The one cluster of this process, started by the first caller.
///
/// nextest runs every test in a process of its own, and a cluster for each would cost a second for each test:
/// there, the whole run is wrapped in `tenure-testkit pg -- …`, and this is the wrapper's cluster. A test
/// that stops or restarts the server starts its own with [`Cluster::start`].
pub fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| match std::env::var(OUTER_SERVER) {
        Ok(base) if !base.is_empty() => Cluster::at(&base),
        _ => Cluster::start(),
    })
}
