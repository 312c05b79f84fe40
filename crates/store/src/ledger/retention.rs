//! Prune and backup, for operators. Neither happens automatically.

use std::path::Path;

use tenure_core::{Actor, Code, Millis, Refusal, WorkId, limits};

use super::{Ledger, reads::PAGE_MAX};
use crate::{
    Error, Pruned, Pruning,
    retention::{Before, FLOOR_MS, PRUNE_MAX, RECEIPTS_FLOOR_MS},
};

impl Ledger {
    /// The work items that [`prune`](Self::prune) would delete, at most `limit` plus the other generations of
    /// the last one. Work items with commands are kept for at least a week.
    pub async fn prunable(&self, ended_before: Millis, limit: usize) -> Result<Vec<WorkId>, Error> {
        let latest = self.now().await? - FLOOR_MS;
        if ended_before > latest {
            let detail = "What ended less than an hour ago is kept, for calls that are repeated. \
                          Give an earlier moment.";
            return Err(Refusal::new(Code::Invalid, detail).into());
        }
        self.store().prunable(self.before(ended_before).await?, limit.min(PRUNE_MAX)).await
    }

    async fn before(&self, any: Millis) -> Result<Before, Error> {
        Ok(Before { any, with_commands: any.min(self.now().await? - RECEIPTS_FLOOR_MS) })
    }

    /// Deletes work items that ended before a given time, with all their data except a tombstone. The actor
    /// and the reason are recorded first.
    pub async fn prune(
        &self,
        by: &Actor,
        reason: &str,
        ended_before: Millis,
        limit: usize,
    ) -> Result<Pruned, Error> {
        limits::reason(reason)?;
        let works = self.prunable(ended_before, limit).await?;
        if works.is_empty() {
            return Ok(Pruned::default());
        }
        let at = self.now().await?;
        let (actor, reason, count) = (by.clone(), reason.to_owned(), works.len() as u64);
        self.store().add_pruning(&Pruning { at, actor, reason, ended_before, works: count }).await?;
        let pruned = self.store().prune(&works, self.before(ended_before).await?, at).await?;
        tracing::info!(ended_before, works = pruned.works, events = pruned.events, "pruned");
        Ok(Pruned { more: works.len() >= limit.min(PRUNE_MAX), ..pruned })
    }

    /// Past prunings, newest first: who and why.
    pub async fn prunings(&self, limit: usize) -> Result<Vec<Pruning>, Error> {
        self.store().prunings(limit.min(PAGE_MAX)).await
    }

    /// Copies the ledger into a new file while it is in use. The copy is an independent ledger.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<(), Error> {
        self.store().backup(to.as_ref()).await
    }
}
