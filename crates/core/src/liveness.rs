//! Is the holder alive? Graded from evidence, and the evidence is always shown.

use serde::{Deserialize, Serialize};

use crate::{Millis, model::Work};

/// What a worker offers as evidence of its life besides renewing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Liveness {
    /// Nothing but its renewals.
    #[default]
    Opaque,
    /// A process that a sweeper on the same boot and in the same PID namespace can look up.
    LocalProcess {
        boot_id: String,
        /// The inode of the PID namespace: the same pid means another process elsewhere.
        pid_namespace: u64,
        pid: u32,
        /// In clock ticks since boot, as the kernel tells: a reused pid has another one.
        start_time: u64,
    },
}

/// How sure one can be: the later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// The lease is valid.
    Alive,
    /// The process exists but is stopped, or its clocks show that it slept.
    Suspended,
    /// Lapsed, and nothing proves anything.
    Silent,
    /// That process is gone.
    Dead,
}

/// What a sweeper saw of a holder's process. It counts only for the fence it was made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    pub fence: u64,
    pub seen: Seen,
    /// What was looked at, for people.
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    Running,
    Stopped,
    Gone,
}

/// The grade of a work's holder at `now`, and by how many renewals it is late. None without a lease.
pub fn grade(work: &Work, sighting: Option<&Sighting>, now: Millis) -> Option<(Grade, u32)> {
    let lease = work.lease.as_ref()?;
    let renew = work.spec.policy.lease.renew_ms.max(1) as Millis;
    let missed = ((now - lease.renewed_at).max(0) / renew).min(Millis::from(u32::MAX)) as u32;
    let seen = sighting.filter(|s| s.fence == lease.fence).map(|s| s.seen);
    let grade = match seen {
        Some(Seen::Gone) => Grade::Dead,
        Some(Seen::Stopped) => Grade::Suspended,
        Some(Seen::Running) | None if lease.lapsed_at.is_none() && now < lease.expires_at => Grade::Alive,
        // What the sweeper saw when it found the lease lapsed, until somebody sees more.
        None => work.body.lapsed_as.unwrap_or(Grade::Silent),
        Some(Seen::Running) => Grade::Silent,
    };
    Some((grade, missed))
}
