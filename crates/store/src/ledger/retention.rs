//! Prune and backup: an operator's levers over what is kept. Nothing here happens by itself.

use std::path::Path;

use tenure_core::{Code, Millis, Refusal, WorkId};

use super::Ledger;
use crate::{
    Error, Pruned,
    retention::{Before, FLOOR_MS, PRUNE_MAX, RECEIPTS_FLOOR_MS},
};

impl Ledger {
    /// The works that [`prune`](Self::prune) would take, at most `limit` and the other generations of the last.
    /// Those with commands stay for a week at least.
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

    /// Deletes works that ended before a moment, with everything of theirs but a tombstone.
    pub async fn prune(&self, ended_before: Millis, limit: usize) -> Result<Pruned, Error> {
        let works = self.prunable(ended_before, limit).await?;
        let pruned = self.store().prune(&works, self.before(ended_before).await?, self.now().await?).await?;
        tracing::info!(ended_before, works = pruned.works, events = pruned.events, "pruned");
        Ok(Pruned { more: !works.is_empty() && works.len() >= limit.min(PRUNE_MAX), ..pruned })
    }

    /// Copies the ledger into a new file while it is in use. The copy is a ledger of its own.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<(), Error> {
        self.store().backup(to.as_ref()).await
    }
}
