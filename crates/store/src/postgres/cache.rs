//! Works as this process wrote them last. The transaction that wrote a row, on the server that ran it, is its version:
//! a work whose row still has that version, once it is locked, need not be read, sent and parsed again.

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

/// A transaction's number as rows carry it. It comes round after four thousand million transactions; no work
/// stays here that long without being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Xid(u32);

impl Xid {
    /// The whole number, by one that is not below it and less than four thousand million above.
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

/// A transaction of one server. After a failover the promoted server gives out the numbers of the transactions that it
/// lacks once more, so a number alone proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// As this process numbers the servers that it met.
    pub server: u32,
    pub xid: Xid,
}

/// A work, and the transaction that wrote it so.
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

    /// Takes all of these out, or none.
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

    /// Keeps what a group has written and committed. Wakes change rows behind its back: then nothing is kept.
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
