//! The reads of a caller, restricted to its tenants: everything else does not exist for it.

use std::collections::BTreeMap;

use tenure_core::{
    Attempt, Code, Millis, Payload, Refusal, State, Step, Wait, WaitId, Work, WorkId, explain::Explanation,
};

use super::Caller;
use crate::{Error, EventKey, EventPage, Listed, Position, StoredEvent, WaitFilter, WorkFilter};

impl Caller {
    /// Reads a work item of this caller's tenants.
    pub async fn work(&self, id: WorkId) -> Result<Work, Error> {
        let mut works = self.ledger.works(&[id]).await?;
        match works
            .pop()
            .filter(|work| self.tenants.allow(&work.spec.tenant) && self.kinds.allow(&work.spec.kind))
        {
            Some(work) => Ok(work),
            None => Err(self.ledger.missing(id, &self.tenants).await?),
        }
    }

    /// The only work item whose id begins with this prefix, which may be the whole id.
    pub async fn find_work(&self, beginning: &str) -> Result<WorkId, Error> {
        let (first, last) = WorkId::beginning_with(beginning)?;
        let found = self.ledger.store().between(first, last, &self.tenants, 2).await?;
        let none = || {
            let detail = format!("There is no work item whose id begins with `{beginning}`. Check the id.");
            Refusal::new(Code::NotFound, detail).into()
        };
        match found[..] {
            [only] => match self.work(only).await {
                // The caller may not see this kind, so its id must not be revealed.
                Err(Error::Refused(refusal)) if refusal.code == Code::NotFound => Err(none()),
                // A work item that cannot be read exists all the same.
                _ => Ok(only),
            },
            [] => Err(none()),
            _ => Err(Refusal::new(
                Code::Ambiguous,
                format!("Several work items have ids that begin with `{beginning}`. Give a longer prefix."),
            )
            .into()),
        }
    }

    /// Matching work items, newest first. Pass the key `next` of a page to read the next one.
    pub async fn list(
        &self,
        filter: &WorkFilter,
        before: Option<WorkId>,
        limit: usize,
    ) -> Result<Listed<Work, WorkId>, Error> {
        let tenants = Some(self.tenants.narrowed(filter.tenants.as_ref()));
        let kinds = self.kinds.clone();
        self.ledger.list(&WorkFilter { tenants, kinds, ..filter.clone() }, before, limit).await
    }

    /// Counts work items by state.
    pub async fn counts(&self) -> Result<BTreeMap<State, u64>, Error> {
        self.ledger.counts(&self.tenants).await
    }

    /// A work item's events after `seq`.
    pub async fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> Result<Listed<StoredEvent, EventKey>, Error> {
        self.work(work).await?;
        self.ledger.events(work, after, limit).await
    }

    /// The events of the caller's tenants after a position. A page may be short or empty although more
    /// follow: continue from `next` until it no longer changes.
    pub async fn feed(&self, after: Position, limit: usize) -> Result<EventPage, Error> {
        self.ledger.feed_of(&self.tenants, after, limit).await
    }

    /// The payload of one event. None if it has none, or it was erased.
    pub async fn payload(&self, work: WorkId, seq: u64) -> Result<Option<Payload>, Error> {
        self.work(work).await?;
        self.ledger.payload(work, seq).await
    }

    /// Reads the steps of a work item.
    pub async fn steps(&self, work: WorkId) -> Result<Vec<Step>, Error> {
        self.work(work).await?;
        self.ledger.steps(work).await
    }

    /// Reads the attempts of a work item.
    pub async fn attempts(&self, work: WorkId) -> Result<Vec<Attempt>, Error> {
        self.work(work).await?;
        self.ledger.attempts(work).await
    }

    /// Matching waits in the order of their opening. Pass the key `next` of a page to read the next one.
    pub async fn waits(
        &self,
        filter: &WaitFilter,
        limit: usize,
    ) -> Result<Listed<Wait, (Millis, WaitId)>, Error> {
        let tenants = Some(self.tenants.narrowed(filter.tenants.as_ref()));
        self.ledger.waits(&WaitFilter { tenants, ..filter.clone() }, limit).await
    }

    /// Why a work item is in its state, in one sentence, and what to do next.
    pub async fn explain(&self, id: WorkId) -> Result<Explanation, Error> {
        self.work(id).await?;
        self.ledger.explain_to(id, &self.kinds).await
    }
}
