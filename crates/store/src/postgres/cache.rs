//! Works as this process wrote them last. The transaction that wrote a row is its version: a work whose row
//! still has that version, once it is locked, need not be read, sent and parsed again.

use std::{
    collections::HashMap,
    error::Error,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tenure_core::{Work, WorkId};
use tokio_postgres::types::{FromSql, Type, accepts};

use crate::batch::Batch;

/// Works in each of two generations: what is not used while a generation fills is forgotten.
const GENERATION: usize = 16_384;

/// A transaction's number as rows carry it. It comes round after four thousand million transactions; no work
/// stays here that long without being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Xid(u32);

impl<'a> FromSql<'a> for Xid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(u32::from_be_bytes(raw.try_into()?)))
    }

    accepts!(XID);
}

/// A work, and the transaction that wrote it so.
pub(super) struct Written {
    pub work: Box<Work>,
    pub by: Xid,
}

#[derive(Default)]
struct Generations {
    young: HashMap<WorkId, Written>,
    old: HashMap<WorkId, Written>,
}

#[derive(Default)]
pub(super) struct Recent(Mutex<Generations>);

impl Recent {
    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all of these out, or none.
    pub fn take(&self, ids: &[WorkId]) -> Option<HashMap<WorkId, Written>> {
        let mut works = self.generations();
        if !ids.iter().all(|id| works.young.contains_key(id) || works.old.contains_key(id)) {
            return None;
        }
        let mut taken = HashMap::with_capacity(ids.len());
        for id in ids {
            if let Some(written) = works.young.remove(id).or_else(|| works.old.remove(id)) {
                taken.insert(*id, written);
            }
        }
        Some(taken)
    }

    /// Keeps what a group has written and committed. Wakes change rows behind its back: then nothing is kept.
    pub fn keep(&self, batch: Batch, by: Xid) {
        if !batch.writes.wakes.is_empty() {
            return;
        }
        let mut works = self.generations();
        for (id, work) in batch.records.works {
            if batch.writes.marks.contains_key(&id) && !work.state.is_terminal() {
                works.put(id, Written { work, by });
            }
        }
    }
}

impl Generations {
    fn put(&mut self, id: WorkId, written: Written) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&id);
        self.young.insert(id, written);
    }
}
