//! A caller's reads: within its tenants, and what lies outside does not exist.

use std::collections::BTreeMap;

use tenure_core::{
    Attempt, Code, Millis, Payload, Refusal, State, Step, Wait, WaitId, Work, WorkId, explain::Explanation,
};

use super::Caller;
use crate::{Error, EventKey, EventPage, Listed, Position, StoredEvent, WaitFilter, WorkFilter};

impl Caller {
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

    /// The one work whose id begins so; a whole id is its own beginning.
    pub async fn find_work(&self, beginning: &str) -> Result<WorkId, Error> {
        let (first, last) = WorkId::beginning_with(beginning)?;
        let found = self.ledger.store().between(first, last, &self.tenants, 2).await?;
        let none = || {
            let detail = format!("There is no work here whose id begins with `{beginning}`. Check the id.");
            Refusal::new(Code::NotFound, detail).into()
        };
        match found[..] {
            [only] => match self.work(only).await {
                // Of another kind: its whole id is not told either.
                Err(Error::Refused(refusal)) if refusal.code == Code::NotFound => Err(none()),
                // One that cannot be read is there all the same.
                _ => Ok(only),
            },
            [] => Err(none()),
            _ => Err(Refusal::new(
                Code::Ambiguous,
                format!("Several works have ids that begin with `{beginning}`. Give more digits."),
            )
            .into()),
        }
    }

    /// Matching works, newest first. The next page goes on below the key `next` of this one.
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

    pub async fn counts(&self) -> Result<BTreeMap<State, u64>, Error> {
        self.ledger.counts(&self.tenants).await
    }

    /// A work's events after `seq`.
    pub async fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> Result<Listed<StoredEvent, EventKey>, Error> {
        self.work(work).await?;
        self.ledger.events(work, after, limit).await
    }

    /// The own tenants' events after a position. A page of them may be short, or empty, while more follow: go
    /// on from `next` until it stays where it is.
    pub async fn feed(&self, after: Position, limit: usize) -> Result<EventPage, Error> {
        self.ledger.feed_of(&self.tenants, after, limit).await
    }

    /// The payload of one event. None where there is none, or it was erased.
    pub async fn payload(&self, work: WorkId, seq: u64) -> Result<Option<Payload>, Error> {
        self.work(work).await?;
        self.ledger.payload(work, seq).await
    }

    pub async fn steps(&self, work: WorkId) -> Result<Vec<Step>, Error> {
        self.work(work).await?;
        self.ledger.steps(work).await
    }

    pub async fn attempts(&self, work: WorkId) -> Result<Vec<Attempt>, Error> {
        self.work(work).await?;
        self.ledger.attempts(work).await
    }

    /// Matching waits by the time they were opened. The next page goes on after the key `next` of this one.
    pub async fn waits(
        &self,
        filter: &WaitFilter,
        limit: usize,
    ) -> Result<Listed<Wait, (Millis, WaitId)>, Error> {
        let tenants = Some(self.tenants.narrowed(filter.tenants.as_ref()));
        self.ledger.waits(&WaitFilter { tenants, ..filter.clone() }, limit).await
    }

    /// Why a work stands where it stands, in one sentence, and what to do next.
    pub async fn explain(&self, id: WorkId) -> Result<Explanation, Error> {
        self.work(id).await?;
        self.ledger.explain(id).await
    }
}
