//! The work items that this process wrote last. The version of a row is the transaction that wrote it, on its server: a
//! work item whose locked row still has that version does not have to be read, sent and parsed again.

use std::{
    error::Error,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tenure_core::{ByWork, WorkId};
use tokio_postgres::types::{FromSql, Type, accepts};

use crate::{
    batch::Batch,
    speed::{RecentWorks, Remembered},
};

/// A transaction id as rows contain it. It wraps around after four thousand million transactions; an unused entry does
/// not stay here that long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Xid(u32);

impl Xid {
    /// The 64-bit id, computed from one that is not below it and less than four thousand million above.
    pub fn whole(self, above: i64) -> i64 {
        above - i64::from((above as u32).wrapping_sub(self.0))
    }
}

impl<'a> FromSql<'a> for Xid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(u32::from_be_bytes(raw.try_into()?)))
    }

    accepts!(XID);
}

/// A transaction of one server. After a failover the promoted server reuses the ids of the transactions that it lacks,
/// so an id alone proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// The number that this process gave the server.
    pub server: u32,
    pub xid: Xid,
}

/// A work item, and the transaction that wrote it.
pub(super) struct Written {
    pub remembered: Remembered,
    pub by: Version,
}

#[derive(Default)]
pub(super) struct Recent(Mutex<RecentWorks<Written>>);

impl Recent {
    fn works(&self) -> MutexGuard<'_, RecentWorks<Written>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all of these out of the cache, or none.
    pub fn take(&self, ids: &[WorkId]) -> Option<ByWork<Written>> {
        let mut works = self.works();
        if !ids.iter().all(|id| works.contains(*id)) {
            return None;
        }
        let mut taken = ByWork::with_capacity_and_hasher(ids.len(), Default::default());
        for id in ids {
            if let Some(written) = works.take(*id) {
                taken.insert(*id, written);
            }
        }
        Some(taken)
    }

    /// Caches what a group has written and committed. Nothing is cached after wake-ups, which change rows that the
    /// group has not loaded.
    pub fn keep(&self, mut batch: Batch, by: Version) {
        if !batch.writes.wakes.is_empty() {
            return;
        }
        let mut works = self.works();
        for (id, remembered) in Remembered::all(&mut batch.records) {
            if batch.writes.marks.contains_key(&id) {
                let state = remembered.work.state;
                works.put(id, state, Written { remembered: remembered.without_dated(), by });
            }
        }
    }
}
