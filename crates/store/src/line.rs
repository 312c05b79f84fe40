//! The line of an ordered command: the same number for the same tool and target of a tenant.

use tenure_core::{payload::Digest, records::TargetKey};

/// Two targets with the same number by coincidence are ordered with each other too, which does no harm.
pub(crate) fn line(key: &TargetKey) -> i64 {
    let digest = Digest::of(format!("{}\u{0}{}\u{0}{}", key.0, key.1, key.2)).0;
    let mut eight = [0; 8];
    eight.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(eight)
}
