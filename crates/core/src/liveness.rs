//! Whether a holder is alive: graded from evidence, and the evidence is always shown.

use serde::{Deserialize, Serialize};

use crate::{Millis, model::Work};

/// The evidence of life that a worker offers besides its renewals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Liveness {
    /// None besides its renewals.
    #[default]
    Opaque,
    /// A process that a sweeper on the same machine, in the same boot and PID namespace, can look up.
    LocalProcess {
        boot_id: String,
        /// The inode of the PID namespace: in another namespace the same pid is another process.
        pid_namespace: u64,
        pid: u32,
        /// In clock ticks since boot, as reported by the kernel: a reused pid has another one.
        start_time: u64,
    },
}

/// How certain it is that a holder is alive, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// The lease is valid.
    Alive,
    /// The process exists but is stopped, or its clocks show that the machine was suspended.
    Suspended,
    /// The lease lapsed, and there is no evidence either way.
    Silent,
    /// The process is gone.
    Dead,
}

/// A sweeper's observation of a holder's process. It is valid only for the fence that it was made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    pub fence: u64,
    pub seen: Seen,
    /// The observation, for people.
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    Running,
    Stopped,
    Gone,
}

/// The grade of a work item's holder at `now`, and how many renewals it has missed. None without a lease.
pub fn grade(work: &Work, sighting: Option<&Sighting>, now: Millis) -> Option<(Grade, u32)> {
    let lease = work.lease.as_ref()?;
    let renew = work.spec.policy.lease.renew_ms.max(1) as Millis;
    let missed = ((now - lease.renewed_at).max(0) / renew).min(Millis::from(u32::MAX)) as u32;
    let seen = sighting.filter(|s| s.fence == lease.fence).map(|s| s.seen);
    let grade = match seen {
        Some(Seen::Gone) => Grade::Dead,
        Some(Seen::Stopped) => Grade::Suspended,
        Some(Seen::Running) | None if lease.lapsed_at.is_none() && now < lease.expires_at => Grade::Alive,
        // The sweeper's observation when it found the lease lapsed, until there is a newer one.
        None => work.body.lapsed_as.unwrap_or(Grade::Silent),
        Some(Seen::Running) => Grade::Silent,
    };
    Some((grade, missed))
}
