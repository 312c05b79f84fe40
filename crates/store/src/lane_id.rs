//! The number of a lane, the same in every store, process and version.

use sha2::{Digest as _, Sha256};

/// The first eight bytes of SHA-256 over system NUL kind.
pub(crate) fn lane_id(system: &str, kind: &str) -> i64 {
    let digest = Sha256::new().chain_update(system).chain_update([0]).chain_update(kind).finalize();
    let mut eight = [0; 8];
    eight.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(eight)
}
